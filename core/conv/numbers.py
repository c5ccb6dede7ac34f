"""Which axes of a convolution are which, and the shapes that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    size_of,
)
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.lax.shape.padtype import padtype_to_pads
from tracebridge.core.symbolic.dims import max_dim
from tracebridge.core.util.public_path import public_path

Ints = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


@public_path("tracebridge.lax")
class ConvDimensionNumbers(NamedTuple):
    """The axes of a convolution's operands and result.

    Each field lists axes: batch and feature, then the spatial ones; in ``rhs_spec`` output feature
    and input feature come first.

    >>> import tracebridge as tb
    >>> tb.lax.ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2)).lhs_spec
    (0, 1, 2)
    """

    lhs_spec: Ints
    rhs_spec: Ints
    out_spec: Ints


ConvGeneralDilatedDimensionNumbers = None | ConvDimensionNumbers | tuple[str, str, str] | list[str]
"""What functions take as ``dimension_numbers``: None, three strings such as NCHW, OIHW, NCHW, or a
``ConvDimensionNumbers``."""


def conv_dimension_numbers(
    lhs_shape: Sequence[Any], rhs_shape: Sequence[Any], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Dimension numbers in their normal form.

    Args:
        lhs_shape: shape of the array.
        rhs_shape: shape of the kernel, of the same rank.
        dimension_numbers: ``None`` (batch, features, space; for the kernel output features, input
            features, space), three strings with a letter per axis (N and C, O and I, and any for
            the spatial axes), or a ``ConvDimensionNumbers``.

    Raises:
        RankError: the ranks differ, or a string has another length.
        ArgumentTypeError: something else.
        ArgumentValueError: a string lacks a letter or repeats one.

    >>> import tracebridge as tb
    >>> tb.lax.conv_dimension_numbers((1, 8, 3), (5, 3, 4), ("NHC", "HIO", "NHC")).rhs_spec
    (2, 1, 0)
    """
    call = "conv_dimension_numbers"
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    n = len(lhs_shape)
    if n != len(rhs_shape):
        msg = f"{call}: lhs has shape {tuple(lhs_shape)} and rhs {tuple(rhs_shape)}"
        raise RankError(msg, expected="two shapes of the same length")
    if dimension_numbers is None:
        return ConvDimensionNumbers(*[tuple(range(n))] * 3)
    expected = "None, three strings such as ('NCHW', 'OIHW', 'NCHW'), or a ConvDimensionNumbers"
    if not isinstance(dimension_numbers, tuple | list) or len(dimension_numbers) != 3:
        msg = f"{call}: dimension_numbers is {dimension_numbers!r}"
        raise ArgumentTypeError(msg, expected=expected)
    if not all([isinstance(spec, str) for spec in dimension_numbers]):
        msg = f"{call}: dimension_numbers is {dimension_numbers!r}"
        raise ArgumentTypeError(msg, expected=expected)
    if any([len(spec) != n for spec in dimension_numbers]):
        msg = f"{call}: dimension_numbers is {tuple(dimension_numbers)!r}"
        raise RankError(msg, expected=f"{n} letters in each, one per axis")
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[Ints, Ints, Ints]:
    """The axes that three strings of letters name.

    Args:
        dimension_numbers: strings for array, kernel and result, with N and C, O and I, N and C,
            and the same letters for the spatial axes.

    Returns:
        Three tuples of axes: N and C (O and I), then the spatial axes in the order of the kernel.

    Raises:
        ArgumentValueError: a letter is missing or repeated, or the spatial letters differ.

    >>> import tracebridge as tb
    >>> tb.lax.conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    call = "conv_general_permutations"
    leading = ("NC", "OI", "NC")
    spaces: list[set[str]] = []
    for spec, first in zip(dimension_numbers, leading, strict=True):
        if len(set(spec)) != len(spec) or any([c not in spec for c in first]):
            msg = f"{call}: dimension_numbers has {spec!r}"
            raise ArgumentValueError(
                msg, expected=f"distinct letters, among them {first[0]} and {first[1]}"
            )
        spaces.append(set(spec) - set(first))
    if spaces[0] != spaces[1] or spaces[1] != spaces[2]:
        msg = f"{call}: dimension_numbers is {tuple(dimension_numbers)!r}"
        raise ArgumentValueError(msg, expected="the same letters for the spatial axes in all three")
    space = [c for c in dimension_numbers[1] if c not in "OI"]
    lhs, rhs, out = [
        tuple([spec.index(c) for c in (*first, *space)])
        for spec, first in zip(dimension_numbers, leading, strict=True)
    ]
    return lhs, rhs, out


def size_with_gaps(size: Any, dilation: int) -> Any:
    """The size of an axis with ``dilation - 1`` gaps between neighbours."""
    if dilation == 1 or (type(size) is int and size == 0):
        return size
    return (size - 1) * dilation + 1


def spatial_sizes(
    lhs: Sequence[Any],
    rhs: Sequence[Any],
    strides: Sequence[int],
    padding: Pads,
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
) -> list[Any]:
    """The spatial sizes of the result."""
    sizes: list[Any] = []
    for n, k, s, (low, high), a, b in zip(
        lhs, rhs, strides, padding, lhs_dilation, rhs_dilation, strict=True
    ):
        room = size_with_gaps(n, a) + low + high - size_with_gaps(k, b)
        sizes.append(max_dim(room // s + 1, 0))
    return sizes


def canonical_padding(
    call: str, padding: Any, sizes: Sequence[Any], kernel: Sequence[Any], strides: Sequence[int]
) -> Pads:
    """Padding as a pair for each spatial axis; ``sizes`` and ``kernel`` have their gaps.

    Raises:
        ArgumentValueError: no such name, or no pairs.
        RankError: not one pair for each spatial axis.
    """
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "SAME_LOWER", "VALID"):
            msg = f"{call}: padding is {padding!r}"
            expected = "'SAME', 'SAME_LOWER', 'VALID' or a pair of integers for each spatial axis"
            raise ArgumentValueError(msg, expected=expected)
        if padding.upper() == "VALID":
            return ((0, 0),) * len(sizes)
        return tuple(padtype_to_pads(sizes, kernel, strides, padding))
    try:
        pairs = [tuple(pair) for pair in padding]
    except TypeError:
        msg = f"{call}: the padding argument is a pair (before, after) per axis, got {padding!r}"
        raise ArgumentValueError(msg) from None
    if len(pairs) != len(sizes) or any([len(pair) != 2 for pair in pairs]):
        msg = f"{call}: padding is {padding!r}"
        raise RankError(msg, expected=f"{len(sizes)} pairs (before, after), one per spatial axis")
    return tuple([(size_of(a, call, "padding"), size_of(b, call, "padding")) for a, b in pairs])


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: str | Sequence[tuple[int, int]],
    batch_group_count: int = 1,
) -> tuple[int, ...]:
    """The shape of a convolution's result, all axes in the default order.

    Args:
        lhs_shape: (batch, features, space).
        rhs_shape: (output features, input features, space).
        strides: of the kernel, for each spatial axis.
        pads: a name or a pair for each spatial axis.
        batch_group_count: as in ``conv_general_dilated``.

    Raises:
        RankError: not one pair of padding for each spatial axis.
        ShapeMismatchError: negative padding that cuts more than there is, or groups that do not
            divide the batch.

    >>> import tracebridge as tb
    >>> tb.lax.conv_shape_tuple((1, 3, 8, 8), (5, 3, 3, 3), (2, 2), "SAME")
    (1, 5, 4, 4)
    """
    call = "conv_shape_tuple"
    space, kernel = tuple(lhs_shape[2:]), tuple(rhs_shape[2:])
    padding = canonical_padding(call, pads, space, kernel, strides)
    if any([n + low + high < 0 for n, (low, high) in zip(space, padding, strict=True)]):
        msg = f"{call}: padding {padding} cuts more than there is of {space}"
        raise ShapeMismatchError(msg)
    if lhs_shape[0] % batch_group_count:
        msg = f"{call}: a batch of {lhs_shape[0]} in {batch_group_count} groups"
        raise ShapeMismatchError(msg, expected="a multiple of batch_group_count")
    ones = (1,) * len(space)
    sizes = spatial_sizes(space, kernel, strides, padding, ones, ones)
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *sizes)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Any,
) -> tuple[int, ...]:
    """The shape of a convolution's result for any order of the axes.

    Args:
        lhs_shape: shape of the array.
        rhs_shape: shape of the kernel.
        window_strides: for each spatial axis.
        padding: a name or a pair for each spatial axis.
        dimension_numbers: three strings, as in ``conv_dimension_numbers``.

    >>> import tracebridge as tb
    >>> numbers = ("NHWC", "HWIO", "NHWC")
    >>> tb.lax.conv_general_shape_tuple((1, 8, 8, 3), (3, 3, 3, 5), (1, 1), "VALID", numbers)
    (1, 6, 6, 5)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    shape = conv_shape_tuple(
        [lhs_shape[i] for i in lhs], [rhs_shape[i] for i in rhs], window_strides, padding
    )
    return tuple([shape[out.index(i)] for i in range(len(out))])


