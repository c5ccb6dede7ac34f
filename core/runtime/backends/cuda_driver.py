"""Streams and events of CUDA's driver, as far as memory that is handed out needs them.

By ctypes, so that it works beside any framework, and none at all. The driver's interface keeps no
error of the last call, which a framework would take for one of its own kernels.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, final

LEGACY_STREAM = 1  # the protocol's, and the driver's, number of the default stream
_NOT_READY = 600
_NO_TIMING_BLOCKING = 3  # flags of events: nobody reads the time, and who waits sleeps


@functools.cache
def _driver() -> Any:
    """The library, or None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@functools.cache
def gpu_of(ordinal: int) -> CudaGpu | None:
    """The GPU of this number; None where the driver does not know it."""
    driver = _driver()
    if driver is None:
        return None
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuDeviceGet(ctypes.byref(device), ordinal):
        return None
    if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        return None
    return CudaGpu(driver, context)


@final
class CudaGpu:
    """Calls to one GPU, from any thread."""

    __slots__ = ("_context", "_driver", "_free")

    def __init__(self, driver: Any, context: Any) -> None:
        self._driver = driver
        self._context = context
        self._free: list[int] = []  # events, to be recorded again

    def is_idle(self, stream: int) -> bool:
        """Whether all work that was given to a stream is done; False while it is captured."""
        state = ctypes.c_int()
        handle = ctypes.c_void_p(stream)
        # To ask a stream that a graph is captured from would break the capture.
        if self._call("cuStreamIsCapturing", handle, ctypes.byref(state)) or state.value:
            return False
        return self._call("cuStreamQuery", handle) == 0

    def record(self, stream: int) -> int | None:
        """An event after what was given to a stream so far; None where that cannot be."""
        state, event = ctypes.c_int(), ctypes.c_void_p()
        handle = ctypes.c_void_p(stream)
        if self._call("cuStreamIsCapturing", handle, ctypes.byref(state)) or state.value:
            return None
        if self._free:
            event.value = self._free.pop()
        elif self._call("cuEventCreate", ctypes.byref(event), _NO_TIMING_BLOCKING):
            return None
        if self._call("cuEventRecord", event, handle):
            self.reuse(event.value or 0)
            return None
        return event.value

    def is_past(self, event: int) -> bool:
        """Whether an event has happened; an error of the device counts as that."""
        return self._call("cuEventQuery", ctypes.c_void_p(event)) != _NOT_READY

    def wait(self, event: int) -> None:
        """Sleep until an event has happened."""
        self._call("cuEventSynchronize", ctypes.c_void_p(event))

    def reuse(self, event: int) -> None:
        """Take an event back that nobody waits for any more."""
        self._free.append(event)

    def _call(self, name: str, *args: Any) -> int:
        driver, before = self._driver, ctypes.c_void_p()
        driver.cuCtxPushCurrent_v2(self._context)
        try:
            return int(getattr(driver, name)(*args))
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(before))
