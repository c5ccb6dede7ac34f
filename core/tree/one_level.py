"""The node at the top of a tree: whether it is one, its children and their keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracebridge.core._jaxlib.pytree import GetAttrKey
from tracebridge.core.errors.transform_errors import TreeMismatchError
from tracebridge.core.tree.registry import default_registry


def is_tree_node(typ: type) -> bool:
    """Whether instances of the class are nodes; all other objects are leaves.

    >>> from tracebridge import tree_util
    >>> tree_util.is_tree_node(dict), tree_util.is_tree_node(float)
    (True, False)
    """
    return default_registry.is_node(typ)


def flatten_one_level(tree: object) -> tuple[Iterable[Any], Any]:
    """``(children, aux_data)`` of the node at the top of ``tree``.

    Raises:
        TreeMismatchError: ``tree`` is a leaf.

    >>> from tracebridge import tree_util
    >>> tree_util.flatten_one_level({'b': (1, 2), 'a': 3})
    ((3, (1, 2)), ('a', 'b'))
    """
    found = default_registry.flatten_one_level(tree)
    if found is None:
        raise _no_node("flatten_one_level", tree)
    return found


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], Any]:
    """``([(key, child), ...], aux_data)`` of the node at the top of ``tree``.

    Raises:
        TreeMismatchError: ``tree`` is a leaf.

    >>> from tracebridge import tree_util
    >>> tree_util.flatten_one_level_with_keys([7])
    (((SequenceKey(idx=0), 7),), None)
    """
    children = default_registry.flatten_one_level_with_keys(tree)
    if children is None:
        raise _no_node("flatten_one_level_with_keys", tree)
    items, aux_data = children
    if aux_data is type(tree):
        # jaxlib 0.10 names every field of a named tuple after the first one here.
        items = [
            (GetAttrKey(name), child) for name, (_, child) in zip(tree._fields, items, strict=True)
        ]
    return items, aux_data


def _no_node(call: str, tree: object) -> TreeMismatchError:
    return TreeMismatchError(
        call=call,
        got=f"a leaf of type {type(tree).__name__}",
        expected="a pytree node, such as a tuple, dict or registered class",
    )