def transposed_padding(kernel: int, stride: int, padding: str | tuple[int, int]) -> tuple[int, int]:
    """The padding with which a transposed convolution undoes one with ``padding``."""
    if isinstance(padding, str):
        if padding == "SAME":
            total = kernel + stride - 2
            before = kernel - 1 if stride > kernel - 1 else -(-total // 2)
        else:
            total = kernel + stride - 2 + max(kernel - stride, 0)
            before = kernel - 1
        return before, total - before
    low, high = padding
    return kernel - low - 1, kernel - high - 1


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Any,
) -> tuple[int, ...]:
    """The shape of the result of ``conv_transpose`` for any order of the axes.

    Args:
        lhs_shape: shape of the array.
        rhs_shape: shape of the kernel.
        window_strides: for each spatial axis.
        padding: a name or a pair for each spatial axis.
        dimension_numbers: three strings, as in ``conv_dimension_numbers``.

    >>> import tracebridge as tb
    >>> numbers = ("NHWC", "HWIO", "NHWC")
    >>> tb.lax.conv_transpose_shape_tuple((1, 4, 4, 3), (3, 3, 3, 5), (2, 2), "SAME", numbers)
    (1, 8, 8, 5)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    a, b = [lhs_shape[i] for i in lhs], [rhs_shape[i] for i in rhs]
    if isinstance(padding, str):
        name = padding
        pads = [transposed_padding(k, s, name) for k, s in zip(b[2:], window_strides, strict=True)]
    else:
        pads = [(low, high) for low, high in padding]
    sizes = [
        (n - 1) * s - k + 2 + low + high
        for n, k, s, (low, high) in zip(a[2:], b[2:], window_strides, pads, strict=True)
    ]
    shape = (a[0], b[0], *sizes)
    return tuple([shape[out.index(i)] for i in range(len(out))])
