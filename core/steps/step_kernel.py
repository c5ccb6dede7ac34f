"""scan_kernel: a loop of small steps that is one kernel on the CPU.

Lowering writes its text; LLVM compiles it when XLA compiles the program that calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.ir.aval import batched_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.rows.costs import remember
from tracebridge.core.rows.machine import machine
from tracebridge.core.rows.row_kernel import kernel_call, name_of
from tracebridge.core.steps.costs import operations
from tracebridge.core.steps.plan import Plan
from tracebridge.core.steps.writer import module_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext


@final
class ScanKernel(Primitive):
    """As scan: (consts, carry, xs) -> (carry, ys). It is made while programs are lowered."""

    name = "scan_kernel"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Sequence[ShapedArray]:
        outs, n_carry = params["jaxpr"].out_avals, params["num_carry"]
        ys = [batched_aval(a, params["length"]) for a in outs[n_carry:]]
        return [*outs[:n_carry], *ys]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        name = _target(params)
        return kernel_call(ctx, operands, name, {"steps": (params["length"], 1)})


scan_kernel_p = ScanKernel()


def _target(params: Any) -> str:
    """The name by which XLA calls the kernel."""
    body, reverse = params["jaxpr"], params["reverse"]
    key = ("scan kernel", params["num_consts"], params["num_carry"], reverse)
    name = body.cache.get(key)
    if name is None:
        plan = Plan(body, params["num_consts"], params["num_carry"])
        name = name_of(module_text(plan, reverse, machine().lanes))
        remember(name, *operations(plan))
        body.cache[key] = name
    return name
