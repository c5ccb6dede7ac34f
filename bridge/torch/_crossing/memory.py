"""Memory of torch in programs of XLA, and memory of XLA in tensors: nobody holds the other's.

A large argument enters as a buffer over its address that owns nothing: no reference to the tensor
or to its storage, strong or weak. XLA looks at a buffer only while a program runs, and that is
during a call, which has the tensor. So buffers can be kept by address, and found when memory comes
again in a call, whatever has become of the tensor that was there before (``Borrowed``).

A large result leaves through NumPy, whose capsule frees memory when the tensor dies. jaxlib's own
capsule leaves it to the next transfer, which may be never.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch

from tracebridge.core._jaxlib import dlpack as door
from tracebridge.core._jaxlib.xla import (
    HostBufferSemantics,
    batched_block_until_ready,
    batched_device_put,
)
from tracebridge.core.errors.base import InternalError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.backends.clients import on_fork
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.util.caching import register_cache
from tracebridge.interop.dtypes import CARRIERS
from tracebridge.interop.layout import ALIGNMENT, address_of, is_aligned
from tracebridge.interop.torch_adapter import DISGUISES, TORCH_DTYPES, check_has_values

SMALL_BYTES = 4096  # copying more takes longer than looking for a buffer
MAX_ADDRESSES = 1024  # of one shape and dtype; memory that comes at more of them starts over
SHARE = HostBufferSemantics.ZERO_COPY
COPY = HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
storage_of = torch.Tensor.untyped_storage
_from_capsule = torch._C._from_dlpack


# arguments ---------------------------------------------------------------------------------------


@final
class Borrowed:
    """Buffers of one aval at one place over memory of others, by address. They own nothing."""

    __slots__ = ("__weakref__", "_at", "aval", "known", "where")

    def __init__(self, aval: ShapedArray, where: SingleDeviceSharding) -> None:
        self.aval = aval
        self.where = where
        self.known: dict[int, Any] = {}
        self._at = (ctypes.c_char * (aval.size * aval.dtype.itemsize)).from_address

    @staticmethod
    def of(aval: ShapedArray, where: SingleDeviceSharding) -> Borrowed:
        """The buffers for ``aval`` at ``where``."""
        key = (aval.shape, aval.dtype, where.backend_sharding)
        found = _BORROWED.get(key)
        return _BORROWED.setdefault(key, Borrowed(aval, where)) if found is None else found

    def parts(self) -> tuple[Any, Any, int, int]:
        """What a call needs: the known buffers, ``enter``, size in bytes, size of an element."""
        width = self.aval.dtype.itemsize
        # Nothing of an empty tensor can be missing, wherever it begins.
        size = self.aval.size * width or -sys.maxsize
        return self.known.get, self.enter, size, width

    def enter(self, address: int) -> Any:
        """The buffer over the memory at ``address``; a copy if XLA cannot read there."""
        aval, where = self.aval, self.where
        host: np.ndarray[Any, Any] = np.ndarray(aval.shape, aval.dtype, self._at(address))
        shares = is_aligned(address)
        buf = door.put_view(
            aval, where.backend_sharding, [host], [where.device], False, False,
            SHARE if shares else COPY, True,
        )  # fmt: skip
        if shares:
            if len(self.known) >= MAX_ADDRESSES:
                self.known.clear()
            self.known[address] = buf
        return buf


# All programs that take such an argument share its buffers.
_BORROWED: weakref.WeakValueDictionary[Any, Borrowed] = weakref.WeakValueDictionary()


@final
class _BorrowedBuffers:
    """What ``clear_caches`` sees of them."""

    __slots__ = ("__weakref__",)
    name = "buffers over torch tensors"

    def clear(self) -> None:
        """Forget all buffers."""
        for table in list(_BORROWED.values()):
            table.known.clear()

    def __len__(self) -> int:
        return sum([len(table.known) for table in list(_BORROWED.values())])


_BORROWED_BUFFERS = _BorrowedBuffers()
register_cache(_BORROWED_BUFFERS)
on_fork(_BORROWED_BUFFERS.clear)


def _memory_copier() -> Callable[[int, int, int], object]:
    """``memmove(to, from, size)`` that keeps Python's lock: giving that away costs more."""
    try:
        memmove = ctypes.PyDLL(None).memmove
    except (OSError, AttributeError, TypeError):
        return ctypes.memmove  # not all systems find the C library so
    memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    memmove.restype = None
    return memmove


