"""Windows in an index: ``ds(start, size)``, whose start may be known only when a program runs.

The array is cut to the windows first; what remains of the index has slices in their places. An
update changes that part and puts it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_integer
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import IndexingError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.indexing.gather import default_fill
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.tree.registry import register_pytree_node

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)


@final
class Window:
    """``size`` positions from ``start`` on, each ``stride`` behind the one before."""

    __slots__ = ("size", "start", "stride")

    def __init__(self, start: Any, size: Any, stride: int = 1) -> None:
        self.start = start
        self.size = size
        self.stride = stride

    def __repr__(self) -> str:
        stride = "" if self.stride == 1 else f", {self.stride}"
        return f"ds({self.start!r}, {self.size!r}{stride})"

    @property
    def span(self) -> Any:
        """How many positions lie between the ends."""
        if type(self.size) is int and self.size == 0:
            return 0
        return self.size if self.stride == 1 else (self.size - 1) * self.stride + 1


def _flatten(window: Window) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if type(window.start) is int:
        return (), (window.start, window.size, window.stride)
    return (window.start,), (window.size, window.stride)


def _unflatten(aux: tuple[Any, ...], children: Sequence[Any]) -> Window:
    return Window(*children, *aux)


register_pytree_node(Window, _flatten, _unflatten)


def ds(start: ArrayLike | None, size: ArrayLike | None = None, stride: int | None = None) -> Any:
    """A part of an index: ``size`` positions from ``start`` on, which may be traced.

    ``x[ds(i, n)]`` is ``x[i : i + n]`` where ``i`` need not be known: the shape depends on ``n``
    only. It works in ``x.at`` and in references too. A window that reaches over an end is moved
    inside by reads, and left out by updates, unless ``mode`` says otherwise.

    Args:
        start: an integer, also a traced one; a negative one counts from the end. Given alone it
            is the size, of a window that starts at 0. ``None`` stands for the whole axis.
        size: how many positions, known while tracing.
        stride: the distance between two positions, at least 1.

    Raises:
        ArgumentTypeError: the size or the stride is no integer.
        ArgumentValueError: the size is below 0, the stride below 1.
        TracerIntegerConversionError: the size or the stride is traced.
        UnsupportedDtypeError: the start is no integer.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> x = tnp.arange(10)
    >>> tb.jit(lambda x, i: x[tb.ds(i, 3)])(x, 4).tolist()
    [4, 5, 6]
    >>> x.at[tb.ds(0, 3, 2)].set(-1).tolist()
    [-1, 1, -1, 3, -1, 5, 6, 7, 8, 9]
    """
    if start is None:
        return slice(None)
    if size is None:
        start, size = 0, start
    symbolic = getattr(size, "is_symbolic_dim", False)
    length: Any = size if symbolic else index_of(size, "ds", "the size")
    step = 1 if stride is None else index_of(stride, "ds", "the stride")
    if step < 1 or (not symbolic and length < 0):
        raise ArgumentValueError(
            call="ds",
            got=f"size {length} and stride {step}",
            expected="a size of at least 0 and a stride of at least 1",
        )
    return Window(start if type(start) is int else _as_start(start), length, step)


def _as_start(start: ArrayLike) -> Any:
    value = as_value(start, "ds")
    if value.aval.ndim or not is_integer(value.aval.dtype):
        msg = f"ds: the start is {value.aval.str_short()}, expected one integer"
        raise UnsupportedDtypeError(msg)
    return value


def has_windows(index: Any) -> bool:
    return type(index) is Window or (type(index) is tuple and Window in map(type, index))


@final
class Cut:
    """An array cut to the windows of an index.

    ``part``: what is in the windows; ``rest``: the index into it; ``wrap``: whether negative
    starts count from the end.
    """

    __slots__ = ("_starts", "_statics", "_x", "part", "rest")

    def __init__(self, x: Value, index: Any, *, wrap: bool = True) -> None:
        entries = index if type(index) is tuple else (index,)
        used = sum([_axes_taken(e) for e in entries])
        rest: list[Any] = []
        starts: list[Any] = []
        axes: list[int] = []
        spans: list[Any] = []
        axis = 0
        for e in entries:
            if type(e) is not Window:
                rest.append(e)
                axis += x.aval.ndim - used if e is Ellipsis else _axes_taken(e)
                continue
            _check_fits(e, axis, x)
            starts.append(as_value(e.start))
            axes.append(axis)
            spans.append(e.span)
            rest.append(slice(None, None, e.stride))
            axis += 1
        self._x = x
        self._starts = starts
        self._statics = (tuple(axes), tuple(spans), wrap)
        self.part = _cut_staged((x, *starts), self._statics)
        self.rest = tuple(rest)

    def put_back(self, part: Value, *, drop: bool) -> Any:
        """The array with another part; ``drop``: as it was where a window reaches over an end."""
        return _put_staged((self._x, part, *self._starts), (*self._statics, drop))

    def filled(self, found: Value, fill: ArrayLike | None) -> Any:
        """What was found in the part, or ``fill`` where a window reaches over an end."""
        value = as_value(default_fill(found.aval.dtype) if fill is None else fill)
        return _fill_staged((self._x, found, value, *self._starts), self._statics)


def _axes_taken(entry: Any) -> int:
    """How many axes an entry of an index stands for."""
    if entry is None or entry is Ellipsis:
        return 0
    if isinstance(entry, Window | slice | int) and not isinstance(entry, bool):
        return 1
    array = np.asarray(entry) if isinstance(entry, list | tuple | bool) else entry
    dtype = getattr(array, "dtype", None)
    return np.ndim(array) if dtype is not None and is_bool(np.dtype(dtype)) else 1


def _check_fits(window: Window, axis: int, x: Value) -> None:
    if axis >= x.aval.ndim:
        msg = f"too many indices: {x.aval.str_short()} has no axis {axis} for {window!r}"
        raise IndexingError(msg)
    size, span = x.aval.shape[axis], window.span
    if type(size) is int and type(span) is int and span > size:
        msg = f"{window!r} spans {span} positions, axis {axis} of {x.aval.str_short()} has {size}"
        raise IndexingError(msg)


def _alike(starts: Sequence[Value]) -> list[Any]:
    """The starts in one dtype, strongly typed."""
    wide = any([start.aval.dtype.itemsize > 4 for start in starts])
    return [lax.convert_dtype(start, INT64 if wide else INT32, False) for start in starts]


def _all_starts(x: Value, starts: Sequence[Value], axes: tuple[int, ...]) -> list[Any]:
    alike = _alike(starts)
    found: list[Any] = [full_of(alike[0].aval, 0)] * x.aval.ndim
    for axis, start in zip(axes, alike, strict=True):
        found[axis] = start
    return found


def _cut(x: Value, *starts_and_statics: Any) -> Any:
    *starts, axes, spans, wrap = starts_and_statics
    sizes = list(x.aval.shape)
    for axis, span in zip(axes, spans, strict=True):
        sizes[axis] = span
    places = _all_starts(x, starts, axes)
    return lax.dynamic_slice(x, places, tuple(sizes), allow_negative_indices=wrap)


def _inside(
    x: Value, starts: Sequence[Value], axes: tuple[int, ...], spans: tuple[Any, ...], wrap: bool
) -> Any:
    """Whether all windows lie inside of ``x``."""
    found: Any = None
    for axis, span, start in zip(axes, spans, _alike(starts), strict=True):
        size, own = (lax.dimension_size(d, start) for d in (x.aval.shape[axis], span))
        zero = full_of(start.aval, 0)
        first = start
        if wrap:
            first = lax.select_n(lax.lt(start, zero), start, lax.add(start, size))
        fits = lax.bitwise_and(lax.ge(first, zero), lax.le(first, lax.sub(size, own)))
        found = fits if found is None else lax.bitwise_and(found, fits)
    return found


def _put(x: Value, part: Value, *starts_and_statics: Any) -> Any:
    *starts, axes, spans, wrap, drop = starts_and_statics
    places = _all_starts(x, starts, axes)
    out = lax.dynamic_update_slice(x, part, places, allow_negative_indices=wrap)
    return lax.select_n(_inside(x, starts, axes, spans, wrap), x, out) if drop else out


def _fill(x: Value, found: Value, fill: Value, *starts_and_statics: Any) -> Any:
    *starts, axes, spans, wrap = starts_and_statics
    fill = lax.convert_dtype(fill, found.aval.dtype)
    others = lax.broadcast_in_dim(fill, found.aval.shape, ())
    return lax.select_n(_inside(x, starts, axes, spans, wrap), others, found)


_cut_staged = StagedFunction(_cut, "getitem")
_put_staged = StagedFunction(_put, "at")
_fill_staged = StagedFunction(_fill, "getitem")


def changed_in_windows(
    x: Value, index: Any, change: Callable[[Any, Any], Any], *, drop: bool, wrap: bool
) -> Any:
    """``x`` with the part in its windows changed by ``change(part, rest of the index)``."""
    cut = Cut(x, index, wrap=wrap)
    return cut.put_back(as_value(change(cut.part, cut.rest)), drop=drop)
