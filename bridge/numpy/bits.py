"""Bits in bytes: packbits, unpackbits."""

from __future__ import annotations

__all__ = ["packbits", "unpackbits"]

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_integer
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.aval import Shape
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import normalize_axis
from tracebridge.numpy.elementwise_logic import truth

_UINT8 = np.dtype(np.uint8)


def _last(x: Value, axis: int | None, name: str) -> tuple[Any, int]:
    """``x`` (flattened for ``None``) with the axis moved to the end, and where it was."""
    if axis is None:
        return lax.reshape(x, (x.aval.size,)), 0
    where = normalize_axis(axis, x.aval.ndim, name)
    return lax.transpose(x, (*[i for i in range(x.aval.ndim) if i != where], where)), where


def _back(x: Value, where: int) -> Any:
    order = list(range(x.aval.ndim - 1))
    order.insert(where, x.aval.ndim - 1)
    return lax.transpose(x, tuple(order))


def _order(name: str, bitorder: str) -> str:
    if bitorder not in ("big", "little"):
        msg = f"{name}: bitorder={bitorder!r}, expected 'big' or 'little'"
        raise ArgumentValueError(msg)
    return bitorder


def _shifts(shape: Shape, bitorder: str) -> Any:
    """How far the bits along the last axis are shifted."""
    iota = lax.broadcasted_iota(_UINT8, shape, len(shape) - 1)
    return iota if bitorder == "little" else lax.sub(full_of(iota.aval, 7), iota)


def _packbits(x: Value, axis: int | None, bitorder: str) -> Any:
    if not (is_integer(x.aval.dtype) or is_bool(x.aval.dtype)):
        msg = f"packbits: expected integers or bools, got {x.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    bits, where = _last(lax.convert_dtype(truth(x), _UINT8), axis, "packbits")
    size = bits.aval.shape[-1]
    config = [(0, 0, 0)] * (bits.aval.ndim - 1) + [(0, -size % 8, 0)]
    bits = lax.pad(bits, zeros_of(bits.aval.update(shape=())), config)
    groups = lax.reshape(bits, (*bits.aval.shape[:-1], -(-size // 8), 8))
    shifted = lax.shift_left(groups, _shifts(groups.aval.shape, bitorder))
    return _back(lax.reduce_or(shifted, (shifted.aval.ndim - 1,)), where)


_packbits_staged = StagedFunction(_packbits, "packbits")


def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Truth values packed into bytes, eight along an axis; zeros fill the last byte.

    Args:
        a: integers or bools.
        axis: axis in ``[-ndim, ndim)``; ``None`` flattens first.
        bitorder: ``"big"`` puts the first into the highest bit, ``"little"`` into the lowest.

    >>> import tracebridge.numpy as tnp
    >>> tnp.packbits(tnp.array([1, 0, 1, 0, 0, 0, 0, 1])).tolist()
    [161]
    """
    where = None if axis is None else index_of(axis, "packbits", "axis")
    return _packbits_staged((a,), (where, _order("packbits", bitorder)))


def _unpackbits(x: Value, axis: int | None, count: int | None, bitorder: str) -> Any:
    if x.aval.dtype != _UINT8:
        msg = f"unpackbits: expected uint8, got {x.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    rows, where = _last(x, axis, "unpackbits")
    shape = (*rows.aval.shape, 8)
    wide = lax.broadcast_in_dim(rows, shape, tuple(range(rows.aval.ndim)))
    bits = lax.shift_right_logical(wide, _shifts(shape, bitorder))
    bits = lax.bitwise_and(bits, full_of(bits.aval, 1))
    total = rows.aval.shape[-1] * 8
    bits = lax.reshape(bits, (*rows.aval.shape[:-1], total))
    if count is not None:
        wanted = total + count if count < 0 else count
        extra = wanted - total
        config = [(0, 0, 0)] * (bits.aval.ndim - 1) + [(0, extra, 0)]
        bits = lax.pad(bits, zeros_of(bits.aval.update(shape=())), config)
    return _back(bits, where)


_unpackbits_staged = StagedFunction(_unpackbits, "unpackbits")


def unpackbits(
    a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Array:
    """The bits of bytes as zeros and ones, eight along an axis for each.

    Args:
        a: uint8 array.
        axis: axis in ``[-ndim, ndim)``; ``None`` flattens first.
        count: how many bits to give; negative: how many to leave out at the end.
        bitorder: ``"big"`` gives the highest bit first, ``"little"`` the lowest.

    >>> import tracebridge.numpy as tnp
    >>> tnp.unpackbits(tnp.array([161], dtype="uint8")).tolist()
    [1, 0, 1, 0, 0, 0, 0, 1]
    """
    where = None if axis is None else index_of(axis, "unpackbits", "axis")
    number = None if count is None else index_of(count, "unpackbits", "count")
    return _unpackbits_staged((a,), (where, number, _order("unpackbits", bitorder)))
