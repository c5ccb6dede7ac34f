"""Signatures: what a cached call needs to know of an argument, interned."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.sharding.splits import explicit_split
from tracebridge.core.util.caching import interned

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray

_INTERNED: dict[tuple[Any, ...], weakref.ReferenceType[Signature]] = {}


@final
class Signature:
    """Aval, placement, whether it is committed, whether the memory is borrowed. Interned.

    Borrowed memory belongs to another framework or to NumPy: it is never donated or deleted.
    """

    __slots__ = ("__weakref__", "aval", "borrowed", "committed", "sharding")
    aval: ShapedArray
    sharding: Any
    committed: bool
    borrowed: bool

    def __repr__(self) -> str:
        return f"Signature({self.aval.str_short()}, {self.sharding}, {self.committed})"


def signature(
    aval: ShapedArray, sharding: object, committed: bool, borrowed: bool = False
) -> Signature:
    """The one Signature object of these facts."""
    key = (aval, sharding, committed, borrowed)
    reference = _INTERNED.get(key)
    found = None if reference is None else reference()
    return found if found is not None else _make(key)


def _make(key: tuple[Any, ...]) -> Signature:
    aval, sharding, committed, borrowed = key
    split = explicit_split(sharding, aval.ndim)
    if split is not aval.split:
        # The type of an array says how it is split, whatever the type of its program said.
        same = signature(aval.with_split(split), sharding, committed, borrowed)
        return interned(_INTERNED, key, same)
    made = object.__new__(Signature)
    made.aval, made.sharding, made.committed, made.borrowed = key
    return interned(_INTERNED, key, made)
