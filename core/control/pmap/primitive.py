"""pmap: a Jaxpr for one element of a mapped axis, run by one device for each element.

Evaluated at once it is a program in replicas. Inside such a program a further pmap uses the
devices that are left, and where there are none (inside jit, or when too few are left) it is
computed as vmap would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.pmap.jaxprs import (
    as_replicas,
    as_vmap,
    axis_scope,
    summed,
)
from tracebridge.core.control.pmap.program import compile_pmap
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.linearize import linearize_jaxpr
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.split_by_known import unknown_outs
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.aval import ShapedArray, batched_aval
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.primitive import HigherOrderPrimitive, is_linear_input
from tracebridge.core.lax.batch_util import mapped_to_front
from tracebridge.core.runtime.arrays.placement import all_at, moving
from tracebridge.core.runtime.calls.execute import LIST, make_run

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


@final
class Pmap(HigherOrderPrimitive):
    """Parameters: ``jaxpr`` of an element; ``axis_name``, ``axis_size``; ``in_axes``, ``out_axes``.

    An axis is None for arguments that all elements get whole, and for results that are the same
    for all. ``devices`` is a tuple or None, ``backend`` a platform or None, ``name`` what
    messages call it, ``donated`` which arguments the call may consume.
    """

    name = "pmap"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        del avals
        size = params["axis_size"]
        outs = zip(params["jaxpr"].out_avals, params["out_axes"], strict=True)
        return [batched_aval(a, size, axis) for a, axis in outs]

    def replicas(self, params: Params) -> int:
        return params["axis_size"]

    def has_devices(self, params: Params) -> bool:
        return params["devices"] is not None

    def names_axis(self, axis_name: object, params: Params) -> bool:
        return axis_name != params["axis_name"] and super().names_axis(axis_name, params)

    def derived(
        self, params: Params, jaxpr: Jaxpr, in_axes: Sequence[object], out_axes: Sequence[object]
    ) -> dict[str, Any]:
        """The parameters of a pmap of another Jaxpr."""
        axes = {"in_axes": tuple(in_axes), "out_axes": tuple(out_axes)}
        return {**params, "jaxpr": jaxpr, **axes, "donated": ()}

    # evaluation and lowering ---------------------------------------------------------------------

    def prepare(self, app: Application, arrays: Sequence[Any]) -> Any:
        """Eagerly: a function that runs the program on arrays like these."""
        program = compile_pmap(app.params)
        run = make_run(program, len(arrays), LIST, committed=True)
        placement = program.placement
        return run if all_at([a._sig for a in arrays], placement) else moving(run, placement)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        size, axes = params["axis_size"], ctx.axis_env
        left = ctx.n_replicas // math.prod([n for _, n in axes])
        if not axes or left % size or params["devices"] is not None:
            return ctx.inline_jaxpr(as_vmap(params), operands)
        ctx.axis_env = (*axes, (params["axis_name"], size))
        outs = ctx.inline_jaxpr(as_replicas(params), operands)
        ctx.axis_env = axes
        return outs

    # transformations -----------------------------------------------------------------------------

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        nonzero = tuple([t is not None for t in tangents])
        with axis_scope(params):
            jaxpr, nonzero_out = jvp_jaxpr(params["jaxpr"], nonzero)
        ins, outs = params["in_axes"], params["out_axes"]
        in_axes = [*ins, *_chosen(ins, nonzero)]
        out_axes = [*outs, *_chosen(outs, nonzero_out)]
        given = [t for t in tangents if t is not None]
        results = self.bind(*primals, *given, **self.derived(params, jaxpr, in_axes, out_axes))
        n = len(nonzero_out)
        rest = iter(results[n:])
        return results[:n], [next(rest) if nz else None for nz in nonzero_out]

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        """Two maps: the primal with residuals, which stay on their devices, and the linear part."""
        nonzero = tuple([t is not None for t in tangents])
        with axis_scope(params):
            split = linearize_jaxpr(params["jaxpr"], nonzero)
        ins, outs = params["in_axes"], params["out_axes"]
        n, n_res = len(split.nonzero_out), split.n_residuals
        primal = self.derived(params, split.primal, ins, [*outs, *[0] * n_res])
        results = self.bind(*primals, **primal)
        residuals = [*[primals[i] for i in split.forwarded], *results[n:]]
        nonzero_tangents = [t for t in tangents if t is not None]
        in_axes = [*[ins[i] for i in split.forwarded], *[0] * n_res, *_chosen(ins, nonzero)]
        out_axes = _chosen(outs, split.nonzero_out)
        linear = self.derived(params, split.linear, in_axes, out_axes)
        out = iter(
            self.bind(*residuals, *nonzero_tangents, **linear) if any(split.nonzero_out) else ()
        )
        return results[:n], [next(out) if nz else None for nz in split.nonzero_out]

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        """Each device gets the cotangent of its results; arguments of all devices get the sum."""
        linear = tuple([is_linear_input(a) for a in args])
        ct_in = tuple([c is not None for c in ct])
        with axis_scope(params):
            jaxpr, present = transpose_jaxpr(params["jaxpr"], linear, ct_in, instantiate=False)
        if not any(present):
            return [None] * len(args)
        ins, outs = params["in_axes"], params["out_axes"]
        values = [a for a, is_linear in zip(args, linear, strict=True) if not is_linear]
        cts = [c for c in ct if c is not None]
        value_axes = [a for a, is_linear in zip(ins, linear, strict=True) if not is_linear]
        ct_axes = _chosen(outs, ct_in)
        linear_axes = _chosen(ins, linear)
        result_axes = tuple(_chosen(linear_axes, present))
        jaxpr = summed(jaxpr, params, len(values), tuple(ct_axes), result_axes)
        derived = self.derived(params, jaxpr, [*value_axes, *ct_axes], result_axes)
        results = iter(self.bind(*values, *cts, **derived))
        remaining_cotangents = iter([next(results) if p else None for p in present])
        return [next(remaining_cotangents) if is_linear else None for is_linear in linear]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        moved, in_dims = mapped_to_front(args, dims)
        with axis_scope(params):
            jaxpr, out_dims = batch_jaxpr(params["jaxpr"], ctx.size, ctx.axis, in_dims)
        in_axes = _shifted(params["in_axes"], in_dims)
        out_axes = _shifted(params["out_axes"], out_dims)
        return self.bind(*moved, **self.derived(params, jaxpr, in_axes, out_axes)), list(out_dims)

    def unknown_outs(self, unknown: tuple[bool, ...], **params: Any) -> Sequence[bool]:
        """Which results depend on unknown arguments."""
        return unknown_outs(params["jaxpr"], unknown)

    def split_by_known(
        self, unknown: tuple[bool, ...], args: Sequence[Value], **params: Any
    ) -> list[Any]:
        """Two maps: of the part that needs known arguments only, and of the rest."""
        with axis_scope(params):
            split = partial_eval_jaxpr(params["jaxpr"], unknown)
        ins, outs = params["in_axes"], params["out_axes"]
        known_in = [not u for u in unknown]
        known_out = [not u for u in split.unknown_out]
        n_res = split.n_residuals
        first = self.derived(
            params, split.known, _chosen(ins, known_in), [*_chosen(outs, known_out), *[0] * n_res]
        )
        known = self.bind(*_chosen(args, known_in), **first)
        n_known = len(known) - n_res
        second = self.derived(
            params,
            split.unknown,
            [*[0] * n_res, *_chosen(ins, unknown)],
            _chosen(outs, split.unknown_out),
        )
        others = iter(self.bind(*known[n_known:], *_chosen(args, unknown), **second))
        remaining_known = iter(known[:n_known])
        return [next(others) if u else next(remaining_known) for u in split.unknown_out]

    def dce(
        self, used_outs: tuple[bool, ...], app: Application
    ) -> tuple[Any, list[bool], list[bool]]:
        """The map without unused results and the inputs that only they need."""
        params = app.params
        jaxpr, used_in = dce_jaxpr(params["jaxpr"], used_outs)
        in_axes, out_axes = (
            _chosen(params["in_axes"], used_in),
            _chosen(params["out_axes"], used_outs),
        )
        derived = self.derived(params, jaxpr, in_axes, out_axes)
        avals = tuple(_chosen(app.avals, used_in))
        return self.application(avals, derived), list(used_in), list(used_outs)


pmap_p = Pmap()


def _chosen(values: Sequence[object], flags: Sequence[bool]) -> list[Any]:
    return [v for v, flag in zip(values, flags, strict=True) if flag]


def _shifted(axes: Sequence[int | None], dims: Sequence[int | None]) -> list[int | None]:
    """Axes of arrays that got a batch axis in front where ``dims`` is not None."""
    return [
        axis if axis is None or d is None else axis + 1 for axis, d in zip(axes, dims, strict=True)
    ]
