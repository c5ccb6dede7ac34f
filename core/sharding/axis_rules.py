"""Rules that say which axes of operands and results of an operation are split together.

A factor is a name; each axis of each array has one, or several whose sizes multiply to its size.
Axes with a factor in common can be split over the same devices. Rules are written like Einstein
sums with spaces, ``"i j, j k -> i k"``, where ``...`` stands for any axes in front.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, final

from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.util.public_path import public_path

BATCHING = "…"
"""Stands for any number of axes in front; with digits for another group of such axes."""

_PATH = "tracebridge.experimental.custom_partitioning"
_CALL = "sharding_rule"
_TOKEN = re.compile(r"\s*(\.\.\.\d*|[^\W\d_]\w*|[(),]|$)")
_NAME = re.compile(r"[^\W\d_]\w*")
_GROUP = re.compile(rf"{BATCHING}\d*")


@public_path(_PATH)
@final
class CompoundFactor(tuple[str, ...]):
    """The factors of one axis, from major to minor; at least two.

    Args:
        factors: their names.

    Raises:
        ArgumentValueError: they are fewer, or no names.

    >>> from tracebridge.experimental.custom_partitioning import CompoundFactor
    >>> CompoundFactor('i', 'j')
    ('i', 'j')
    """

    __slots__ = ()

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2:
            msg = f"CompoundFactor: got {len(factors)} factors"
            raise ArgumentValueError(msg, expected="at least two")
        for factor in factors:
            _check_name("CompoundFactor", factor)
        return super().__new__(cls, factors)


@public_path(_PATH)
@final
class ArrayMapping(tuple[Any, ...]):
    """The factors of each axis of an array.

    Args:
        dim_mappings: for each axis a name or a `CompoundFactor`; the first may be ``BATCHING``.

    Raises:
        ArgumentValueError: an entry is something else, or ``BATCHING`` stands elsewhere.

    >>> from tracebridge.experimental.custom_partitioning import ArrayMapping, CompoundFactor
    >>> ArrayMapping('i', CompoundFactor('j', 'k'))
    ('i', ('j', 'k'))
    """

    __slots__ = ()

    def __new__(cls, *dim_mappings: str | CompoundFactor) -> ArrayMapping:
        for k, entry in enumerate(dim_mappings):
            if isinstance(entry, CompoundFactor):
                continue
            if isinstance(entry, str) and _GROUP.fullmatch(entry):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
                if k:
                    msg = f"ArrayMapping: {entry!r} is entry {k}, it can only be the first"
                    raise ArgumentValueError(msg)
                continue
            _check_name("ArrayMapping", entry)
        return super().__new__(cls, dim_mappings)


@public_path(_PATH)
@final
class SdyShardingRule:
    """Which axes are split together, and what else can be done about them.

    Args:
        operand_mappings: an `ArrayMapping`, or a tuple like one, for each operand.
        result_mappings: for each result.
        reduction_factors: those along which parts of results are to be summed.
        need_replication_factors: those that must not be split.
        permutation_factors: those along which devices exchange parts.
        factor_sizes: sizes of those that no array has as a whole axis.

    Raises:
        ArgumentValueError: a size is missing, or too much; a factor of an option is not in the
            rule, or is in two options.
        ArgumentTypeError: an option is no tuple.

    >>> from tracebridge.experimental.custom_partitioning import SdyShardingRule
    >>> rule = SdyShardingRule((('i', 'j'), ('j', 'k')), (('i', 'k'),), reduction_factors=('j',))
    >>> rule.reduction_factors
    ('j',)
    """

    __slots__ = (
        "factor_sizes",
        "need_replication_factors",
        "operand_mappings",
        "permutation_factors",
        "reduction_factors",
        "result_mappings",
    )

    def __init__(
        self,
        operand_mappings: Sequence[Any],
        result_mappings: Sequence[Any],
        *,
        reduction_factors: tuple[str, ...] = (),
        need_replication_factors: tuple[str, ...] = (),
        permutation_factors: tuple[str, ...] = (),
        **factor_sizes: int,
    ) -> None:
        self.operand_mappings = tuple([_mapping(m) for m in operand_mappings])
        self.result_mappings = tuple([_mapping(m) for m in result_mappings])
        self.reduction_factors = reduction_factors
        self.need_replication_factors = need_replication_factors
        self.permutation_factors = permutation_factors
        self.factor_sizes = factor_sizes
        self._check()

    def _check(self) -> None:
        whole: set[str] = set()
        parts: set[str] = set()
        for mapping in (*self.operand_mappings, *self.result_mappings):
            for entry in mapping:
                if isinstance(entry, CompoundFactor):
                    parts.update(entry)
                else:
                    whole.add(entry)
        for factor in self.factor_sizes:
            if factor in whole or factor not in parts:
                why = "is the size of a whole axis" if factor in whole else "is in no axis"
                msg = f"{_CALL}: a size of {factor!r} is given, but it {why}"
                raise ArgumentValueError(msg)
        missing = sorted(parts - whole - set(self.factor_sizes))
        if missing:
            msg = f"{_CALL}: {missing[0]!r} is no whole axis of an array"
            raise ArgumentValueError(msg, hint=f"give its size: {missing[0]}=...")
        seen: set[str] = set()
        for option in ("reduction_factors", "need_replication_factors", "permutation_factors"):
            factors: Any = getattr(self, option)
            if not isinstance(factors, tuple):
                msg = f"{_CALL}: {option} is {factors!r} of type {type(factors).__name__}"
                raise ArgumentTypeError(msg, expected="a tuple of names")
            for factor in factors:
                if factor not in whole | parts or factor in seen:
                    why = "is in two options, or twice in one" if factor in seen else "in no axis"
                    msg = f"{_CALL}: {option} has {factor!r}, which is {why}"
                    raise ArgumentValueError(msg.replace("is is", "is"))
                seen.add(factor)

    def __repr__(self) -> str:
        texts = [repr(self.operand_mappings), repr(self.result_mappings)]
        texts += [f"{name}={size}" for name, size in self.factor_sizes.items()]
        for option in ("reduction_factors", "need_replication_factors", "permutation_factors"):
            if getattr(self, option):
                texts.append(f"{option}={getattr(self, option)}")
        return f"SdyShardingRule({', '.join(texts)})"


def _check_name(call: str, factor: object) -> None:
    if not isinstance(factor, str) or not _NAME.fullmatch(factor):
        msg = f"{call}: got {factor!r} of type {type(factor).__name__}"
        raise ArgumentValueError(msg, expected="a name that begins with a letter")


def _mapping(given: Any) -> ArrayMapping:
    return given if isinstance(given, ArrayMapping) else ArrayMapping(*given)


def parse_rule(text: str, **options: Any) -> SdyShardingRule:
    """The rule of a text such as ``"... i, i j -> ... j"``; ``options`` as of `SdyShardingRule`.

    Raises:
        ArgumentValueError: the text is no rule.
    """
    sides = text.split("->")
    if len(sides) != 2:
        msg = f"{_CALL}: {text!r} has {len(sides) - 1} arrows"
        raise ArgumentValueError(msg, expected="operands -> results, as in 'i j, j k -> i k'")
    return SdyShardingRule(_arrays(text, sides[0]), _arrays(text, sides[1]), **options)


def _arrays(text: str, side: str) -> list[ArrayMapping]:
    found: list[ArrayMapping] = []
    axes: list[Any] = []
    group: list[str] | None = None
    place = 0
    while place < len(side):
        token = _TOKEN.match(side, place)
        if token is None:
            msg = f"{_CALL}: {text!r} has {side[place:].strip()[0]!r} in a place where no name is"
            raise ArgumentValueError(msg)
        place, word = token.end(), token[1]
        if (word == "(") != (group is None) and word in "()" and word:
            msg = f"{_CALL}: the brackets of {text!r} are not in pairs"
            raise ArgumentValueError(msg, hint="brackets hold the factors of one axis")
        if word == "(":
            group = []
        elif word == ")":
            axes.append(CompoundFactor(*(group or ())))
            group = None
        elif word == "," and group is None:
            found.append(ArrayMapping(*axes))
            axes = []
        elif word:
            name = word.replace("...", BATCHING)
            (axes if group is None else group).append(name)
    if group is not None:
        msg = f"{_CALL}: the brackets of {text!r} are not in pairs"
        raise ArgumentValueError(msg)
    return [*found, ArrayMapping(*axes)]


Shapes = Sequence[tuple[int, ...]]


def rule_text(rule: SdyShardingRule, operands: Shapes, results: Shapes) -> str:
    """The attribute of Shardy for arrays of these shapes.

    Raises:
        ArgumentValueError: they do not fit the rule.
    """
    for what, mappings, shapes in (
        ("operands", rule.operand_mappings, operands),
        ("results", rule.result_mappings, results),
    ):
        if len(mappings) != len(shapes):
            msg = f"{_CALL}: the rule has {len(mappings)} {what}, the operation {len(shapes)}"
            raise ArgumentValueError(msg)
    mappings = (*rule.operand_mappings, *rule.result_mappings)
    groups: dict[str, int] = {}
    sizes: dict[str, int] = {}
    rows = [
        _axes(mapping, shape, groups, sizes, rule.factor_sizes)
        for mapping, shape in zip(mappings, (*operands, *results), strict=True)
    ]
    for mapping, row, shape in zip(mappings, rows, (*operands, *results), strict=True):
        for factors, size in zip(row, shape, strict=True):
            product = 1
            for factor in factors:
                product *= sizes[factor]
            if len(factors) > 1 and product != size:
                msg = f"{_CALL}: the factors {factors} of {mapping} have the product {product}"
                raise ArgumentValueError(msg, expected=f"{size}, the size of the axis")
    labels = {factor: _label(k) for k, factor in enumerate(sizes)}
    texts = [f"[{', '.join([''.join([labels[f] for f in fs]) for fs in row])}]" for row in rows]
    n = len(operands)
    text = f"({', '.join(texts[:n])})->({', '.join(texts[n:])})"
    text += f" {{{', '.join([f'{labels[f]}={size}' for f, size in sizes.items()])}}}"
    for option in ("reduction", "need_replication", "permutation"):
        factors: tuple[str, ...] = getattr(rule, f"{option}_factors")
        if factors:
            order = sorted(factors, key=[*sizes].index)
            text += f" {option}={{{', '.join([labels[f] for f in order])}}}"
    return f"#sdy.op_sharding_rule<{text}, custom>"


def _axes(
    mapping: ArrayMapping,
    shape: tuple[int, ...],
    groups: dict[str, int],
    sizes: dict[str, int],
    given: Mapping[str, int],
) -> list[tuple[str, ...]]:
    """The factors of each axis of an array; notes the sizes of those that are whole axes."""
    entries: list[Any] = list(mapping)
    if entries and isinstance(entries[0], str) and _GROUP.fullmatch(entries[0]):
        group = entries.pop(0).removeprefix(BATCHING) or "0"
        n = groups.setdefault(group, max(0, len(shape) - len(entries)))
        entries = [*[f"{BATCHING}{group}_{k}" for k in range(n)], *entries]
    if len(entries) != len(shape):
        msg = f"{_CALL}: {mapping} stands for an array with {len(entries)} axes"
        raise ArgumentValueError(msg, expected=f"{len(shape)}, as {shape} has")
    rows: list[tuple[str, ...]] = []
    for entry, size in zip(entries, shape, strict=True):
        if isinstance(entry, CompoundFactor):
            for factor in entry:
                sizes.setdefault(factor, given.get(factor, 0))
            rows.append(tuple(entry))
            continue
        # Of axes of several sizes, as of an array and its padded form, the smallest one counts.
        known = sizes.get(entry) or size
        sizes[entry] = min(known, size)
        rows.append((entry,))
    return rows


def _label(index: int) -> str:
    """What Shardy calls a factor: i to z, then z_1, z_2, ..."""
    letters = "ijklmnopqrstuvwxyz"
    return letters[index] if index < len(letters) else f"z_{index - len(letters) + 1}"
