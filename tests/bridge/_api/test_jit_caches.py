"""jit: what is kept, for how long, and why a call is compiled again."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.bridge._api.counting import Counter
from tracebridge.core.util.caching import all_caches

X = np.arange(3, dtype=np.float32)


def test_functions_are_not_kept_alive() -> None:
    """Traces and executables go with the function."""

    def f(x: Any) -> Any:
        return x + 1

    g = tb.jit(f)
    g(X)
    g(2.0)
    g(x=2.0)
    g.lower(X)
    alive = weakref.ref(f)
    del f, g
    gc.collect()

    assert alive() is None


def test_three_thousand_fresh_functions_leave_nothing() -> None:
    """Traces, programs and fast paths of functions that are gone take no memory."""

    def call_fresh(n: int) -> list[weakref.ref[Any]]:
        gone: list[weakref.ref[Any]] = []
        for _ in range(n):
            f = tb.jit(lambda x: x + 1)
            assert 2.0 == float(f(1.0))
            gone.append(weakref.ref(f.__wrapped__))
        return gone

    call_fresh(100)
    gc.collect()
    before = len(gc.get_objects())
    alive = sum([r() is not None for r in call_fresh(3_000)])
    gc.collect()
    after = len(gc.get_objects())

    assert alive <= 1
    assert after - before < 150


def test_one_function_keeps_a_bounded_number_of_programs() -> None:
    """Calls at ever new static values forget the oldest ones."""
    f = tb.jit(lambda x, n: x, static_argnums=1)
    for n in range(4500):
        f(1.0, n)

    sizes = [len(c) for c in all_caches()]
    assert max(sizes) <= 4096


def test_side_effects_happen_once() -> None:
    """The function body runs when it is traced only."""
    f = Counter(lambda x: x)
    g = tb.jit(f)

    [g(X) for _ in range(5)]

    assert 1 == f.traces


def test_nested_functions_share_their_trace() -> None:
    """An inner function is traced once per kind of argument, also in two outer ones."""
    f = Counter(lambda x: x * 2)
    inner = tb.jit(f)

    tb.jit(lambda x: inner(x) + inner(x + 1))(X)
    tb.jit(lambda x: inner(x) - 1)(X)

    assert 1 == f.traces


def test_options_are_part_of_the_key() -> None:
    """The same function under another option is another program."""
    g = tb.jit(lambda: tnp.arange(3.0))

    assert np.float32 == g().dtype
    with tb.enable_x64():
        assert np.float64 == g().dtype
    assert np.float32 == g().dtype


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([(X,)], "compiled, because this is its first call"),
        ([(X,), (X[:2],)], "x: f32[2] instead of f32[3]"),
        ([(X,), (X.astype(np.int32),)], "x: i32[3] instead of f32[3]"),
        ([(np.float32(1),), (1.0,)], "x: a Python number instead of an array"),
        ([(X,), ({"a": X},)], "the structure of x: "),
    ],
)
def test_cache_misses_are_explained(
    calls: list[Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the argument that changed, compared with the most similar call."""
    g = tb.jit(lambda x: x)

    with tb.explain_cache_misses(), caplog.at_level(logging.WARNING):
        for args in calls:
            caplog.clear()
            g(*args)

    assert f"jit(<lambda>): {'compiled' if len(calls) == 1 else 'compiled again, '}" in caplog.text
    assert words in caplog.text


def test_fresh_functions_are_explained(caplog: pytest.LogCaptureFixture) -> None:
    """The commonest reason of all: a new function object in each round of a loop."""
    with tb.explain_cache_misses(), caplog.at_level(logging.WARNING):
        for _ in range(2):
            tb.jit(lambda x: x + 3)(1.0)

    first, second = caplog.messages
    assert "its first call" in first
    assert "a new function object, made by the same lines" in second
    assert "test_jit_caches.py" in second


def test_static_cache_misses_are_explained(caplog: pytest.LogCaptureFixture) -> None:
    """The values of static arguments are shown."""
    g = tb.jit(lambda x, n: x, static_argnums=1)

    with tb.explain_cache_misses(), caplog.at_level(logging.WARNING):
        g(X, 3)
        g(X, (3, "a"))

    assert "static argument n: (3, 'a') instead of 3" in caplog.text
