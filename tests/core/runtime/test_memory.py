"""Loops keep their memory: calls in a steady state, and functions that are made anew each time."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.programs.executables import EXECUTABLES
from tracebridge.core.util.caching import all_caches

X = tnp.ones(3)

# Calls ------------------------------------------------------------------------------------------

ONE: Any = tb.jit(lambda x: x + 1)
TREE: Any = tb.jit(lambda t: {"a": t["a"] * 2, "b": [t["b"], t["a"]]})
KEYED: Any = tb.jit(lambda x, n: x * n, static_argnames="n")
MANY: Any = tb.jit(lambda x: [x + k for k in range(130)])
SQUARE: Any = tb.jit(lambda x: (x * x).sum())

STEADY: dict[str, tuple[Callable[[], Any], int]] = {
    "operation": (lambda: X * X, 4000),
    "jit": (lambda: ONE(X), 4000),
    "jit of numbers": (lambda: ONE(2.0), 2000),
    "jit of ndarrays": (lambda: ONE(np.ones(3, np.float32)), 2000),
    "jit of trees": (lambda: TREE({"a": X, "b": X}), 2000),
    "jit with keywords": (lambda: KEYED(X, n=3), 2000),
    "jit with many results": (lambda: MANY(X), 50),
    "grad": (lambda: tb.grad(SQUARE)(X), 500),
    "vmap": (lambda: tb.vmap(SQUARE)(tnp.ones((2, 3))), 500),
    "device_put and device_get": (lambda: tb.device_get(tb.device_put(1.5)), 1000),
}


@pytest.mark.parametrize("name", STEADY)
def test_calls_keep_nothing(name: str) -> None:
    """Of thousands of equal calls nothing remains, in Python or in jaxlib.

    What threads of the runtime free a little later remains of one loop, a leak of each.
    """
    call, times = STEADY[name]
    for _ in range(20):
        call()
    tracemalloc.start()
    try:
        grown = [_growth(call, times) for _ in range(3)]
    finally:
        tracemalloc.stop()
    assert min(grown) < 16 * times + 8192


def _growth(call: Callable[[], Any], times: int) -> int:
    """The bytes that a loop leaves."""
    gc.collect()
    call()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(times):
        call()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


# Fresh functions --------------------------------------------------------------------------------


def fresh_custom_jvp() -> Any:
    """A rule made anew."""
    f = tb.custom_jvp(lambda x: x * 2)
    f.defjvp(lambda primals, tangents: (primals[0] * 2, tangents[0] * 2))
    return tb.jvp(f, (X,), (X,))


def fresh_custom_vjp() -> Any:
    """The same for reverse mode."""
    f = tb.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct * 2,))
    return tb.grad(lambda x: f(x).sum())(X)


def fresh_closure() -> Any:
    """A loop whose body closes over an array of its own."""
    table = X + 1
    return tb.lax.scan(lambda c, x: (c + x * table, None), X, X)


FRESH: dict[str, Callable[[], Any]] = {
    "jit": lambda: tb.jit(lambda x: x * 2)(X),
    "jit with statics": lambda: tb.jit(lambda x, n: x * n, static_argnums=1)(X, 3),
    "grad": lambda: tb.grad(lambda x: (x * x).sum())(X),
    "jit of grad": lambda: tb.jit(tb.grad(lambda x: (x * x).sum()))(X),
    "vmap": lambda: tb.vmap(lambda x: x * 2)(X),
    "linearize": lambda: tb.linearize(lambda x: x * x, X)[1](X),
    "custom_jvp": fresh_custom_jvp,
    "custom_vjp": fresh_custom_vjp,
    "cond": lambda: tb.lax.cond(True, lambda x: x * 2, lambda x: x, X),
    "while_loop": lambda: tb.lax.while_loop(lambda n: n < 3, lambda n: n + 1, 0),
    "scan": fresh_closure,
    "eval_shape": lambda: tb.eval_shape(lambda x: x * 2, X),
}


def remembered() -> int:
    """Entries of all caches."""
    gc.collect()
    return sum(len(cache) for cache in all_caches())


def resident() -> float:
    """Memory of this process in MB; 0 where the system does not tell it."""
    source = Path("/proc/self/statm")
    return int(source.read_text().split()[1]) * 4096 / 2**20 if source.exists() else 0.0


def test_ten_thousand_fresh_functions_of_all_kinds() -> None:
    """Through every transformation: caches, objects and memory stay as they are after the first."""
    for _ in range(30):
        for call in FRESH.values():
            call()
    entries, executables = remembered(), len(EXECUTABLES)
    objects, memory = len(gc.get_objects()), resident()
    for i in range(10_000):
        list(FRESH.values())[i % len(FRESH)]()
    assert remembered() <= entries + 20
    assert len(EXECUTABLES) <= executables + 2
    assert len(gc.get_objects()) <= objects + 2000
    assert resident() <= memory + 8
