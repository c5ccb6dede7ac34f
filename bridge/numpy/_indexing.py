"""Indexing: what ``x[index]`` means, as slices and gathers.

An index is first taken apart into *static* parts (integers, slices, None, Ellipsis), which are
hashable and key a body, and *array* parts, which are its operands. Bodies are staged once
per pattern. Eagerly, integers and slices with step 1 are not part of the pattern: their starts are
passed in one small array, so that ``x[0]``, ``x[1]``, ... share an executable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.config.state import state
from tracebridge.core.errors.shape_errors import IndexingError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.array import Array, share
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.dims import is_symbolic_dim
from tracebridge.core.util.caching import BoundedCache
from tracebridge.numpy._index_geometry import (
    Axis,
    Geometry,
    extent,
    extents_of,
    is_empty_shape,
    resolve,
    static_shape,
)
from tracebridge.numpy._index_parts import (
    INT32,
    INT64,
    ArrayPart,
    operands_of,
    outside_as_arrays,
    scalar_masks_as_axes,
    split_index,
)
from tracebridge.numpy._index_windows import Cut, has_windows
from tracebridge.numpy._promote import broadcast_shape, broadcast_to

_MOST_COUNTED = 1 << 20  # longer index arrays are not looked at

# static indices ----------------------------------------------------------------------------------


def _static_getitem(x: Any, static: tuple[Any, ...]) -> Any:
    """Slices, reversals and reshapes; no arrays in the index."""
    x, static = _cut_outside(x, static)
    geometry = resolve(static, x.aval.shape, x.aval.str_short())
    starts, limits, strides, reversed_axes = [], [], [], []
    # (axis, size, step) of slices of symbolic axes, whose steps are taken after a first slice
    late: list[tuple[int, Any, Any]] = []
    for e in geometry.entries:
        if e is None:
            continue
        first, count, stride = extent(e, x.aval.shape)
        if e.span is not None:
            first, count = e.span
            late.append((e.axis, count, abs(stride)))
            if stride < 0:
                reversed_axes.append(e.axis)
            stride = 1
        if type(count) is int and count == 0:
            first, stride = 0, 1  # positions of an empty slice may lie outside
        if stride < 0:
            reversed_axes.append(e.axis)
            first, stride = first + (count - 1) * stride, -stride
        starts.append(first)
        limits.append(first + (count - 1) * stride + 1 if stride != 1 else first + count)
        strides.append(stride)
    y = x
    if any([e is not None and e.kind != "full" for e in geometry.entries]):
        y = lax.slice(x, tuple(starts), tuple(limits), tuple(strides))
    if reversed_axes:
        y = lax.rev(y, tuple(reversed_axes))
    for axis, size, step in late:
        if is_symbolic_dim(step) or step > 1:
            y = lax.slice_in_dim(y, 0, size, step, axis)
    return lax.reshape(y, static_shape(geometry, x.aval.shape))


def _cut_outside(x: Any, static: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Cut the axes of integers outside of them down to the element that these are clamped to.

    By an operation that clamps where the program runs: what reads programs, like checkify, sees
    the integers as they were given.
    """
    outside, values = outside_as_arrays(static, [], x.aval.shape)
    if not values:
        return x, static
    geometry = resolve(outside, x.aval.shape, x.aval.str_short())
    starts, sizes = [0] * x.aval.ndim, list(x.aval.shape)
    for e in geometry.entries:
        if e is not None and e.kind == "array":
            starts[e.axis], sizes[e.axis] = int(values[e.part]), 1
    return lax.dynamic_slice(x, starts, tuple(sizes)), tuple(
        [0 if isinstance(e, ArrayPart) else e for e in outside]
    )


def refuse_empty_axes(geometry: Geometry, arrays: Sequence[Any], shape: tuple[Any, ...]) -> None:
    """Raise IndexingError where a single position is asked of an axis that has none."""
    for e in geometry.entries:
        if e is not None and e.kind == "array" and not arrays[e.part].aval.ndim:
            size = shape[e.axis]
            if type(size) is int and size == 0:
                msg = f"an index into axis {e.axis}, which has size 0"
                raise IndexingError(msg)


_static_staged = StagedFunction(_static_getitem, "getitem")


