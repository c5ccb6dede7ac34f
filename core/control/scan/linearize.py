"""Forward mode of scan, and its linearization into a primal scan and a linear scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.config.values import option
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.scan.params import derived, groups
from tracebridge.core.control.scan.residuals import (
    mixes,
    residual_scan,
    split_residuals,
    stacks_carry,
    varying,
)
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.graph import Graph, GraphEquation
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.linear_graph import LinearGraph
from tracebridge.core.interpreters.linearize import LinearizeTrace, TapeNode
from tracebridge.core.interpreters.residual_notes import note_plan
from tracebridge.core.interpreters.residual_plan import Prices, ResidualPlan, plan_residuals
from tracebridge.core.interpreters.staged_rules import StagedLinearize, bits, staged_linearize
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import zeros_of

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.value import Value


Flags = tuple[bool, ...]

# What stacking one value costs in each step beside its elements, in milliseconds.
_PER_STEP = 0.0003


def tangent_outs(jaxpr: Jaxpr, nonzero_in: Sequence[bool]) -> list[bool]:
    """Which results have tangents, by staged rules of the equations alone (nothing is traced)."""
    nonzero = [*nonzero_in, *[False] * len(jaxpr.consts)]
    for app, idx in jaxpr.equations:
        mask = sum([1 << k for k, i in enumerate(idx) if nonzero[i]])
        if mask:
            nonzero.extend([t is not None for _, t in staged_linearize(app, mask).outs])
        else:
            nonzero.extend([False] * len(app.outs))
    return [nonzero[s] for s in jaxpr.outs]


def nonzero_carries(jaxpr: Jaxpr, consts: Flags, init: Flags, xs: Flags) -> Flags:
    """The carries that have a tangent in some step."""
    carry = init
    while not all(carry):
        outs = tangent_outs(jaxpr, (*consts, *carry, *xs))
        wider = tuple([a or b for a, b in zip(carry, outs, strict=False)])
        if wider == carry:
            break
        carry = wider
    return carry


def nonzero_groups(params: Params, tangents: Sequence[Value | None]) -> tuple[Flags, Flags, Flags]:
    """Which consts, carries (in any step) and xs have tangents."""
    flags = groups(params, [t is not None for t in tangents])
    consts, init, xs = tuple(flags[0]), tuple(flags[1]), tuple(flags[2])
    key = ("scan_nonzero", consts, init, xs)
    jaxpr: Jaxpr = params["jaxpr"]
    carry = jaxpr.cache.get(key)
    if carry is None:
        carry = jaxpr.cache[key] = nonzero_carries(jaxpr, consts, init, xs)
    return consts, carry, xs


def tangent_args(
    params: Params,
    tangents: Sequence[Value | None],
    carry: Flags,
    zeros: Callable[[ShapedArray], Any] = zeros_of,
) -> tuple[list[Any], list[Any], list[Any]]:
    """The tangents of consts, carries and xs; zeros where only a later step has one."""
    consts, init, xs = groups(params, tangents)
    inner = groups(params, params["jaxpr"].in_avals)[1]
    started = [
        zeros(a.tangent) if t is None else t
        for t, a, nz in zip(init, inner, carry, strict=True)
        if nz
    ]
    return [t for t in consts if t is not None], started, [t for t in xs if t is not None]


# forward mode ------------------------------------------------------------------------------------


def jvp_scan(
    primitive: Primitive, primals: Sequence[Value], tangents: Sequence[Value | None], params: Params
) -> tuple[list[Any], list[Any]]:
    """One scan of primals and tangents together."""
    consts_nz, carry_nz, xs_nz = nonzero_groups(params, tangents)
    body, ys_nz = _joint_body(params, consts_nz, carry_nz, xs_nz)
    consts, init, xs = groups(params, primals)
    consts_t, init_t, xs_t = tangent_args(params, tangents, carry_nz)
    n_consts = len(consts) + len(consts_t)
    n_carry = len(init) + len(init_t)
    results = iter(
        primitive.bind(
            *consts, *consts_t, *init, *init_t, *xs, *xs_t,
            **derived(params, body, n_consts, n_carry),
        )
    )  # fmt: skip
    carry = [next(results) for _ in init]
    carry_t = [next(results) if nz else None for nz in carry_nz]
    ys = [next(results) for _ in ys_nz]
    ys_t = [next(results) if nz else None for nz in ys_nz]
    return [*carry, *ys], [*carry_t, *ys_t]


def _joint_body(
    params: Params, consts_nz: Flags, carry_nz: Flags, xs_nz: Flags
) -> tuple[Jaxpr, Flags]:
    """The jvp of the body with inputs and results in scan's order; which ys have tangents."""
    jaxpr: Jaxpr = params["jaxpr"]
    n_consts, n_carry, n_in = len(consts_nz), len(carry_nz), jaxpr.n_in
    n_ys = len(jaxpr.outs) - n_carry
    nonzero = (*consts_nz, *carry_nz, *xs_nz)
    key = ("scan_jvp", n_consts, n_carry, nonzero)
    cached = jaxpr.cache.get(key)
    if cached is not None:
        return cached
    joint, nonzero_out = jvp_jaxpr(jaxpr, nonzero, (*carry_nz, *[False] * n_ys))
    tangents = iter(range(n_in, joint.n_in))
    tangent_of = [next(tangents) if nz else None for nz in nonzero]
    order: list[int] = []
    for start, stop in ((0, n_consts), (n_consts, n_consts + n_carry), (n_consts + n_carry, n_in)):
        order.extend(range(start, stop))
        order.extend([p for p in tangent_of[start:stop] if p is not None])
    n_out = len(jaxpr.outs)
    remaining_outs = iter(joint.outs[n_out:])
    tangent_outs_at = [next(remaining_outs) if nz else None for nz in nonzero_out]
    results = [
        *joint.outs[:n_carry],
        *[s for s, nz in zip(tangent_outs_at, carry_nz, strict=False) if nz and s is not None],
        *joint.outs[n_carry:n_out],
        *[s for s in tangent_outs_at[n_carry:] if s is not None],
    ]
    cached = permute_jaxpr(joint, order, results), tuple(nonzero_out[n_carry:])
    jaxpr.cache[key] = cached
    return cached


