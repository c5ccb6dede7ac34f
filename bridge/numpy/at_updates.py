"""Functional updates: ``x.at[index].set(values)`` and its kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_bool
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.planned import Planned
from tracebridge.numpy._in_turn import NOWHERE, apply_in_turn, known_distinct, positions_in
from tracebridge.numpy._index_parts import (
    count_from_start,
    operands_of,
    outside_as_arrays,
    scalar_masks_as_axes,
    split_index,
)
from tracebridge.numpy._indexing import (
    GatherPlan,
    Geometry,
    Layout,
    _extents,
    _static_shape,
    is_empty_shape,
    layout_of,
    refuse_empty_axes,
    resolve,
    take_index,
)
from tracebridge.numpy._promote import broadcast_to

_MODES = {
    "clip": "CLIP",
    "drop": "FILL_OR_DROP",
    "fill": "FILL_OR_DROP",
    "promise_in_bounds": "PROMISE_IN_BOUNDS",
}


def scatter_mode(mode: Any) -> Any:
    """A GatherScatterMode of a mode argument; ``None`` stays."""
    if mode is None or not isinstance(mode, str):
        return mode
    name = _MODES.get(mode.lower())
    if name is None:
        msg = f"mode must be one of {', '.join(map(repr, sorted(_MODES)))}, got {mode!r}"
        raise ArgumentValueError(msg)
    return lax.GatherScatterMode[name]


def _combine(name: str, old: Any, new: Any) -> Any:
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


def _fit_values(x: Any, values: Any, shape: tuple[Any, ...]) -> Any:
    values = lax.convert_dtype(values, x.aval.dtype)
    return broadcast_to(values, shape)


def _static_update(x: Any, values: Any, static: tuple[Any, ...], name: str) -> Any:
    """An update of a window of integers and slices with step 1."""
    geometry = resolve(static, x.aval.shape, x.aval.str_short())
    extents = _extents(geometry, x.aval.shape)
    if any([stride != 1 for _, _, stride in extents]):
        return _scatter_update(x, values, (), geometry, name, None, False, False)
    values = _fit_values(x, values, _static_shape(geometry, x.aval.shape))
    values = lax.reshape(values, tuple([count for _, count, _ in extents]))
    if all([n == d for (_, n, _), d in zip(extents, x.aval.shape, strict=True)]):
        return _combine(name, x, values)
    if name != "set":
        old = lax.slice(x, tuple([f for f, _, _ in extents]), tuple([f + n for f, n, _ in extents]))
        values = _combine(name, old, values)
    starts = [lax.full_of(as_value(np.int32(0)).aval, f) for f, _, _ in extents]
    return lax.dynamic_update_slice(x, values, starts)


_static_update_planned = Planned(_static_update, "at")


def _array_update(x: Any, values: Any, *rest: Any) -> Any:
    *arrays, static, name, mode, sorted_, unique = rest
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
    plan = GatherPlan(x, arrays, geometry, layout)
    values = lax.reshape(values, plan.kept_shape())
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=plan.offset,
        inserted_window_dims=plan.collapsed,
        scatter_dims_to_operand_dims=plan.start_map,
    )
    return _SCATTERS[name](
        x,
        plan.indices,
        values,
        numbers,
        indices_are_sorted=sorted_,
        unique_indices=unique,
        mode=mode or lax.GatherScatterMode.FILL_OR_DROP,
    )


def layout_of_any(geometry: Geometry, shape: Any, shapes: list[Any]) -> Any:
    """The layout, also of an index without arrays or integers."""
    if any([e is not None and e.kind in ("array", "int") for e in geometry.entries]):
        return layout_of(geometry, shape, shapes)
    result = [
        None if e is None else ("window" if e.kind == "full" else "slice", e.axis)
        for e in geometry.entries
    ]
    return Layout(result, (), _static_shape(geometry, shape))


_array_update_planned = Planned(_array_update, "at")


def _mask_update(x: Any, mask: Any, values: Any, name: str) -> Any:
    """An update of the elements that a mask of the shape of ``x`` selects, by one value."""
    values = lax.convert_dtype(values, x.aval.dtype)
    values = lax.broadcast_in_dim(values, x.aval.shape, ()) if x.aval.ndim else values
    return lax.select_n(mask, x, _combine(name, x, values))


_mask_update_planned = Planned(_mask_update, "at")


def _choose(mask: Any, x: Any, changed: Any) -> Any:
    """The changed elements where a mask of the shape of ``x`` is true."""
    return lax.select_n(mask, x, _fit_values(x, changed, x.aval.shape))


_choose_planned = Planned(_choose, "at")


@final
class IndexUpdateHelper:
    """``x.at``: index it to choose elements, then say what to do with them."""

    __slots__ = ("_x",)

    def __init__(self, x: Any) -> None:
        self._x = x

    def __getitem__(self, index: Any) -> IndexUpdateRef:
        return IndexUpdateRef(self._x, index)

    def __repr__(self) -> str:
        return f"at({self._x!r})"


@final
class IndexUpdateRef:
    """``x.at[index]``: elements of ``x``; each method gives a new array.

    ``mode``: what to do with indices out of bounds ("drop", "clip", "fill",
    "promise_in_bounds"); updates drop them and ``get`` clamps them by default.
    ``indices_are_sorted`` and ``unique_indices`` promise what they say and allow faster code.
    ``wrap_negative_indices=False``: negative integers are out of bounds.
    """

    __slots__ = ("_index", "_x")

    def __init__(self, x: Any, index: Any) -> None:
        self._x = x
        self._index = index

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        fill_value: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """``x[index]`` with the options of an indexed read.

        >>> import tracebridge.numpy as tnp
        >>> tnp.arange(3).at[tnp.array([5])].get(mode="fill", fill_value=-1).tolist()
        [-1]
        """
        try:
            static, arrays = split_index(self._index)
            how = scatter_mode(mode)
            if not wrap_negative_indices:
                clamp = how is not lax.GatherScatterMode.FILL_OR_DROP
                static, arrays = count_from_start(static, arrays, clamp=clamp)
            return take_index(
                self._x,
                static,
                arrays,
                mode=how,
                fill_value=fill_value,
                indices_are_sorted=indices_are_sorted,
                unique_indices=unique_indices,
            )
        except Exception as error:
            hide_internal_frames(error)
            raise

    def _update(
        self,
        name: str,
        values: Any,
        indices_are_sorted: bool,
        unique_indices: bool,
        mode: Any,
        wrap: bool,
    ) -> Any:
        x = self._x
        values = values if hasattr(type(values), "aval") else as_value(values)
        mask = self._whole_mask(values)
        if mask is not None:
            return _mask_update_planned((x, mask, values), (name,))
        static, arrays = split_index(self._index)
        how = scatter_mode(mode)
        clamp = how is lax.GatherScatterMode.CLIP
        if not wrap:
            static, arrays = count_from_start(static, arrays, clamp=clamp)
        x, static, arrays = scalar_masks_as_axes(x, static, arrays)
        static, operands = operands_of(static, arrays, x.aval.shape)
        if not clamp:
            static, operands = outside_as_arrays(static, operands, x.aval.shape)
        if not operands:
            return _static_update_planned((x, values), (static, name))
        statics = (static, name, how, indices_are_sorted, unique_indices)
        out = _array_update_planned((x, values, *operands), statics)
        return out if x is self._x else lax.reshape(out, self._x.aval.shape)

    def _whole_mask(self, values: Any) -> Any:
        """A traced mask of the shape of ``x`` with a scalar value needs no positions."""
        index = self._index
        if (
            isinstance(index, Tracer)
            and is_bool(index.aval.dtype)
            and index.aval.shape == self._x.aval.shape
            and values.aval.ndim == 0
        ):
            return index
        return None

    def set(
        self,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """A copy of ``x`` with the chosen elements replaced.

        >>> import tracebridge.numpy as tnp
        >>> tnp.arange(3).at[1].set(7).tolist()
        [0, 7, 2]
        """
        try:
            return self._update(
                "set", values, indices_are_sorted, unique_indices, mode, wrap_negative_indices
            )
        except Exception as error:
            hide_internal_frames(error)
            raise

    def add(
        self,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """A copy of ``x`` with ``values`` added to the chosen elements; repeats add up.

        >>> import tracebridge.numpy as tnp
        >>> tnp.zeros(2).at[tnp.array([0, 0])].add(1.0).tolist()
        [2.0, 0.0]
        """
        try:
            return self._update(
                "add", values, indices_are_sorted, unique_indices, mode, wrap_negative_indices
            )
        except Exception as error:
            hide_internal_frames(error)
            raise

    def subtract(
        self,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """A copy of ``x`` with ``values`` subtracted from the chosen elements.

        >>> import tracebridge.numpy as tnp
        >>> tnp.zeros(2).at[0].subtract(1.0).tolist()
        [-1.0, 0.0]
        """
        try:
            return self._update(
                "subtract", values, indices_are_sorted, unique_indices, mode, wrap_negative_indices
            )
        except Exception as error:
            hide_internal_frames(error)
            raise

    def multiply(
        self,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """A copy of ``x`` with the chosen elements multiplied by ``values``.

        >>> import tracebridge.numpy as tnp
        >>> tnp.ones(2).at[0].multiply(3.0).tolist()
        [3.0, 1.0]
        """
        try:
            return self._update(
                "multiply", values, indices_are_sorted, unique_indices, mode, wrap_negative_indices
            )
        except Exception as error:
            hide_internal_frames(error)
            raise

    mul = multiply

    def divide(
        self,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """A copy of ``x`` with the chosen elements divided by ``values``.

        >>> import tracebridge.numpy as tnp
        >>> tnp.ones(2).at[0].divide(2.0).tolist()
        [0.5, 1.0]
        """
        try:
            ones = lax.full_like(self._x, 1)
            divisors = IndexUpdateRef(ones, self._index).multiply(
                values,
                indices_are_sorted=indices_are_sorted,
                unique_indices=unique_indices,
                mode=mode,
                wrap_negative_indices=wrap_negative_indices,
            )
            return self._x / divisors
        except Exception as error:
            hide_internal_frames(error)
            raise

    def power(
        self,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """A copy of ``x`` with the chosen elements raised to ``values``; repeats count.

        >>> import tracebridge.numpy as tnp
        >>> tnp.array([2.0, 3.0]).at[0].power(3.0).tolist()
        [8.0, 3.0]
        """
        try:
            ones = lax.full_like(self._x, 1)
            exponents = IndexUpdateRef(ones, self._index).multiply(
                values,
                indices_are_sorted=indices_are_sorted,
                unique_indices=unique_indices,
                mode=mode,
                wrap_negative_indices=wrap_negative_indices,
            )
            return self._x**exponents
        except Exception as error:
            hide_internal_frames(error)
            raise

    def min(
        self,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """A copy of ``x`` with the chosen elements lowered to ``values`` where those are less.

        >>> import tracebridge.numpy as tnp
        >>> tnp.array([2, 3]).at[:].min(2).tolist()
        [2, 2]
        """
        try:
            return self._update(
                "min", values, indices_are_sorted, unique_indices, mode, wrap_negative_indices
            )
        except Exception as error:
            hide_internal_frames(error)
            raise

    def max(
        self,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """A copy of ``x`` with the chosen elements raised to ``values`` where those are greater.

        >>> import tracebridge.numpy as tnp
        >>> tnp.array([2, 3]).at[:].max(3).tolist()
        [3, 3]
        """
        try:
            return self._update(
                "max", values, indices_are_sorted, unique_indices, mode, wrap_negative_indices
            )
        except Exception as error:
            hide_internal_frames(error)
            raise

    def apply(
        self,
        func: Callable[[Any], Any],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """A copy of ``x`` with ``func`` applied to the chosen elements, once per repetition.

        ``func`` is a function of elements, such as ``tracebridge.numpy.sqrt``.

        >>> import tracebridge.numpy as tnp
        >>> tnp.array([4.0, 9.0]).at[1].apply(tnp.sqrt).tolist()
        [4.0, 3.0]
        >>> tnp.ones(2).at[tnp.array([0, 0])].apply(lambda v: v + 1).tolist()
        [3.0, 1.0]
        """
        try:
            x, index = self._x, self._index
            mask = self._whole_mask(as_value(0))
            if mask is not None:
                return _choose_planned((mask, x, func(x)))
            options: dict[str, Any] = {
                "indices_are_sorted": indices_are_sorted,
                "mode": mode,
                "wrap_negative_indices": wrap_negative_indices,
            }
            if unique_indices or known_distinct(x, index):
                options["unique_indices"] = unique_indices
                return self.set(func(self.get(**options)), **options)
            places: dict[str, Any] = {**options, "mode": mode or "fill", "fill_value": NOWHERE}
            positions = IndexUpdateRef(positions_in(x), index).get(**places)
            return apply_in_turn(x, as_value(positions), func)
        except Exception as error:
            hide_internal_frames(error)
            raise


def at(x: Any) -> IndexUpdateHelper:
    """``x.at``."""
    if not hasattr(type(x), "aval"):
        msg = f"at: expected an array, got {type(x).__name__}"
        raise UnsupportedDtypeError(msg)
    return IndexUpdateHelper(x)
