"""Custom calls of LAPACK and of the solver libraries of GPUs, and what all of them need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core._jaxlib import mlir
from tracebridge.core._jaxlib.ffi import lapack_target
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact
from tracebridge.core.linalg.matrices import is_empty, lower_part, upper_part
from tracebridge.core.lowering.context import register_platform_lowering
from tracebridge.core.mlir.attrs import (
    array,
    boolean,
    dense_i64,
    dictionary,
    i32,
    index_tensor,
    string,
)
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value

_INT32 = np.dtype(np.int32)
_FLAG = np.dtype(np.bool_)
_GPUS = ("cuda", "gpu")


def char(letter: str) -> Any:
    """A letter as LAPACK's handlers take it."""
    return mlir.ir.IntegerAttr.get(mlir.ir.IntegerType.get_unsigned(8), ord(letter))


def byte(number: int) -> Any:
    """A small number as handlers take it."""
    return mlir.ir.IntegerAttr.get(mlir.ir.IntegerType.get_unsigned(8), number)


def on_cpu(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """Lower ``primitive`` by ``rule`` on the CPU, where there are elements."""
    register_platform_lowering(primitive, "cpu", _unless_empty(primitive, rule))


def on_gpu(primitive: Primitive, rule: Callable[..., Any], *, loses_nan: bool = False) -> None:
    """Lower ``primitive`` by ``rule`` on GPUs of CUDA, where there are elements.

    ``loses_nan``: the library may find factors without NaN of a matrix that has one.
    """
    if loses_nan:
        rule = _keeping_nan(rule)
    for platform in _GPUS:
        register_platform_lowering(primitive, platform, _unless_empty(primitive, rule))


def _unless_empty(primitive: Primitive, rule: Callable[..., Any]) -> Callable[..., Any]:
    """``rule``, or the usual one where there is nothing to compute: LAPACK refuses that."""

    def lower(ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        if is_empty(*ctx.avals_in):
            return primitive.lower(ctx, *operands, **params)
        return rule(ctx, *operands, **params)

    return lower


def _keeping_nan(rule: Callable[..., Any]) -> Callable[..., Any]:
    """``rule``, with NaN for all results of matrices in which there is a NaN.

    Where a parameter ``lower`` says which triangle is read, the other one does not count.
    """

    def lower(ctx: LoweringContext, operand: IrValue, **params: Any) -> list[Any]:
        (ok,) = ctx.lower_fun(has_no_nan, operand, lower=params.get("lower"))
        outs = rule(ctx, operand, **params)
        return [
            nan_unless(ctx, ok, x, aval) if is_inexact(aval.dtype) else x
            for x, aval in zip(outs, ctx.avals_out, strict=True)
        ]

    return lower


def has_no_nan(x: Value, *, lower: bool | None = None) -> Value:
    """Flags ``(*batch,)`` of matrices ``(*batch, m, n)``, or of their triangles that are read."""
    if lower is not None:
        x = lower_part(x) if lower else upper_part(x)
    n = x.aval.ndim
    return lax.reduce_and(lax.eq(x, x), axes=(n - 2, n - 1))


def lapack(
    ctx: LoweringContext,
    routine: str,
    operands: Sequence[IrValue],
    avals_in: Sequence[ShapedArray],
    avals_out: Sequence[ShapedArray],
    attributes: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Any]:
    """The results of a LAPACK routine; ``{sy|he}`` stands for its real and complex names."""
    dtype = avals_in[0].dtype
    if routine[0] == "{":
        real, _, suffix = routine[1:].partition("|")
        other, _, suffix = suffix.partition("}")
        routine = (other if is_complex(dtype) else real) + suffix
    target = lapack_target(f"{routine}_ffi", dtype)
    return ffi_call(ctx, target, operands, avals_in, avals_out, attributes, **options)


def ffi_call(
    ctx: LoweringContext,
    target: str,
    operands: Sequence[IrValue],
    avals_in: Sequence[ShapedArray],
    avals_out: Sequence[ShapedArray],
    attributes: Mapping[str, Any] | None = None,
    *,
    aliases: Mapping[int, int] | None = None,
    by_rows: bool = False,
) -> list[Any]:
    """The results of a handler of XLA's typed FFI that works on batches of matrices.

    Args:
        ctx: of the equation.
        target: the name of the handler.
        operands: its operands, of ``avals_in``.
        avals_in: those with most axes are matrices.
        avals_out: its results; batches may be of symbolic size.
        attributes: parameters of the handler.
        aliases: operand -> result that is written to its memory.
        by_rows: matrices are handed over row by row, not column by column as LAPACK reads them,
            which sees them transposed then. It saves copies.
    """
    rank = max([a.ndim for a in avals_in])
    # All results have a size operand as soon as one needs it.
    dynamic = not all([is_static(a) for a in avals_out])
    sizes = [ctx.shape_tensor(a.shape) for a in avals_out] if dynamic else []
    layouts = [_layout(a, rank, by_rows) for a in avals_in]
    call_attributes: dict[str, Any] = {
        "call_target_name": string(target),
        "api_version": i32(4),
        "backend_config": dictionary(dict(attributes or {})),
        "operand_layouts": array([*layouts, *[index_tensor([0])] * len(sizes)]),
        "result_layouts": array([_layout(a, rank, by_rows) for a in avals_out]),
    }
    if sizes:
        first = len(operands)
        call_attributes["indices_of_shape_operands"] = dense_i64(range(first, first + len(sizes)))
    else:
        batch = dictionary({"num_batch_dims": string(str(rank - 2))})
        call_attributes["mhlo.frontend_attributes"] = batch
    if aliases:
        call_attributes["output_operand_aliases"] = array(
            [
                mlir.stablehlo.OutputOperandAlias.get(
                    output_tuple_indices=[result] if len(avals_out) > 1 else [],
                    operand_index=operand,
                    operand_tuple_indices=[],
                )
                for operand, result in aliases.items()
            ]
        )
    operation = ctx.op("stablehlo.custom_call", [*operands, *sizes], avals_out, call_attributes)
    return list(operation.results)


def _layout(aval: ShapedArray, rank: int, by_rows: bool) -> Any:
    """Minor to major: matrices by columns, all else by rows."""
    n = aval.ndim
    order = list(range(n - 1, -1, -1))
    if n == rank and not by_rows:
        order[0], order[1] = order[1], order[0]
    return index_tensor(order)


def lies_by_columns(x: IrValue) -> bool:
    """Whether matrices come from a routine that leaves them by columns, with NaN where it failed.

    Who reads them by rows gets a copy. What comes from elsewhere lies by rows.
    """
    owner: Any = x.owner
    if getattr(owner, "name", "") == "stablehlo.select":
        x = owner.operands[1]
        owner = x.owner
    if getattr(owner, "name", "") != "stablehlo.custom_call":
        return False
    if "result_layouts" not in owner.attributes:
        return False
    layouts = list(owner.attributes["result_layouts"])
    place = [result == x for result in owner.results].index(True)
    n = mlir.ir.RankedTensorType(x.type).rank
    return [n - 2, n - 1] == list(layouts[place])[:2]


def info_of(aval: ShapedArray) -> ShapedArray:
    """The aval of the numbers by which routines on matrices ``aval`` say how it went."""
    return aval.update(shape=aval.shape[:-2], dtype=_INT32, weak_type=False)


def succeeded(ctx: LoweringContext, info: IrValue, aval: ShapedArray, *, least: str = "EQ") -> Any:
    """Whether each matrix was treated without failure: ``info`` is 0 (``least="GE"``: or more)."""
    flags = aval.update(dtype=_FLAG)
    return ctx.compare(info, ctx.splat(0, aval), flags, least, "SIGNED")


def nan_unless(ctx: LoweringContext, ok: IrValue, x: IrValue, aval: ShapedArray) -> Any:
    """``x`` where ``ok``, which says it for whole matrices or vectors, else NaN."""
    flags = aval.update(dtype=_FLAG)
    # All the leading axes that ``ok`` has.
    n_batch = mlir.ir.RankedTensorType(ok.type).rank
    chosen = ctx.broadcast_in_dim(ok, flags, range(n_batch))
    nan = complex("nan+nanj") if is_complex(aval.dtype) else float("nan")
    return ctx.select(chosen, x, ctx.splat(nan, aval), aval)


def as_boolean(value: bool) -> Any:
    """A flag as handlers of GPUs take it."""
    return boolean(value)
