"""Pytrees: registration of own classes, key paths, and the functions of ``tracebridge.tree``."""

from __future__ import annotations

from tracebridge.core._jaxlib.pytree import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    PyTreeDef,
    SequenceKey,
)
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.tree.one_level import (
    flatten_one_level,
    flatten_one_level_with_keys,
    is_tree_node,
)
from tracebridge.core.tree.paths import KeyEntry, KeyPath, keystr
from tracebridge.core.tree.registry import (
    Partial,
    default_registry,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
)
from tracebridge.core.tree.tree import all as tree_all
from tracebridge.core.tree.tree import all_leaves
from tracebridge.core.tree.tree import broadcast as tree_broadcast
from tracebridge.core.tree.tree import checked_flatten as tree_flatten
from tracebridge.core.tree.tree import flatten_with_path as tree_flatten_with_path
from tracebridge.core.tree.tree import leaves as tree_leaves
from tracebridge.core.tree.tree import leaves_with_path as tree_leaves_with_path
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.core.tree.tree import map_with_path as tree_map_with_path
from tracebridge.core.tree.tree import reduce as tree_reduce
from tracebridge.core.tree.tree import reduce_associative as tree_reduce_associative
from tracebridge.core.tree.tree import structure as tree_structure
from tracebridge.core.tree.tree import transpose as tree_transpose
from tracebridge.core.tree.tree import unflatten as tree_unflatten
from tracebridge.core.tree.treedefs import treedef_children, treedef_is_leaf, treedef_tuple

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "all_leaves",
    "default_registry",
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "is_tree_node",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
]

_shield(globals(), __name__)
