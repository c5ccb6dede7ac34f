"""Entries of an index: a hashable form, with arrays as operands.

Integers, slices, None and Ellipsis are *static*: they key a staged body. Arrays are its operands;
masks are replaced by the positions of their true elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_bool, is_integer
from tracebridge.core.errors.argument_errors import index_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import IndexingError
from tracebridge.core.errors.shown import shown
from tracebridge.core.errors.tracer_errors import NonConcreteBooleanIndexError
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import array_value, as_value
from tracebridge.core.lax.ad_util import full_of, zeros_of

ELLIPSIS = "..."
INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
_LEAST, _GREATEST = np.iinfo(np.int32).min, np.iinfo(np.int32).max


@final
class ArrayPart:
    """Stands for an array in the static form of an index: ``position`` among the operands."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position

    def __hash__(self) -> int:
        return hash(("array part", self.position))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayPart) and other.position == self.position


def split_index(index: Any) -> tuple[tuple[Any, ...], list[Any]]:
    """The hashable form of an index, and its arrays.

    Slices become ``("slice", start, stop, step)``; boolean arrays become the integer arrays of
    their true positions.

    Raises:
        UnsupportedDtypeError, IndexingError: an entry is no index.
        NonConcreteBooleanIndexError: a mask is traced, so that the size of the result is unknown.
    """
    entries = index if isinstance(index, tuple) else (index,)
    static: list[Any] = []
    arrays: list[Any] = []
    for entry in entries:
        kind = type(entry)
        if kind is int or entry is None:
            static.append(entry)
        elif kind is slice:
            static.append(_split_slice(entry))
        elif entry is Ellipsis:
            static.append(ELLIPSIS)
        elif isinstance(entry, list | tuple) and entries is index:
            # As the only index a list could be meant as a tuple: that is an error.
            _split_array(_array_of(entry), static, arrays)
        else:
            _split_array(entry, static, arrays)
    return tuple(static), arrays


def _array_of(entry: Sequence[Any]) -> np.ndarray[Any, Any]:
    """A sequence of numbers or truth values in an index, as NumPy reads it."""
    try:
        array = np.asarray(entry)
    except (ValueError, RecursionError) as error:
        msg = f"an index is a list that no array can be made of: {shown(entry)}"
        hint = "lists in an index are as long as their neighbours"
        raise IndexingError(msg, hint=hint) from error
    return array if array.size or array.dtype.kind in "iub" else array.astype(INT32)


def _split_slice(entry: slice) -> tuple[Any, ...]:
    return ("slice", *[_bound(b) for b in (entry.start, entry.stop, entry.step)])


def _bound(bound: Any) -> Any:
    if bound is None or type(bound) is int or getattr(bound, "is_symbolic_dim", False):
        return bound
    if isinstance(bound, Tracer):
        msg = (
            f"a slice bound is traced ({bound.aval.str_short()}); slices need bounds that are "
            "known while tracing, since they decide the shape"
        )
        raise IndexingError(msg, hint="use tracebridge.lax.dynamic_slice, or a mask with where")
    return index_of(bound, "", "a slice bound")


def _split_array(entry: Any, static: list[Any], arrays: list[Any]) -> None:
    if isinstance(entry, str):
        msg = f"arrays are not indexed by strings, got {entry!r}"
        raise UnsupportedDtypeError(msg)
    if isinstance(entry, list | tuple):
        plain = all([isinstance(e, int | float | complex | np.generic) for e in entry])
        way = "tracebridge.numpy.array(sequence)" if plain else "tuple(sequence)"
        msg = f"an index is an array or a tuple, not a non-tuple sequence such as {shown(entry)}"
        raise UnsupportedDtypeError(msg, hint=f"wrap it: x[{way}]")
    value = entry if issubclass(type(entry), EngineValue) else _value_of(entry)
    dtype = value.aval.dtype
    if is_bool(dtype):
        for positions in _mask_positions(entry, value):
            static.append(ArrayPart(len(arrays)))
            arrays.append(positions)
        return
    if not is_integer(dtype):
        msg = f"index arrays must have integer or boolean type, got {value.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    if isinstance(entry, np.integer):
        static.append(int(entry))
        return
    static.append(ArrayPart(len(arrays)))
    arrays.append(value)


def _value_of(entry: Any) -> Any:
    """An array or a number of an index as a value of the engine."""
    try:
        return array_value(entry)
    except UnsupportedDtypeError:
        if hasattr(entry, "dtype"):
            raise
    msg = f"{shown(entry)} of type {type(entry).__name__} is no index"
    raise IndexingError(msg, hint="index with integers, slices, None, ..., and arrays")


def _mask_positions(entry: Any, value: Any) -> Sequence[Any]:
    if isinstance(value, Tracer):
        raise NonConcreteBooleanIndexError(value)
    host = np.asarray(entry) if not hasattr(value, "_to_numpy") else value._to_numpy()
    if host.ndim == 0:
        return [MaskScalar(bool(host))]
    return [MaskPositions(p.astype(np.int32), host.shape, i) for i, p in enumerate(host.nonzero())]


