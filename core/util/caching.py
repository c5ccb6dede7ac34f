"""Caches that are bounded or weak, and the registry that clears them all.

Thread-safety: caches use single dict operations only, which are atomic; two threads may compute
the same value and the later one stays. No lock is taken on a hit; the registry has one.
Keys: 1, 1.0 and True are equal in Python, and 0.0 equals -0.0: who builds a key from numbers puts
the type (and the sign) into it.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar, final

V = TypeVar("V")


class Clearable(Protocol):
    """What the registry needs of a cache."""

    name: str

    def clear(self) -> None:
        """Forget everything."""
        ...

    def __len__(self) -> int: ...


_registry: weakref.WeakSet[Any] = weakref.WeakSet()
_REGISTERS = threading.RLock()
"""Held while a cache joins the registry, which cannot grow while it is gone through."""


def register_cache(cache: Clearable) -> None:
    """Let `clear_all` clear this cache; the registry holds it weakly."""
    with _REGISTERS:
        _registry.add(cache)


@final
class _Table:
    """A plain dict of a module, as the registry sees it."""

    __slots__ = ("__weakref__", "name", "table")

    def __init__(self, name: str, table: dict[Any, Any]) -> None:
        self.name = name
        self.table = table

    def clear(self) -> None:
        """Forget everything."""
        self.table.clear()

    def __len__(self) -> int:
        return len(self.table)


_tables: list[_Table] = []  # they live as long as their modules


def register_table(name: str, table: dict[Any, V]) -> dict[Any, V]:
    """Let `clear_all` clear a dict of a module, which stays a dict: nothing is faster to ask."""
    made = _Table(name, table)
    _tables.append(made)
    register_cache(made)
    return table


def all_caches() -> list[Clearable]:
    """Return all live registered caches, sorted by name."""
    with _REGISTERS:
        found = list(_registry)
    return sorted(found, key=lambda cache: cache.name)


def clear_all() -> None:
    """Clear every registered cache."""
    for cache in all_caches():
        cache.clear()


def interned(table: dict[Any, weakref.ReferenceType[V]], key: Hashable, made: V) -> V:
    """The object of ``table`` for ``key``: ``made``, or one that another thread made first.

    The table holds it weakly; its entry goes with it.
    """

    # While the interpreter ends, keys cannot be compared any more: their modules are empty.
    def forget(
        reference: weakref.ReferenceType[V], ends: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        if not ends() and table.get(key) is reference:
            del table[key]

    reference = weakref.ref(made, forget)
    # setdefault is atomic: of two threads that make the same object at once, one wins.
    while True:
        winner = table.setdefault(key, reference)
        if winner is reference:
            return made
        existing = winner()
        if existing is not None:
            return existing
        table.pop(key, None)


@final
class Hashed:
    """A long key: a program is looked up and then remembered, and its hash is computed once."""

    __slots__ = ("_hash", "key")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self._hash = hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return type(other) is Hashed and self._hash == other._hash and self.key == other.key


class BoundedCache(Generic[V]):
    """A dict that keeps at most `maxsize` entries and forgets those not used for long.

    Two generations instead of an exact order of use: a hit in the young one costs one lookup
    and writes nothing. When the young one is half of `maxsize`, it becomes the old one and
    the entries of the former old one that were never asked for are forgotten.
    """

    __slots__ = ("__weakref__", "_half", "_old", "_young", "maxsize", "name")

    def __init__(self, name: str, maxsize: int, *, register: bool = True) -> None:
        if maxsize < 2:
            raise ValueError(f"BoundedCache {name}: got maxsize {maxsize}, expected at least 2")
        self.name = name
        self.maxsize = maxsize
        self._half = maxsize // 2
        self._young: dict[Hashable, V] = {}
        self._old: dict[Hashable, V] = {}
        if register:
            register_cache(self)

    def get(self, key: Hashable, default: object = None) -> V | Any:
        """Return the value, or `default`."""
        try:
            return self._young[key]
        except KeyError:
            pass
        old = self._old
        value: Any = old.get(key, _MISSING) if old else _MISSING
        if value is _MISSING:
            return default
        self.set(key, value)
        return value

    def set(self, key: Hashable, value: V) -> None:
        """Keep a value."""
        young = self._young
        if len(young) >= self._half and key not in young:
            self._old = young
            self._young = {key: value}
        else:
            young[key] = value

    def get_or_make(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value of `key`, made by `make()` and kept if there is none."""
        value = self.get(key, _MISSING)
        if value is _MISSING:
            value = make()
            self.set(key, value)
        return value

    def keys(self) -> list[Hashable]:
        """Return the keys, those of the young generation last."""
        young = self._young
        return [*[key for key in self._old if key not in young], *young]

    def pop(self, key: Hashable, default: object = None) -> V | Any:
        """Forget one key; return its value or `default`."""
        old = self._old.pop(key, default)
        return self._young.pop(key, old)

    def clear(self) -> None:
        """Forget everything."""
        self._young = {}
        self._old = {}

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def __contains__(self, key: Hashable) -> bool:
        return key in self._young or key in self._old

    def __repr__(self) -> str:
        return f"BoundedCache({self.name}, {len(self)} of {self.maxsize})"


