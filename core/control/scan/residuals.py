"""Residuals of a scan: what one scan computes for another one, stacked only where it must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tracebridge.core import lax
from tracebridge.core.control.scan.params import derived, groups
from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.interpreters.split_by_known import split_by_known, unknown_results
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.debug_info import DebugInfo
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.value import Value


T = TypeVar("T")

_CONSTANT, _STACKED, _SLICED = 0, 1, 2


class ResidualScan(NamedTuple):
    """A body whose last results are residuals, prepared for a scan that gives them.

    A residual that depends on consts only is computed once before the loop. One that is an input
    of the step is not copied: the xs themselves serve. The others become further ys, each once.
    """

    before: Jaxpr | list[int]
    """consts -> (the ``n_held`` values that the steps need of them, constant residuals)

    Which consts these are, if nothing has to be computed.
    """
    n_held: int
    body: Jaxpr
    """(held values, carry, slices) -> (``n_out`` results, stacked residuals)"""
    n_out: int
    kinds: list[int]
    """Per residual: constant, stacked or sliced."""
    stacked: list[int]
    """Results of the body that are residuals."""
    xs_kept: list[int]
    """xs that are residuals."""
    shifted: dict[int, int]
    """Among ``stacked``, those of the step before: which carry starts them."""

    def bind(
        self,
        primitive: Any,
        params: Params,
        consts: Sequence[Any],
        init: Sequence[Any],
        xs: Sequence[Any],
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Bind the scan: its results, the constant residuals, the stacked ones."""
        before = self.before
        if isinstance(before, list):
            made = [consts[i] for i in before]
        else:
            made = eval_jaxpr(before, current_trace().process, consts)
        held, constant = made[: self.n_held], made[self.n_held :]
        params_with_residuals = derived(params, self.body, len(held), len(init))
        results = primitive.bind(*held, *init, *xs, **params_with_residuals)
        stacked = [results[i] for i in self.stacked] + [xs[i] for i in self.xs_kept]
        for k, carry in self.shifted.items():
            stacked[k] = _of_steps_before(stacked[k], init[carry], params["reverse"])
        return results[: self.n_out], constant, stacked

    def add_to(
        self, graph: Graph, primitive: Primitive, params: Params, args: Sequence[int]
    ) -> tuple[list[int], list[int], list[int]]:
        """The same as equations of ``graph``, between numbers."""
        consts, init, xs = groups(params, args)
        before = self.before
        made = (
            [consts[i] for i in before]
            if isinstance(before, list)
            else graph.inline(before, consts)
        )
        held, constant = made[: self.n_held], made[self.n_held :]
        params_with_residuals = derived(params, self.body, len(held), len(init))
        first = graph.add_bound(primitive, [*held, *init, *xs], params_with_residuals)
        stacked = [first + i for i in self.stacked] + [xs[i] for i in self.xs_kept]
        for k, carry in self.shifted.items():
            pair = [stacked[k], init[carry]]
            shift = _staged_shift(*[graph.avals[n] for n in pair], reverse=params["reverse"])
            (stacked[k],) = graph.inline(shift, pair)
        return list(range(first, first + self.n_out)), constant, stacked

    def places(self, residuals: Sequence[int]) -> dict[int, int]:
        """The results of the body that only the linear scan needs, and the residuals they are."""
        numbers = [r for r, kind in zip(residuals, self.kinds, strict=True) if kind == _STACKED]
        pairs = zip(self.stacked, numbers, strict=True)
        return {place: number for place, number in pairs if place >= self.n_out}

    @property
    def n_constant(self) -> int:
        """How many residuals are the same in each step."""
        return self.kinds.count(_CONSTANT)

    def in_scan_order(self, residuals: Sequence[T], others: Sequence[T], n_fixed: int) -> list[T]:
        """The inputs of a body that takes residuals and others, in the order that scan wants.

        ``others`` are ``n_fixed`` consts and carries, then xs. The order is constant residuals,
        consts, carries; stacked residuals, xs.
        """
        constant, stacked, sliced = [
            [r for r, kind in zip(residuals, self.kinds, strict=True) if kind == wanted]
            for wanted in (_CONSTANT, _STACKED, _SLICED)
        ]
        return [*constant, *others[:n_fixed], *stacked, *sliced, *others[n_fixed:]]


def residual_scan(jaxpr: Jaxpr, n_consts: int, n_carry: int, n_out: int) -> ResidualScan:
    """Prepare a body whose results after the first ``n_out`` are residuals."""
    n_in = jaxpr.n_in
    jaxpr = split_by_known(jaxpr, tuple([i >= n_consts for i in range(n_in)]))
    graph = Graph()
    outs = graph.inline(jaxpr, graph.inputs(jaxpr.in_avals))
    varies = varying(graph, n_consts, n_in)
    shape = (n_consts, n_carry, n_in)
    return split_residuals(graph, varies, shape, outs[:n_out], outs[n_out:], jaxpr.debug)