def _window_getitem(x: Any, starts: Any, sizes: tuple[int, ...], out: tuple[int, ...]) -> Any:
    """The window of ``sizes`` at ``starts`` (one i32 vector), reshaped to ``out``."""
    n = len(sizes)
    scalars = [lax.reshape(lax.slice(starts, (i,), (i + 1,)), ()) for i in range(n)]
    return lax.reshape(lax.dynamic_slice(x, scalars, sizes), out)


_window_staged = StagedFunction(_window_getitem, "getitem")
# (signature of x, static index) -> function of x, for eager static indices
_EAGER: BoundedCache[Any] = BoundedCache("eager indices", 8192)


def _eager_static(x: Array, static: tuple[Any, ...]) -> Any:
    geometry = resolve(static, x.shape, x.aval.str_short())
    extents = extents_of(geometry, x.shape)
    out = static_shape(geometry, x.shape)
    partial = any([n != d for (_, n, _), d in zip(extents, x.shape, strict=True)])
    if not partial or not x.size or any([s != 1 or n == 0 for _, n, s in extents]):

        def run_static(y: Array) -> Any:
            return _static_staged((y,), (static,))

        return run_static
    starts = share(put_numpy(np.array([first for first, _, _ in extents], np.int32)))
    sizes = tuple([n for _, n, _ in extents])

    def run_window(y: Array) -> Any:
        return _window_staged((y, starts), (sizes, out))

    return run_window


# indices with arrays -----------------------------------------------------------------------------


@final
class Layout:
    """How the result of an index with arrays is laid out.

    ``result``: per result axis ``("window", operand axis)``, ``("slice", operand axis)`` or
    ``("array", k)`` for axis k of the broadcast index arrays, or None for a new axis.
    """

    __slots__ = ("batch_shape", "broadcast", "result", "shape")

    def __init__(
        self, result: list[Any], broadcast: tuple[Any, ...], shape: tuple[Any, ...]
    ) -> None:
        self.result = result
        self.broadcast = broadcast
        self.shape = shape


def layout_of(geometry: Geometry, shape: tuple[Any, ...], array_shapes: list[Any]) -> Layout:
    """The layout by NumPy's rule.

    Axes of the index arrays stand where the arrays are if those are adjacent, else in front.
    """
    broadcast = broadcast_shape("index arrays", array_shapes)
    advanced = [
        i for i, e in enumerate(geometry.entries) if e is not None and e.kind in ("array", "int")
    ]
    adjacent = advanced == list(range(advanced[0], advanced[0] + len(advanced)))
    axes = [("array", k) for k in range(len(broadcast))]
    result: list[Any] = [] if adjacent else list(axes)
    for i, e in enumerate(geometry.entries):
        if adjacent and i == advanced[0]:
            result.extend(axes)
        if e is None:
            result.append(None)
        elif e.kind == "full":
            result.append(("window", e.axis))
        elif e.kind == "slice":
            result.append(("slice", e.axis))
    sizes: list[Any] = []
    for r in result:
        if r is None:
            sizes.append(1)
        elif r[0] == "array":
            sizes.append(broadcast[r[1]])
        else:
            e = next(g for g in geometry.entries if g is not None and g.axis == r[1])
            sizes.append(extent(e, shape)[1])
    return Layout(result, broadcast, tuple(sizes))


@final
class GatherSpec:
    """Index vectors and dimension numbers shared by gather and scatter."""

    __slots__ = ("batching", "collapsed", "indices", "layout", "offset", "sizes", "start_map")

    def __init__(
        self,
        x: Any,
        arrays: Sequence[Any],
        geometry: Geometry,
        layout: Layout,
        counting: Sequence[int] = (),
    ) -> None:
        self.layout = layout
        shape = x.aval.shape
        kept = [r for r in layout.result if r is not None]
        batch = [r for r in kept if r[0] != "window"]
        sizes_of = dict(
            zip([r for r in layout.result if r is not None], _kept_sizes(layout), strict=True)
        )
        batch_shape = tuple([sizes_of[r] for r in batch])
        columns: list[Any] = []
        start_map: list[int] = []
        self.batching = _batching(geometry, arrays, counting, layout, batch, shape)
        for e in geometry.entries:
            if e is None or e.kind == "full" or e.axis in self.batching:
                continue
            columns.append(_column(e, arrays, batch, batch_shape, shape))
            start_map.append(e.axis)
        wide = (*batch_shape, 1)
        dims = tuple(range(len(batch_shape)))
        columns = [lax.broadcast_in_dim(c, wide, dims) for c in _alike(columns)]
        self.indices = (
            lax.concatenate(columns, len(batch_shape)) if len(columns) > 1 else columns[0]
        )
        self.start_map = tuple(start_map)
        self.collapsed = tuple(sorted(start_map))
        self.offset = tuple([i for i, r in enumerate(kept) if r[0] == "window"])
        single = (*start_map, *self.batching)
        self.sizes = tuple([1 if i in single else d for i, d in enumerate(shape)])

    def kept_shape(self) -> tuple[Any, ...]:
        """The shape of the result without new axes."""
        return tuple(_kept_sizes(self.layout))