copy_memory = _memory_copier()

# Of one small argument: buffer, where to write and how many bytes; of a number: buffer, the scalar
# to set, and its size.
Stage = list[tuple[Any, Any, int]]


def make_stage(staged: Sequence[tuple[ShapedArray, bool]], where: SingleDeviceSharding) -> Stage:
    """Buffers that small arguments are copied into: one call writes and reads them at a time.

    Making a buffer takes jaxlib 2 us, copying a kilobyte takes 0.1 us. ``staged`` says of each
    argument whether it is a number.
    """
    stage: Stage = []
    for aval, is_number in staged:
        size = aval.size * aval.dtype.itemsize
        block = np.empty(size + ALIGNMENT, np.uint8)
        start = -address_of(block) % ALIGNMENT
        host = block[start : start + size].view(aval.dtype).reshape(aval.shape)
        buf = batched_device_put(aval, where.backend_sharding, [host], [where.device], False, SHARE)
        address = address_of(host)
        if buf.unsafe_buffer_pointer() != address:
            msg = "jaxlib has copied aligned memory"
            raise InternalError(msg)
        stage.append((buf, host if is_number else address, size))
    return stage


def copied(aval: ShapedArray, where: SingleDeviceSharding, x: Any) -> Any:
    """A buffer with a copy of a tensor or number."""
    if isinstance(x, torch.Tensor):
        check_has_values(x)
        host: Any = np.empty(aval.shape, aval.dtype)
        copy_memory(address_of(host), x.data_ptr(), host.nbytes)
    else:
        host = np.array(x, aval.dtype)
    return batched_device_put(aval, where.backend_sharding, [host], [where.device], False, COPY)


# results -----------------------------------------------------------------------------------------


CAPSULE_VERSION = (1, 0)


def _numpy_exports() -> bool:
    """Whether NumPy makes capsules of read-only arrays that torch takes."""
    host = np.zeros(1, np.float32)
    host.flags.writeable = False
    try:
        _from_capsule(host.__dlpack__(max_version=CAPSULE_VERSION))
    except (BufferError, RuntimeError, TypeError):
        return False  # NumPy before 2.1
    return True


_NUMPY_EXPORTS = _numpy_exports()


def leaves_small(aval: ShapedArray) -> bool:
    """Whether a result goes by jaxlib's capsule, in half the time; it is freed at the next call."""
    return aval.size * aval.dtype.itemsize <= SMALL_BYTES or not _NUMPY_EXPORTS


def way_out(aval: ShapedArray) -> Callable[[Any], torch.Tensor]:
    """The function that makes a tensor over the memory of a result."""
    if leaves_small(aval):
        return lambda buf: _from_capsule(door.unversioned_capsule(buf))
    if TORCH_DTYPES[aval.dtype] in DISGUISES:
        return _disguised(aval)
    return _leave


def _leave(buf: Any) -> torch.Tensor:
    # The buffer protocol waits for the result, and lets go of the memory with the view.
    return _from_capsule(np.asarray(buf).__dlpack__(max_version=CAPSULE_VERSION))


def _disguised(aval: ShapedArray) -> Callable[[Any], torch.Tensor]:
    """``_leave`` for a dtype that the buffer protocol does not know."""
    carrier, dtype = CARRIERS[aval.dtype.itemsize], TORCH_DTYPES[aval.dtype]
    # Memory of a buffer that lives as long as this; unlike its base, a subclass has attributes.
    owner: Any = type("Owner", (ctypes.c_char * (aval.size * aval.dtype.itemsize),), {})

    def leave(buf: Any) -> torch.Tensor:
        batched_block_until_ready([buf])
        memory = owner.from_address(buf.unsafe_buffer_pointer())
        memory.buf = buf
        host: np.ndarray[Any, Any] = np.ndarray(aval.shape, carrier, memory)
        # A view would remember the carrier as its base.
        storage = torch.from_numpy(host).untyped_storage()
        return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, aval.shape)  # pyright: ignore[reportCallIssue] - the stubs lack untyped storages

    return leave
