"""Memory of a GPU that another framework has: it comes back when its kernels have read it.

A framework gives memory back when the last name of its tensor goes; kernels that it launched before
may not have run by then. XLA, which knows nothing of them, would give the memory to its next
program at once. So who is handed memory gets it from an object (``_Loan``) that dies when it comes
back, however that happens, and the memory goes on to XLA when the stream for which the capsule was
made has done what it had been given: at once if it is idle, else at one of the next exchanges.
Where much is waiting, a thread waits for it. As in the frameworks themselves, who reads the memory
on further streams has to hold it until they are done.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import functools
import threading
from typing import Any, NamedTuple, final

from tracebridge.core._jaxlib import dlpack as door
from tracebridge.core.runtime.backends.clients import on_fork
from tracebridge.core.runtime.backends.cuda_driver import LEGACY_STREAM, CudaGpu, gpu_of

# What may wait for the next exchange without a thread; and beyond which exchanges wait.
_TAIL_BYTES = 1 << 25
_MOST_BYTES = 1 << 30


@final
class _Loan(ctypes.c_char * 1):
    """Memory that a consumer has, and the capsule that holds it. Dies when it is given back."""

    def __init__(self, capsule: Any, gpu: CudaGpu, stream: int, nbytes: int) -> None:
        super().__init__()
        self.returned = _Returned(capsule, gpu, stream, nbytes, None)

    def __del__(self) -> None:
        # Its names may be gone when the interpreter ends.
        if _ended is False:
            _given_back(self.returned)


@final
class _Returned(NamedTuple):
    """Memory that waits for an event; without one, the stream took none. Freed with the capsule."""

    capsule: Any
    gpu: CudaGpu
    stream: int
    nbytes: int
    event: int | None


_returned: collections.deque[_Returned] = collections.deque()
_waiting_bytes = 0
# Of _waiting_bytes and _reaper; tensors may die, and come here, while it is held.
_lock = threading.RLock()
_reaper: threading.Thread | None = None
_ended = False
_forked = False
_of_the_parent: list[_Returned] = []


def hand_out(
    buf: Any,
    device: Any,
    stream: int | None,
    max_version: tuple[int, int] | None = None,
    *,
    copied: bool = False,
) -> Any:
    """A DLPack capsule over a buffer, for a consumer that works on ``stream`` of its device."""
    capsule = door.to_capsule(buf, stream, max_version, copied=copied)
    if device.platform == "cpu" or _ended:
        return capsule
    settle()
    gpu = gpu_of(device.local_hardware_id)
    if gpu is None:
        return capsule
    nbytes = buf.on_device_size_in_bytes()
    return door.carried(capsule, _Loan(capsule, gpu, stream or LEGACY_STREAM, nbytes))


def _given_back(memory: _Returned) -> None:
    """The consumer's call, from whichever thread its tensor dies in."""
    if _forked:
        _of_the_parent.append(memory)  # whose GPU this process cannot ask
        return
    gpu, stream = memory.gpu, memory.stream
    try:
        if gpu.is_idle(stream):
            return
        memory = memory._replace(event=gpu.record(stream))
    except BaseException:
        _keep(memory)  # an interrupt: somebody may still read it
        raise
    _keep(memory)
    if _waiting_bytes > _TAIL_BYTES:
        _start_reaper()


def _keep(memory: _Returned) -> None:
    _wait_for(memory.nbytes)
    _returned.append(memory)


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
            memory = _returned.popleft()
        except IndexError:
            return  # another thread was faster
        try:
            if memory.event is None:
                memory = memory._replace(event=memory.gpu.record(memory.stream))
            is_done = _is_done(memory, wait=wait or _waiting_bytes > _MOST_BYTES)
        except BaseException:
            _returned.appendleft(memory)
            raise
        if is_done:
            _wait_for(-memory.nbytes)
        elif memory.event is None:
            _returned.append(memory)
            passed_over += 1
        else:
            _returned.appendleft(memory)
            return


def _is_done(memory: _Returned, *, wait: bool) -> bool:
    """Whether the event of memory has happened; it is not waited for again."""
    if memory.event is None:
        return False
    if wait:
        memory.gpu.wait(memory.event)
    elif not memory.gpu.is_past(memory.event):
        return False
    memory.gpu.reuse(memory.event)
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


@atexit.register
def _end() -> None:
    """Wait for kernels; tensors that outlive the interpreter give nothing back."""
    global _ended  # noqa: PLW0603 - one fact about this process
    _ended = True
    settle(wait=True)


def _leave_to_the_parent() -> None:
    """In a forked child: its GPU, its threads and what they had locked are the parent's."""
    global _forked, _lock, _reaper  # noqa: PLW0603 - facts about this process
    _forked = True
    _lock, _reaper = threading.RLock(), None
    _of_the_parent.extend(_returned)
    _returned.clear()


on_fork(_leave_to_the_parent)
