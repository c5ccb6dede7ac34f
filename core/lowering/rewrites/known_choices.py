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
from tracebridge.core.lowering.rewrites.producers import producers, variable_avals

if TYPE_CHECKING:
    from tracebridge.core.interpreters.graph import GraphEquation
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
_CHOOSE = frozenset([lax.select_n_p, *_DECIDES, *_LEAVES])
_FAR = 0.01
_KINDS = frozenset([np.dtype(t) for t in (np.bool_, np.int32, np.float32, np.float64)])
_DEEPEST = 32
_MOST_LATER = 16
"""Steps of a computation of known numbers that are left until somebody asks."""
_ASKED = object()
"""Stands for a number that is known when an open number is asked for it."""
_LATER = object()
"""Stands for a number that is computed of those of the program when somebody asks."""


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
    """A program while its known choices are made.

    Most programs stay as they are. So nothing is written before there is a choice: values have the
    numbers of variables, and the graph knows the types of these, and what would be added.
    """

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.sources = jaxpr.sources or [None] * len(jaxpr.equations)
        self.graph = Graph()
        self.alone: dict[int, int] = {}
        """Arrays -> the number that all of their elements are."""
        self.values: dict[int, Any] = {}
        """What is known of numbers: a value, or that an open number has to be asked."""
        self.noted: set[int] = set()
        """Values of which one of the two knows something."""
        self.made_by: dict[int, tuple[Application, Sequence[int]]] = {}
        """What makes the numbers that have to be asked for or computed."""
        self.steps: dict[int, int] = {}
        """Of such numbers: after how many equations they are there."""
        self.changed = False
        self.variable: int | None = None
        """The result of the equation that is looked at, while the program is not written."""

    def result(self) -> Jaxpr | None:
        """The program, if a choice is made."""
        jaxpr, noted, added = self.jaxpr, self.noted, self.graph.equations
        avals, (_, firsts) = variable_avals(jaxpr), producers(jaxpr)
        self.graph.variables(jaxpr, avals)
        numbers = [*range(len(avals))]
        for number, const in enumerate(jaxpr.consts, jaxpr.n_in):
            self._constant(number, const)
        more: dict[int, Sequence[GraphEquation]] = {}
        for k, (app, args) in enumerate(jaxpr.equations):
            if app.primitive.is_elementwise:
                if noted.isdisjoint(args):
                    continue
                self.variable, n_added = firsts[k], len(added)
                number = numbers[firsts[k]] = self._elementwise(app, args, self.sources[k])
                if len(added) > n_added:
                    more[k] = added[n_added:]
                if self.changed:
                    self._write(k, more, numbers)
                    return self._rest(k, numbers)
                if number != firsts[k]:
                    self._repeats(firsts[k], self.alone[number])
            elif app.primitive is lax.broadcast_in_dim_p and not app.avals[0].ndim:
                self._repeats(firsts[k], args[0])
        return None

    def _write(
        self, end: int, more: Mapping[int, Sequence[GraphEquation]], numbers: list[int]
    ) -> None:
        """Begin the program with its equations up to ``end``, and ``more`` before some of them.

        ``numbers``: what stands for each variable.
        """
        jaxpr, graph, (_, firsts) = self.jaxpr, self.graph, producers(self.jaxpr)
        written: list[GraphEquation] = []
        graph.equations = written
        for k, (app, args) in enumerate(jaxpr.equations[: end + 1]):
            written.extend(more.get(k, ()))
            first = firsts[k]
            # Without results, an equation has the number of the next one's.
            if app.multiple or numbers[first] == first:
                written.append((app, [numbers[a] for a in args], first, self.sources[k]))
        self.variable = None

    def _rest(self, at: int, numbers: list[int]) -> Jaxpr:
        """The program after its equation ``at``."""
        jaxpr, graph, noted = self.jaxpr, self.graph, self.noted
        _, firsts = producers(jaxpr)
        for k, (app, idx) in enumerate(jaxpr.equations[at + 1 :], at + 1):
            args, variable = [numbers[i] for i in idx], firsts[k]
            if app.primitive.is_elementwise and not noted.isdisjoint(args):
                numbers[variable] = self._elementwise(app, args, self.sources[k])
                continue
            graph.equations.append((app, args, variable, self.sources[k]))
            if app.primitive is lax.broadcast_in_dim_p and not app.avals[0].ndim:
                self._repeats(variable, args[0])
        return graph.program(range(jaxpr.n_in), [numbers[i] for i in jaxpr.outs], jaxpr.debug)

    def _constant(self, number: int, value: Any) -> None:
        if type(value) is Literal and value.aval.dtype in _KINDS:
            self.values[number] = _ASKED if is_open(value.value) else _LATER
            self.noted.add(number)

    def _repeats(self, array: int, number: int) -> None:
        self.alone[array] = number
        self.noted.add(array)

    # -- equations --

    def _elementwise(self, app: Application, args: Sequence[int], source: object) -> int:
        """The number of an equation's result, which may be one that is there."""
        repeated, avals = self.alone, self.graph.avals
        if not app.out.ndim:
            return self._add(app, args, source)
        if app.primitive not in _CHOOSE:  # then all operands have to be numbers
            for a in args:
                if a not in repeated and avals[a].ndim:
                    return self._added(app, args, source)
        of_numbers = [repeated.get(a, a) for a in args]
        there = self._there(app, of_numbers)
        if there is not None:
            fitted = self._fitted(there, app, source)
            if fitted is not None:
                self.changed = True
                return fitted
        if not any([avals[a].ndim for a in of_numbers]):
            once = app.primitive.application(tuple([avals[a] for a in of_numbers]), app.params)
            number = self._noted(once, of_numbers, self.graph.add(once, of_numbers, source))
            fitted = self._fitted(number, app, source)
            if fitted is not None:
                return fitted
        return self._add(app, args, source)

    def _added(self, app: Application, args: Sequence[int], source: object) -> int:
        """The result of an equation of which nothing is known."""
        number = self.variable
        return self.graph.add(app, args, source) if number is None else number

    def _add(self, app: Application, args: Sequence[int], source: object) -> int:
        return self._noted(app, args, self._added(app, args, source))

    def _noted(self, app: Application, args: Sequence[int], number: int) -> int:
        """The result of an equation, after what is known of it has been noted."""
        if not app.out.ndim and app.out.dtype in _KINDS and app.primitive in _RULES:
            given = [self.values.get(a) for a in args]
            if None not in given:
                asks = any([v is _ASKED for v in given])
                self.values[number] = _ASKED if asks else _LATER
                self.made_by[number] = app, args
                self.noted.add(number)
                self.steps[number] = steps = 1 + max([self.steps.get(a, 0) for a in args])
                if not asks and steps % _MOST_LATER == 0:
                    self.value(number)
        return number

    def _there(self, app: Application, args: Sequence[int]) -> int | None:
        """The operand that is the result, if one is."""
        primitive = app.primitive
        if primitive is lax.select_n_p:
            which = self.value(args[0])
            return None if which is None else args[1 + _nth(which, len(args) - 1)]
        if primitive in _DECIDES and app.out.dtype == np.bool_:
            for one, other in (args, args[::-1]):
                flag = self.value(one)
                if flag is not None:
                    return one if flag == _DECIDES[primitive] else other
        if primitive in _LEAVES and app.out.dtype.kind == "f":
            number, wanted = args[1], _LEAVES[primitive]
            found = self.values.get(number)
            if (
                found is None
                or found is _ASKED
                or (found is _LATER and self._is_far(number, wanted))
            ):
                return None
            value = self.value(number)
            if value is None or value != wanted:
                return None
            return None if np.signbit(value) else args[0]
        return None

    def _is_far(self, number: int, wanted: float) -> bool:
        """Whether a number of the program is another one, however it is rounded."""
        literal = self.graph.consts.get(number)
        return type(literal) is Literal and abs(literal.value - wanted) > _FAR

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
        self._repeats(repeated, number)
        return repeated

    # -- numbers --

    def value(self, number: int, depth: int = 0) -> Any:
        """What a number is, None if nobody knows. It may ask for open numbers."""
        found = self.values.get(number)
        if found is not _ASKED and found is not _LATER:
            return found
        made = self.made_by.get(number)
        if made is None:
            found = _number(self.graph.consts[number])
        else:
            app, args = made
            # First what asks no open number: none is asked in vain.
            known = [self.value(a) for a in args if self.values[a] is not _ASKED]
            is_known = depth < _DEEPEST and not any([v is None for v in known])
            given = [self.value(a, depth + 1) for a in args] if is_known else [None]
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