def _kept_sizes(layout: Layout) -> list[Any]:
    return [d for d, r in zip(layout.shape, layout.result, strict=True) if r is not None]


def _batching(
    geometry: Geometry,
    arrays: Sequence[Any],
    counting: Sequence[int],
    layout: Layout,
    batch: Sequence[Any],
    shape: Sequence[Any],
) -> dict[int, int]:
    """Axes that ``arange`` goes through, as ``rows`` in ``x[rows, i]``: axis -> axis of the batch.

    Such a gather takes something from each row: its derivative needs no scatter.
    """
    found: dict[int, int] = {}
    others = False
    for e in geometry.entries:
        if e is None or e.kind == "full":
            continue
        if e.kind == "array" and e.part in counting:
            own = arrays[e.part].aval.shape
            axis = next(i for i, n in enumerate(own) if n != 1)
            k = batch.index(("array", axis + len(layout.broadcast) - len(own)))
            if own[axis] == shape[e.axis] and k not in found.values():
                found[e.axis] = k
                continue
        others = True
    return dict(sorted(found.items())) if others else {}


def _column(
    e: Axis, arrays: Sequence[Any], batch: list[Any], batch_shape: tuple[Any, ...], shape: Any
) -> Any:
    """The positions along one operand axis, for every element of the batch."""
    if e.kind == "int":
        scalar = full_of(as_value(np.int32(0)).aval, e.part)
        return lax.broadcast_in_dim(scalar, batch_shape, ())
    if e.kind == "slice":
        first, count, stride = e.part
        steps = lax.add(lax.mul(lax.iota(INT32, count), stride), first)
        return lax.broadcast_in_dim(steps, batch_shape, (batch.index(("slice", e.axis)),))
    value = arrays[e.part]
    value = _wrap_negative(value, shape[e.axis])
    ks = [i for i, r in enumerate(batch) if r[0] == "array"]
    n = value.aval.ndim
    sizes = tuple([batch_shape[i] for i in ks])
    value = broadcast_to(value, sizes) if n else value
    return lax.broadcast_in_dim(value, batch_shape, tuple(ks) if n else ())


def _alike(columns: list[Any]) -> list[Any]:
    """Positions in one dtype that has those of all axes; what it has not lies outside anyway."""
    dtypes = {c.aval.dtype for c in columns}
    if len(dtypes) < 2:
        return columns
    target = INT64 if any([d.itemsize > 4 for d in dtypes]) else INT32

    def fitting(c: Any) -> Any:
        if c.aval.dtype.kind == "u" and c.aval.dtype.itemsize == target.itemsize:
            c = lax.min(c, full_of(c.aval, np.iinfo(target).max))
        return lax.convert_dtype(c, target)

    return [fitting(c) for c in columns]


def _wrap_negative(value: Any, size: Any) -> Any:
    dtype = value.aval.dtype
    if dtype.kind == "u":
        return lax.convert_dtype(value, INT32) if dtype.itemsize < 4 else value
    if dtype.itemsize < 4:
        value = lax.convert_dtype(value, INT32)
    zero = zeros_of(value.aval.strong.update(shape=()))
    length = full_of(zero.aval, size) if type(size) is int else lax.dimension_size(size, zero)
    return lax.select_n(lax.lt(value, zero), value, lax.add(value, length))