# linearization -----------------------------------------------------------------------------------


@final
class ScanSplit:
    """A linearized body, prepared for two scans.

    ``primal``: the primal body with residuals. ``again``: (constant residuals, stacked ones) ->
    expensive values of one step that are not kept, computed for all steps at once between the
    scans; None if there are none. ``linear``: (residuals and tangents, in the order of scan's
    arguments, where the values of ``again`` are the first slices) -> tangents of the results
    marked by ``out_nz``.
    """

    __slots__ = ("again", "carry_nz", "linear", "out_nz", "primal")

    def __init__(
        self,
        jaxpr: Jaxpr,
        consts_nz: Flags,
        carry_nz: Flags,
        xs_nz: Flags,
        *,
        plain: bool,
        may_shift: bool,
    ) -> None:
        n_consts, n_carry, n_in = len(consts_nz), len(carry_nz), jaxpr.n_in
        if not plain and any([app.primitive.inlinable for app, _ in jaxpr.equations]):
            jaxpr = inline_calls(jaxpr)
        linearized = LinearGraph(jaxpr, (*consts_nz, *carry_nz, *xs_nz))
        graph, outs, needed = linearized.graph, linearized.outs, linearized.residuals()
        varies = varying(graph, n_consts, n_in)
        shape = (n_consts, n_carry, n_in)
        prices = Prices(graph, outs, _PER_STEP)
        plan = (
            ResidualPlan(needed, [])
            if plain
            else plan_of_body(graph, varies, shape, outs, needed, prices, may_shift=may_shift)
        )
        residuals = plan.kept
        if mixes(graph, varies):
            whole = graph.program(linearized.inputs, [*outs, *residuals], jaxpr.debug)
            self.primal = residual_scan(whole, n_consts, n_carry, len(outs))
        else:
            self.primal = split_residuals(
                graph, varies, shape, outs, residuals, jaxpr.debug, may_shift=may_shift
            )
            if not plain:
                note_plan(self.primal.body, self.primal.places(residuals), graph, plan, prices)
        expensive = [n for app, _, n, _ in plan.redone if not app.primitive.cost.is_repeatable]
        self.again = None
        if expensive:
            inputs = self.primal.in_scan_order(residuals, (), 0)
            self.again = graph.program(inputs, expensive, jaxpr.debug, plan.redone)
        first = len(graph.equations)
        tangents = linearized.tangent_outs
        for i, nz in enumerate(carry_nz):
            if nz and tangents[i] is None:
                tangents[i] = graph.zeros(graph.avals[outs[i]].tangent)
        self.carry_nz = carry_nz
        self.out_nz = tuple([t is not None for t in tangents])
        n_fixed = sum(consts_nz) + sum(carry_nz)
        inputs = self.primal.in_scan_order(residuals, linearized.tangents, n_fixed)
        place = self.primal.n_constant + n_fixed
        inputs[place:place] = expensive
        self.linear = graph.program(
            inputs,
            [t for t in tangents if t is not None],
            jaxpr.debug,
            [*plan.redone, *graph.equations[first:], *linearized.tape],
            keep_effects=False,
        )

    def again_for(self, params: Params) -> Jaxpr | None:
        """``again`` for all steps."""
        if self.again is None:
            return None
        n_constant = self.primal.n_constant
        dims = (*[None] * n_constant, *[0] * (self.again.n_in - n_constant))
        return batch_jaxpr(self.again, params["length"], None, dims, True)[0]

    def linear_scan(
        self,
        params: Params,
        tangents: Sequence[Any],
        constant: Sequence[object],
        stacked: Sequence[object],
        zeros: Callable[[ShapedArray], Any],
    ) -> tuple[list[Any], dict[str, Any]]:
        """Operands and parameters of the linear scan.

        ``constant``, ``stacked``: residuals; those of ``again`` are the first stacked ones.
        """
        consts_t, init_t, xs_t = tangent_args(params, tangents, self.carry_nz, zeros)
        fixed = [*constant, *consts_t]
        linear = derived(params, self.linear, len(fixed), len(init_t))
        return [*fixed, *init_t, *stacked, *xs_t], linear


