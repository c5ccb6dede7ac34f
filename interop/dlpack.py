"""DLPack: any producer in, capsules out.

On the CPU a foreign tensor comes in as a NumPy view: NumPy reads all versions of the protocol,
and jaxlib takes an ndarray ten times faster than a capsule.
"""

from __future__ import annotations

import ctypes
from typing import Any, final

import numpy as np

from tracebridge.core._jaxlib import dlpack as door
from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.errors.exchange_errors import (
    ExchangeError,
    LayoutError,
    UnsupportedExchangeDtypeError,
)
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.interop.devices import placement_of
from tracebridge.interop.dtypes import DISGUISED, DLPACK, check_exchanged
from tracebridge.interop.layout import copy_of_read_only
from tracebridge.interop.ownership import copied, exportable, placed, take_buffer, take_host


def import_dlpack(x: Any, *, device: object = None, copy: bool | None = None) -> Array:
    """An Array of an object with ``__dlpack__`` and ``__dlpack_device__``."""
    kind, ordinal = _device_of(x)
    where = placement_of(kind, ordinal)
    if where.device.platform == "cpu":
        producer = _Producer(x, (kind, ordinal))
        view = x if isinstance(x, np.ndarray) else _host_view(producer)
        if view is not None:
            check_exchanged(view.dtype)
            what = f"the {type(x).__name__}"
            if producer.says_read_only or (view is x and not view.flags.writeable):
                copy = copy_of_read_only(what, copy)
            return placed(take_host(view, where, copy=copy, what=what), device, copy)
    return placed(_import_capsule(x, where, copy), device, copy)


def _device_of(x: Any) -> tuple[int, int]:
    given = x.__dlpack_device__()
    try:
        kind, ordinal = given
        return int(kind), int(ordinal)
    except (TypeError, ValueError) as error:
        msg = f"__dlpack_device__ of a {type(x).__name__} gave {given!r}"
        raise ExchangeError(msg, expected="a tuple (device type, device id)") from error


@final
class _Producer:
    """What NumPy asks for a capsule: it takes old ones, which say nothing, for read-only too.

    Tensors of dtypes that NumPy does not know come to it as integers of their width.
    """

    __slots__ = ("_device", "dtype", "gave", "says_read_only", "x")

    def __init__(self, x: Any, device: tuple[int, int]) -> None:
        self.x = x
        self._device = device
        self.says_read_only = False
        self.dtype: np.dtype[Any] | None = None  # of the elements, if NumPy is told another one
        self.gave = False  # whether there is a capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.x.__dlpack__(**options)
        self.gave = True
        places = door.managed(capsule)
        if places is None:
            return capsule  # NumPy says what is wrong with it
        self.says_read_only = door.is_read_only(capsule)
        tensor = _Tensor.from_address(places.tensor)
        sizes = [tensor.shape[i] for i in range(tensor.ndim)]
        if not tensor.data and all(sizes):
            # An address that nobody may read: what fake tensors have.
            msg = f"__dlpack__ of a {type(self.x).__name__} gave a tensor without memory"
            raise ExchangeError(msg, expected="a dense tensor with values")
        name = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
        if name in DISGUISED:
            self.dtype = DISGUISED[name]
            # Whoever has the capsule owns the structure in it.
            tensor.code = _UINT
        return capsule


def _host_view(producer: _Producer) -> np.ndarray[Any, Any] | None:
    """A NumPy view of a tensor on the CPU; None for dtypes that do not exist."""
    try:
        view = np.from_dlpack(producer)
    except RuntimeError:
        return None
    except (ValueError, BufferError) as error:
        if isinstance(error, ExchangeError) or (
            isinstance(error, BufferError) and not producer.gave
        ):
            raise  # the producer's own answer
        kind = type(producer.x).__name__
        msg = f"__dlpack__ of a {kind} gave no capsule that can be used: {error}"
        raise ExchangeError(msg, expected="a DLPack capsule that nobody has used") from error
    return view if producer.dtype is None else view.view(producer.dtype)


def _import_capsule(x: Any, where: Any, copy: bool | None) -> Array:
    """Import through jaxlib: memory of other devices. On the CPU it names what is wrong."""
    stream = None
    if where.device.platform != "cpu":
        # The producer makes this stream wait for its writes.
        stream = where.device.get_stream_for_external_ready_events()
    capsule = x.__dlpack__() if stream is None else x.__dlpack__(stream=stream)
    return import_capsule(capsule, where, stream=stream, copy=copy, what=type(x).__name__)


def import_capsule(
    capsule: Any, where: Any, *, stream: int | None, copy: bool | None, what: str
) -> Array:
    """An Array over the memory of a capsule at the placement ``where``."""
    aval = described(capsule, what)
    try:
        buf = door.from_capsule(
            capsule, where.device, stream, copy=False if copy is False else None
        )
    except XlaRuntimeError as error:
        raise _translated(error, what) from error
    array = take_buffer(buf, where, aval)
    # jaxlib's own copy=True does not copy memory that is aligned.
    return copied(array) if copy else array


class _Tensor(ctypes.Structure):
    """The protocol's DLTensor, as far as it is read here."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    )


_UINT = 1
_DTYPES = {
    **{(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    **{(5, bits): f"complex{bits}" for bits in (64, 128)},
    (4, 16): "bfloat16", (6, 8): "bool", (10, 8): "float8_e4m3fn", (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2", (13, 8): "float8_e5m2fnuz", (14, 8): "float8_e8m0fnu",
}  # fmt: skip


def described(capsule: Any, what: str) -> ShapedArray:
    """Shape and dtype of the tensor in a capsule: jaxlib's buffers do not tell theirs.

    Raises:
        ExchangeError: it is no DLPack capsule, or one that was used before.
        UnsupportedExchangeDtypeError: the engine has no such dtype.
    """
    places = door.managed(capsule)
    if places is None:
        msg = f"__dlpack__ of a {what} gave {capsule!r}"
        raise ExchangeError(msg, expected="a DLPack capsule that nobody has used")
    tensor = _Tensor.from_address(places.tensor)
    dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        kind = f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
        msg = f"a {what} of DLPack's dtype ({kind}) cannot become an array"
        raise UnsupportedExchangeDtypeError(msg)
    shape = tuple([int(tensor.shape[i]) for i in range(tensor.ndim)])
    return ShapedArray(shape, DLPACK.ours(dtype))


def _translated(error: XlaRuntimeError, what: str) -> Exception:
    text = str(error)
    if "aligned" in text or "strid" in text.lower() or "layout" in text:
        return LayoutError(
            f"the memory of a {what} cannot be shared: {text}",
            hint="make it contiguous in its own framework, or leave copy out",
        )
    if "type" in text:
        return UnsupportedExchangeDtypeError(f"a {what} cannot become an array: {text}")
    return ExchangeError(f"a {what} cannot become an array: {text}")


def export_capsule(array: Array, *, copy: bool | None = None) -> Any:
    """An unversioned DLPack capsule of an Array."""
    source = exportable(array, copy, "DLPack")
    return source.__dlpack__()
