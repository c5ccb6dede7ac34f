"""Executables are shared by equal programs, and go with the programs that use them."""

from __future__ import annotations

import gc
from typing import Any

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.programs.executables import SharedExecutables


class Program:
    """Stands for a program in these tests."""


def live() -> int:
    """Executables that the client of the default device holds."""
    gc.collect()
    return len(tb.devices()[0].client.live_executables())


def test_executables_in_use_are_found() -> None:
    """Equal keys give the first executable, for all programs that use it."""
    shared = SharedExecutables("test", 2)
    one, two = Program(), Program()
    assert shared.get("k") is None
    assert "first" == shared.use("k", "first", one)
    assert "first" == shared.use("k", "second", two)
    del one
    assert "first" == shared.get("k")


def test_unused_executables_wait_in_a_bounded_number() -> None:
    """Of those that no program uses the latest ones are kept, without end of those in use."""
    shared = SharedExecutables("test", 2)
    held = [Program() for _ in range(5)]
    for i in range(5):
        shared.use(i, f"executable {i}", held[i])
    assert 5 == len(shared)
    for _ in range(5):
        held.pop(0)
    assert ["executable 3", "executable 4"] == [x for i in range(5) if (x := shared.get(i))]
    again = Program()
    shared.use(3, "another", again)
    for i in (5, 6, 7):
        shared.use(i, f"executable {i}", Program())
    assert "executable 3" == shared.get(3)


def test_released_executables_do_not_wait() -> None:
    """After ``release`` the executable goes with its last program."""
    shared = SharedExecutables("test", 2)
    program = Program()
    shared.use("k", "executable", program)
    shared.release("k")
    shared.release("unknown")
    assert "executable" == shared.get("k")
    del program
    assert 0 == len(shared)


def test_programs_outlive_a_clear() -> None:
    """After ``clear`` an old program's end takes nothing away from a new one."""
    shared = SharedExecutables("test", 0)
    old, new = Program(), Program()
    shared.use("k", "old", old)
    shared.clear()
    shared.use("k", "new", new)
    del old
    assert "new" == shared.get("k")
    del new
    assert 0 == len(shared)


def test_clear_cache_frees_the_executable() -> None:
    """The client holds no executable of a function after its ``clear_cache``."""
    x = tnp.ones(3)
    jitted = tb.jit(lambda a: a * 1.2345 + 17.0)
    before = live()
    jitted(x).block_until_ready()
    assert before + 1 == live()
    jitted.clear_cache()
    assert before == live()


def test_clear_caches_frees_the_executables() -> None:
    """So does clearing everything."""
    jitted = tb.jit(lambda a: a * 1.2345 + 18.0)
    jitted(tnp.ones(3)).block_until_ready()
    held = live()
    tb.clear_caches()
    assert live() < held


def test_equal_functions_share_an_executable() -> None:
    """A function made anew finds the executable of its forerunner, dead or alive."""

    def make() -> Any:
        return tb.jit(lambda a: a * 1.2345 + 19.0)

    x = tnp.ones(3)
    first = make()
    first(x)
    held = live()
    second = make()
    second(x)
    assert held == live()
    del first, second
    make()(x)
    assert held == live()


def test_many_dead_functions_keep_few_executables() -> None:
    """Functions that are all different leave a bounded number behind."""
    x = tnp.ones(3)

    def call(k: int) -> None:
        tb.jit(lambda a: a * (k + 0.5))(x)

    call(0)
    before = live()
    for k in range(1, 150):
        call(k)
    assert live() - before <= 128