def plan_of_body(
    graph: Graph,
    varies: bytearray,
    shape: tuple[int, int, int],
    outs: Sequence[int],
    needed: Sequence[int],
    prices: Prices,
    *,
    may_shift: bool,
) -> ResidualPlan:
    """Which values of the steps are kept; slices, ys and what is the same in each step are there.

    ``shape``: how many inputs are consts, carries, and how many there are. ``may_shift``: carries
    that the ys have are there as well.
    """
    n_consts, n_carry, n_in = shape
    ys = set(outs[n_carry:])

    def free(number: int) -> bool:
        if not varies[number] or n_consts + n_carry <= number < n_in or number in ys:
            return True
        return may_shift and stacks_carry(graph, shape, outs, number)

    return plan_residuals(graph, graph.equations, free, needed, prices)


def split_scan(params: Params, tangents: Sequence[Any]) -> ScanSplit:
    """The linearized body for the arguments that have tangents, remembered on the body."""
    jaxpr: Jaxpr = params["jaxpr"]
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    nonzero = tuple([t is not None for t in tangents])
    plain = not option("platform_rules")
    length = params["length"]
    may_shift = not plain and type(length) is int and length > 0
    key = ("scan_linearize", n_consts, n_carry, nonzero, plain, may_shift)
    found = jaxpr.cache.get(key)
    if found is None:
        flags = nonzero_groups(params, tangents)
        found = jaxpr.cache[key] = ScanSplit(jaxpr, *flags, plain=plain, may_shift=may_shift)
    return found


def linearize_scan(
    trace: LinearizeTrace,
    primitive: Any,
    primals: Sequence[Value],
    tangents: Sequence[TapeNode | None],
    params: Params,
) -> tuple[list[Any], list[int | None]]:
    """Run the scan of the primals; record the linear scan on the tape of ``trace``."""
    split = split_scan(params, tangents)
    groups_of_primals = groups(params, primals)
    results, constant, stacked = split.primal.bind(primitive, params, *groups_of_primals)
    if not any(split.out_nz):
        return results, [None] * len(results)
    again = split.again_for(params)
    if again is not None:
        values = [*constant, *stacked]
        stacked = [*eval_jaxpr(again, current_trace().process, values), *stacked]
    nodes = iter(
        trace.record(primitive, *split.linear_scan(params, tangents, constant, stacked, zeros_of))
    )
    return results, [next(nodes) if nz else None for nz in split.out_nz]


def staged_linearize_of_scan(primitive: Primitive, app: Application, mask: int) -> StagedLinearize:
    """A scan of the primals that also gives residuals, and a linear scan."""
    params, n = app.params, len(app.avals)
    graph = Graph()
    primals = graph.inputs(app.avals)
    positions = bits(mask, n)
    tangent_inputs = graph.inputs([app.avals[i].tangent for i in positions])
    tangents: list[int | None] = [None] * n
    for i, number in zip(positions, tangent_inputs, strict=True):
        tangents[i] = number
    split = split_scan(params, tangents)
    results, constant, stacked = split.primal.add_to(graph, primitive, params, primals)
    again = split.again_for(params) if any(split.out_nz) else None
    if again is not None:
        stacked = [*graph.inline(again, [*constant, *stacked]), *stacked]
    operands, linear = split.linear_scan(params, tangents, constant, stacked, graph.zeros)
    primal_equations = list(graph.equations)
    tape: list[GraphEquation] = []
    first = 0
    if any(split.out_nz):
        first = graph.add_bound(primitive, operands, linear)
        tape.append(graph.equations[-1])
    out_t = iter(range(first, len(graph.avals)))
    outs = [(r, next(out_t) if nz else None) for r, nz in zip(results, split.out_nz, strict=True)]
    return StagedLinearize(
        range(n + len(positions)), graph.consts, primal_equations, tape, outs, positions
    )
