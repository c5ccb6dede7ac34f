"""Bounded and weak caches, and the registry."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tracebridge.core.util.caching import (
    BoundedCache,
    Hashed,
    WeakIdCache,
    all_caches,
    clear_all,
    interned,
    register_cache,
)

# --- BoundedCache ----------------------------------------------------------------------------


def test_values_come_back() -> None:
    """None is a value; a default answers for what is missing."""
    cache: BoundedCache[Any] = BoundedCache("test", 8, register=False)
    cache.set("a", None)
    missing = object()

    assert cache.get("a", missing) is None
    assert cache.get("b", missing) is missing
    assert "a" in cache
    assert "b" not in cache


class _Counted:
    """A part of a key that counts how often it is hashed."""

    hashed = 0

    def __hash__(self) -> int:
        type(self).hashed += 1
        return 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Counted)


def test_long_keys_are_hashed_once() -> None:
    """A key is looked up, kept and looked up again with one hash; others are others."""
    _Counted.hashed = 0
    cache: BoundedCache[int] = BoundedCache("test", 8, register=False)
    key = Hashed((_Counted(), 1))

    assert 2 == cache.get_or_make(key, lambda: 2)
    assert 2 == cache.get_or_make(key, lambda: 3)
    assert 1 == _Counted.hashed
    assert Hashed((_Counted(), 1)) == key
    assert Hashed((_Counted(), 2)) != key
    assert (_Counted(), 1) != key
    assert 2 == cache.get(Hashed((_Counted(), 1)))


def test_get_or_make_makes_once() -> None:
    """The second call finds the value of the first."""
    cache: BoundedCache[list[int]] = BoundedCache("test", 8, register=False)
    made = [cache.get_or_make("k", lambda: [1]) for _ in range(2)]

    assert made[0] is made[1]


@given(st.integers(2, 9), st.lists(st.integers(0, 20)))
def test_never_larger_than_its_size(maxsize: int, keys: list[int]) -> None:
    """And what was set last is always there."""
    cache: BoundedCache[int] = BoundedCache("test", maxsize, register=False)
    for key in keys:
        cache.set(key, -key)
        assert cache.get(key) == -key
        assert len(cache) <= maxsize


@given(st.lists(st.integers(0, 100), max_size=200))
def test_what_is_used_stays(keys: list[int]) -> None:
    """An entry that is read between all insertions is never forgotten."""
    cache: BoundedCache[str] = BoundedCache("test", 4, register=False)
    cache.set("hot", "value")
    for key in keys:
        cache.set(key, "cold")
        assert cache.get("hot") == "value"


def test_what_is_not_used_goes() -> None:
    """Old entries make room."""
    cache: BoundedCache[int] = BoundedCache("test", 4, register=False)
    for key in range(10):
        cache.set(key, key)

    assert cache.get(0) is None
    assert cache.get(9) == 9


def test_pop_and_clear() -> None:
    """A popped key is gone from both generations."""
    cache: BoundedCache[int] = BoundedCache("test", 4, register=False)
    for key in range(3):
        cache.set(key, key)

    assert [cache.pop(key) for key in range(3)] == [0, 1, 2]
    assert (cache.pop(0, "none"), len(cache)) == ("none", 0)
    cache.set("a", 1)
    cache.clear()
    assert len(cache) == 0


def test_a_size_below_two_is_refused() -> None:
    """Two generations need two entries."""
    with pytest.raises(ValueError, match="test: got maxsize 1"):
        BoundedCache("test", 1)


def test_threads_share_a_cache_without_errors() -> None:
    """Concurrent reads and writes neither raise nor exceed the bound by more than a few."""
    cache: BoundedCache[int] = BoundedCache("test", 64, register=False)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for i in range(3000):
            key = (i * 7 + seed) % 200
            found = cache.get(key)
            if found is not None and found != key:
                wrong.append((key, found))
            cache.set(key, key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)

    assert wrong == []
    assert len(cache) <= 64 + len(threads)


# --- WeakIdCache -----------------------------------------------------------------------------


def test_entries_vanish_with_the_function() -> None:
    """No list of dead functions remains."""
    cache: WeakIdCache[int] = WeakIdCache("test", register=False)

    def make() -> Any:
        return lambda: 0

    keep, drop = make(), make()
    for fn in (keep, drop):
        cache.set(fn, "k", 1)
        cache.set(fn, "l", 2)
    assert len(cache) == 4
    del drop, fn
    gc.collect()

    assert len(cache) == 2
    assert (cache.get(keep, "k"), cache.get(keep, "l"), cache.get(keep, "m")) == (1, 2, None)


def test_functions_are_compared_by_identity() -> None:
    """An object that equals everything does not get another one's value."""

    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

        def __call__(self) -> None: ...

    cache: WeakIdCache[int] = WeakIdCache("test", register=False)
    a, b = Equal(), Equal()
    cache.set(a, "k", 1)

    assert cache.get(a, "k") == 1
    assert cache.get(b, "k") is None


