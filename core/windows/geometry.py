"""Where windows lie: their parameters, checked and normalised, and the shape of what they give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, size_of
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.lax.shape.padtype import padtype_to_pads
from tracebridge.core.symbolic.dims import max_dim

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.aval import ShapedArray

Ints = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


class Windows(NamedTuple):
    """The parameters of a reduction over windows; one entry for each axis of the operand."""

    window_dimensions: Ints
    window_strides: Ints
    padding: Pads
    base_dilation: Ints
    window_dilation: Ints

    @property
    def size(self) -> int:
        """How many elements a window has."""
        return math.prod(self.window_dimensions)

    @property
    def is_dilated(self) -> bool:
        """Whether there are gaps, between the elements of the operand or of a window."""
        return any([n != 1 for n in (*self.base_dilation, *self.window_dilation)])


def windows_of(params: Params) -> Windows:
    """Those in the parameters of a primitive."""
    return Windows(*[params[name] for name in Windows._fields])


def dilated(size: Any, dilation: int) -> Any:
    """The size of an axis with ``dilation - 1`` gaps between neighbours."""
    if dilation == 1 or (type(size) is int and size == 0):
        return size
    return (size - 1) * dilation + 1


def shape_of_windows(shape: Sequence[Any], windows: Windows) -> tuple[Any, ...]:
    """How many windows there are along each axis."""
    counts: list[Any] = []
    for n, w, stride, (low, high), base, gap in zip(shape, *windows, strict=True):
        room = dilated(n, base) + low + high - dilated(w, gap)
        counts.append(max_dim(room // stride + 1, 0))
    return tuple(counts)


def with_axis(windows: Windows, axis: int) -> Windows:
    """Windows of one element along a new ``axis``."""

    def put(entries: tuple[Any, ...], entry: object) -> Any:
        return (*entries[:axis], entry, *entries[axis:])

    w, strides, padding, base, gaps = windows
    return Windows(put(w, 1), put(strides, 1), put(padding, (0, 0)), put(base, 1), put(gaps, 1))


def checked_windows(
    call: str,
    shape: Sequence[Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Windows:
    """The parameters in their normal form, with those left out.

    Raises:
        RankError: one of them has not an entry for each axis.
        ShapeMismatchError: an entry is too small.
        ArgumentValueError: no such padding.
    """
    n = len(shape)
    dims = _ints(call, "window_dimensions", window_dimensions, n, 1)
    strides, base, gaps = [
        _ints(call, name, (1,) * n if numbers is None else numbers, n, 1)
        for name, numbers in (
            ("window_strides", window_strides),
            ("base_dilation", base_dilation),
            ("window_dilation", window_dilation),
        )
    ]
    if isinstance(padding, str):
        sizes = [dilated(size, b) for size, b in zip(shape, base, strict=True)]
        wide = [dilated(w, g) for w, g in zip(dims, gaps, strict=True)]
        pads = named_padding(call, sizes, wide, strides, padding)
    else:
        pads = pairs(call, padding, n)
    return Windows(dims, strides, pads, base, gaps)


def named_padding(
    call: str, sizes: Sequence[Any], windows: Sequence[int], strides: Sequence[int], padding: str
) -> Pads:
    """The padding that a name stands for.

    Raises:
        ArgumentValueError: no such name.
    """
    if padding.upper() == "VALID":
        return ((0, 0),) * len(sizes)
    if padding.upper() not in ("SAME", "SAME_LOWER"):
        msg = f"{call}: padding is {padding!r}"
        expected = "'VALID', 'SAME', 'SAME_LOWER' or a pair of integers for each axis"
        raise ArgumentValueError(msg, expected=expected)
    return tuple(padtype_to_pads(sizes, windows, strides, padding))


def pairs(call: str, padding: Sequence[Any], n: int) -> Pads:
    """Explicit padding, a pair for each of ``n`` axes.

    Raises:
        ArgumentTypeError: it is no sequence of pairs.
        RankError: there are not ``n`` of them.
    """
    try:
        pads = [tuple(pair) for pair in padding]
    except TypeError:
        msg = f"{call}: padding is {padding!r}, expected a name or a pair (before, after) per axis"
        raise ArgumentTypeError(msg) from None
    if len(pads) != n or any([len(pair) != 2 for pair in pads]):
        msg = f"{call}: padding is {padding!r}, expected {n} pairs (before, after), one per axis"
        raise RankError(msg)
    result: list[tuple[int, int]] = []
    for low, high in pads:
        result.append((size_of(low, call, "padding"), size_of(high, call, "padding")))
    return tuple(result)


def _ints(call: str, name: str, values: Sequence[Any], n: int, least: int) -> Ints:
    found = tuple([size_of(v, call, name) for v in values])
    if len(found) != n:
        msg = f"{call}: {name} is {found}, expected {n} entries, one for each axis of the operand"
        raise RankError(msg)
    if any([v < least for v in found]):
        msg = f"{call}: {name} must have every element be at least {least}, got {found}"
        raise ShapeMismatchError(msg)
    return found


def result_of(x: ShapedArray, windows: Windows) -> ShapedArray:
    """The aval of one number per window."""
    return x.update(shape=shape_of_windows(x.shape, windows))


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """The shape of the result of ``reduce_window``.

    Args:
        operand_shape: sizes of the axes of the operand.
        window_dimensions: sizes of the window.
        window_strides: how far the window moves at a time.
        padding: a name or a pair for each axis, as in ``reduce_window``.
        base_dilation: distance of neighbours of the operand.
        window_dilation: distance of neighbours in a window.

    Raises:
        RankError: an argument has not an entry for each axis.

    >>> import tracebridge as tb
    >>> tb.lax.reduce_window_shape_tuple((6, 7), (2, 3), (2, 1), "VALID")
    (3, 5)
    """
    windows = checked_windows(
        "reduce_window_shape_tuple",
        operand_shape,
        window_dimensions,
        window_strides,
        padding,
        base_dilation,
        window_dilation,
    )
    return shape_of_windows(operand_shape, windows)
