"""Which convolutions are written as other operations on the CPU.

XLA convolves float32 along one or two axes by products of matrices, and is good at it for many
features. It has slow loops for groups, three axes, gaps and most of float64. The limits below were
measured with one thread of a processor with AVX-512.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.config.values import tracing_key
from tracebridge.core.conv import cpu_forms as forms
from tracebridge.core.conv import cpu_gradients as gradients
from tracebridge.core.conv import cpu_rows as rows
from tracebridge.core.conv import cpu_toeplitz as toeplitz
from tracebridge.core.conv import library_forms, onednn
from tracebridge.core.conv.geometry import Geometry, geometry_of, padded
from tracebridge.core.dtypes.dtypes import is_float
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.reduce.cpu_sums import parts_read_by
from tracebridge.core.lax.reduce.reductions import accumulator_dtype
from tracebridge.core.lax.stored import emit_stored
from tracebridge.core.mlir.attrs import leave_apart
from tracebridge.core.mlir.onednn import has_avx2, has_avx512

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value

Form = Callable[..., Any]

_FEW_PRODUCTS = 1 << 14  # what takes microseconds in any form
_MAX_FEATURES = 4  # features so few that XLA's products of matrices are slow
_MAX_SINGLE_TERMS = 36
_MANY_SHIFTS = 25  # terms of a result that are a program of their own
_LEAST_STORED = 1 << 10  # elements of an array that is written for what would compute it each time
_MAX_PLACES = 64  # results, or taps, that are written out one by one
_MAX_PEELED = 8
_MAX_GROUPS = 8
_MANY_GROUPS = 9  # whose gradients the library makes faster than loops with AVX2 too
_MAX_PAIRS = 9  # of a row and an output of a group, of which products of matrices are too small
_MAX_PHASES = 16
_MANY = 1 << 20

# Where a library for convolutions is faster than these forms.
_MANY_WITH_GAPS = 1 << 25
_MANY_WITH_UNEVEN_GAPS = 1 << 27
_SMALL_WITH_GAPS = 14 * 14  # places of an image
_MANY_OF_SMALL_WITH_GAPS = 1 << 29
_MANY_OUTPUTS, _TIMES_INPUTS = 128, 8
_LEAST_TERMS = 16  # of a result: fewer are added up as fast by a loop
_MANY_TERMS = 1 << 23  # products of all results
_FEW_ROWS = 9  # results that are sums over long rows: XLA makes more of them one slow loop
_FEW_SUMS = 9  # results of a gradient that loops add up as fast,
_LARGE = 1 << 21  # if caches hold so many elements
_WIDE = 256  # features, of which fewer do not keep the threads of the library busy
_LARGE_IMAGE = 48 * 48  # places, of which turning round is little beside
_MANY_OF_GRADIENT = 1 << 27  # so many products
_SMALL_IMAGE = 16 * 16  # places, of which the operation makes many small products of matrices
_MANY_OF_SMALL = 1 << 24
_MEDIUM_IMAGE = 36 * 36  # places, up to which one thread is as fast by the library, two faster,
_FILLED = (12, 16)  # if examples fill the lanes of a register once,
_FEW_FEATURES = 32  # each has so many features,
_OF_GRADIENT = (64, 127)  # and outputs are many; the operation divides more among threads
_MANY_OF_MEDIUM = 1 << 25
_MANY_RESULTS = 25  # taps of a kernel, whose gradient the operation makes slowly
_MANY_OF_TAPS = 1 << 25
_LONGER = 1.2  # products, those with zeros too, by those of a gradient, and
_MANY_OF_SHIFTS = 64  # rows in all shifts, from which on copies are worth it; the operation
_MANY_OF_LAST = 1 << 22  # does fewer products as fast if features are last


def form_of(g: Geometry, dtype: Any, library: bool, without: Collection[Form] = ()) -> Form | None:
    """The form that is faster than the operation for elements of ``dtype``, if there is one.

    ``library`` is whether there is one for convolutions, ``without`` are forms that may not be it.
    """
    if g.n_space == 0 or g.products < _FEW_PRODUCTS:
        return None
    few_results = _is_few_results(g)
    if math.prod(g.results) == 1 and g.groups == 1 and max(g.lhs_dilation) == 1:
        return rows.summed_matrices if rows.has_matrices(g, dtype) else forms.pointwise_gradient
    for form, suits in (
        (rows.summed_rows, _is_sum_of_rows),
        (gradients.shifted_products, _is_for_shifts),
    ):
        if few_results and form not in without and suits(g, dtype):
            return form
    gradient = _gradient_by_library(g, dtype) if library and few_results else None
    if gradient is not None:
        return gradient
    if g.batch_groups > 1:
        if few_results and forms.can_contract(g):
            pairs = g.lhs[g.numbers.lhs_spec[0]] // g.groups * g.outputs
            if pairs == 1:
                return forms.summed_products
            return forms.pairs_apart if pairs <= _MAX_PAIRS else forms.contracted
        return forms.groups_apart if g.groups <= _MAX_GROUPS else None
    if any([a > 1 for a in g.lhs_dilation]):
        return _form_with_gaps(g, dtype, few_results, library)
    if _is_long(g):
        is_gradient = g.results[0] < g.kernel[0]
        return toeplitz.by_block_products if is_gradient else toeplitz.by_blocks
    terms = g.inputs * math.prod(g.kernel)
    if not few_results and terms <= _most_terms(g, dtype):
        return forms.multiply_add
    if g.n_space == 3:
        return forms.peeled if forms.peeled_axis(g)[1] <= _MAX_PEELED else None
    if g.n_space == 1 and dtype == np.float64:
        return forms.with_unit_axis
    if 1 < g.groups <= _MAX_GROUPS:
        return forms.groups_apart
    return None


def _is_sum_of_rows(g: Geometry, dtype: Any) -> bool:
    """Whether it is the gradient of a depthwise kernel of few places, of images in one row."""
    return (
        dtype == np.float32
        and g.batch_groups == g.lhs[g.numbers.lhs_spec[0]]
        and g.outputs == 1
        and 1 < math.prod(g.results) <= _FEW_ROWS
        # Taking planes apart by both axes takes as long as all the rest.
        and (g.n_space == 1 or g.rhs_dilation[-1] == 1)
        and rows.has_rows(g)
    )


def _is_for_shifts(g: Geometry, dtype: Any) -> bool:
    """Whether a gradient is a product of shifted copies, which was measured with AVX2 alone."""
    if has_avx512() or not has_avx2() or dtype != np.float32 or g.n_space == 1:
        return False
    if not gradients.can_shift(g):
        return False
    shifts = math.prod(g.results) * g.lhs[g.numbers.lhs_spec[0]]
    is_enough = gradients.is_in_front(g) or g.products >= _MANY_OF_LAST
    return is_enough and shifts >= _MANY_OF_SHIFTS and gradients.longer(g) <= _LONGER


def _gradient_by_library(g: Geometry, dtype: Any) -> Form | None:
    """How the library makes the gradient of a kernel, if it is fast at that."""
    if g.batch_groups == 1:
        wins = g.groups == 1 and g.n_space == 2 and _is_slow_gradient(g)
        form, made = library_forms.features_last, library_forms.features_last_of
    elif g.lhs[g.numbers.lhs_spec[0]] == g.groups and g.outputs == 1:
        form, made = library_forms.depthwise_gradient, library_forms.depthwise_gradient_of
        many = math.prod(g.results) > _FEW_SUMS or math.prod(g.lhs) >= _LARGE
        wins = many and g.lhs[g.numbers.lhs_spec[1]] * g.groups >= _WIDE
    else:
        form, made = library_forms.grouped_gradient, library_forms.grouped_gradient_of
        wins = has_avx512() or (g.n_space > 1 and g.batch_groups >= _MANY_GROUPS)
    return form if wins and onednn.can_convolve(made(g), dtype) else None


def _is_slow_gradient(g: Geometry) -> bool:
    """Whether the operation is slower than the library at the gradient of an image's kernel."""
    size = math.prod(g.sizes)
    return (
        (size >= _LARGE_IMAGE and g.products >= _MANY_OF_GRADIENT)
        or (size <= _SMALL_IMAGE and g.products >= _MANY_OF_SMALL)
        or (math.prod(g.results) >= _MANY_RESULTS and g.products >= _MANY_OF_TAPS)
        or _is_medium_gradient(g)
    )