def varying(graph: Graph, n_consts: int, n_in: int) -> bytearray:
    """Which values differ from step to step: those not made from the first inputs alone."""
    varies = bytearray(len(graph.avals))
    varies[n_consts:n_in] = b"\1" * (n_in - n_consts)
    for app, args, first, _ in graph.equations:
        # What has effects belongs to each step.
        here = bool(app.effects)
        for a in args:
            if varies[a]:
                here = True
                break
        if here:
            if app.multiple:
                n_out = len(app.outs)
                varies[first : first + n_out] = b"\1" * n_out
            else:
                varies[first] = 1
    return varies


def mixes(graph: Graph, varies: bytearray) -> bool:
    """Whether an equation has results that need not vary, if it is split by known."""
    for app, args, _, _ in graph.equations:
        if app.multiple:
            mask = tuple([bool(varies[a]) for a in args])
            if any(mask) and not all(mask) and not all(unknown_results(app, mask)):
                return True
    return False


def split_residuals(
    graph: Graph,
    varies: bytearray,
    shape: tuple[int, int, int],
    outs: Sequence[int],
    residuals: Sequence[int],
    debug: DebugInfo,
    *,
    may_shift: bool = False,
) -> ResidualScan:
    """Prepare a body that is given as a graph, whose first values are its inputs.

    ``shape``: how many of these are consts, carries, and how many there are. ``may_shift``: a carry
    that is stacked when a step has made it is not stacked again as the carry of the next step.
    """
    n_consts, n_carry, n_in = shape
    n_fixed = n_consts + n_carry
    results = list(outs)
    # A residual that is among the ys is stacked already. Carries are not stacked.
    at = {number: i for i, number in enumerate(results) if i >= n_carry}
    kinds: list[int] = []
    constant: list[int] = []
    stacked: list[int] = []
    xs_kept: list[int] = []
    shifted: dict[int, int] = {}
    for number in residuals:
        if not varies[number]:
            kinds.append(_CONSTANT)
            constant.append(number)
        elif n_fixed <= number < n_in:
            kinds.append(_SLICED)
            xs_kept.append(number - n_fixed)
        elif may_shift and number not in at and stacks_carry(graph, shape, outs, number):
            kinds.append(_STACKED)
            shifted[len(stacked)] = number - n_consts
            stacked.append(at[outs[number - n_consts]])
        else:
            kinds.append(_STACKED)
            if number not in at:
                at[number] = len(results)
                results.append(number)
            stacked.append(at[number])
    # An equation with effects may have no results, and its number is then that of another value.
    fixed = [s for s in graph.equations if not s[0].effects and s[0].outs and not varies[s[2]]]
    held = _held(graph, varies, n_consts, results)
    needed = [*held, *constant]
    before: Jaxpr | list[int] = needed
    if any([number >= n_consts for number in needed]):
        before = graph.program(range(n_consts), needed, debug, fixed, keep_effects=False)
    body = graph.program([*held, *range(n_consts, n_in)], results, debug)
    return ResidualScan(before, len(held), body, len(outs), kinds, stacked, xs_kept, shifted)


def stacks_carry(
    graph: Graph, shape: tuple[int, int, int], outs: Sequence[int], number: int
) -> bool:
    """Whether an input of the body is a carry that the step before has given as one of the ys."""
    n_consts, n_carry, _ = shape
    if not n_consts <= number < n_consts + n_carry:
        return False
    made = outs[number - n_consts]
    return (
        made in outs[n_carry:]
        and graph.avals[made] == graph.avals[number]
        and not is_extended(graph.avals[made].dtype)
    )


def _of_steps_before(ys: Value, init: Value, reverse: bool) -> Any:
    """What the steps started with, from what they gave: each has the value of the step before."""
    n = ys.aval.shape[0]
    first = lax.reshape(init, (1, *init.aval.shape))
    if reverse:
        return lax.concatenate([lax.slice_in_dim(ys, 1, n, 1, 0), first], 0)
    return lax.concatenate([first, lax.slice_in_dim(ys, 0, n - 1, 1, 0)], 0)


def _staged_shift(ys: ShapedArray, init: ShapedArray, *, reverse: bool) -> Jaxpr:
    return stage(lambda y, x: [_of_steps_before(y, x, reverse)], [ys, init], locate=False)


def _held(graph: Graph, varies: bytearray, n_consts: int, results: Sequence[int]) -> list[int]:
    """Values that are made of consts before the loop, for the steps."""
    needed = bytearray(len(graph.avals))
    for number in results:
        needed[number] = 1
    made: list[int] = []
    for app, args, first, _ in reversed(graph.equations):
        end = first + len(app.outs)
        if not any(needed[first:end]) and not app.effects:
            continue
        # What is free is computed again in each step: its result may be large.
        if app.effects or varies[first] or app.primitive.cost is Cost.FREE:
            for a in args:
                needed[a] = 1
        else:
            made.extend([n for n in range(first, end) if needed[n]])
    made.sort()
    return [*[n for n in range(n_consts) if needed[n]], *made]