_MISSING: Any = object()


class WeakIdCache(Generic[V]):
    """Values of (function, hashable key) that vanish together with the function.

    The function is compared by identity, so functions that define `__eq__` are no trap. A value
    must not refer to the function strongly, or neither ever dies. Each function keeps at most
    `per_function` keys. A function that allows no weak references (some builtins) is kept alive in
    a bounded table instead.
    """

    __slots__ = ("__weakref__", "_strong", "_tables", "name", "per_function")

    def __init__(self, name: str, per_function: int = 256, *, register: bool = True) -> None:
        self.name = name
        self.per_function = per_function
        self._tables: dict[int, tuple[weakref.ref[Any], BoundedCache[V]]] = {}
        self._strong: BoundedCache[tuple[Any, BoundedCache[V]]] = BoundedCache(
            f"{name}: strong", 64, register=False
        )
        if register:
            register_cache(self)

    def get(self, fn: object, key: Hashable, default: object = None) -> V | Any:
        """Return the value of `key` for this function, or `default`."""
        ident = id(fn)
        entry = self._tables.get(ident)
        # The id may have been reused before the callback of the dead function ran.
        if entry is not None and entry[0]() is fn:
            return entry[1].get(key, default)
        strong = self._strong.get(ident)
        return default if strong is None else strong[1].get(key, default)

    def set(self, fn: object, key: Hashable, value: V) -> None:
        """Keep a value for as long as the function lives."""
        ident = id(fn)
        entry = self._tables.get(ident)
        if entry is not None and entry[0]() is fn:
            entry[1].set(key, value)
            return
        table: BoundedCache[V] = BoundedCache(self.name, self.per_function, register=False)
        table.set(key, value)
        try:
            ref = weakref.ref(fn, self._forget(ident))
        except TypeError:
            self._set_strong(ident, fn, key, value)
            return
        self._tables[ident] = (ref, table)

    def _set_strong(self, ident: int, fn: object, key: Hashable, value: V) -> None:
        held = self._strong.get(ident)
        if held is None:
            held = (fn, BoundedCache(self.name, self.per_function, register=False))
            self._strong.set(ident, held)
        held[1].set(key, value)

    def _forget(self, ident: int) -> Callable[[weakref.ref[Any]], None]:
        """Return the callback for a dead function; it must not keep this cache alive."""
        own = weakref.ref(self)

        def forget(dead: weakref.ref[Any]) -> None:
            cache = own()
            if cache is not None:
                entry = cache._tables.get(ident)
                if entry is not None and entry[0] is dead:
                    cache._tables.pop(ident, None)

        return forget

    def keys(self, fn: object) -> list[Hashable]:
        """Return the keys of one function."""
        entry = self._tables.get(id(fn))
        if entry is not None and entry[0]() is fn:
            return entry[1].keys()
        strong = self._strong.get(id(fn))
        return [] if strong is None else strong[1].keys()

    def discard(self, fn: object) -> None:
        """Forget all keys of one function."""
        entry = self._tables.get(id(fn))
        if entry is not None and entry[0]() is fn:
            self._tables.pop(id(fn), None)
        self._strong.pop(id(fn))

    def clear(self) -> None:
        """Forget everything."""
        self._tables = {}
        self._strong.clear()

    def __len__(self) -> int:
        tables = list(self._tables.values()) + list(self._strong._young.values())
        return sum(len(entry[1]) for entry in tables)

    def __repr__(self) -> str:
        return f"WeakIdCache({self.name}, {len(self._tables)} functions)"
