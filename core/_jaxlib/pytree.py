"""The C++ pytree registry and tree definitions.

Only the classes: the process-wide default registry is not offered, because registering a node
there a second time is an error for every other library that uses the same jaxlib.
"""

from __future__ import annotations

from jaxlib._jax.pytree import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    PyTreeDef,
    PyTreeRegistry,
    SequenceKey,
    all_leaves,
    treedef_tuple,
)

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "PyTreeDef",
    "PyTreeRegistry",
    "SequenceKey",
    "all_leaves",
    "treedef_tuple",
]