def test_a_reused_id_is_not_confused() -> None:
    """A new function at the address of a dead one starts empty."""
    cache: WeakIdCache[int] = WeakIdCache("test", register=False)

    class Callable:
        def __call__(self) -> None: ...

    for i in range(200):
        fn = Callable()
        assert cache.get(fn, "k") is None
        cache.set(fn, "k", i)
        del fn


def test_functions_without_weak_references_are_kept() -> None:
    """Some builtins: a bounded table holds them, so that their id stays theirs."""
    cache: WeakIdCache[int] = WeakIdCache("test", register=False)

    class NoWeak:
        __slots__ = ()

        def __call__(self) -> None: ...

    fn = NoWeak()
    cache.set(fn, "k", 1)
    cache.set(fn, "l", 2)

    assert (cache.get(fn, "k"), cache.get(fn, "l"), len(cache)) == (1, 2, 2)
    cache.discard(fn)
    assert cache.get(fn, "k") is None


def test_discard_and_clear() -> None:
    """One function, or all."""
    cache: WeakIdCache[int] = WeakIdCache("test", register=False)

    def f() -> None: ...

    def g() -> None: ...

    cache.set(f, 0, 1)
    cache.set(g, 0, 2)
    cache.discard(f)
    assert (cache.get(f, 0), cache.get(g, 0)) == (None, 2)
    cache.clear()
    assert cache.get(g, 0) is None


def test_keys_of_one_function_are_bounded() -> None:
    """A function called with ever new shapes does not fill the memory."""
    cache: WeakIdCache[int] = WeakIdCache("test", per_function=8, register=False)

    def f() -> None: ...

    for i in range(100):
        cache.set(f, i, i)
    assert len(cache) <= 8
    assert cache.get(f, 99) == 99


def test_a_function_may_outlive_the_cache() -> None:
    """Its callback must neither fail nor keep the cache."""
    cache: WeakIdCache[int] = WeakIdCache("test", register=False)

    def f() -> None: ...

    cache.set(f, 0, 1)
    ref = weakref.ref(cache)
    del cache
    gc.collect()
    assert ref() is None
    del f
    gc.collect()


# --- registry --------------------------------------------------------------------------------


def test_registered_caches_are_listed_and_cleared() -> None:
    """By name; unregistered ones are left alone."""
    listed: BoundedCache[int] = BoundedCache("test: listed", 4)
    weak: WeakIdCache[int] = WeakIdCache("test: weak")
    private: BoundedCache[int] = BoundedCache("test: private", 4, register=False)

    def f() -> None: ...

    listed.set(1, 1)
    weak.set(f, 1, 1)
    private.set(1, 1)
    names = [cache.name for cache in all_caches()]
    clear_all()

    assert {"test: listed", "test: weak"} <= set(names)
    assert "test: private" not in names
    assert names == sorted(names)
    assert (len(listed), len(weak), len(private)) == (0, 0, 1)


def test_the_registry_holds_caches_weakly() -> None:
    """A cache of a dead function is not listed for ever."""
    cache: BoundedCache[int] = BoundedCache("test: short-lived", 4)
    del cache
    gc.collect()

    assert "test: short-lived" not in [cache.name for cache in all_caches()]


class Thing:
    """Something that can be held weakly."""


def test_the_first_object_of_a_key_is_shared() -> None:
    """`interned` gives the first living object of a key; its entry goes with it."""
    table: dict[Any, weakref.ref[Thing]] = {}
    first, second = Thing(), Thing()

    assert interned(table, "k", first) is first
    assert interned(table, "k", second) is first
    del first
    gc.collect()
    assert table == {}
    assert interned(table, "k", second) is second


def test_nothing_is_compared_while_the_interpreter_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then modules are empty, and comparisons that need their names raise."""

    class Key:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return self is other

    compared: list[object] = []
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    table: dict[Any, Any] = {}
    made = [interned(table, Key(), Key()) for _ in range(2)]
    compared.clear()
    del made

    assert [] == compared


def test_own_caches_can_be_registered() -> None:
    """Anything with a name, `clear` and a length."""

    class Mine:
        name = "test: mine"

        def __init__(self) -> None:
            self.items = [1]

        def clear(self) -> None:
            self.items.clear()

        def __len__(self) -> int:
            return len(self.items)

    mine = Mine()
    register_cache(mine)
    clear_all()

    assert mine.items == []


def test_caches_may_be_made_while_all_are_cleared() -> None:
    """By another thread, which compiles a program at that time."""
    ends, kept = threading.Event(), list[Any]()
    switches = sys.getswitchinterval()

    def make() -> None:
        while not ends.is_set():
            kept[:] = [BoundedCache("test: made meanwhile", 8) for _ in range(50)]

    thread = threading.Thread(target=make)
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for _ in range(400):
            all_caches()
    finally:
        ends.set()
        thread.join()
        sys.setswitchinterval(switches)
