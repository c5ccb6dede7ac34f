"""The producer side of DLPack: what ``Array.__dlpack__`` and ``__dlpack_device__`` do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from tracebridge.core._jaxlib.xla import (
    ArrayCopySemantics,
    DeviceList,
    XlaRuntimeError,
    copy_to_devices,
    rewrap,
)
from tracebridge.core.dtypes.dtypes import is_extended, itemsize_bits
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.exchange_errors import (
    ExchangeError,
    LayoutError,
    OwnershipError,
    UnsupportedExchangeDtypeError,
)
from tracebridge.core.runtime.arrays.handed_out import hand_out
from tracebridge.core.sharding.single_device import SingleDeviceSharding

if TYPE_CHECKING:
    from tracebridge.core.runtime.arrays.array import Array

CPU = 1
# platform -> DLPack's device type
DEVICE_TYPES: dict[str, int] = {"cpu": CPU, "cuda": 2, "gpu": 2, "rocm": 10}
NO_SYNC = -1
BYTE = 8


def dlpack_device(array: Array) -> tuple[int, int]:
    """DLPack's ``(type, id)`` of where an array lives."""
    devices = array.sharding.device_tuple
    if len(devices) != 1:
        msg = f"DLPack exchanges arrays of one device, this one is spread over {array.sharding}"
        raise ExchangeError(msg, hint="gather it first: device_put(x, device)")
    (device,) = devices
    kind = DEVICE_TYPES.get(device.platform)
    if kind is None:
        msg = f"DLPack has no device type for {device}"
        raise ExchangeError(msg, hint="move the array to the CPU first")
    return kind, 0 if kind == CPU else device.local_hardware_id


def _check_pair(name: str, value: object, what: str) -> None:
    """Raise ArgumentTypeError unless ``value`` is None or a tuple of two integers."""
    pair: Any = value if type(value) is tuple else ()
    # Device types may be members of an enumeration.
    if value is None or (len(pair) == 2 and all([isinstance(v, SupportsIndex) for v in pair])):
        return
    msg = f"__dlpack__: {name} is {value!r}"
    raise ArgumentTypeError(msg, expected=f"a tuple of two integers, {what}, or None")


def export_capsule(
    array: Array,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: object,
) -> Any:
    """A capsule over the memory of ``array``, or of a copy of it."""
    array._check_alive()
    _check_pair("max_version", max_version, "(major, minor)")
    _check_pair("dl_device", dl_device, "(device type, device id)")
    if copy is not None and not isinstance(copy, bool | np.bool_):
        msg = f"__dlpack__: copy is {copy!r} of type {type(copy).__name__}"
        raise ArgumentTypeError(msg, expected="True, False or None")
    if is_extended(array.dtype):
        msg = f"an array of dtype {array.dtype} cannot be exported by DLPack"
        raise UnsupportedExchangeDtypeError(msg, hint="take its words: random.key_data(keys)")
    if itemsize_bits(array.dtype) < BYTE:
        msg = f"an array of dtype {array.dtype} cannot be exported by DLPack"
        raise UnsupportedExchangeDtypeError(
            msg, expected="elements of whole bytes", hint="convert it first: x.astype('int8')"
        )
    here = dlpack_device(array)
    if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != here:
        msg = f"__dlpack__: the array is at DLPack device {here}, not at {tuple(dl_device)}"
        raise LayoutError(msg, hint="move it first: device_put(x, device)")
    if here[0] == CPU and stream not in (None, NO_SYNC):
        msg = f"__dlpack__: stream={stream!r} for an array on the CPU, which has no streams"
        raise ExchangeError(msg, expected="None")
    # The engine keeps scalars of Python numbers and uses them again; see interop/ownership.py.
    is_shared = array._sig.borrowed and array.ndim == 0
    if is_shared and copy is False:
        msg = "the memory of this scalar is used by other arrays, and copy=False forbids a copy"
        raise OwnershipError(msg, hint="leave copy out")
    copied = bool(copy) or is_shared
    aval, sharding = array.aval, array.sharding
    (device,) = sharding.device_tuple
    if type(sharding) is not SingleDeviceSharding:  # over a mesh of one device
        sharding = SingleDeviceSharding(device, memory_kind=sharding.memory_kind)
    place = sharding.backend_sharding
    # Deleting a buffer object that was exported aborts the process: export one of its own.
    if copied:
        (fresh,) = copy_to_devices(
            [array._buf],
            [DeviceList((device,))],
            [place],
            [ArrayCopySemantics.ALWAYS_COPY],
        )
        buf = rewrap(fresh, aval, place)
    else:
        buf = rewrap(array._buf, aval, place)
    try:
        return hand_out(
            buf, device, None if stream == NO_SYNC else stream, max_version, copied=copied
        )
    except XlaRuntimeError as error:
        msg = f"an array of dtype {array.dtype} cannot be exported by DLPack: {error}"
        raise UnsupportedExchangeDtypeError(
            msg, hint="convert it first: x.astype('float32')"
        ) from error
