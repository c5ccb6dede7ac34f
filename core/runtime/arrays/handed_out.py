"""Memory of a GPU that another framework has: it comes back when its kernels have read it.

A framework gives memory back when the last name of its tensor goes; kernels that it launched before
may not have run by then. XLA, which knows nothing of them, would give the memory to its next
program at once. So the consumer's call to give it back (the capsule's deleter) comes here first,
and goes on when the stream for which the capsule was made has done what it had been given: at once
if it is idle, else at one of the next exchanges. Where much is waiting, a thread waits for it. As
in the frameworks themselves, who reads the memory on further streams has to hold it until they are
done.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import functools
import threading
from typing import Any, NamedTuple

from tracebridge.core._jaxlib import dlpack as door
from tracebridge.core.runtime.backends.cuda_driver import LEGACY_STREAM, CudaGpu, gpu_of

# What may wait for the next exchange without a thread; and beyond which exchanges wait.
_TAIL_BYTES = 1 << 25
_MOST_BYTES = 1 << 30


class _Loan(NamedTuple):
    """Memory that a consumer has."""

    gpu: CudaGpu
    stream: int
    nbytes: int
    slot: int  # address of the pointer to the deleter
    deleter: int
    consumed: bool  # the structure is there until its deleter is called


class _Returned(NamedTuple):
    """Memory that waits for an event; without one, the stream took none."""

    loan: _Loan
    address: int
    event: int | None


_loans: dict[int, _Loan] = {}
_returned: collections.deque[_Returned] = collections.deque()
_waiting_bytes = 0
# Of _waiting_bytes and _reaper; tensors may die, and come here, while it is held.
_lock = threading.RLock()
_reaper: threading.Thread | None = None
_ended = False


def hand_out(
    buf: Any,
    device: Any,
    stream: int | None,
    max_version: tuple[int, int] | None = None,
    *,
    copied: bool = False,
    consumed: bool = False,
) -> Any:
    """A DLPack capsule over a buffer, for a consumer that works on ``stream`` of its device.

    ``consumed``: the caller makes a tensor of it at once.
    """
    capsule = door.to_capsule(buf, stream, max_version, copied=copied)
    if device.platform == "cpu" or _ended:
        return capsule
    settle()
    gpu = gpu_of(device.local_hardware_id)
    if gpu is not None:
        _watch(capsule, gpu, stream or LEGACY_STREAM, buf.on_device_size_in_bytes(), consumed)
    return capsule


def _watch(capsule: Any, gpu: CudaGpu, stream: int, nbytes: int, consumed: bool) -> None:
    places = door.managed(capsule)
    if places is not None:
        pointer = ctypes.c_void_p.from_address(places.deleter)
        loan = _Loan(gpu, stream, nbytes, places.deleter, pointer.value or 0, consumed)
        _loans[places.start] = loan
        pointer.value = _CALLBACK


def _given_back(address: int) -> None:
    """The consumer's call, from whichever thread its tensor dies in."""
    loan = _loans.pop(address)
    if _ended or loan.gpu.is_idle(loan.stream):
        _free(loan, address)
        return
    _wait_for(loan.nbytes)
    _returned.append(_Returned(loan, address, loan.gpu.record(loan.stream)))
    if _waiting_bytes > _TAIL_BYTES:
        _start_reaper()


def _free(loan: _Loan, address: int) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loan.deleter)(address)


def _wait_for(nbytes: int) -> None:
    global _waiting_bytes  # noqa: PLW0603 - one number for the process
    with _lock:
        _waiting_bytes += nbytes


def settle(*, wait: bool = False) -> None:
    """Free what no kernel reads any more; wait for kernels where too much is waiting, or if told.

    What has no event yet gets one, or makes room for the others: its stream may be captured for
    long, or be gone.
    """
    passed_over = 0
    while len(_returned) > passed_over:
        try:
            first = _returned.popleft()
        except IndexError:
            return  # another thread was faster
        loan, address, event = first
        if event is None:
            event = loan.gpu.record(loan.stream)
        if event is None:
            _returned.append(first)
            passed_over += 1
        elif not _finish(loan, address, event, wait=wait or _waiting_bytes > _MOST_BYTES):
            return


def _finish(loan: _Loan, address: int, event: int, *, wait: bool) -> bool:
    """Free memory if its event has happened; else it waits on, in front of the others."""
    if wait:
        loan.gpu.wait(event)
    elif not loan.gpu.is_past(event):
        _returned.appendleft(_Returned(loan, address, event))
        return False
    loan.gpu.reuse(event)
    _free(loan, address)
    _wait_for(-loan.nbytes)
    return True


def _start_reaper() -> None:
    """A thread that frees what is waiting now. Python waits for it at its end."""
    global _reaper  # noqa: PLW0603 - one for the process
    with _lock:
        if _reaper is not None and _reaper.is_alive():
            return
        target = functools.partial(settle, wait=True)
        thread = threading.Thread(target=target, name="tracebridge memory of other frameworks")
        try:
            thread.start()
        except RuntimeError:
            return  # the interpreter is ending
        _reaper = thread


_callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_given_back)
_CALLBACK = ctypes.cast(_callback, ctypes.c_void_p).value


@atexit.register
def _end() -> None:
    """Leave nothing behind that calls Python: tensors may outlive the interpreter."""
    global _ended  # noqa: PLW0603 - one fact about this process
    _ended = True
    for loan in list(_loans.values()):
        if loan.consumed:
            ctypes.c_void_p.from_address(loan.slot).value = loan.deleter
    settle(wait=True)
