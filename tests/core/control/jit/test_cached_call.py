"""``cache_info`` knows which paths calls of a jitted function take, and why."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

X = tnp.ones(3)


def fast(f: Any) -> dict[str, int]:
    """The fastest paths that know signatures."""
    return {path: n for path, n in f.cache_info().fast.items() if n}


def slow(f: Any) -> dict[str, int]:
    """The calls on other paths."""
    return {path: n for path, n in f.cache_info().slow.items() if n}


@pytest.mark.parametrize(
    ("path", "args", "kwargs", "calls"),
    [
        ("one", (X,), {}, {}),
        ("many", (X, X), {}, {}),
        ("trees", ([X, X],), {}, {}),
        ("keyed", (X,), {"y": X}, {}),
        ("keyed", ([X],), {"y": X}, {}),
        ("many", (X, 2.0), {}, {"converted": 3}),
        ("many", (X, np.ones(3)), {}, {"converted": 3}),
        ("many", (X, np.float32(2)), {}, {"converted": 3}),
        ("one", (np.ones(3),), {}, {"converted": 3}),
        ("trees", ([X, 2.0],), {}, {"converted": 3}),
    ],
)
def test_each_call_has_its_path(path: str, args: Any, kwargs: Any, calls: Any) -> None:
    """The first call misses, the others find the program in the same table."""
    f = tb.jit(lambda *xs, **named: (xs, named))
    for _ in range(4):
        f(*args, **kwargs)

    assert {path: 1} == fast(f)
    assert calls == slow(f)
    assert (1, 1, 1) == f.cache_info()[3:6]


def test_ndarrays_and_arrays_share_a_program() -> None:
    """Each has the signature of the other; 64 bits become 32, numbers stay weakly typed."""
    f = tb.jit(lambda x, y: x + y)
    host = np.arange(3.0)
    for x in (X, host, host.astype(np.float32)):
        for y in (X, host):
            np.testing.assert_array_equal(np.asarray(x) + np.asarray(y), f(x, y))
    assert {"many": 1} == fast(f)
    assert f(tnp.ones(3, np.int32), 2).dtype == np.int32
    assert f(tnp.ones(3, np.int32), 2.0).dtype == np.float32

    host[:] = 7.0
    assert [8.0] * 3 == f(X, host).tolist()
    with tb.enable_x64(True):
        assert f(host, host).dtype == np.float64
    assert f(host, host).dtype == np.float32


def test_ndarrays_follow_the_default_device_and_guards() -> None:
    """What is remembered of a kind of ndarrays ends with options, and no guard is passed by."""
    f = tb.jit(lambda x: x * 2)
    host = np.ones(3, np.float32)
    assert [2.0] * 3 == f(host).tolist() == f(host).tolist()
    with tb.transfer_guard("disallow"), pytest.raises(tb.errors.GuardError):
        f(host)
    swapped = host.astype(">f4")
    assert [2.0] * 3 == f(swapped).tolist() == f(swapped).tolist()
    with pytest.raises(TypeError, match="object"):
        f(np.array([None]))


def test_static_arguments_are_keyed() -> None:
    """Functions with static arguments have paths of their own."""
    f = tb.jit(lambda x, n: x * n, static_argnums=1)
    f(X, 2)
    f(X, 2)
    f(X, 3)

    assert {"keyed": 2} == fast(f)
    assert "static argument n: 3 instead of 2" in f.cache_info().last_miss


def references() -> Callable[[Any], Any]:
    """A function that writes to what it closes over."""
    total = tb.new_ref(tnp.zeros(3))

    def add(x: Any) -> Any:
        total[...] += x
        return x

    return add


@pytest.mark.parametrize(
    ("path", "fun", "call", "words"),
    [
        ("checked", lambda x: x, lambda f: tb.debug_nans(True).__enter__() or f(X), "option"),
        ("traced", lambda x: x, lambda f: tb.jit(lambda x: f(x) + 1)(X), "traced function"),
        ("references", references(), lambda f: f(X), "references"),
        ("disabled", lambda x: x, lambda f: tb.disable_jit().__enter__() or f(X), "disable_jit"),
    ],
)
def test_slow_paths_say_why(path: str, fun: Any, call: Any, words: str) -> None:
    """A call on a slower path is counted there, and its reason is kept."""
    f = tb.jit(fun)
    # In a thread of its own, which takes what `with` would undo along.
    thread = threading.Thread(target=call, args=(f,))
    thread.start()
    thread.join()

    assert {path: 1} == slow(f)
    assert words in f.cache_info().last_slow


def test_last_miss_compares_with_earlier_calls() -> None:
    """The reason names the argument, also of calls within other functions."""
    f = tb.jit(lambda x: x + 1)
    assert f.cache_info().last_miss is None

    f(X)
    assert "its first call" in f.cache_info().last_miss
    f(tnp.ones(4))
    assert "compiled again, because of x: f32[4] instead of f32[3]" in f.cache_info().last_miss
    tb.make_jaxpr(f)(tnp.ones(5))
    assert f.cache_info().last_miss.startswith("traced again, because of x: f32[5] instead of")
    assert (3, 2, 2) == f.cache_info()[3:6]


def test_functions_made_anew_are_recognized() -> None:
    """The commonest reason of all, without that an option was on at the first one."""

    def make() -> Any:
        return tb.jit(lambda x: x - 1)

    make()(X)
    second = make()
    second(X)

    assert "made by the same lines" in second.cache_info().last_miss


def test_a_trace_is_no_compilation() -> None:
    """A function that was traced within another one is compiled for the first time later."""
    f = tb.jit(lambda x: x * 5)
    tb.make_jaxpr(f)(X)
    f(X)

    assert "compiled, because this is its first call" == f.cache_info().last_miss


def test_forgotten_programs_are_no_first_call() -> None:
    """After ``clear_cache`` the counts stay, and the reason says what happened."""
    f = tb.jit(lambda x: x * 3)
    f(X)
    f.clear_cache()
    assert (1, 1, 0) == f.cache_info()[3:6]

    f(X)
    assert (2, 2, 1) == f.cache_info()[3:6]
    assert "were forgotten" in f.cache_info().last_miss


def test_references_compile_once() -> None:
    """The trace that finds references is not counted as a second compilation."""
    f = tb.jit(references())
    f(X)
    f(X)

    assert (1, 1) == (f.cache_info().compilations, f.cache_info().programs)
    assert "were forgotten" not in f.cache_info().last_miss


def test_repr_is_for_people() -> None:
    """Paths that no call took are left out."""
    f = tb.jit(lambda x: x * 2)
    empty = repr(f.cache_info())
    f(X)
    full = repr(f.cache_info())

    assert (
        "CacheInfo of <lambda>:\n  fast signatures: none\n  slow calls: none\n  0 traces" in empty
    )
    assert "  fast signatures: one 1\n  slow calls: none\n  1 trace, 1 compilation, 1 prog" in full


def test_options_of_a_block_have_programs_of_their_own() -> None:
    """Calls inside a block find their program again, and not that of other options."""
    f = tb.jit(lambda x: tnp.log(x) + tnp.arange(3.0).sum())

    for _ in range(3):
        with tb.enable_x64():
            assert f(X).dtype == np.float64
        assert f(X).dtype == np.float32
        with tb.numpy_dtype_promotion("standard"):
            assert f(X).dtype == np.float32
        with tb.debug_nans(), pytest.raises(tb.errors.NonFiniteError):
            f(-X)
    with tb.disable_jit():
        f(X)

    assert f.cache_info().compilations == 2
    assert slow(f) == {"checked": 9, "disabled": 1}