def _is_medium_gradient(g: Geometry) -> bool:
    """Whether the library's threads win for images of medium size; examples are its features."""
    return (
        math.prod(g.sizes) <= _MEDIUM_IMAGE
        and math.prod(g.results) >= _FEW_SUMS
        and _FILLED[0] <= g.inputs <= _FILLED[1]
        and g.lhs[g.numbers.lhs_spec[0]] >= _FEW_FEATURES
        and _OF_GRADIENT[0] <= g.outputs <= _OF_GRADIENT[1]
        and g.products >= _MANY_OF_MEDIUM
    )


def _is_few_results(g: Geometry) -> bool:
    results = math.prod(g.results)
    return results <= _MAX_PLACES and results < math.prod(g.kernel)


def _most_terms(g: Geometry, dtype: Any) -> int:
    """How many products a result may have to be added up in a loop."""
    if min(g.inputs, g.outputs) > 2 * _MAX_FEATURES and g.groups == 1:
        return 0
    if g.groups > 1 or dtype == np.float64:
        return forms.MAX_TERMS
    if g.outputs <= _MAX_FEATURES:
        return 2 * forms.MAX_TERMS
    return _MAX_SINGLE_TERMS if g.inputs <= _MAX_FEATURES else 0


def _form_with_gaps(g: Geometry, dtype: Any, few_results: bool, library: bool) -> Form | None:
    if few_results:
        return forms.contracted if forms.can_contract(g) else None
    simple = all(
        [
            a == 1 or (stride == 1 and hole == 1)
            for a, stride, hole in zip(g.lhs_dilation, g.strides, g.rhs_dilation, strict=True)
        ]
    )
    if not simple:
        return None
    phases = math.prod(g.lhs_dilation)
    steps = zip(g.strides, g.rhs_dilation, g.kernel, g.lhs_dilation, strict=True)
    is_apart = g.groups == 1 and all([s == b == 1 and k <= a for s, b, k, a in steps])
    if is_apart and phases >= _MAX_PHASES:
        return forms.spread_products
    is_slow = g.groups > 1 or g.n_space == 3 or dtype == np.float64
    is_slow = is_slow or (
        library and g.products >= _many_with_gaps(g) and onednn.has_kernels(g, dtype)
    )
    return forms.by_phases if is_slow and phases <= _MAX_PHASES else None


