"""pmap: a Jaxpr for one element of a mapped axis, run by one device for each element.

Evaluated at once it is a program in replicas. Inside such a program a further pmap uses the
devices that are left, and where there are none (inside jit, or when too few are left) it is
computed as vmap would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.pmap.jaxprs import as_replicas, as_vmap, axis_scope, total_size
from tracebridge.core.control.pmap.program import compile_pmap
from tracebridge.core.control.pmap.rules import DevicesProgram, NamedSizes
from tracebridge.core.ir.aval import ShapedArray, batched_aval
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.runtime.arrays.placement import all_at, moving
from tracebridge.core.runtime.calls.execute import LIST, make_run

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.rule_contexts import LoweringContext


@final
class Pmap(DevicesProgram):
    """Parameters: ``jaxpr`` of an element; ``axis_name``, ``axis_size``; ``in_axes``, ``out_axes``.

    An axis is None for arguments that all elements get whole, and for results that are the same
    for all. ``devices`` is a tuple or None, ``backend`` a platform or None, ``name`` what
    messages call it, ``donated`` which arguments the call may consume.
    """

    name = "pmap"
    place_names = ("in_axes", "out_axes")

    def scope(self, params: Params) -> AbstractContextManager[None]:
        return axis_scope(params)

    def whole(self, aval: ShapedArray, place: Any, params: Params) -> ShapedArray:
        return batched_aval(aval, params["axis_size"], place)

    def shared(self, aval: ShapedArray, place: Any, params: Params) -> NamedSizes:
        return ((params["axis_name"], total_size(params)),) if place is None else ()

    def own_names(self, params: Params) -> Sequence[Any]:
        return (params["axis_name"],)

    def own(self, aval: ShapedArray, params: Params) -> Any:
        return 0

    def behind(self, place: Any, names: Sequence[object]) -> Any:
        return None if place is None else place + 1

    def replicas(self, params: Params) -> int:
        return params["axis_size"]

    def has_devices(self, params: Params) -> bool:
        return params["devices"] is not None

    def names_axis(self, axis_name: object, params: Params) -> bool:
        return axis_name != params["axis_name"] and super().names_axis(axis_name, params)

    def derived(
        self, params: Params, jaxpr: Jaxpr, ins: Sequence[object], outs: Sequence[object]
    ) -> dict[str, Any]:
        return {**super().derived(params, jaxpr, ins, outs), "donated": ()}

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
        if not axes or left % size or ctx.manual or params["devices"] is not None:
            return ctx.inline_jaxpr(as_vmap(params), operands)
        ctx.axis_env = (*axes, (params["axis_name"], size))
        outs = ctx.inline_jaxpr(as_replicas(params), operands)
        ctx.axis_env = axes
        return outs


pmap_p = Pmap()
