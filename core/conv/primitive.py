"""The primitive behind all convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core._jaxlib import mlir
from tracebridge.core.conv import cpu_rules, rules
from tracebridge.core.conv.numbers import spatial_sizes
from tracebridge.core.dtypes.dtypes import int32, is_bool, is_complex, is_inexact, real_of
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.errors.transform_errors import ShardingTypeError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import entries_of, same_along_others, split_of
from tracebridge.core.lax.accepted_dtypes import check_ordinary
from tracebridge.core.lax.contract.precision import precision_attributes
from tracebridge.core.lowering.context import register_platform_lowering
from tracebridge.core.mlir.attrs import i64, i64_array

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


@final
class ConvGeneralDilated(Primitive):
    """Sums of products over windows and input features; linear in each operand."""

    name = "conv_general_dilated"
    cost = Cost.CONTRACTION

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        x, y = avals
        _check(x, y, params)
        check_ordinary(self.name, x, y)
        numbers = params["dimension_numbers"]
        lhs, rhs = [x.shape[i] for i in numbers.lhs_spec], [y.shape[i] for i in numbers.rhs_spec]
        space = spatial_sizes(
            lhs[2:],
            rhs[2:],
            params["window_strides"],
            params["padding"],
            params["lhs_dilation"],
            params["rhs_dilation"],
        )
        ordered = (lhs[0] // params["batch_group_count"], rhs[0], *space)
        shape = tuple([ordered[numbers.out_spec.index(i)] for i in range(x.ndim)])
        preferred = params["preferred_element_type"]
        if preferred is not None:
            return result_aval(avals, shape, preferred)
        if x.dtype != y.dtype:
            msg = f"conv_general_dilated: got {x.str_short()} and {y.str_short()}"
            raise DtypeMismatchError(msg, expected="one dtype", hint="say preferred_element_type")
        return result_aval(avals, shape)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        """As the images are, where each device can do without the parts of others."""
        (x, y), numbers = avals, params["dimension_numbers"]
        if y.split is not None or entries_of(x)[numbers.lhs_spec[1]] is not None:
            raise ShardingTypeError(
                f"conv_general_dilated of {x.str_short()} and {y.str_short()}: features or kernels "
                "are split, which leaves open how the result is",
                hint="say it: out_sharding=",
            )
        order = [numbers.lhs_spec[numbers.out_spec.index(i)] for i in range(x.ndim)]
        if order == list(range(x.ndim)):
            return [same_along_others("conv_general_dilated", x, outs[0].shape)]
        return [split_of(self.name, avals, tuple([entries_of(x)[i] for i in order]))]

    def lower(self, ctx: LoweringContext, *operands: Any, **params: Any) -> Any:
        out = ctx.aval_out
        if 0 in (*out.shape, *[n for a in ctx.avals_in for n in a.shape]):
            return ctx.splat(False if is_bool(out.dtype) else 0, out)
        # Booleans are counted. Operands of other dtypes than the result are widened first.
        dtype = int32 if is_bool(out.dtype) else out.dtype
        x, y = [
            v if a.dtype == dtype else ctx.convert(v, a.update(dtype=dtype))
            for v, a in zip(operands, ctx.avals_in, strict=True)
        ]
        wide = out.update(dtype=dtype)
        if is_complex(dtype):
            result = _emit_complex(ctx, x, y, wide, params)
        else:
            result = emit_convolution(ctx, x, y, wide, params)
        return result if dtype == out.dtype else ctx.convert(result, out)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        (x, y), (s, t) = primals, tangents
        total = None if s is None else self.bind(s, y, **params)
        if t is not None:
            part = self.bind(x, t, **params)
            total = part if total is None else lax.add(total, part)
        return self.bind(x, y, **params), total

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, y = args
        if is_linear_input(x):
            return [rules.lhs_cotangent(self.bind, ct, x.aval, y, params), None]
        return [None, rules.rhs_cotangent(self.bind, ct, x, y.aval, params)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        return rules.batched(self.bind, ctx.size, args, dims, params)


conv_general_dilated_p = ConvGeneralDilated()
register_platform_lowering(
    conv_general_dilated_p, "cpu", partial(cpu_rules.lower, conv_general_dilated_p), optional=True
)


def _check(x: ShapedArray, y: ShapedArray, params: Params) -> None:
    call = "conv_general_dilated"
    both = f"lhs {x.str_short()}, rhs {y.str_short()}"
    numbers = params["dimension_numbers"]
    if x.ndim != y.ndim or x.ndim < 2:
        msg = f"{call}: got {both}, expected two arrays of the same rank, at least 2"
        raise RankError(msg)
    if any([sorted(spec) != list(range(x.ndim)) for spec in numbers]):
        msg = f"{call}: dimension_numbers {numbers} do not name each axis of {both} once"
        raise RankError(msg)
    n_space = x.ndim - 2
    for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation"):
        if len(params[name]) != n_space:
            msg = f"{call}: {name} is {params[name]}, expected {n_space} entries for {both}"
            raise RankError(msg)
        if name != "padding" and any([n < 1 for n in params[name]]):
            msg = f"{call}: {name} is {params[name]}, expected entries of at least 1"
            raise ShapeMismatchError(msg)
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    if groups < 1 or batches < 1 or (groups > 1 and batches > 1):
        msg = f"{call}: feature_group_count is {groups} and batch_group_count {batches}"
        raise ShapeMismatchError(msg, expected="counts of at least 1, not both above 1")
    features, batch = x.shape[numbers.lhs_spec[1]], x.shape[numbers.lhs_spec[0]]
    outs, ins = y.shape[numbers.rhs_spec[0]], y.shape[numbers.rhs_spec[1]]
    if features != ins * groups:
        msg = (
            f"{call}: lhs has {features} features, the kernel takes {ins} in each of {groups} "
            "groups, expected their product"
        )
        raise ShapeMismatchError(msg, where=both)
    if outs % groups or outs % batches or batch % batches:
        msg = f"{call}: {groups} feature groups and {batches} batch groups do not divide"
        where = f"{outs} output features, a batch of {batch}"
        raise ShapeMismatchError(msg, where=where)
    preferred = params["preferred_element_type"]
    if preferred is not None:
        for aval in (x, y):
            lossy = is_complex(aval.dtype) and not is_complex(preferred)
            if lossy or (is_inexact(aval.dtype) and not is_inexact(preferred)):
                msg = f"{call}: preferred_element_type {preferred.name} for {both}"
                hint = "convert the result with convert_element_type"
                raise DtypeMismatchError(msg, hint=hint)


def emit_convolution(ctx: LoweringContext, x: Any, y: Any, out: ShapedArray, params: Params) -> Any:
    """``stablehlo.convolution`` of operands of the dtype of the result."""
    hlo, ir = mlir.stablehlo, mlir.ir
    numbers = params["dimension_numbers"]
    (lb, lf, *ls), (ro, ri, *rs), (ob, of, *os) = numbers
    precision = precision_attributes(params["precision"], out.dtype, out.dtype, out.dtype)
    x, padding = _cut(ctx, x, out.dtype, params)
    pads = np.asarray(padding, np.int64).reshape(-1, 2)
    attributes = {
        "window_strides": i64_array(params["window_strides"]),
        "padding": ctx.dense_i64(pads),
        "lhs_dilation": i64_array(params["lhs_dilation"]),
        "rhs_dilation": i64_array(params["rhs_dilation"]),
        "window_reversal": ir.DenseBoolArrayAttr.get([False] * len(ls)),
        "dimension_numbers": hlo.ConvDimensionNumbers.get(
            input_batch_dimension=lb,
            input_feature_dimension=lf,
            input_spatial_dimensions=ls,
            kernel_input_feature_dimension=ri,
            kernel_output_feature_dimension=ro,
            kernel_spatial_dimensions=rs,
            output_batch_dimension=ob,
            output_feature_dimension=of,
            output_spatial_dimensions=os,
        ),
        "feature_group_count": i64(params["feature_group_count"]),
        "batch_group_count": i64(params["batch_group_count"]),
        "precision_config": precision["precision_config"],
    }
    return ctx.op1("stablehlo.convolution", [x, y], out, attributes)


def _cut(ctx: LoweringContext, x: Any, dtype: Any, params: Params) -> tuple[Any, Any]:
    """The array without what its paddings cut, and the paddings that are left.

    XLA's convolutions by products of matrices read beside the array where paddings are negative.
    """
    padding = [*params["padding"]]
    type_ = mlir.ir.RankedTensorType(x.type)
    if min([0, *[n for pads in padding for n in pads]]) == 0 or not type_.has_static_shape:
        return x, padding
    shape = list(type_.shape)
    starts, stops = [0] * len(shape), list(shape)
    axes = params["dimension_numbers"].lhs_spec[2:]
    for i, (axis, gap) in enumerate(zip(axes, params["lhs_dilation"], strict=True)):
        low, high = padding[i]
        if gap > 1 or shape[axis] + min(low, 0) + min(high, 0) <= 0:
            continue
        starts[axis], stops[axis] = -min(low, 0), shape[axis] + min(high, 0)
        padding[i] = max(low, 0), max(high, 0)
    sizes = tuple([b - a for a, b in zip(starts, stops, strict=True)])
    aval = ctx.avals_in[0].update(shape=sizes, dtype=dtype)
    return ctx.slice(x, aval, starts, stops, [1] * len(shape)), padding


def _emit_complex(ctx: LoweringContext, x: Any, y: Any, out: ShapedArray, params: Params) -> Any:
    """Real and imaginary parts apart: backends convolve real numbers only."""
    real = out.update(dtype=real_of(out.dtype))
    avals = [a.update(dtype=real.dtype) for a in ctx.avals_in]
    (xr, xi), (yr, yi) = [
        [ctx.op1(part, [v], a) for part in ("stablehlo.real", "stablehlo.imag")]
        for v, a in zip((x, y), avals, strict=True)
    ]

    def product(a: Any, b: Any) -> Any:
        return emit_convolution(ctx, a, b, real, params)

    re = ctx.op1("stablehlo.subtract", [product(xr, yr), product(xi, yi)], real)
    im = ctx.op1("stablehlo.add", [product(xr, yi), product(xi, yr)], real)
    return ctx.op1("stablehlo.complex", [re, im], out)