def _many_with_gaps(g: Geometry) -> int:
    """Products, most of them with zeros, that are worth a call of the library for each phase.

    With AVX2 it is slow at phases of few places, as those of odd kernels are, above all of small
    images: the operation makes one product of matrices for all of them.
    """
    steps = list(zip(g.kernel, g.lhs_dilation, strict=True))
    is_even = all([k % a == 0 and (k > a or a == 1) for k, a in steps])
    if has_avx512() or is_even:
        return _MANY_WITH_GAPS
    is_small = math.prod(g.sizes) <= _SMALL_WITH_GAPS
    return _MANY_OF_SMALL_WITH_GAPS if is_small else _MANY_WITH_UNEVEN_GAPS


def _is_long(g: Geometry) -> bool:
    """Whether one row of one feature is convolved with a long kernel."""
    if g.n_space != 1 or g.groups > 1 or g.outputs > 1 or g.products < _MANY:
        return False
    if not g.strides[0] == g.lhs_dilation[0] == g.rhs_dilation[0] == 1:
        return False
    shorter, longer = sorted((g.kernel[0], g.results[0]))
    fits = g.lhs[g.numbers.lhs_spec[0]] == 1 if g.results[0] < g.kernel[0] else g.inputs == 1
    blocks = toeplitz.block_count(shorter)
    return fits and shorter >= 32 and longer >= 1024 and blocks <= toeplitz.MAX_BLOCKS


