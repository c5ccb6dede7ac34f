"""Programs that XLA's library for CPUs gets wrong, found in what XLA compiled.

jaxlib 0.10.2 hands reductions on CPUs to YNNPACK, together with what makes their operands. Some
of these fusions give wrong numbers, without an error: what other tasks have written, what lies
behind an array, or half of a sum.

| in one fusion | what is wrong |
|---|---|
| a matrix product and a reduction of it | tiles at the edge are added twice, or not at all |
| a reduction of copies: all factors were broadcast along an axis | reads of foreign memory |
| a reduction over dilated windows | the holes are left out |
| a reduction of seven dimensions or more | crashes of the process |
| a maximum or minimum, by elements or of them | a NaN is left out |

What XLA fuses is known after it has compiled: layouts, inlined calls, loops and partitions over
devices decide. So the text of each compiled program is looked at, which takes a thousandth of the
time to compile it, and a program with such a fusion is compiled again without reductions in the
library. Its reductions are code that XLA makes itself, as fast in most programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

SAFE_FUSIONS = ("xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT")
"""The compile option with which the library gets matrix products only, each by itself."""

_MARK = '"kind":"__ynn_fusion"'
_CALLED = re.compile(r"calls=(%?[\w.-]+)")
_REDUCER = re.compile(r"to_apply=(%?[\w.-]+)")
_INSTRUCTION = re.compile(
    r"^  (?:ROOT )?(?P<name>%?[\w.-]+) = \w+\[(?P<shape>[\d,]*)\]\S* "
    r"(?P<code>[\w-]+)\((?P<operands>[^)]*)\)(?P<rest>.*)$",
    re.MULTILINE,
)
_DIMENSIONS = re.compile(r"dimensions=\{([\d,]*)\}")
_IOTA = re.compile(r"iota_dimension=(\d+)")
_REDUCTIONS = frozenset({"reduce", "reduce-window"})
_MOST_DIMENSIONS = 6


class _Instruction(NamedTuple):
    name: str
    shape: tuple[int, ...]
    code: str
    operands: tuple[str, ...]
    rest: str


def has_wrong_fusions(text: str) -> bool:
    """Whether a compiled program, as the text of its HLO, has one of the fusions above.

    >>> has_wrong_fusions("ENTRY %main () -> f32[] { ROOT %c = f32[] constant(1) }")
    False
    """
    return _MARK in text and any([_is_wrong(body, text) for body in _bodies(text)])


def _bodies(text: str) -> Iterator[str]:
    """The computations of the library's fusions, each once."""
    start = text.find(_MARK)
    seen: set[str] = set()
    while start >= 0:
        line = text[text.rfind("\n", 0, start) + 1 : start]
        called = _CALLED.search(line)
        if called is not None and called[1] not in seen:
            seen.add(called[1])
            yield _computation(text, called[1])
        start = text.find(_MARK, start + 1)


def _computation(text: str, name: str) -> str:
    first = text.find(f"\n{name} (")
    return text[first : text.find("\n}", first)]


def _has_extremum(body: str) -> bool:
    return " maximum(" in body or " minimum(" in body


def _is_wrong(body: str, text: str) -> bool:
    if _has_extremum(body):
        return True
    if " reduce" not in body:
        return False
    reducers = {_computation(text, name) for name in _REDUCER.findall(body)}
    if any([_has_extremum(reducer) for reducer in reducers]):
        return True
    lines = [_instruction(m) for m in _INSTRUCTION.finditer(body)]
    if {"dot", "convolution"} & {i.code for i in lines}:
        return True
    copied: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for i in lines:
        shapes[i.name] = i.shape
        if i.code in _REDUCTIONS:
            operand = i.operands[0]
            if copied[operand] or len(shapes[operand]) > _MOST_DIMENSIONS or "_dilate=" in i.rest:
                return True
        copied[i.name] = _copied(i, copied, shapes) & _long(i.shape)
    return False


def _instruction(match: re.Match[str]) -> _Instruction:
    name, shape, code, operands, rest = match.groups()
    # Some versions write the type before the name of an operand.
    names = tuple([o.split()[-1] for o in operands.split(", ") if o])
    return _Instruction(name, _numbers(shape), code, names, rest)


def _copied(i: _Instruction, copied: dict[str, int], shapes: dict[str, tuple[int, ...]]) -> int:
    """The axes along which all slices of a result are the same, as the bits of an integer.

    Where that is not worth an exact answer, axes too many.
    """
    if i.code in {"parameter", "constant"} or i.code in _REDUCTIONS:
        return 0
    if i.code == "iota":
        found = _IOTA.search(i.rest)
        return -1 if found is None else ~(1 << int(found[1]))
    before = copied[i.operands[0]] if i.operands else 0
    if i.code == "broadcast":
        axes = _dimensions(i)
        return ~sum([1 << a for k, a in enumerate(axes) if not before >> k & 1])
    if i.code == "transpose":
        return sum([(before >> a & 1) << k for k, a in enumerate(_dimensions(i))])
    if i.code in {"bitcast", "reshape"}:
        return -1 if before else 0
    same = -1
    for operand in i.operands:
        if shapes[operand]:
            same &= copied[operand]
    return same


def _long(shape: Sequence[int]) -> int:
    return sum([1 << k for k, n in enumerate(shape) if n > 1])


def _dimensions(i: _Instruction) -> tuple[int, ...]:
    found = _DIMENSIONS.search(i.rest)
    return () if found is None else _numbers(found[1])


def _numbers(text: str) -> tuple[int, ...]:
    return tuple([int(n) for n in text.split(",") if n])