def _array_getitem(x: Any, *indices_and_statics: Any) -> Any:
    *arrays, static, mode, fill_value, sorted_, unique, counting = indices_and_statics
    geometry = resolve(static, x.aval.shape, x.aval.str_short())
    shapes = [arrays[e.part].aval.shape for e in geometry.entries if e and e.kind == "array"]
    layout = layout_of(geometry, x.aval.shape, shapes)
    refuse_empty_axes(geometry, arrays, x.aval.shape)
    if is_empty_shape(layout.shape):
        # No position is looked at, so that axes of size 0 may be indexed too.
        return zeros_of(x.aval.update(shape=layout.shape))
    spec = GatherSpec(x, arrays, geometry, layout, counting)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=spec.offset,
        collapsed_slice_dims=spec.collapsed,
        start_index_map=spec.start_map,
        operand_batching_dims=tuple(spec.batching),
        start_indices_batching_dims=tuple(spec.batching.values()),
    )
    y = lax.gather(
        x,
        spec.indices,
        numbers,
        spec.sizes,
        # Sorted with the rows in front means nothing within rows.
        indices_are_sorted=sorted_ and not spec.batching,
        unique_indices=unique,
        mode=mode or lax.GatherScatterMode.PROMISE_IN_BOUNDS,
        fill_value=fill_value,
    )
    return lax.reshape(y, layout.shape)


_array_staged = StagedFunction(_array_getitem, "getitem")


def getitem(x: Any, index: Any) -> Any:
    """``x[index]`` for arrays and tracers."""
    if has_windows(index):
        cut = Cut(x, index)
        return getitem(cut.part, cut.rest)
    static, arrays = split_index(index)
    if not arrays:
        if type(x) is Array and state() is None:
            key = (x._sig, static)
            run = _EAGER.get(key)
            if run is None:
                run = _eager_static(x, static)
                _EAGER.set(key, run)
            return run(x)
        return _static_staged((x,), (static,))
    return take_index(x, static, arrays)


def take_index(
    x: Any,
    static: tuple[Any, ...],
    arrays: list[Any],
    *,
    mode: Any = None,
    fill_value: Any = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Any:
    """``x[index]`` with arrays in the index, with all options of a gather."""
    x, static, arrays = scalar_masks_as_axes(x, static, arrays)
    static, values = operands_of(static, arrays, x.aval.shape)
    static, values = outside_as_arrays(static, values, x.aval.shape)
    if not values:
        return _static_staged((x,), (static,))
    scalars = _dynamic_scalars(static, values)
    if scalars and mode is None:
        return _dynamic_staged((x, *values), (static,))
    statics = (static, mode, fill_value, bool(indices_are_sorted), bool(unique_indices))
    return _array_staged((x, *values), (*statics, _counting(x, values)))


def _counting(x: Any, values: Sequence[Any]) -> tuple[int, ...]:
    """Which of several index arrays are known to count from 0 along one axis, in a trace."""
    if len(values) < 2 or all([type(v) is Array for v in (x, *values)]):
        return ()
    found: list[int] = []
    for k, v in enumerate(values):
        if type(v) is Array and 1 < v.aval.size <= _MOST_COUNTED and v.aval.size in v.aval.shape:
            numbers = np.asarray(v).ravel()
            if numbers[-1] == numbers.size - 1 and np.array_equal(numbers, np.arange(numbers.size)):
                found.append(k)
    return tuple(found)


def _dynamic_scalars(static: tuple[Any, ...], values: Sequence[Any]) -> bool:
    """Whether all arrays are integer scalars and slices have step 1: then one dynamic_slice."""
    return all([v.aval.ndim == 0 for v in values]) and all(
        [not (isinstance(e, tuple) and e[3] not in (None, 1)) for e in static]
    )


def _dynamic_getitem(x: Any, *indices_and_statics: Any) -> Any:
    """Integer scalars that are not known while tracing: dynamic_slice and reshape."""
    *arrays, static = indices_and_statics
    geometry = resolve(static, x.aval.shape, x.aval.str_short())
    refuse_empty_axes(geometry, arrays, x.aval.shape)
    starts: list[Any] = []
    sizes: list[Any] = []
    out: list[Any] = []
    for e in geometry.entries:
        if e is None:
            out.append(1)
            continue
        if e.kind == "array":
            wrapped = _wrap_negative(arrays[e.part], x.aval.shape[e.axis])
            starts.append(lax.convert_dtype(wrapped, INT32))
            sizes.append(1)
            continue
        first, count, _ = extent(e, x.aval.shape)
        starts.append(full_of(as_value(np.int32(0)).aval, first))
        sizes.append(count)
        if e.kind != "int":
            out.append(count)
    # Negative positions are taken care of: what is below still is out of bounds, and clamped.
    window = lax.dynamic_slice(x, starts, tuple(sizes), allow_negative_indices=False)
    return lax.reshape(window, tuple(out))


_dynamic_staged = StagedFunction(_dynamic_getitem, "getitem")