def lower(prim: Primitive, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
    """The operation, or its form for the CPU."""
    x, y = ctx.avals_in
    out = ctx.aval_out
    sizes = (*x.shape, *y.shape, *out.shape)
    if not is_float(out.dtype) or 0 in sizes or any([type(n) is not int for n in sizes]):
        return prim.lower(ctx, *operands, **params)
    dtype = accumulator_dtype(out.dtype)
    g = geometry_of(x.shape, y.shape, out.shape, params)
    if _is_outside(g):
        return prim.lower(ctx, *operands, **params)
    library = onednn.IS_BUILT_IN and not ctx.is_split and dtype == np.float32
    # Parts of examples would be taken from other devices.
    form = form_of(g, dtype, library, (gradients.shifted_products,) if ctx.is_split else ())
    if library and _is_for_library(g, dtype, form):
        form = by_library
    if form is None:
        return prim.lower(ctx, *operands, **params)
    if form is by_library and _is_plain(g) and x.dtype == y.dtype == out.dtype == dtype:
        if not onednn.wants_features_last(g):
            return onednn.emit(ctx, operands, g)
        form = library_forms.turned

    def composed(form: Form) -> Callable[..., Any]:
        return _composed(prim, form, g, out.dtype, dtype)

    def by_form(form: Form | None) -> Sequence[IrValue]:
        if form is None:
            return [prim.lower(ctx, *operands, **params)]
        return ctx.lower_fun(composed(form), *operands, avals_in=[x, y])

    if form in (toeplitz.by_blocks, toeplitz.by_block_products):
        is_finite = ctx.lower_fun(lambda v, _: toeplitz.all_finite(v), *operands)[0]
        return _chosen(ctx, is_finite, lambda: by_form(form), lambda: by_form(None))
    many = form is forms.multiply_add and g.inputs * math.prod(g.kernel) >= _MANY_SHIFTS
    apart = form in (forms.summed_products, rows.summed_rows, gradients.shifted_products)
    if (many or apart) and not ctx.is_split:
        # Each place of a kernel reads all of both: what makes them must not be done for each.
        # Equal layers share what is compiled.
        key = "convolution", form, g, out.dtype, tracing_key()
        (result,) = ctx.call_fun(key, composed(form), operands, ctx.avals_in, "convolution")
        leave_apart(result)
    else:
        left, right = operands
        is_shifted = form is forms.multiply_add and not ctx.is_split
        if is_shifted and _is_read_often(left, x, g):
            left = emit_stored(ctx, left, x)
        (result,) = ctx.lower_fun(composed(form), left, right)
    if form is gradients.shifted_products:
        has_zeros = gradients.shifts_cotangent(g)
    else:
        has_zeros = form is rows.summed_rows
    if not has_zeros:
        return result
    # Its zeros meet places that the kernel does not: an infinity, or a NaN, there shows.
    is_finite = ctx.lower_fun(toeplitz.all_finite, result, avals_in=[out])[0]
    exact = form_of(g, dtype, library, (rows.summed_rows, gradients.shifted_products))
    return _chosen(ctx, is_finite, lambda: [result], lambda: by_form(exact))


def _composed(
    prim: Primitive, form: Form, g: Geometry, out_dtype: Any, dtype: Any
) -> Callable[..., Any]:
    """``form`` of both operands, with sums of elements of ``dtype``."""

    def wide(value: Value) -> Any:
        # As the operation: to the dtype of the result, whose sums narrow floats do not hold.
        for kind in (out_dtype, dtype):
            value = value if value.aval.dtype == kind else lax.convert_dtype(value, kind)
        return value

    def compose(*values: Value) -> Any:
        left, right = map(wide, values)
        total = form(prim, left, right, g)
        return total if dtype == out_dtype else lax.convert_dtype(total, out_dtype)

    return compose


def _chosen(
    ctx: LoweringContext,
    condition: IrValue,
    first: Callable[[], Sequence[IrValue]],
    second: Callable[[], Sequence[IrValue]],
) -> Any:
    """What the first way gives where the condition holds, else the second."""
    choice: Any = ctx.op("stablehlo.if", [condition], [ctx.aval_out], regions=2)
    for region, way in zip(choice.regions, (first, second), strict=True):
        with ctx.block(region, []):
            ctx.finish(way())
    return choice.results[0]


def _is_read_often(value: IrValue, x: ShapedArray, g: Geometry) -> bool:
    """Whether an array is made of parts of others, all of which XLA would read for each tap.

    As the result of another convolution of this form.
    """
    least = -(-_MANY_SHIFTS // (g.inputs * math.prod(g.kernel)))
    return x.size >= _LEAST_STORED and parts_read_by(value, least) >= least


def _is_for_library(g: Geometry, dtype: Any, form: Form | None) -> bool:
    """Whether the library for convolutions is faster than ``form``."""
    if form in (toeplitz.by_blocks, toeplitz.by_block_products):
        return False
    if g.n_space == 1 and onednn.wants_features_last(g):
        # Turning many results of few features round, or few terms, takes what the library saves.
        is_wide = g.outputs >= max(_MANY_OUTPUTS, _TIMES_INPUTS * g.inputs)
        if form is forms.multiply_add or is_wide:
            return False
    if form is forms.multiply_add:
        features_last = onednn.has_features_last(g)
        if g.groups > 1:
            is_wide = g.inputs >= 2 * onednn.LEAST_OF_GROUP
            return (features_last or is_wide) and onednn.can_convolve(g, dtype)
        terms = g.inputs * math.prod(g.kernel)
        if not (features_last and terms >= _LEAST_TERMS and g.products >= _MANY_TERMS):
            return False
    return onednn.can_convolve(g, dtype)


def _is_plain(g: Geometry) -> bool:
    """Whether no padding cuts anything off."""
    return min([0, *[n for pads in g.padding for n in pads]]) == 0


def by_library(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """The operation, after what its paddings cut."""
    cut = tuple([(min(low, 0), min(high, 0)) for low, high in g.padding])
    left = tuple([(max(low, 0), max(high, 0)) for low, high in g.padding])
    return prim.bind(padded(x, g.numbers.lhs_spec[2:], cut), y, **g.params(padding=left))


def _is_outside(g: Geometry) -> bool:
    """Whether padding cuts more than there is."""
    pairs = zip(g.sizes, g.lhs_dilation, g.padding, strict=True)
    return any([(n - 1) * a + 1 + min(pads) <= 0 for n, a, pads in pairs])
