"""Transfers: host values and arrays onto devices."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core._jaxlib.xla import (
    ArrayCopySemantics,
    DeviceList,
    HostBufferSemantics,
    XlaRuntimeError,
    array_from_shards,
    batched_device_put,
    collect_garbage,
    copy_to_devices,
    rewrap,
)
from tracebridge.core.config.transfer_guards import guards_in_force
from tracebridge.core.config.values import on_global_change, option
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.dtypes.dtypes import float0, is_extended
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.runtime_errors import OtherProcessesError
from tracebridge.core.ir.aval import ShapedArray, stored
from tracebridge.core.ir.typeof import register_value_type
from tracebridge.core.ir.values import Literal
from tracebridge.core.runtime.arrays.array import Array, new_array, share
from tracebridge.core.runtime.arrays.failures import raise_failure, raise_no_host_memory
from tracebridge.core.runtime.arrays.shards import is_readable, shard_aval, shard_buffers
from tracebridge.core.runtime.arrays.signature import signature
from tracebridge.core.runtime.backends.clients import default_placement, end_thread
from tracebridge.core.runtime.backends.guards import check_transfer
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.util.caching import BoundedCache, register_table

if TYPE_CHECKING:
    from tracebridge.core.sharding.sharding import Sharding

COPY = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
BORROW = HostBufferSemantics.ZERO_COPY
_SCALARS: BoundedCache[Any] = BoundedCache("device scalars", 8192)
_SUPPORTED_KINDS = "biufcV"
_LARGEST = {"f": 8, "c": 16}  # bytes


def check_host_dtype(dtype: np.dtype[Any]) -> None:
    """Raise for dtypes that no device has: object, strings, dates, structures, long double."""
    if (
        dtype.kind not in _SUPPORTED_KINDS
        or (dtype.kind == "V" and dtype.fields is not None)
        or dtype.itemsize > _LARGEST.get(dtype.kind, dtype.itemsize)
    ):
        if dtype == float0:
            msg = "arrays of dtype float0, the tangents of integers and booleans, take no part in "
            raise UnsupportedDtypeError(
                msg + "computations", hint="skip such leaves, or replace them by zeros"
            )
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
    if guards_in_force[0] and not borrow:
        check_transfer("host_to_device", aval.str_short(), where.device)
    return _transferred(host, aval, where, committed=committed, borrow=borrow)


def _transferred(
    host: np.ndarray[Any, Any],
    aval: ShapedArray,
    where: SingleDeviceSharding,
    *,
    committed: bool = False,
    borrow: bool = False,
) -> Array:
    how = BORROW if borrow else COPY
    end_thread()
    try:
        buf = batched_device_put(
            aval, where.backend_sharding, [host], [where.device], committed, how
        )
    except XlaRuntimeError as error:
        raise_failure(f"the transfer of {aval.str_short()}", error)
        raise
    collect_garbage()  # jaxlib would hold the ndarray that was copied until its next call
    return new_array(buf, signature(aval, where, committed, borrow))


def put_made(name: str, make: Callable[[], np.ndarray[Any, Any]]) -> Array:
    """An uncommitted Array of numbers that the library makes by a formula.

    The host computes them by choice, as a program on the device could: nothing of the user's is
    transferred, so transfer_guard has no say. ``name``: the function that asks for them.

    Raises:
        OutOfMemoryError: the host has not the memory for them.
    """
    try:
        host = make()
    except MemoryError as error:
        raise_no_host_memory(name, error)
        raise
    check_host_dtype(host.dtype)
    where = default_placement()
    return _transferred(host, ShapedArray(host.shape, host.dtype), where)


def put_canonical(host: np.ndarray[Any, Any], *, weak_type: bool = False) -> Array:
    """An uncommitted Array of ``host`` by the 64-bit rule."""
    dtype = canonicalize(host.dtype)
    if dtype != host.dtype:
        host = host.astype(dtype)
    return put_numpy(host, weak_type=weak_type)


# What an ndarray becomes in the default state, by its shape and dtype: the dtype to convert it to
# or None, aval, signature, sharding for XLA, devices.
_OPERANDS: dict[Any, Any] = register_table("kinds of ndarrays", {})
_MOST_OPERANDS = 4096


def put_operand(host: np.ndarray[Any, Any]) -> Array:
    """``put_canonical`` of an ndarray (of no subclass), by what is remembered of its kind.

    Only for the default state: options of the thread may change the dtype or the device.
    """
    known = _OPERANDS.get((host.shape, host.dtype))
    if known is None or guards_in_force[0]:
        array = put_canonical(host)
        if host.dtype.isnative:
            dtype = array.dtype if array.dtype != host.dtype else None
            place, sig = array._sig.sharding, array._sig
            if len(_OPERANDS) >= _MOST_OPERANDS:
                _OPERANDS.clear()
            entry = dtype, sig.aval, sig, place.backend_sharding, [place.device]
            _OPERANDS[host.shape, host.dtype] = entry
        return array
    dtype, aval, sig, where, devices = known
    if dtype is not None:
        host = host.astype(dtype)
    end_thread()
    try:
        buf = batched_device_put(aval, where, [host], devices, False, COPY)
    except XlaRuntimeError as error:
        raise_failure(f"the transfer of {aval.str_short()}", error)
        raise
    collect_garbage()  # as in `_transferred`
    return new_array(buf, sig)


@on_global_change
def _option_changed(name: str, value: object) -> None:
    del name, value
    _OPERANDS.clear()


def put_literal(literal: Literal, placement: SingleDeviceSharding | None = None) -> Array:
    """The scalar array of a Literal; the same buffer each time (bounded cache)."""
    where = default_placement() if placement is None else placement
    key = (literal.key(), where)
    found = _SCALARS.get(key)
    if found is None:
        host = np.asarray(literal.value).astype(literal.aval.dtype)
        # Shared scalars are marked as borrowed: donation would destroy them for all users.
        # Not guarded: numbers of the program are no data.
        found = _transferred(host, literal.aval, where)
        sig = found._sig
        found = new_array(found._buf, signature(sig.aval, sig.sharding, sig.committed, True))
        _SCALARS.set(key, share(found))
    return found


def move(array: Array, placement: Sharding, *, committed: bool) -> Array:
    """``array`` at another place (itself if it is there), committed or not."""
    sig = array._sig
    if sig.sharding is placement:
        if sig.committed is committed:
            return array
        return new_array(array._buf, signature(sig.aval, placement, committed, sig.borrowed))
    array._check_alive()
    _check_reachable(sig.aval, placement)
    if is_extended(sig.aval.dtype):
        return _by_elements(array, lambda words: move(words, placement, committed=committed))
    if (
        type(placement) is not SingleDeviceSharding
        or type(sig.sharding) is not SingleDeviceSharding
    ):
        return reshard(array, placement, committed=committed)
    if guards_in_force[0]:
        what = f"{sig.aval.str_short()} at {sig.sharding.device}"
        check_transfer("device_to_device", what, placement.device)
    if array.device.client is placement.device.client:
        (buf,) = copy_to_devices(
            [array._buf],
            [DeviceList((placement.device,))],
            [placement.backend_sharding],
            [ArrayCopySemantics.REUSE_INPUT],
        )
        if placement.device.platform == "cpu" and not option("cpu_async_dispatch"):
            buf.block_until_ready()  # nothing is pending on this client: lent.py relies on that
        buf = rewrap(buf, sig.aval, placement.backend_sharding)
        return new_array(buf, signature(sig.aval, placement, committed))
    return _transferred(array._to_numpy(), sig.aval, placement, committed=committed)


def reshard(array: Array, placement: Sharding, *, committed: bool) -> Array:
    """``array`` split over devices in another way.

    Parts that a device has already stay there, others are copied from a device that has them;
    only parts that no device has as they are wanted go through the host.
    """
    aval, source = array.aval, array._sig.sharding
    if is_extended(aval.dtype):
        return _by_elements(array, lambda words: reshard(words, placement, committed=committed))
    ndim = aval.ndim
    if guards_in_force[0]:
        check_transfer("device_to_device", f"{aval.str_short()} at {source}", placement)
    backend = placement.backend_for(ndim)
    if placement.is_equivalent_to(source, ndim):
        buf = rewrap(array._buf, aval, backend)
        return new_array(buf, signature(aval, placement, committed, array._sig.borrowed))
    if not is_readable(source):
        # What makes programs imports this module.
        programs = importlib.import_module("tracebridge.core.runtime.programs.exchange")
        # What comes is there, or on all devices, from where the rest is no exchange any more.
        return reshard(programs.exchange(array, placement), placement, committed=committed)
    wanted = placement.addressable_devices_indices_map(aval.shape)
    held: dict[str, dict[Any, Any]] = {}
    places = source.addressable_devices_indices_map(aval.shape)
    buffers = shard_buffers(array._buf, aval, source)
    for (device, index), buf in zip(places.items(), buffers, strict=True):
        held.setdefault(str(index), {})[device] = buf
    parts: list[Any] = []
    for device, index in wanted.items():
        have = held.get(str(index), {})
        local_part = have.get(device) or next(
            (b for d, b in have.items() if d.client is device.client), None
        )
        parts.append(array._to_numpy()[index] if local_part is None else local_part)
    return assemble(_on_devices(parts, aval, placement), aval, placement, committed=committed)


def copied(array: Array, *, committed: bool) -> Array:
    """``array`` in memory of its own, where it is."""
    aval, place = array.aval, array._sig.sharding
    if is_extended(aval.dtype):
        return _by_elements(array, lambda words: copied(words, committed=committed))
    weak = aval.weak_type
    if type(place) is not SingleDeviceSharding:
        return put_host(array._to_numpy(), place, weak_type=weak)
    return put_numpy(array._to_numpy(), place, committed=committed, weak_type=weak)


def _by_elements(array: Array, change: Callable[[Array], Array]) -> Array:
    """``change`` of an array of an extended dtype, by what stores the elements.

    That has more axes, which stay whole.
    """
    sig = array._sig
    kept = signature(stored(sig.aval), sig.sharding, sig.committed, sig.borrowed)
    changed = change(new_array(array._buf, kept))
    new = changed._sig
    return new_array(changed._buf, signature(sig.aval, new.sharding, new.committed, new.borrowed))


def _check_reachable(what: Any, placement: Sharding) -> None:
    """Raise unless this process has some of the devices to which ``what``, an array, is to go."""
    if not placement.has_addressable_devices:
        kind = f"an array of shape {tuple(what.shape)} and dtype {what.dtype}"
        msg = f"{kind} is to go to {placement}, whose devices other processes have"
        raise OtherProcessesError(msg, expected="a device of tracebridge.local_devices()")


def put_host(host: np.ndarray[Any, Any], placement: Sharding, *, weak_type: bool = False) -> Array:
    """A committed Array of ``host`` at any place."""
    _check_reachable(host, placement)
    if type(placement) is SingleDeviceSharding:
        return put_numpy(host, placement, committed=True, weak_type=weak_type)
    return put_parts(
        lambda index: host[index], ShapedArray(host.shape, host.dtype, weak_type), placement
    )


def put_parts(part: Callable[[Any], Any], aval: ShapedArray, placement: Sharding) -> Array:
    """A committed Array whose part at ``index`` is the ndarray ``part(index)``.

    Parts of equal index are asked for once.
    """
    check_host_dtype(aval.dtype)
    if guards_in_force[0]:
        check_transfer("host_to_device", aval.str_short(), placement)
    known: dict[str, Any] = {}
    parts: list[Any] = []
    wanted = placement.addressable_devices_indices_map(aval.shape)
    for index in wanted.values():
        key = str(index)
        if key not in known:
            piece = part(index)
            known[key] = piece if piece.dtype.isnative else piece.astype(aval.dtype)
        parts.append(known[key])
    return assemble(_on_devices(parts, aval, placement), aval, placement)


def put_copies(part: Array, aval: ShapedArray, placement: Sharding) -> Array:
    """A committed Array of which each device holds a copy of ``part``."""
    if type(placement) is SingleDeviceSharding:
        return move(part, placement, committed=True)
    # Where a mesh is in use, the part itself may be spread over its devices.
    single = type(part._sig.sharding) is SingleDeviceSharding
    parts = [part._buf if single else part._to_numpy()] * len(placement.addressable_devices)
    return assemble(_on_devices(parts, aval, placement), aval, placement)


def _on_devices(parts: Sequence[object], aval: ShapedArray, placement: Sharding) -> list[Any]:
    """A buffer on each device of this process from ndarrays or buffers.

    One transfer for each device: jaxlib's transfer to several devices at once fails (seen in
    0.10.2) where some devices hold copies and others do not.
    """
    part, kind = shard_aval(aval, placement), placement.memory_kind
    mine = [d for d in placement.device_tuple if d in placement.addressable_devices]
    places = [SingleDeviceSharding(d, memory_kind=kind).backend_sharding for d in mine]
    made = [
        batched_device_put(part, where, [x], [device], True, COPY)
        for x, where, device in zip(parts, places, mine, strict=True)
    ]
    collect_garbage()
    return made


def assemble(
    buffers: Sequence[Any], aval: ShapedArray, placement: Sharding, *, committed: bool = True
) -> Array:
    """An Array over single-device buffers, in the order of the devices of this process."""
    if type(placement) is SingleDeviceSharding:
        (buf,) = buffers
    else:
        kept = stored(aval)
        buf = array_from_shards(kept, placement.backend_for(kept.ndim), buffers, committed)
    return new_array(buf, signature(aval, placement, committed))


def as_array(value: Any, placement: SingleDeviceSharding | None = None) -> Array:
    """An Array of an Array or a Literal."""
    return put_literal(value, placement) if type(value) is Literal else value


def check_unmasked(host: object) -> None:
    """Refuse masked arrays, whose hidden elements would come to light."""
    if type(host) is not np.ndarray and isinstance(host, np.ma.MaskedArray):
        msg = (
            f"numpy masked arrays are not supported, got one of shape {host.shape}: arrays on "
            "devices have no mask"
        )
        raise ArgumentValueError(msg, hint="pass x.filled(value), or x.data and x.mask")


def _convert_ndarray(host: np.ndarray[Any, Any]) -> Array:
    check_unmasked(host)
    return put_canonical(host)


register_value_type(np.ndarray, _convert_ndarray)
