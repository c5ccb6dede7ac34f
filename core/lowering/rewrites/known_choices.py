"""Choices that numbers of the program decide, and what depends on single numbers only.

Formulas choose by their parameters: a density has one form for small shapes and another one for
large ones. Where a parameter is a number of the program, the choice is known, and the other form is
no part of the program. XLA finds that in what it is given whole; kernels would compute both forms.

A condition may be a number's alone (``a >= 10``), or a number's and an array's
(``(a >= 10) & (x > 0)``). Arrays all of whose elements are one number are followed as numbers: what
is computed of them is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.open_numbers import is_open
from tracebridge.core.ir.values import Literal
from tracebridge.core.lowering.rewrites.flat import computed_by, flat

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.primitive import Primitive

Evaluate = Callable[..., Any]


def _nth(which: Any, n_cases: int) -> int:
    """The place of the chosen case: numbers below the first and beyond the last choose these."""
    return min(max(int(which), 0), n_cases - 1)


# What is rounded once, so that it is what a device computes.
_RULES: Mapping[Primitive, Evaluate] = {
    lax.eq_p: np.equal, lax.ne_p: np.not_equal, lax.lt_p: np.less, lax.le_p: np.less_equal,
    lax.gt_p: np.greater, lax.ge_p: np.greater_equal, lax.is_finite_p: np.isfinite,
    lax.and_p: np.bitwise_and, lax.or_p: np.bitwise_or, lax.xor_p: np.bitwise_xor,
    lax.not_p: np.invert, lax.add_p: np.add, lax.sub_p: np.subtract, lax.mul_p: np.multiply,
    lax.div_p: np.divide, lax.neg_p: np.negative, lax.abs_p: np.absolute, lax.floor_p: np.floor,
    lax.convert_element_type_p: lambda x: x,
    lax.select_n_p: lambda which, *cases: cases[_nth(which, len(cases))],
}  # fmt: skip
# The number that decides the result of two flags, whatever the other one is.
_DECIDES: Mapping[Primitive, bool] = {lax.and_p: False, lax.or_p: True}
# The number that leaves the first operand as it is; sums with 0 lose the sign of -0, and so do
# differences with -0.
_LEAVES: Mapping[Primitive, float] = {lax.sub_p: 0.0, lax.mul_p: 1.0, lax.div_p: 1.0}
_KINDS = frozenset([np.dtype(t) for t in (np.bool_, np.int32, np.float32, np.float64)])
_DEEPEST = 32
_ASKED = object()
"""Stands for a number that is known when an open number is asked for it."""


def with_known_choices(jaxpr: Jaxpr) -> Jaxpr | None:
    """``jaxpr`` without choices that numbers decide; None if there are none."""
    if not _may_choose(jaxpr):
        return None
    return _Known(flat(jaxpr, computed_by)).result()


def _may_choose(jaxpr: Jaxpr, given: frozenset[int] = frozenset()) -> bool:
    """Whether numbers may decide something, or an array's elements are computed of numbers alone.

    ``given``: the inputs that are numbers of the program that calls this one.
    """
    asked: dict[frozenset[int], bool] = jaxpr.cache.setdefault("choices by numbers", {})
    if given not in asked:
        asked[given] = _finds_choices(jaxpr, given)
    return asked[given]


def _finds_choices(jaxpr: Jaxpr, given: frozenset[int]) -> bool:
    n = jaxpr.n_in
    known = {*given, *[n + i for i, c in enumerate(jaxpr.consts) if type(c) is Literal]}
    if not known:
        return False
    n += len(jaxpr.consts)
    for app, args in jaxpr.equations:
        are_known = [a in known for a in args]
        if any(are_known):
            if _decides(app, are_known):
                return True
            is_number = app.primitive is lax.broadcast_in_dim_p or not any(
                [a.ndim for a in app.outs]
            )
            if is_number and all(are_known):
                known.update(range(n, n + len(app.outs)))
        n += len(app.outs)
    return False


def _decides(app: Application, are_known: Sequence[bool]) -> bool:
    """Whether known operands may decide an equation, or what it calls."""
    primitive = app.primitive
    if primitive is lax.select_n_p:
        return are_known[0]
    if primitive.is_elementwise:
        return primitive in _DECIDES or (all(are_known) and bool(app.out.ndim))
    called = computed_by(app)
    if called is None:
        return False
    return _may_choose(called, frozenset([i for i, known in enumerate(are_known) if known]))


@final
class _Known:
    """A program while its known choices are made."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.graph = Graph()
        self.alone: dict[int, int] = {}
        """Arrays -> the number that all of their elements are."""
        self.values: dict[int, Any] = {}
        """What is known of numbers: a value, or that an open number has to be asked."""
        self.made_by: dict[int, tuple[Application, Sequence[int]]] = {}
        """What makes the numbers that have to be asked for."""
        self.changed = False

    def result(self) -> Jaxpr | None:
        jaxpr, graph = self.jaxpr, self.graph
        inputs = graph.inputs(jaxpr.in_avals)
        numbers = [*inputs, *[self._constant(c) for c in jaxpr.consts]]
        for k, (app, idx) in enumerate(jaxpr.equations):
            source = jaxpr.sources[k] if jaxpr.sources else None
            args = [numbers[i] for i in idx]
            if app.primitive.is_elementwise:
                numbers.append(self._elementwise(app, args, source))
                continue
            first = graph.add(app, args, source)
            numbers.extend(range(first, first + len(app.outs)))
            if app.primitive is lax.broadcast_in_dim_p and not app.avals[0].ndim:
                self.alone[first] = args[0]
        if not self.changed:
            return None
        return graph.program(inputs, [numbers[i] for i in jaxpr.outs], jaxpr.debug)

    def _constant(self, value: Any) -> int:
        number = self.graph.constant(value)
        if type(value) is Literal and value.aval.dtype in _KINDS:
            self.values[number] = _ASKED if is_open(value.value) else _number(value)
        return number

    # -- equations --

    def _elementwise(self, app: Application, args: Sequence[int], source: object) -> int:
        """The number of an equation's result, which may be one that is there."""
        of_numbers = [self.alone.get(a, a) for a in args]
        there = self._there(app, of_numbers)
        if there is not None:
            fitted = self._fitted(there, app, source)
            if fitted is not None:
                self.changed = True
                return fitted
        avals = self.graph.avals
        if app.out.ndim and not any([avals[a].ndim for a in of_numbers]):
            once = app.primitive.application(tuple([avals[a] for a in of_numbers]), app.params)
            fitted = self._fitted(self._add(once, of_numbers, source), app, source)
            if fitted is not None:
                return fitted
        return self._add(app, args, source)

    def _add(self, app: Application, args: Sequence[int], source: object) -> int:
        number = self.graph.add(app, args, source)
        if not app.out.ndim and app.out.dtype in _KINDS and app.primitive in _RULES:
            given = [self.values.get(a) for a in args]
            if None not in given:
                asks = any([v is _ASKED for v in given])
                self.values[number] = _ASKED if asks else _evaluated(app, given)
                self.made_by[number] = app, args
        return number

    def _there(self, app: Application, args: Sequence[int]) -> int | None:
        """The operand that is the result, if one is."""
        primitive = app.primitive
        if not app.out.ndim:
            return None
        if primitive is lax.select_n_p:
            which = self.value(args[0])
            return None if which is None else args[1 + _nth(which, len(args) - 1)]
        if primitive in _DECIDES and app.out.dtype == np.bool_:
            for one, other in (args, args[::-1]):
                flag = self.value(one)
                if flag is not None:
                    return one if flag == _DECIDES[primitive] else other
        if primitive in _LEAVES and app.out.dtype.kind == "f":
            value = self.values.get(args[1])
            if value is None or value is _ASKED or value != _LEAVES[primitive]:
                return None
            return None if np.signbit(value) else args[0]
        return None

    def _fitted(self, number: int, app: Application, source: object) -> int | None:
        """A value as the result of an equation: numbers are repeated."""
        avals, out = self.graph.avals, app.out
        if avals[number].shape == out.shape:
            return number if avals[number] == out else None
        if avals[number].ndim or avals[number].dtype != out.dtype:
            return None
        params = {"shape": out.shape, "broadcast_dimensions": ()}
        repeat = lax.broadcast_in_dim_p.application((avals[number],), params)
        if repeat.out != out:
            return None
        repeated = self.graph.add(repeat, [number], source)
        self.alone[repeated] = number
        return repeated

    # -- numbers --

    def value(self, number: int, depth: int = 0) -> Any:
        """What a number is, None if nobody knows. It may ask for open numbers."""
        found = self.values.get(number)
        if found is not _ASKED:
            return found
        made = self.made_by.get(number)
        if made is None:
            found = _number(self.graph.consts[number])
        else:
            app, args = made
            given = [self.value(a, depth + 1) for a in args] if depth < _DEEPEST else [None]
            found = None if any([v is None for v in given]) else _evaluated(app, given)
        self.values[number] = found
        return found


def _number(value: Any) -> Any:
    """The number of a literal in its dtype; None if a device may take it for 0."""
    kind = value.aval.dtype
    return _normal(kind.type(float(value.value) if kind.kind == "f" else value.value))


def _evaluated(app: Application, given: Sequence[Any]) -> Any:
    """The result of an equation of numbers; None where a device may have another one."""
    if app.out.dtype.kind == "i":
        if app.primitive is lax.div_p:
            return None  # by 0, and of the least number by -1
        if not all([abs(float(v)) < 1 << 31 for v in given]):
            return None  # infinities, NaN and large numbers, which a device brings to the ends
    with np.errstate(all="ignore"):
        return _normal(app.out.dtype.type(_RULES[app.primitive](*given)))


def _normal(value: Any) -> Any:
    if value.dtype.kind != "f" or not value:
        return value
    return None if abs(value) < np.finfo(value.dtype).tiny else value
