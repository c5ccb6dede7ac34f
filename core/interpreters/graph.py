"""Programs under construction whose values are numbers.

What is derived from a Jaxpr (its linear part, its transpose) replays staged rules, whose equations
and types are known: nothing has to be run on tracers. A graph collects such equations; `program`
takes a Jaxpr out of it, from any values to any values, with what lies between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.config.values import option
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.check import check_jaxpr
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.name_stack import NamedSource, outermost_within
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.debug_info import DebugInfo
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.values import Value

GraphEquation = tuple["Application", "Sequence[int]", int, Any]
"""An equation: application, numbers of its arguments and of its first result, source."""

_ZEROS: BoundedCache[Jaxpr] = BoundedCache("zeros by aval", 1024)


@final
class Graph:
    """Equations between numbered values, in an order in which they can run."""

    __slots__ = ("_numbers", "_zeros", "avals", "consts", "equations")

    def __init__(self) -> None:
        self.avals: list[ShapedArray] = []
        self.consts: dict[int, Value] = {}
        self.equations: list[GraphEquation] = []
        self._numbers: dict[int, int] = {}
        self._zeros: dict[ShapedArray, int] = {}

    def inputs(self, avals: Iterable[ShapedArray]) -> range:
        """Numbers of new values that no equation makes."""
        first = len(self.avals)
        self.avals.extend(avals)
        return range(first, len(self.avals))

    def variables(self, jaxpr: Jaxpr, avals: Iterable[ShapedArray]) -> None:
        """The variables of a program as values with the same numbers, without its equations.

        ``avals``: those of all variables. The graph is empty before.
        """
        self.avals.extend(avals)
        for number, const in enumerate(jaxpr.consts, jaxpr.n_in):
            self._numbers.setdefault(id(const), number)
            self.consts[number] = const

    def constant(self, value: Value) -> int:
        """The number of a constant; the same object has one number."""
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.avals)
            self.avals.append(value.aval)
            self.consts[number] = value
        return number

    def add(self, app: Application, args: Sequence[int], source: object = None) -> int:
        """Append an equation; the number of its first result."""
        avals = self.avals
        first = len(avals)
        if app.multiple:
            avals.extend(app.outs)
        else:
            avals.append(app.out)
        self.equations.append((app, args, first, source))
        return first

    def add_bound(self, primitive: Primitive, args: Sequence[int], params: Params) -> int:
        """Append an application of a primitive; the number of its first result."""
        avals = self.avals
        return self.add(primitive.application(tuple([avals[a] for a in args]), params), args)

    def zeros(self, aval: ShapedArray) -> int:
        """Zeros of ``aval``, the same ones each time."""
        number = self._zeros.get(aval)
        if number is None:
            made = _ZEROS.get(aval)
            if made is None:
                made = stage(lambda: [zeros_of(aval)], (), locate=False)
                _ZEROS.set(aval, made)
            (number,) = self.inline(made, ())
            self._zeros[aval] = number
        return number

    def inline(self, jaxpr: Jaxpr, args: Sequence[int], source: object = None) -> list[int]:
        """Append the equations of ``jaxpr``; the numbers of its results."""
        env = [*args, *[self.constant(c) for c in jaxpr.consts]]
        avals, equations, sources = self.avals, self.equations, jaxpr.sources
        number = len(avals)
        for k, (app, idx) in enumerate(jaxpr.equations):
            here = source if sources is None else joined(source, sources[k])
            equations.append((app, [env[i] for i in idx], number, here))
            for aval in app.outs:
                avals.append(aval)
                env.append(number)
                number += 1
        return [env[s] for s in jaxpr.outs]

    def program(
        self,
        inputs: Sequence[int],
        outs: Sequence[int],
        debug: DebugInfo,
        equations: Sequence[GraphEquation] | None = None,
        *,
        keep_effects: bool = True,
    ) -> Jaxpr:
        """The Jaxpr from the values ``inputs`` to the values ``outs``.

        It has those of ``equations`` (default: all) that lie between them, and, if
        ``keep_effects``, those with effects and those of primitives that users defined. Values in
        ``inputs`` may be results of equations: those are not repeated.
        """
        avals = self.avals
        # Per value its variable, -1 where it has none so far. The last one stands for the first
        # result of an equation at the end that has none.
        variables = [-1] * (len(avals) + 1)
        for i, number in enumerate(inputs):
            variables[number] = i
        needed = bytearray(len(avals) + 1)
        for number in outs:
            needed[number] = 1
        kept = _needed(
            self.equations if equations is None else equations, variables, needed, keep_effects
        )
        consts = [n for n in self.consts if needed[n] and variables[n] == -1]
        variable = len(inputs)
        for number in consts:
            variables[number] = variable
            variable += 1
        numbered: list[Any] = []
        located = False
        for app, args, first, source in kept:
            if len(args) == 1:
                numbered.append((app, (variables[args[0]],)))
            elif len(args) == 2:
                a, b = args
                numbered.append((app, (variables[a], variables[b])))
            else:
                numbered.append((app, tuple([variables[a] for a in args])))
            if source is not None:
                located = True
            if app.multiple:
                for number in range(first, first + len(app.outs)):
                    if variables[number] < 0:
                        variables[number] = variable
                    variable += 1
            else:
                variables[first] = variable
                variable += 1
        jaxpr = Jaxpr(
            [avals[n] for n in inputs],
            [self.consts[n] for n in consts],
            numbered,
            [variables[n] for n in outs],
            [avals[n] for n in outs],
            [equation[3] for equation in kept] if located else None,
            debug,
        )
        if option("enable_checks"):
            check_jaxpr(jaxpr)
        return jaxpr


def _needed(
    equations: Sequence[GraphEquation],
    variables: Sequence[int],
    needed: bytearray,
    keep_effects: bool,
) -> list[GraphEquation]:
    """The equations that make needed values which have no variable, or are kept anyway.

    What they need is marked.
    """
    kept: list[GraphEquation] = []
    for equation in reversed(equations):
        app, args, first, _ = equation
        if app.multiple:
            results = range(first, first + len(app.outs))
            is_kept = any([needed[n] and variables[n] == -1 for n in results])
        else:
            is_kept = needed[first] and variables[first] == -1
        if is_kept or (keep_effects and (app.effects or app.primitive.has_rules_of_users)):
            kept.append(equation)
            for a in args:
                needed[a] = 1
    kept.reverse()
    return kept


def within(kind: str, source: object) -> Any:
    """The source of what a transformation makes of an equation: its outermost scope says so."""
    if type(source) is not NamedSource or not source.names:
        return source
    return NamedSource(outermost_within(kind, source.names), source.traceback)


def joined(outer: object, inner: object) -> Any:
    """The source of an equation of a staged rule; ``outer``: that of what the rule stands for."""
    if type(outer) is not NamedSource or type(inner) is not NamedSource:
        return inner if outer is None else outer
    names = inner.names
    if names[: len(outer.names)] != outer.names:
        names = (*outer.names, *names)
    return NamedSource(names, outer.traceback)
