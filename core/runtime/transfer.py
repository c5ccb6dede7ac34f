"""Transfers: host values and arrays onto devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge.core._jaxlib.xla import (
    ArrayCopySemantics,
    DeviceList,
    HostBufferSemantics,
    batched_device_put,
    copy_to_devices,
    rewrap,
)
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import register_value_type
from tracebridge.core.ir.values import Literal
from tracebridge.core.runtime.array import _FROM_NUMPY, Array, new_array
from tracebridge.core.runtime.backends import default_placement
from tracebridge.core.runtime.signature import signature
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.util.caching import BoundedCache

COPY = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
BORROW = HostBufferSemantics.ZERO_COPY
_SCALARS: BoundedCache[Any] = BoundedCache("device scalars", 8192)
_SUPPORTED_KINDS = "biufcV"


def check_host_dtype(dtype: np.dtype[Any]) -> None:
    """Raise for dtypes that no device has: object, strings, dates, structures."""
    if dtype.kind not in _SUPPORTED_KINDS or (dtype.kind == "V" and dtype.fields is not None):
        msg = f"arrays of dtype {dtype} cannot live on a device"
        raise UnsupportedDtypeError(
            msg, expected="bool, integer, float or complex", hint="convert with x.astype(...)"
        )


def put_numpy(
    host: np.ndarray[Any, Any],
    placement: SingleDeviceSharding | None = None,
    *,
    committed: bool = False,
    weak_type: bool = False,
    borrow: bool = False,
) -> Array:
    """An Array with the elements of ``host``, of the same dtype.

    With ``borrow`` the memory is shared where alignment and layout allow; the caller promises
    that nobody writes to it. Otherwise it is copied before the call returns.
    """
    dtype = host.dtype
    if not dtype.isnative:
        # XLA would take the bytes as they are and give wrong values.
        host = host.astype(dtype.newbyteorder("="))
        dtype = host.dtype
    check_host_dtype(dtype)
    where = default_placement() if placement is None else placement
    aval = ShapedArray(host.shape, dtype, weak_type)
    buf = batched_device_put(
        aval, where.backend_sharding, [host], [where.device], committed, BORROW if borrow else COPY
    )
    return new_array(buf, signature(aval, where, committed, borrow))


def put_canonical(host: np.ndarray[Any, Any], *, weak_type: bool = False) -> Array:
    """An uncommitted Array of ``host`` by the 64-bit rule."""
    dtype = canonicalize(host.dtype)
    if dtype != host.dtype:
        host = host.astype(dtype)
    return put_numpy(host, weak_type=weak_type)


def put_literal(literal: Literal, placement: SingleDeviceSharding | None = None) -> Array:
    """The scalar array of a Literal; the same buffer each time (bounded cache)."""
    where = default_placement() if placement is None else placement
    key = (literal.key(), where)
    found = _SCALARS.get(key)
    if found is None:
        host = np.asarray(literal.value).astype(literal.aval.dtype)
        # Shared scalars are marked as borrowed: donation would destroy them for all users.
        found = put_numpy(host, where, weak_type=literal.aval.weak_type)
        sig = found.sig
        found = new_array(found.buf, signature(sig.aval, sig.sharding, sig.committed, True))
        _SCALARS.set(key, found)
    return found


def move(array: Array, placement: SingleDeviceSharding, *, committed: bool) -> Array:
    """``array`` on another device (itself if it is there), committed or not."""
    sig = array.sig
    if sig.sharding is placement:
        if sig.committed is committed:
            return array
        return new_array(array.buf, signature(sig.aval, placement, committed, sig.borrowed))
    array.check_alive()
    if array.device.client is placement.device.client:
        (buf,) = copy_to_devices(
            [array.buf],
            [DeviceList((placement.device,))],
            [placement.backend_sharding],
            [ArrayCopySemantics.REUSE_INPUT],
        )
        buf = rewrap(buf, sig.aval, placement.backend_sharding)
        return new_array(buf, signature(sig.aval, placement, committed))
    return put_numpy(array.to_numpy(), placement, committed=committed, weak_type=sig.aval.weak_type)


def as_array(value: Any, placement: SingleDeviceSharding | None = None) -> Array:
    """An Array of an Array or a Literal."""
    return put_literal(value, placement) if type(value) is Literal else value


def _convert_ndarray(host: np.ndarray[Any, Any]) -> Array:
    return put_canonical(host)


_FROM_NUMPY.append(lambda host, weak_type: put_numpy(host, weak_type=weak_type))
register_value_type(np.ndarray, _convert_ndarray)
