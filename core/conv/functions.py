"""Convolutions as functions: general, transposed, local, and the patches that they see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.conv.numbers import (
    ConvDimensionNumbers,
    canonical_padding,
    conv_dimension_numbers,
    size_with_gaps,
    transposed_padding,
)
from tracebridge.core.conv.primitive import conv_general_dilated_p
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.contract.precision import canonical_precision
from tracebridge.core.lax.families import operands
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.lax.unsplit import unsplit

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand

Padding = str | Sequence[tuple[int, int]]


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: object = None,
    preferred_element_type: object = None,
    out_sharding: object = None,
) -> Any:
    """Convolution of any number of spatial axes: sums of products, the kernel not turned around.

    Args:
        lhs: array of rank ``n + 2``: batch, features and ``n`` spatial axes.
        rhs: kernel of rank ``n + 2`` and the same dtype: output features, input features
            (those of ``lhs`` divided by ``feature_group_count``) and spatial axes.
        window_strides: how far the kernel moves at a time, for each spatial axis.
        padding: ``"SAME"``, ``"SAME_LOWER"``, ``"VALID"``, or a pair (before, after) for each
            spatial axis; negative numbers cut.
        lhs_dilation: distance of neighbours in ``lhs`` (default: 1, no gaps).
        rhs_dilation: distance of neighbours in the kernel (default: 1, no gaps).
        dimension_numbers: which axes are which, as in ``conv_dimension_numbers``.
        feature_group_count: number of groups of features, each with its part of the kernel.
        batch_group_count: number of groups of the batch, each with its part of the kernel.
        precision: as in ``dot_general``.
        preferred_element_type: dtype of the sums and of the result.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Returns:
        Array with batch, output features and spatial axes in the order of ``dimension_numbers``.

    Raises:
        RankError: ranks differ, or an argument has not an entry for each spatial axis.
        ShapeMismatchError: the numbers of features do not fit, or groups do not divide them.
        DtypeMismatchError: two dtypes.
        ArgumentValueError: no such padding or dimension numbers.

    >>> import tracebridge as tb
    >>> x, kernel = tb.numpy.ones((1, 2, 5, 5)), tb.numpy.ones((3, 2, 2, 2))
    >>> tb.lax.conv_general_dilated(x, kernel, (1, 1), "SAME").shape
    (1, 3, 5, 5)
    """
    call = "conv_general_dilated"
    x, y = operands(call, lhs, rhs)
    if x.aval.dtype != y.aval.dtype:
        msg = (
            f"{call}: operands need the same dtype, got {x.aval.str_short()}, {y.aval.str_short()}"
        )
        raise DtypeMismatchError(msg, hint="convert with convert_element_type")
    numbers = conv_dimension_numbers(x.aval.shape, y.aval.shape, dimension_numbers)
    n = len(numbers.lhs_spec) - 2
    if x.aval.ndim != n + 2 or y.aval.ndim != n + 2:
        msg = f"{call}: dimension_numbers {numbers} for {x.aval.str_short()}, {y.aval.str_short()}"
        raise RankError(msg, expected=f"arrays of rank {n + 2}")
    strides, gaps, holes = [
        _ints(call, name, (1,) * n if per_axis is None else per_axis, n)
        for name, per_axis in (
            ("window_strides", window_strides),
            ("lhs_dilation", lhs_dilation),
            ("rhs_dilation", rhs_dilation),
        )
    ]
    sizes, kernel = [
        [size_with_gaps(v.aval.shape[i], a) for i, a in zip(spec[2:], apart, strict=True)]
        for v, spec, apart in ((x, numbers.lhs_spec, gaps), (y, numbers.rhs_spec, holes))
    ]
    preferred = preferred_element_type
    pads = canonical_padding(call, padding, sizes, kernel, strides)
    if any([type(p) is not int for pair in pads for p in pair]):
        x, pads, gaps = _padded(x, numbers.lhs_spec[2:], pads, gaps)
    if out_sharding is not None:
        x, y = unsplit(x), unsplit(y)
    out = conv_general_dilated_p.bind(
        x,
        y,
        window_strides=strides,
        padding=pads,
        lhs_dilation=gaps,
        rhs_dilation=holes,
        dimension_numbers=numbers,
        feature_group_count=index_of(feature_group_count, call, "feature_group_count"),
        batch_group_count=index_of(batch_group_count, call, "batch_group_count"),
        precision=canonical_precision(precision, call),
        preferred_element_type=None
        if preferred is None
        else canonicalize_explicit(preferred, call),
    )
    return out if out_sharding is None else constrained_result(call, out, out_sharding)


def _padded(
    x: Any, axes: Sequence[int], pads: Any, gaps: Sequence[int]
) -> tuple[Any, Any, tuple[int, ...]]:
    """The operand with zeros around and between, and the padding and gaps that are left.

    XLA convolves with padding that it knows.
    """
    config: list[Any] = [(0, 0, 0)] * x.aval.ndim
    for axis, (low, high), gap in zip(axes, pads, gaps, strict=True):
        config[axis] = low, high, gap - 1
    padded = lax.pad(x, zeros_of(x.aval.update(shape=(), weak_type=False)), config)
    return padded, ((0, 0),) * len(gaps), (1,) * len(gaps)


def _ints(call: str, name: str, values: Sequence[Any], n: int) -> tuple[int, ...]:
    found = tuple([index_of(v, call, name) for v in values])
    if len(found) != n:
        msg = f"{call}: {name} is {found}, expected {n} entries, one for each spatial axis"
        raise RankError(msg)
    return found


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str,
    precision: object = None,
    preferred_element_type: object = None,
) -> Any:
    """Convolution with axes in the default order: batch, features, space.

    Args:
        lhs: array of shape ``(batch, features, *space)``.
        rhs: kernel of shape ``(output features, features, *space)``.
        window_strides: for each spatial axis.
        padding: ``"SAME"``, ``"SAME_LOWER"`` or ``"VALID"``.
        precision: as in ``dot_general``.
        preferred_element_type: dtype of the sums and of the result.

    >>> import tracebridge as tb
    >>> tb.lax.conv(tb.numpy.ones((1, 2, 5)), tb.numpy.ones((3, 2, 2)), (1,), "VALID").shape
    (1, 3, 4)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: object = None,
    preferred_element_type: object = None,
) -> Any:
    """Convolution with any padding and dilation, and axes in the default order.

    Args:
        lhs: array of shape ``(batch, features, *space)``.
        rhs: kernel of shape ``(output features, features, *space)``.
        window_strides: for each spatial axis.
        padding: as in ``conv_general_dilated``.
        lhs_dilation: as in ``conv_general_dilated``.
        rhs_dilation: as in ``conv_general_dilated``.
        precision: as in ``dot_general``.
        preferred_element_type: dtype of the sums and of the result.

    >>> import tracebridge as tb
    >>> x, kernel = tb.numpy.ones((1, 2, 5)), tb.numpy.ones((3, 2, 2))
    >>> tb.lax.conv_with_general_padding(x, kernel, (1,), [(1, 0)], (2,), None).shape
    (1, 3, 9)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


_TRANSPOSED_NUMBERS = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: Padding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: object = None,
    preferred_element_type: object = None,
    use_consistent_padding: bool = False,
) -> Any:
    """Transposed ("fractionally strided") convolution: ``lhs`` is spread by the strides.

    Args:
        lhs: array of rank ``n + 2``.
        rhs: kernel of rank ``n + 2``.
        strides: how far neighbours of ``lhs`` are apart in the result, for each spatial axis.
        padding: ``"SAME"`` or ``"VALID"``: that of the convolution which is transposed; or a pair
            for each spatial axis: that of the transposed one.
        rhs_dilation: distance of neighbours in the kernel (default: 1).
        dimension_numbers: as in ``conv_dimension_numbers``; default: features last, ``NHWC`` and
            ``HWIO``.
        transpose_kernel: turn the kernel around and swap its features, as the gradient of a
            convolution with that kernel does.
        precision: as in ``dot_general``.
        preferred_element_type: dtype of the sums and of the result.
        use_consistent_padding: pairs are, like names, the padding of the convolution which is
            transposed.

    Raises:
        RankError: ranks differ, or are not 2 to 5 without dimension numbers.
        ArgumentValueError: no such padding.

    >>> import tracebridge as tb
    >>> x, kernel = tb.numpy.ones((1, 4, 4, 3)), tb.numpy.ones((3, 3, 3, 5))
    >>> tb.lax.conv_transpose(x, kernel, (2, 2), "SAME").shape
    (1, 8, 8, 5)
    """
    call = "conv_transpose"
    x, y = operands(call, lhs, rhs)
    ndim = x.aval.ndim
    if ndim != y.aval.ndim or (dimension_numbers is None and ndim not in _TRANSPOSED_NUMBERS):
        msg = f"{call}: got {x.aval.str_short()} and {y.aval.str_short()}"
        raise RankError(msg, expected="one rank from 2 to 5", hint="give dimension_numbers")
    numbers_or_spec = _TRANSPOSED_NUMBERS[ndim] if dimension_numbers is None else dimension_numbers
    numbers = conv_dimension_numbers(x.aval.shape, y.aval.shape, numbers_or_spec)
    space = numbers.rhs_spec[2:]
    holes = (1,) * len(space) if rhs_dilation is None else tuple(rhs_dilation)
    pads: Any = padding
    if isinstance(padding, str) and padding.upper() not in ("SAME", "VALID"):
        msg = f"{call}: padding is {padding!r}"
        raise ArgumentValueError(msg, expected="'SAME', 'VALID' or a pair for each spatial axis")
    if use_consistent_padding or isinstance(padding, str):
        each = [padding.upper()] * len(space) if isinstance(padding, str) else padding
        sizes = [size_with_gaps(y.aval.shape[i], b) for i, b in zip(space, holes, strict=True)]
        pads = [
            transposed_padding(k, s, p if isinstance(p, str) else (p[0], p[1]))
            for k, s, p in zip(sizes, strides, each, strict=True)
        ]
    if transpose_kernel:
        order = list(range(ndim))
        first, second = numbers.rhs_spec[:2]
        order[first], order[second] = second, first
        y = lax.transpose(lax.rev(y, space), tuple(order))
    return conv_general_dilated(
        x,
        y,
        (1,) * len(space),
        pads,
        strides,
        holes,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_patches(
    lhs: Operand,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: object = None,
) -> Any:
    """The patches that a kernel of a given shape sees, as features of the result.

    Args:
        lhs: array of rank ``n + 2``.
        filter_shape: the ``n`` spatial sizes of the kernel.
        window_strides: as in ``conv_general_dilated``.
        padding: as in ``conv_general_dilated``.
        lhs_dilation: as in ``conv_general_dilated``.
        rhs_dilation: as in ``conv_general_dilated``.
        dimension_numbers: as in ``conv_general_dilated``.
        precision: a ``Precision`` for ``lhs``.
        preferred_element_type: dtype of the result.

    Returns:
        Array whose feature axis has the elements of a patch: for each feature of ``lhs`` all
        places of the kernel.

    >>> import tracebridge as tb
    >>> x = tb.numpy.arange(4.0).reshape(1, 1, 4)
    >>> tb.lax.conv_general_dilated_patches(x, (2,), (1,), "VALID")[0].tolist()
    [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]
    """
    (x,) = operands("conv_general_dilated_patches", lhs)
    places = _sizes("conv_general_dilated_patches", filter_shape)
    numbers = conv_dimension_numbers(x.aval.shape, (1, 1, *places), dimension_numbers)
    size, features = math.prod(places), x.aval.shape[numbers.lhs_spec[1]]
    scalar = x.aval.update(shape=(size, size), weak_type=False)
    row, column = [lax.broadcasted_iota("int32", (size, size), axis) for axis in (0, 1)]
    eye = lax.convert_dtype(lax.eq(row, column), scalar.dtype)
    kernel = lax.broadcast_in_dim(eye, (features, size, size), (1, 2))
    kernel = lax.reshape(kernel, (features * size, 1, *places))
    order = [numbers.rhs_spec.index(i) for i in range(x.aval.ndim)]
    return conv_general_dilated(
        x,
        lax.transpose(kernel, tuple(order)),
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        numbers,
        feature_group_count=features,
        precision=None if precision is None else (precision, lax.Precision.DEFAULT),
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_local(
    lhs: Operand,
    rhs: Operand,
    window_strides: Sequence[int],
    padding: Padding,
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
) -> Any:
    """Convolution with a kernel of its own at each place.

    Args:
        lhs: array of rank ``n + 2``.
        rhs: array of rank ``n + 2``: output features, the elements of a patch (features of ``lhs``
            times places of the kernel), and the spatial sizes of the result.
        window_strides: as in ``conv_general_dilated``.
        padding: as in ``conv_general_dilated``.
        filter_shape: the ``n`` spatial sizes of the kernels.
        lhs_dilation: as in ``conv_general_dilated``.
        rhs_dilation: as in ``conv_general_dilated``.
        dimension_numbers: as in ``conv_general_dilated``.
        precision: as in ``dot_general``: one, or a pair.

    Raises:
        ArgumentValueError: a precision that is an algorithm.

    >>> import tracebridge as tb
    >>> x, kernels = tb.numpy.ones((1, 1, 4)), tb.numpy.arange(6.0).reshape(1, 2, 3)
    >>> tb.lax.conv_general_dilated_local(x, kernels, (1,), "VALID", (2,)).tolist()
    [[[3.0, 5.0, 7.0]]]
    """
    call = "conv_general_dilated_local"
    x, y = operands(call, lhs, rhs)
    filter_shape = _sizes(call, filter_shape)
    pair = canonical_precision(precision, call)
    if pair is not None and not isinstance(pair, tuple):
        msg = f"{call}: precision is {precision!r}"
        raise ArgumentValueError(msg, expected="None, a Precision or a pair of them")
    numbers = conv_dimension_numbers(x.aval.shape, y.aval.shape, dimension_numbers)
    patches = conv_general_dilated_patches(
        x,
        filter_shape,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        numbers,
        None if pair is None else pair[0],
    )
    return _local_products(patches, y, numbers, pair)


def _sizes(call: str, filter_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple([index_of(size, call, "filter_shape") for size in filter_shape])


def _local_products(patches: Any, kernels: Any, numbers: ConvDimensionNumbers, pair: Any) -> Any:
    """For each place the product of its patch and its kernel."""
    _, rhs, out = numbers
    axes = (((out[1],), (rhs[1],)), (out[2:], rhs[2:]))
    product = lax.dot_general(patches, kernels, axes, pair)
    # It has the spatial axes, the batch and the features, in this order.
    n = len(out)
    ordered = [n - 2, n - 1, *range(n - 2)]
    return lax.transpose(product, tuple([ordered[out.index(i)] for i in range(n)]))