@final
class MaskScalar:
    """A 0-d boolean in an index: an array of one position, or none, along a new axis."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


@final
class MaskPositions:
    """Positions of the true elements of a mask along its axis ``axis``; checks sizes later."""

    __slots__ = ("axis", "positions", "shape")

    def __init__(self, positions: Any, shape: tuple[int, ...], axis: int) -> None:
        self.positions = positions
        self.shape = shape
        self.axis = axis


def scalar_masks_as_axes(
    x: Any, static: tuple[Any, ...], arrays: list[Any]
) -> tuple[Any, tuple[Any, ...], list[Any]]:
    """``x`` with a new axis of size 1 for each 0-d boolean in the index, and positions along it.

    Those are ``[0]`` for True and ``[]`` for False, and are broadcast with the other arrays.
    """
    if not any([isinstance(a, MaskScalar) for a in arrays]):
        return x, static, arrays
    values = list(arrays)
    shape = list(x.aval.shape)
    masks = [
        isinstance(e, ArrayPart) and isinstance(arrays[e.position], MaskScalar) for e in static
    ]
    plain = [e for e, is_mask in zip(static, masks, strict=True) if not is_mask]
    consumed = len([e for e in plain if e is not None and e != ELLIPSIS])
    axis = 0
    for e, is_mask in zip(static, masks, strict=True):
        if is_mask:
            shape.insert(axis, 1)
            values[e.position] = as_value(np.zeros(int(arrays[e.position].value), np.int32))
        axis += x.aval.ndim - consumed if e == ELLIPSIS else int(e is not None)
    return lax.reshape(x, tuple(shape)), static, values


def operands_of(static: tuple[Any, ...], arrays: list[Any], shape: Any) -> tuple[Any, list[Any]]:
    """Array operands ready for staging: masks checked against ``shape`` and made arrays."""
    if not any([isinstance(a, MaskPositions) for a in arrays]):
        return static, arrays
    entries: list[Any] = []
    values: list[Any] = []
    axis = 0
    consumed = len([e for e in static if e is not None and e != ELLIPSIS])
    for e in static:
        a = arrays[e.position] if isinstance(e, ArrayPart) else None
        if isinstance(a, MaskPositions):
            # A mask without elements selects nothing, of whatever shape.
            if axis < len(shape) and a.shape[a.axis] != shape[axis] and 0 not in a.shape:
                msg = (
                    f"boolean index did not match shape of the array: axis {axis} has size "
                    f"{shape[axis]}, axis {a.axis} of the mask of shape {a.shape} has size "
                    f"{a.shape[a.axis]}"
                )
                raise IndexingError(msg)
            a = as_value(a.positions)
        if a is None:
            entries.append(e)
        else:
            entries.append(ArrayPart(len(values)))
            values.append(a)
        if e == ELLIPSIS:
            axis += len(shape) - consumed
        elif e is not None:
            axis += 1
    return tuple(entries), values


def outside_as_arrays(
    static: tuple[Any, ...], values: list[Any], shape: tuple[Any, ...]
) -> tuple[tuple[Any, ...], list[Any]]:
    """Integers outside of their axes made operands: slices would clamp them, gathers have modes."""
    axis = 0
    entries: list[Any] = []
    arrays = list(values)
    consumed = len([e for e in static if e is not None and e != ELLIPSIS])
    for e in static:
        size = shape[axis] if axis < len(shape) else None
        if type(e) is int and type(size) is int and size and not -size <= e < size:
            entries.append(ArrayPart(len(arrays)))
            arrays.append(as_value(np.int32(min(max(e, _LEAST), _GREATEST))))
        else:
            entries.append(e)
        if e == ELLIPSIS:
            axis += len(shape) - consumed
        elif e is not None:
            axis += 1
    return (static, values) if len(arrays) == len(values) else (tuple(entries), arrays)


def count_from_start(
    static: tuple[Any, ...], arrays: list[Any], *, clamp: bool
) -> tuple[tuple[Any, ...], list[Any]]:
    """An index in which negative integers do not count from the end: they lie outside.

    ``clamp``: whether what lies outside means the nearest element.
    """
    nowhere = 0 if clamp else _GREATEST
    entries = tuple([nowhere if type(e) is int and e < 0 else e for e in static])
    return entries, [_without_negatives(a, nowhere) for a in arrays]


def _without_negatives(value: Any, nowhere: int) -> Any:
    if isinstance(value, MaskScalar | MaskPositions) or value.aval.dtype.kind == "u":
        return value
    wide = lax.convert_dtype(value, INT32) if value.aval.dtype.itemsize < 4 else value
    zero = zeros_of(wide.aval.strong)
    return lax.select_n(lax.lt(wide, zero), wide, full_of(zero.aval, nowhere))
