"""Methods and properties of arrays: what the array namespace gives to Array and Tracer."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, itemsize_bits
from tracebridge.core.errors.argument_errors import ArgumentValueError, UnsupportedArgumentError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.shown import shown
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.runtime.arrays.argument_types import DeviceLike, DType, ShardingLike
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy import (
    _indexing,
    _operators,
    _rows,
    at_updates,
    conversion,
    cumulative,
    editing,
    elementwise_complex,
    elementwise_extrema,
    elementwise_round,
    indexing_functions,
    linear_products,
    manipulation,
    matrices,
    reductions,
    searching,
    selection,
    sorting,
    variances,
    vector_products,
)


def _reshape(
    self: Value,
    *args: Value,
    order: str = "C",
    copy: bool | None = None,
    out_sharding: ShardingLike | None = None,
) -> Any:
    """``x.reshape(2, 3)`` or ``x.reshape((2, 3))``."""
    shape = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
    return manipulation.reshape(self, shape, order, copy=copy, out_sharding=out_sharding)


def _transpose(self: Value, *axes: object) -> Any:
    if not axes or (len(axes) == 1 and axes[0] is None):
        return manipulation.transpose(self)
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
    return manipulation.transpose(self, order)


def _astype(self: Value, dtype: DType, copy: bool = False, device: DeviceLike | None = None) -> Any:
    return conversion.astype(self, dtype, copy=copy, device=device)


@remembered
def _flatten(self: Value, order: str = "C", *, out_sharding: ShardingLike | None = None) -> Any:
    return manipulation.ravel(self, order, out_sharding=out_sharding)


def _copy(self: Value) -> Any:
    return conversion.copy(self)


def _clip(self: Value, min: Value | None = None, max: Value | None = None) -> Any:
    return elementwise_extrema.clip(self, min, max)


def _compress(
    self: Value,
    condition: Value,
    axis: int | None = None,
    *,
    out: None = None,
    size: int | None = None,
    fill_value: ArrayLike = 0,
) -> Any:
    return selection.compress(condition, self, axis, out=out, size=size, fill_value=fill_value)


_UINT8 = np.dtype(np.uint8)


def _reinterpret(x: Value, dtype: DType) -> Any:
    """The bytes of the last axis as elements of another dtype, perhaps of another width."""
    source = x.aval.dtype
    if source == dtype:
        return x
    if is_bool(source):
        return _reinterpret(lax.convert_element_type(x, _UINT8), dtype)
    if is_bool(dtype):
        octets = _reinterpret(x, _UINT8)
        return lax.ne(octets, zeros_of(octets.aval))
    if (is_complex(source) or is_complex(dtype)) and not x.aval.ndim:
        _check_width(x, dtype)
        return lax.reshape(_reinterpret(lax.reshape(x, (1,)), dtype), ())
    if is_complex(source):
        parts = [lax.expand_dims(part(x), (x.aval.ndim,)) for part in (lax.real, lax.imag)]
        *lead, last = x.aval.shape
        return _reinterpret(
            lax.reshape(lax.concatenate(parts, x.aval.ndim), (*lead, 2 * last)), dtype
        )
    if is_complex(dtype):
        _check_width(x, dtype)
        numbers = _reinterpret(x, np.dtype(f"f{dtype.itemsize // 2}"))
        *lead, last = numbers.aval.shape
        pairs = lax.reshape(numbers, (*lead, last // 2, 2))
        return lax.complex(*[lax.index_in_dim(pairs, i, -1, keepdims=False) for i in (0, 1)])
    return _reinterpret_bits(x, dtype)


def _check_width(x: Value, dtype: DType) -> None:
    """Raise unless the bits of the last axis are those of whole elements of ``dtype``."""
    old, new = itemsize_bits(x.aval.dtype), itemsize_bits(dtype)
    whole = x.aval.ndim and x.aval.shape[-1] * old % new == 0
    if old != new and not whole:
        msg = f"view: the last axis of {x.aval.str_short()} cannot be read as {dtype.name}"
        raise ShapeMismatchError(msg)


def _reinterpret_bits(x: Value, dtype: DType) -> Any:
    """The same for integers and real numbers."""
    _check_width(x, dtype)
    old, new = itemsize_bits(x.aval.dtype), itemsize_bits(dtype)
    if old == new:
        return lax.bitcast_convert_type(x, dtype)
    *lead, last = x.aval.shape
    if new < old:
        return lax.reshape(lax.bitcast_convert_type(x, dtype), (*lead, last * old // new))
    ratio = new // old
    return lax.bitcast_convert_type(lax.reshape(x, (*lead, last // ratio, ratio)), dtype)


_view_staged = StagedFunction(_reinterpret, "view")


def _swapped(x: Value) -> Any:
    """The bytes of each number in reverse; the parts of complex numbers by themselves."""
    if is_complex(x.aval.dtype):
        return lax.complex(_swapped(lax.real(x)), _swapped(lax.imag(x)))
    parts = lax.bitcast_convert_type(x, np.dtype(np.uint8))
    return lax.bitcast_convert_type(lax.rev(parts, (x.aval.ndim,)), x.aval.dtype)


_swapped_staged = StagedFunction(_swapped, "byteswap")


def _byteswap(self: Value, inplace: bool = False) -> Any:
    """The bytes of each number in reverse order, as in memory of the other byte order."""
    if inplace:
        msg = "byteswap: got inplace=True, but arrays are immutable; use the result"
        raise ArgumentValueError(msg)
    return self if self.dtype.itemsize == 1 else _swapped_staged((self,))


def _view(self: Value, dtype: DType | None = None, type: None = None) -> Any:
    """The same bytes as elements of another dtype, along the last axis."""
    if type is not None:
        msg = f"view: type is {shown(type)}, but arrays are of one class"
        raise UnsupportedArgumentError(msg, hint="leave type out")
    if dtype is None:
        return self
    return _view_staged((self,), (np.dtype(canonicalize_explicit(dtype, "view")),))


def _to_device(self: Value, device: DeviceLike, *, stream: object = None) -> Any:
    if stream is not None:
        msg = "to_device: streams are managed by XLA; stream must be None"
        raise ArgumentValueError(msg)
    return conversion.on_device(self, device)


METHODS: dict[str, Any] = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": searching.argmax,
    "argmin": searching.argmin,
    "argpartition": sorting.argpartition,
    "argsort": sorting.argsort,
    "astype": _astype,
    "byteswap": _byteswap,
    "choose": selection.choose,
    "clip": _clip,
    "compress": _compress,
    "conj": elementwise_complex.conjugate,
    "conjugate": elementwise_complex.conjugate,
    "copy": _copy,
    "cumprod": cumulative.cumprod,
    "cumsum": cumulative.cumsum,
    "diagonal": matrices.diagonal,
    "dot": linear_products.dot,
    "flatten": _flatten,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "nonzero": searching.nonzero,
    "prod": reductions.prod,
    "ptp": reductions.ptp,
    "ravel": manipulation.ravel,
    "repeat": editing.repeat,
    "reshape": _reshape,
    "round": elementwise_round.round,
    "searchsorted": searching.searchsorted,
    "sort": sorting.sort,
    "squeeze": manipulation.squeeze,
    "std": variances.std,
    "sum": reductions.sum,
    "swapaxes": manipulation.swapaxes,
    "take": indexing_functions.take,
    "to_device": _to_device,
    "trace": vector_products.trace,
    "transpose": _transpose,
    "var": variances.var,
    "view": _view,
}

PROPERTIES: dict[str, Any] = {
    "T": manipulation.transpose,
    "mT": manipulation.matrix_transpose,
    "at": at_updates.at,
    "flat": manipulation.ravel,
    "imag": elementwise_complex.imag,
    "real": elementwise_complex.real,
}


def _array_namespace(api_version: object) -> Any:
    # Few ask, and importing it takes devices.
    array_api = importlib.import_module("tracebridge.numpy.array_api")
    return array_api.namespace_of_array(api_version)


def functions() -> dict[str, Any]:
    """The contents of the array namespace."""
    return {
        **_operators.OPERATORS,
        "array_namespace": _array_namespace,
        "getitem": _indexing.getitem,
        "methods": METHODS,
        "properties": PROPERTIES,
        "rows": _rows.rows,
    }
