"""Programs over several devices: equal ones share an executable, fresh ones leave nothing."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.runtime.backends.monitoring import COMPILE
from tracebridge.core.runtime.programs.executables import EXECUTABLES
from tracebridge.core.util.caching import all_caches
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
P = tb.P
X = np.arange(16, dtype="f4").reshape(8, 2)


def ns(*spec: Any) -> tb.NamedSharding:
    """A sharding over eight devices."""
    return tb.NamedSharding(tb.make_mesh((4, 2), ("x", "y"), tb.sharding.AxisType.Auto), P(*spec))


def mapped(k: float, **options: Any) -> Callable[..., Any]:
    """A fresh pmap."""
    return tb.pmap(lambda x: x * k + lax.psum(x, "i"), axis_name="i", **options)


def split(k: float, **options: Any) -> Callable[..., Any]:
    """A fresh jit over a mesh."""
    return tb.jit(lambda x: (x * k).sum(0), in_shardings=ns("x"), **options)


@pytest.fixture
def compiled() -> Iterator[Callable[[], int]]:
    """How many programs were compiled since the last question."""
    seen: list[str] = []

    def listen(event: str, _: float, **__: Any) -> None:
        if event == COMPILE:
            seen.append(event)

    def count() -> int:
        n = len(seen)
        seen.clear()
        return n

    tb.monitoring.register_event_duration_secs_listener(listen)
    yield count
    tb.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("make", [mapped, split])
def test_equal_programs_are_compiled_once(make: Any, compiled: Callable[[], int]) -> None:
    """Functions made anew find the executable of their text; others do not."""
    first = make(3.25)(X)
    assert 1 == compiled()
    assert_allclose(make(3.25)(X), first)
    assert 0 == compiled()
    make(3.5)(X)
    make(3.25)(X[:, :1])
    assert 2 == compiled()


def test_devices_and_options_are_part_of_the_key(compiled: Callable[[], int]) -> None:
    """The same text for other devices, or with other splits of results, is another program."""
    devices = tb.local_devices()
    made = mapped(4.25, devices=devices[:2])(X[:2])
    other = mapped(4.25, devices=devices[2:4])(X[:2])
    assert 2 == compiled()
    assert (set(devices[:2]), set(devices[2:4])) == (made.devices(), other.devices())

    assert ns("y") is split(4.25, out_shardings=ns("y"))(X).sharding
    assert ns() is split(4.25, out_shardings=ns())(X).sharding
    split(4.25)(X)
    assert 3 == compiled()


def test_callbacks_are_not_shared() -> None:
    """Each program with a callback calls its own."""
    seen: list[str] = []
    for name in "ab":
        tb.pmap(lambda x, name=name: tb.debug.callback(lambda _: seen.append(name), x))(X[:2])
    tb.effects_barrier()
    assert ["a", "a", "b", "b"] == seen


def test_cleared_functions_let_their_executables_go() -> None:
    """After clear_cache a program does not wait for others."""
    f = split(5.25)
    f(X)
    n = len(EXECUTABLES)
    f.clear_cache()
    gc.collect()
    assert n - 1 == len(EXECUTABLES)


def resident() -> float:
    """Memory of this process in MB; 0 where the system does not tell it."""
    source = Path("/proc/self/statm")
    return int(source.read_text().split()[1]) * 4096 / 2**20 if source.exists() else 0.0


def test_three_thousand_fresh_functions() -> None:
    """Caches, objects and memory stay as they are after the first."""
    pair = X[:2]
    place = tb.NamedSharding(tb.make_mesh((2,), ("x",), devices=tb.local_devices()[:2]), P("x"))
    fresh = [
        lambda: mapped(2.0)(pair),
        lambda: mapped(2.0, donate_argnums=0)(pair),
        lambda: tb.jit(lambda x: x * 2, in_shardings=place)(pair),
        lambda: tb.grad(lambda x: mapped(2.0)(x).sum())(pair),
    ]
    for _ in range(30):
        for call in fresh:
            call()
    gc.collect()
    entries, executables = sum(len(c) for c in all_caches()), len(EXECUTABLES)
    objects, memory = len(gc.get_objects()), resident()
    for i in range(3_000):
        fresh[3 if i % 100 == 0 else (0, 2, 2, 2, 1)[i % 5]]()
    gc.collect()

    assert sum(len(c) for c in all_caches()) <= entries + 20
    assert len(EXECUTABLES) <= executables + 2
    assert len(gc.get_objects()) <= objects + 700
    assert resident() <= memory + 4


@pytest.mark.parametrize("make", [mapped, split], ids=["pmap", "jit"])
def test_many_calls_in_a_row(make: Callable[..., Any]) -> None:
    """Calls that nobody waits for do not take each other's threads: XLA would end the process."""
    f = make(1.5)
    out = f(X)
    for _ in range(200):
        again = f(X)

    assert_allclose(again, out)
    assert all(shard.data._buf.is_ready() for shard in f(X).addressable_shards)


@pytest.mark.parametrize("spec", [(), ("x",), (("x", "y"),)], ids=str)
def test_keys_over_a_mesh(spec: tuple[Any, ...]) -> None:
    """Random keys go to the devices of a mesh, through programs, and back."""
    keys = tb.random.split(tb.random.key(0), 8)
    words = np.asarray(tb.random.key_data(keys))
    spread = tb.device_put(keys, ns(*spec))
    same = tb.jit(lambda k: k, out_shardings=ns(*spec))(keys)
    parts = spread.addressable_shards

    assert ns(*spec) == spread.sharding
    assert_allclose(tb.random.key_data(spread), words)
    assert_allclose(tb.random.key_data(same), words)
    assert_allclose(tb.random.key_data(parts[0].data), words[parts[0].index])
    assert_allclose(tb.random.key_data(tb.device_put(same, tb.devices()[1])), words)


def test_results_without_elements() -> None:
    """They are read as they are said to be split, though XLA does not split them."""
    out = tb.jit(lambda x: x * 2, out_shardings=ns("x", "y"))(np.zeros((0, 8), "f4"))

    assert (0, 8) == np.asarray(out).shape
    assert (0, 8) == np.asarray(tb.jit(lambda x: x + 1)(out)).shape
