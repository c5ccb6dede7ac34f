"""Threads that help with the rows of a call, and stay awake for a moment after it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import needs_kernels
from tracebridge import lax, nn
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.kernels import machine
from tracebridge.core.kernels.own_threads import IS_X86
from tracebridge.core.kernels.sharing import SEAT_BYTES
from tracebridge.core.lowering.direct import direct_program

pytestmark = needs_kernels

RNG = np.random.default_rng(0)


def seats() -> list[int]:
    """What each seat has: 0, if nobody waits there."""
    words = np.frombuffer(machine._SEATS, np.uint64)
    return [int(n) for n in words[:: SEAT_BYTES // 8]]


def all_seats_are_free() -> bool:
    """Whether soon nobody waits any more."""
    for _ in range(400):  # the system may let it wait
        if not any(seats()):
            return True
        time.sleep(0.005)
    return False


def test_different_kernels_one_after_another() -> None:
    """A thread that has helped one kernel helps the next, and leaves in the end."""
    functions = [nn.softmax, nn.log_softmax, lambda x: (nn.softmax(x), nn.softmax(x).sum(0))]
    compiled = [tb.jit(f) for f in functions]
    arrays = [RNG.standard_normal((rows, 96)).astype(np.float32) for rows in (3000, 4001)]
    expected = [[tb.tree.map(np.asarray, f(x)) for x in arrays] for f in compiled]
    for _ in range(50):
        for f, results in zip(compiled, expected, strict=True):
            for x, wanted in zip(arrays, results, strict=True):
                tb.tree.map(np.testing.assert_array_equal, f(x), wanted)
    assert all_seats_are_free()


def test_callers_that_meet_in_the_seats() -> None:
    """Calls of several threads with pauses about as long as helpers wait: none is lost."""
    f = tb.jit(lambda x, s: nn.softmax(x * s) @ tnp.ones(64, np.float32))
    x = tnp.asarray(RNG.standard_normal((4100, 64)).astype(np.float32))
    expected = np.asarray(f(x, np.float32(1)))
    wrong: list[int] = []
    done: list[int] = []

    def run(k: int) -> None:
        for i in range(60):
            if not (np.asarray(f(x, np.float32(1))) == expected).all():
                wrong.append(i)
            time.sleep(1e-5 * ((7 * i + 3 * k) % 20))
        done.append(k)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(done) == len(threads)
    assert not wrong
    assert all_seats_are_free()


def test_a_seat_whose_thread_does_not_come() -> None:
    """As in a child of a fork, or if the thread has no core: another one is woken."""
    x = RNG.standard_normal((4000, 80)).astype(np.float32)
    f = tb.jit(nn.softmax)
    expected = np.asarray(f(x))
    assert all_seats_are_free()
    words = np.frombuffer(machine._SEATS, np.uint64)
    place: Any = words[3 * SEAT_BYTES // 8 :]
    place[0] = 1
    try:
        for _ in range(100):
            np.testing.assert_array_equal(np.asarray(f(x)), expected)
            assert seats()[3] in (0, 1)  # nothing of the call is left there
            if not place[0]:  # it was asked, and sent away
                break
            all_seats_are_free()
        assert not place[0]
    finally:
        place[0] = 0
    assert all_seats_are_free()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_a_child_begins_with_free_seats() -> None:
    """Its parent's threads are not there."""
    place: Any = np.frombuffer(machine._SEATS, np.uint64)
    with machine._LOCK:
        machine.target()
    assert all_seats_are_free()
    place[8] = 1
    try:
        child = os.fork()
        if not child:
            os._exit(int(any(seats())))
        assert os.waitpid(child, 0)[1] == 0
    finally:
        place[8] = 0


_END = """
import gc, weakref
from tracebridge.core.kernels import machine
with machine._LOCK:
    machine.target()
seats = weakref.ref(machine._SEATS)
del machine._SEATS
gc.collect()
assert seats() is not None
"""


def test_seats_stay_when_the_interpreter_ends() -> None:
    """A thread may still wait there, or have no core just then, when variables of modules go."""
    subprocess.run([sys.executable, "-c", _END], check=True)


@pytest.mark.skipif(not IS_X86, reason="on other processors kernels are called by XLA alone")
@pytest.mark.parametrize("n_threads", [1, 2, 3, 7, 16, 40])
@pytest.mark.parametrize("n_rows", [2049, 3000])
def test_every_block_is_done_once(n_rows: int, n_threads: int) -> None:
    """In regions of unequal size, more threads than blocks or regions, and none that comes."""
    x = RNG.standard_normal((n_rows, 130)).astype(np.float32)
    jaxpr = stage(lambda v: [lax.cumsum(v, 1)], [ShapedArray(x.shape, x.dtype)], locate=False)
    program = direct_program(jaxpr)
    assert program is not None
    ((address, shares, _, _),) = program.calls
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(address)
    numbers, found = (ctypes.c_int64 * 3)(*shares), np.full_like(x, np.nan)
    assert shares[2] > 2

    function(x.ctypes.data, found.ctypes.data, ctypes.addressof(numbers), n_threads)

    np.testing.assert_allclose(found, np.cumsum(x, 1, dtype=np.float64), rtol=0, atol=1e-4)
