"""Transposition of scan: a scan in the other direction that carries cotangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, final

from tracebridge.core.config.values import option
from tracebridge.core.control.calls.permute import permute_jaxpr, reached
from tracebridge.core.control.scan.after_loop import AfterLoop, find_after_loop
from tracebridge.core.control.scan.params import chosen, derived, groups
from tracebridge.core.control.scan.partial_eval import split_known, unknown_carries
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.interpreters.staged_rules import StagedRule, bits, cotangent_aval
from tracebridge.core.interpreters.transpose_graph import transpose_into
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import add_application, zeros_of

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.value import Value


Flags = tuple[bool, ...]
T = TypeVar("T")


def transpose_scan(
    primitive: Primitive, ct: Sequence[Value], args: Sequence[Value], params: Params
) -> list[Any]:
    """Cotangents of the linear arguments."""
    linear = tuple([is_linear_input(a) for a in args])
    if all(unknown_carries(linear, params)):
        return _transpose_linear(primitive, ct, args, linear, params)
    # Some carries do not depend on linear arguments: run them forwards, then go back.
    split = split_known(params, linear)
    _, operands, unknown_params = split.bind_known(primitive, args, params)
    unknown_ct = chosen(split.unknown_out, ct)
    among = tuple([is_linear_input(a) for a in operands])
    results = _transpose_linear(primitive, unknown_ct, operands, among, unknown_params)
    # The unknown scan takes the unknown arguments in their order, between and after residuals.
    consts, carry, xs = groups(params, split.unknown)
    n_consts, n_xs = sum(consts), sum(xs)
    first = unknown_params["num_consts"] - n_consts
    moved = results[first : unknown_params["num_consts"] + unknown_params["num_carry"]]
    moved += results[len(results) - n_xs :] if n_xs else []
    remaining_moved = iter(moved)
    return [next(remaining_moved) if u else None for u in (*consts, *carry, *xs)]


def _transpose_linear(
    primitive: Any,
    ct: Sequence[Value],
    args: Sequence[Value],
    linear: Flags,
    params: Params,
) -> list[Any]:
    """Every carry is linear."""

    def bind(parameters: dict[str, Any], *operands: Sequence[Any]) -> Sequence[Any]:
        if params["split_transpose"]:
            return _bind_two_loops(primitive, parameters, *operands)
        return primitive.bind(*[x for group in operands for x in group], **parameters)

    made: dict[ShapedArray, Any] = {}

    def zeros(aval: ShapedArray) -> Any:
        value = made.get(aval)
        if value is None:
            value = made[aval] = zeros_of(aval)
        return value

    def after(loop: AfterLoop, operands: Sequence[Value]) -> list[Any]:
        program = loop.program([x.aval for x in operands])
        return eval_jaxpr(program, current_trace().process, operands)

    return _go_back(ct, args, linear, params, _Ways(zeros, bind, after))


def staged_transpose_of_scan(
    primitive: Any, app: Application, mask: int, ct_mask: int
) -> StagedRule | None:
    """The staged rule of a scan whose carries are all linear, and which needs one backward loop."""
    params, avals, n_out = app.params, app.avals, len(app.outs)
    linear = tuple([bool(mask >> i & 1) for i in range(len(avals))])
    if params["split_transpose"] or not all(unknown_carries(linear, params)):
        return None
    graph = Graph()
    ct_positions = bits(ct_mask, n_out)
    numbers = graph.inputs([cotangent_aval(app.outs[i]) for i in ct_positions])
    values = graph.inputs([a for a, here in zip(avals, linear, strict=True) if not here])
    cts: list[int | None] = [None] * n_out
    for i, number in zip(ct_positions, numbers, strict=True):
        cts[i] = number
    remaining_values = iter(values)
    args = [None if here else next(remaining_values) for here in linear]

    def bind(parameters: dict[str, Any], *operands: Sequence[int]) -> Sequence[int]:
        first = graph.add_bound(primitive, [x for group in operands for x in group], parameters)
        return range(first, len(graph.avals))

    def after(loop: AfterLoop, operands: Sequence[int]) -> list[int]:
        return graph.inline(loop.program([graph.avals[x] for x in operands]), operands)

    results = _go_back(cts, args, linear, params, _Ways(graph.zeros, bind, after))
    outs = [r for r in results if r is not None]
    jaxpr = graph.program([*numbers, *values], outs, params["jaxpr"].debug)
    present = tuple([r is not None for r, here in zip(results, linear, strict=True) if here])
    return StagedRule(jaxpr, (present, None))


class _Ways(NamedTuple):
    """How a backward scan is put together: of values, or of numbers of a graph."""

    zeros: Callable[[ShapedArray], Any]
    bind: Callable[..., Sequence[Any]]
    """(parameters, *groups of operands) -> results"""
    after: Callable[[AfterLoop, Sequence[Any]], list[Any]]


def _go_back(
    ct: Sequence[Any], args: Sequence[Any], linear: Flags, params: Params, ways: _Ways
) -> list[Any]:
    """Cotangents of the linear arguments.

    A carry that starts at a value (a zero) gets none, though it is linear in the steps.
    """
    jaxpr: Jaxpr = params["jaxpr"]
    consts_here, init_here, xs_here = groups(params, linear)
    n_consts, n_carry = len(consts_here), len(init_here)
    has_cotangent = tuple([c is not None for c in ct])
    in_loop = params["split_transpose"] or not option("platform_rules")
    key = ("scan_transpose", n_carry, tuple(consts_here), tuple(xs_here), has_cotangent, in_loop)
    back = jaxpr.cache.get(key)
    if back is None:
        inside = (*consts_here, *[True] * n_carry, *xs_here)
        back = Backward(jaxpr, n_consts, n_carry, inside, has_cotangent, in_loop=in_loop)
        jaxpr.cache[key] = back
    if back.body is None:
        return [None] * len(args)
    consts_avals, carry_avals, _ = groups(params, jaxpr.in_avals)
    ct_carry = [
        ways.zeros(a) if c is None else c
        for c, a, nz in zip(ct, carry_avals, back.carry, strict=False)
        if nz
    ]
    summed = chosen(back.consts, chosen(consts_here, consts_avals))
    sums = [ways.zeros(a) for a in back.in_loop(summed)]
    consts, _, xs = groups(params, args)
    fixed = [a for a, here in zip(consts, consts_here, strict=True) if not here]
    sliced = [a for a, here in zip(xs, xs_here, strict=True) if not here]
    sliced += [c for c in ct[n_carry:] if c is not None]
    back_params = derived(params, back.body, len(fixed), len(ct_carry) + len(sums))
    back_params["reverse"] = not params["reverse"]
    results = ways.bind(back_params, fixed, ct_carry, sums, sliced)
    remaining = iter(back.completed(results, [*fixed, *sliced], ways.after))
    init_ct = [next(remaining) if nz else None for nz in back.carry]
    consts_ct = iter([next(remaining) if nz else None for nz in back.consts])
    xs_ct = iter([next(remaining) if nz else None for nz in back.xs])
    return [
        *[next(consts_ct) if here else None for here in consts_here],
        *[c if here else None for here, c in zip(init_here, init_ct, strict=True)],
        *[next(xs_ct) if here else None for here in xs_here],
    ]


def _bind_two_loops(
    primitive: Any,
    params: Params,
    fixed: Sequence[Any],
    ct_carry: Sequence[Any],
    sums: Sequence[Any],
    sliced: Sequence[Any],
) -> list[Any]:
    """Two loops: only the cotangents of carries need the order of the steps.

    The first one stacks them; the second one computes the rest from them.
    """
    body: Jaxpr = params["jaxpr"]
    n_fixed, n_ct, n_sums = len(fixed), len(ct_carry), len(sums)
    n_rest = len(body.outs) - n_ct
    cts = range(n_fixed, n_fixed + n_ct)
    after = range(n_fixed + n_ct, n_fixed + n_ct + n_sums)
    slices = range(n_fixed + n_ct + n_sums, body.n_in)
    ordered, _ = dce_jaxpr(body, (*[True] * n_ct, *[False] * n_rest), keep_in=True)
    ordered = permute_jaxpr(ordered, None, [*ordered.outs, *cts])
    ordered = permute_jaxpr(ordered, [*range(n_fixed), *cts, *slices])
    first = primitive.bind(*fixed, *ct_carry, *sliced, **derived(params, ordered, n_fixed, n_ct))
    unordered, _ = dce_jaxpr(body, (*[False] * n_ct, *[True] * n_rest), keep_in=True)
    unordered = permute_jaxpr(unordered, [*range(n_fixed), *after, *cts, *slices])
    second = primitive.bind(
        *fixed, *sums, *first[n_ct:], *sliced, **derived(params, unordered, n_fixed, n_sums)
    )
    return [*first[:n_ct], *second]


@final
class Backward:
    """The body of a backward scan; which carries, linear consts and linear xs have cotangents.

    ``body``: (nonlinear consts; cotangents of carries, sums for linear consts; nonlinear xs,
    cotangents of ys) -> (cotangents of carries, sums; cotangents of linear xs). It is None if
    there are none. ``after``: which sums and cotangents of xs the body leaves out, because they
    are made after the loop from further ys, its last results.
    """

    __slots__ = ("after", "body", "carry", "consts", "places", "xs")

    def __init__(
        self,
        jaxpr: Jaxpr,
        n_consts: int,
        n_carry: int,
        linear: Flags,
        has_cotangent: Flags,
        *,
        in_loop: bool = False,
    ) -> None:
        n_linear = sum(linear[:n_consts])
        carry, ys = _reached_carries(
            jaxpr, n_consts, has_cotangent[:n_carry], has_cotangent[n_carry:]
        )
        while True:
            back = _Transposed(jaxpr, linear, (*carry, *ys))
            present = [r is not None for r in back.results]
            arrived = present[n_linear : n_linear + n_carry]
            wider = tuple([a or b for a, b in zip(carry, arrived, strict=True)])
            if wider == carry:
                break
            carry = wider
        self.carry = carry
        self.consts = tuple(present[:n_linear])
        self.xs = tuple(present[n_linear + n_carry :])
        self.body: Jaxpr | None = None
        self.after: AfterLoop | None = None
        # Inputs of ``after``: positions among nonlinear consts and slices, then among its ys.
        self.places: list[int] = []
        if any(present):
            n_fixed = n_consts - n_linear
            if not in_loop:
                self._find_after(back, n_linear, n_fixed)
            self.body = self._make(back, n_linear, n_fixed, jaxpr)

    def in_loop(self, of_consts: Sequence[T]) -> list[T]:
        """Those of linear consts with a cotangent that the loop sums up."""
        left_out = () if self.after is None else self.after.consts
        return [x for i, x in enumerate(of_consts) if i not in left_out]

    def completed(
        self,
        results: Sequence[Any],
        operands: Sequence[Any],
        make: Callable[[AfterLoop, Sequence[Any]], list[Any]],
    ) -> Sequence[Any]:
        """All cotangents in order, from the results and the operands of the loop."""
        after = self.after
        if after is None:
            return results
        n_results = len(results) - len(after.stacked)
        available = [*operands, *results[n_results:]]
        made = make(after, [available[i] for i in self.places])
        n_ct, n_sums = sum(self.carry), sum(self.consts) - len(after.consts)
        of_consts = list(results[n_ct : n_ct + n_sums])
        of_xs = list(results[n_ct + n_sums : n_results])
        for i, value in zip(after.consts, made, strict=False):
            of_consts.insert(i, value)
        for i, value in zip(after.xs, made[len(after.consts) :], strict=True):
            of_xs.insert(i, value)
        return [*results[:n_ct], *of_consts, *of_xs]

    def _find_after(self, back: _Transposed, n_linear: int, n_fixed: int) -> None:
        n_ct = sum(self.carry)
        fixed = back.args[:n_fixed]
        sliced = [*back.args[n_fixed:], *back.cts[n_ct:]]
        of_consts = [r for r in back.results[:n_linear] if r is not None]
        of_xs = [r for r in back.results[n_linear + len(self.carry) :] if r is not None]
        self.after = after = find_after_loop(back.graph, fixed, sliced, of_consts, of_xs)
        if after is not None:
            at = {n: i for i, n in enumerate([*fixed, *sliced, *after.stacked])}
            self.places = [at[n] for n in after.inputs]

    def _make(self, back: _Transposed, n_linear: int, n_fixed: int, jaxpr: Jaxpr) -> Jaxpr:
        graph, results, avals = back.graph, back.results, back.linear_avals
        n_ct = sum(self.carry)
        sums = graph.inputs(self.in_loop(chosen(self.consts, avals[:n_linear])))
        of_carry = zip(results[n_linear:], avals[n_linear:], self.carry, strict=False)
        carry = [graph.zeros(a) if ct is None else ct for ct, a, nz in of_carry if nz]
        of_consts = self.in_loop([ct for ct in results[:n_linear] if ct is not None])
        added = [
            graph.add(add_application(graph.avals[ct]), (total, ct))
            for total, ct in zip(sums, of_consts, strict=True)
        ]
        of_xs = [ct for ct in results[n_linear + len(self.carry) :] if ct is not None]
        stacked: list[int] = []
        if self.after is not None:
            of_xs = [ct for i, ct in enumerate(of_xs) if i not in self.after.xs]
            stacked = self.after.stacked
        inputs = [
            *back.args[:n_fixed], *back.cts[:n_ct], *sums, *back.args[n_fixed:], *back.cts[n_ct:]
        ]  # fmt: skip
        return graph.program(inputs, [*carry, *added, *of_xs, *stacked], jaxpr.debug)


@final
class _Transposed:
    """A graph with the transpose of a body: the numbers of its inputs and results."""

    __slots__ = ("args", "cts", "graph", "linear_avals", "results")

    def __init__(self, jaxpr: Jaxpr, linear: Flags, has_cotangent: Flags) -> None:
        graph = self.graph = Graph()
        avals = jaxpr.in_avals
        self.linear_avals = chosen(linear, avals)
        self.args = graph.inputs([a for a, here in zip(avals, linear, strict=True) if not here])
        self.cts = graph.inputs(chosen(has_cotangent, jaxpr.out_avals))
        numbers = iter(self.cts)
        cts = [next(numbers) if here else None for here in has_cotangent]
        self.results = transpose_into(graph, jaxpr, linear, self.args, cts)


def _reached_carries(jaxpr: Jaxpr, n_consts: int, carry: Flags, ys: Flags) -> tuple[Flags, Flags]:
    """Carries that cotangents may reach, so that the backward body is traced once as a rule."""
    n_carry = len(carry)
    while not all(carry):
        into = reached(jaxpr, (*carry, *ys))[n_consts : n_consts + n_carry]
        wider = tuple([a or b for a, b in zip(carry, into, strict=True)])
        if wider == carry:
            break
        carry = wider
    return carry, ys
