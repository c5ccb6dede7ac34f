"""Key paths: where a leaf sits in a tree, and how that is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracebridge.core._jaxlib.pytree import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    SequenceKey,
)

KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]


def keystr(keys: Iterable[KeyEntry], *, simple: bool = False, separator: str = "") -> str:
    """Write a key path as Python would: ``['w'][0].x``.

    Args:
        keys: entries of a path; other objects than the four key classes are written by ``str``.
        simple: write only the key, index or name of each entry.
        separator: text between entries.

    >>> from tracebridge import tree, tree_util
    >>> path, _ = tree.leaves_with_path({'w': [5]})[0]
    >>> tree_util.keystr(path), tree_util.keystr(path, simple=True, separator="/")
    ("['w'][0]", 'w/0')
    """
    return separator.join([_simple(key) if simple else str(key) for key in keys])


def _simple(key: KeyEntry) -> str:
    match key:
        case SequenceKey():
            return str(key.idx)
        case DictKey() | FlattenedIndexKey():
            return str(key.key)
        case GetAttrKey():
            return str(key.name)
        case _:
            return str(key)


def named_path(root: str, keys: Iterable[KeyEntry]) -> str:
    """A path below a named tree, for messages: ``params['w'][0]``."""
    return root + keystr(keys)
