"""row_kernel: a program over the rows of arrays that is one kernel on the CPU.

Lowering writes its text; LLVM compiles it when XLA compiles the program that calls it.
"""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any, final

from tracebridge.core._jaxlib.ffi import ROW_KERNEL
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.values import Literal
from tracebridge.core.mlir.attrs import array, dictionary, i32, i64_array, index_tensor, string
from tracebridge.core.rows.costs import remember_costs
from tracebridge.core.rows.emitter import block_function
from tracebridge.core.rows.frame import RowProgram, is_sum_of_columns
from tracebridge.core.rows.handler import module_text, shares
from tracebridge.core.rows.machine import machine
from tracebridge.core.rows.waiting import wait_for_program
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext

_NAMES: BoundedCache[str] = BoundedCache("names of row kernels", 256)
_TYPED_VERSION = 4  # of StableHLO's custom_call: XLA's typed FFI


@final
class RowKernel(Primitive):
    """``program`` over ``frame``. It is made while programs are lowered: nobody transforms it."""

    name = "row_kernel"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Sequence[ShapedArray]:
        return params["program"].out_avals

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        program: Jaxpr = params["program"]
        numbers = {"shares": _shares(program, params["frame"])}
        return kernel_call(ctx, operands, _target(program, params["frame"]), numbers)


row_kernel_p = RowKernel()


def kernel_call(
    ctx: LoweringContext,
    operands: Sequence[IrValue],
    name: str,
    numbers: dict[str, Sequence[int]],
) -> list[Any]:
    """A call of the kernel ``name``; its one attribute is an array of numbers."""
    attributes = {
        "call_target_name": string(name),
        "api_version": i32(_TYPED_VERSION),
        "backend_config": dictionary({key: i64_array(n) for key, n in numbers.items()}),
        "operand_layouts": array([_by_rows(a.ndim) for a in ctx.avals_in]),
        "result_layouts": array([_by_rows(a.ndim) for a in ctx.avals_out]),
    }
    return list(ctx.op("stablehlo.custom_call", operands, ctx.avals_out, attributes).results)


def name_of(text: str) -> str:
    """The name of the kernel of a text: one name for one text and processor. It waits for its use."""
    hashlib = importlib.import_module("hashlib")  # a tenth of the import of the package
    digest = hashlib.sha256(f"{machine().description}\n{text}".encode()).hexdigest()
    name = f"{ROW_KERNEL}{digest[:32]}"
    wait_for_program(name, text)
    return name


def _by_rows(ndim: int) -> Any:
    return index_tensor(range(ndim - 1, -1, -1))


def _shares(program: Jaxpr, frame: tuple[int, ...]) -> Sequence[int]:
    columns = [app for app, _ in program.equations if is_sum_of_columns(app, len(frame))]
    return shares(math.prod(frame[:-1]), frame[-1], len(columns))


def _target(program: Jaxpr, frame: tuple[int, ...]) -> str:
    """The name by which XLA calls the kernel: the same one for the same text and processor."""
    numbers = tuple([(c.aval, repr(c.value)) for c in program.consts if isinstance(c, Literal)])
    key = program.equations, numbers, program.outs, program.in_avals, frame
    name = _NAMES.get(key)
    if name is None:
        rows = RowProgram(program, frame)
        name = name_of(module_text(rows, block_function(rows, machine().lanes)))
        remember_costs(name, rows)
        _NAMES.set(key, name)
    return name
