"""The programs behind ``x.at[index]``: windows that are replaced, scatters, and masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.ir.aval import Shape
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import array_value, as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._index_geometry import (
    Geometry,
    extents_of,
    is_empty_shape,
    resolve,
    static_shape,
)
from tracebridge.numpy._index_parts import (
    count_from_start,
    operands_of,
    outside_as_arrays,
    scalar_masks_as_axes,
    split_index,
)
from tracebridge.numpy._index_windows import changed_in_windows, has_windows
from tracebridge.numpy._indexing import GatherSpec, Layout, layout_of, refuse_empty_axes
from tracebridge.numpy._losses import warn_of_loss
from tracebridge.numpy._promote import broadcast_to

_MODES = {
    "clip": "CLIP",
    "drop": "FILL_OR_DROP",
    "fill": "FILL_OR_DROP",
    "promise_in_bounds": "PROMISE_IN_BOUNDS",
}


def scatter_mode(mode: str | lax.GatherScatterMode | None) -> Any:
    """A GatherScatterMode of a mode argument; ``None`` stays."""
    if mode is None or not isinstance(mode, str):
        return mode
    name = _MODES.get(mode.lower())
    if name is None:
        msg = f"mode must be one of {', '.join(map(repr, sorted(_MODES)))}, got {mode!r}"
        raise ArgumentValueError(msg)
    return lax.GatherScatterMode[name]


def drops(mode: str | lax.GatherScatterMode | None) -> bool:
    """Whether an update leaves out what lies out of bounds."""
    return scatter_mode(mode) in (None, lax.GatherScatterMode.FILL_OR_DROP)


# Sums and products of truth values, as NumPy has them.
_OF_TRUTH = {"add": "max", "multiply": "min"}


def _combine(name: str, old: Value, new: Value) -> Any:
    """The elementwise form of an update, for windows that are sliced out."""
    return {
        "set": lambda: new,
        "add": lambda: lax.add(old, new),
        "subtract": lambda: lax.sub(old, new),
        "multiply": lambda: lax.mul(old, new),
        "min": lambda: lax.min(old, new),
        "max": lambda: lax.max(old, new),
    }[name]()


_SCATTERS: dict[str, Callable[..., Any]] = {
    "set": lambda *a, **k: lax.scatter(*a, **k),
    "add": lambda *a, **k: lax.scatter_add(*a, **k),
    "subtract": lambda *a, **k: lax.scatter_sub(*a, **k),
    "multiply": lambda *a, **k: lax.scatter_mul(*a, **k),
    "min": lambda *a, **k: lax.scatter_min(*a, **k),
    "max": lambda *a, **k: lax.scatter_max(*a, **k),
}


def _fit_values(x: Any, values: Any, shape: Shape) -> Any:
    values = lax.convert_dtype(values, x.aval.dtype)
    return broadcast_to(values, shape)


def _static_update(x: Value, values: Value, static: tuple[Any, ...], name: str) -> Any:
    """An update of a window of integers and slices with step 1."""
    geometry = resolve(static, x.aval.shape, x.aval.str_short())
    extents = extents_of(geometry, x.aval.shape)
    if any([stride != 1 for _, _, stride in extents]):
        return _scatter_update(x, values, (), geometry, name, None, False, False)
    values = _fit_values(x, values, static_shape(geometry, x.aval.shape))
    values = lax.reshape(values, tuple([count for _, count, _ in extents]))
    if all([n == d for (_, n, _), d in zip(extents, x.aval.shape, strict=True)]):
        return _combine(name, x, values)
    if name != "set":
        old = lax.slice(x, tuple([f for f, _, _ in extents]), tuple([f + n for f, n, _ in extents]))
        values = _combine(name, old, values)
    starts = [full_of(as_value(np.int32(0)).aval, f) for f, _, _ in extents]
    return lax.dynamic_update_slice(x, values, starts)


_static_update_staged = StagedFunction(_static_update, "at")


def _array_update(x: Any, values: Any, *indices_and_statics: Any) -> Any:
    *arrays, static, name, mode, sorted_, unique = indices_and_statics
    geometry = resolve(static, x.aval.shape, x.aval.str_short())
    return _scatter_update(x, values, tuple(arrays), geometry, name, mode, sorted_, unique)


def _scatter_update(
    x: Any,
    values: Any,
    arrays: tuple[Any, ...],
    geometry: Geometry,
    name: str,
    mode: Any,
    sorted_: bool,
    unique: bool,
) -> Any:
    shapes = [arrays[e.part].aval.shape for e in geometry.entries if e and e.kind == "array"]
    layout = layout_of_any(geometry, x.aval.shape, shapes)
    refuse_empty_axes(geometry, arrays, x.aval.shape)
    values = _fit_values(x, values, layout.shape)
    if is_empty_shape(x.aval.shape) or is_empty_shape(layout.shape):
        return x
    spec = GatherSpec(x, arrays, geometry, layout)
    values = lax.reshape(values, spec.kept_shape())
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=spec.offset,
        inserted_window_dims=spec.collapsed,
        scatter_dims_to_operand_dims=spec.start_map,
    )
    return _SCATTERS[name](
        x,
        spec.indices,
        values,
        numbers,
        indices_are_sorted=sorted_,
        unique_indices=unique,
        mode=mode or lax.GatherScatterMode.FILL_OR_DROP,
    )


def layout_of_any(geometry: Geometry, shape: Shape, shapes: list[Any]) -> Any:
    """The layout, also of an index without arrays or integers."""
    if any([e is not None and e.kind in ("array", "int") for e in geometry.entries]):
        return layout_of(geometry, shape, shapes)
    result = [
        None if e is None else ("window" if e.kind == "full" else "slice", e.axis)
        for e in geometry.entries
    ]
    return Layout(result, (), static_shape(geometry, shape))


_array_update_staged = StagedFunction(_array_update, "at")


def _mask_update(x: Value, mask: Value, values: Value, name: str) -> Any:
    """An update of the elements that a mask of the shape of ``x`` selects, by one value."""
    values = lax.convert_dtype(values, x.aval.dtype)
    values = lax.broadcast_in_dim(values, x.aval.shape, ()) if x.aval.ndim else values
    return lax.select_n(mask, x, _combine(name, x, values))


_mask_update_staged = StagedFunction(_mask_update, "at")


def _choose(mask: Value, x: Value, changed: Value) -> Any:
    return lax.select_n(mask, x, _fit_values(x, changed, x.aval.shape))


_choose_staged = StagedFunction(_choose, "at")


def updated(
    x: Value,
    index: Any,
    name: str,
    values: Value,
    mode: str | lax.GatherScatterMode | None,
    indices_are_sorted: bool,
    unique_indices: bool,
    wrap: bool,
    method: str = "",
) -> Any:
    """A copy of ``x`` with the elements at ``index`` combined with ``values`` as ``name`` says."""
    values = values if issubclass(type(values), EngineValue) else array_value(values)
    promises = (mode, indices_are_sorted, unique_indices, wrap, method)
    aval, joined = x.aval, None
    if values.aval.dtype != aval.dtype:
        joined = warn_of_loss(f"at[...].{method or name}", x, values)
    if joined is not None and name != "set":
        x, values = lax.convert_dtype(x, joined), lax.convert_dtype(values, joined)
    elif is_bool(aval.dtype):
        name = _OF_TRUTH.get(name, name)
    out = _updated(x, index, name, values, *promises)
    return lax.convert_dtype(out, aval.dtype, aval.weak_type)


def _updated(
    x: Value,
    index: Any,
    name: str,
    values: Value,
    mode: str | lax.GatherScatterMode | None,
    indices_are_sorted: bool,
    unique_indices: bool,
    wrap: bool,
    method: str,
) -> Any:
    """``updated`` in the dtype of ``x``."""
    if has_windows(index):
        promises = (mode, indices_are_sorted, unique_indices, wrap, method)

        def change(part: Value, rest: Any) -> Any:
            return _updated(part, rest, name, values, *promises)

        return changed_in_windows(x, index, change, drop=drops(mode), wrap=wrap)
    if values.aval.ndim == 0 and is_whole_mask(x, index):
        # A traced mask with a scalar value needs no positions.
        return _mask_update_staged((x, index, values), (name,))
    static, arrays = split_index(index)
    how = scatter_mode(mode)
    clamp = how is lax.GatherScatterMode.CLIP
    if not wrap:
        static, arrays = count_from_start(static, arrays, clamp=clamp)
    whole, static, arrays = scalar_masks_as_axes(x, static, arrays)
    static, operands = operands_of(static, arrays, whole.aval.shape)
    if not clamp:
        static, operands = outside_as_arrays(static, operands, whole.aval.shape)
    if not operands:
        return _static_update_staged((whole, values), (static, name))
    statics = (static, name, how, indices_are_sorted, unique_indices)
    out = _array_update_staged((whole, values, *operands), statics)
    return out if whole is x else lax.reshape(out, x.aval.shape)


def choose(mask: Any, x: Value, changed: ArrayLike) -> Any:
    """The changed elements where a mask of the shape of ``x`` is true."""
    return _choose_staged((mask, x, changed))


def is_whole_mask(x: Value, index: Any) -> bool:
    """Whether an index is a traced mask of the shape of ``x``."""
    return (
        isinstance(index, Tracer) and is_bool(index.aval.dtype) and index.aval.shape == x.aval.shape
    )
