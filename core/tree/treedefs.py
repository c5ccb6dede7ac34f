"""Structures of pytrees: their parts, and structures made of others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib import pytree
from tracebridge.core._jaxlib.pytree import PyTreeDef
from tracebridge.core.tree.paths import KeyPath
from tracebridge.core.tree.registry import default_registry, make_treedef

if TYPE_CHECKING:
    from collections.abc import Mapping


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The definitions of the children of the top node.

    >>> from tracebridge import tree_util
    >>> tree_util.treedef_children(tree_util.tree_structure((1, [2])))
    [PyTreeDef(*), PyTreeDef([*])]
    """
    return treedef.children()


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The definition of a tuple of trees.

    >>> from tracebridge import tree_util
    >>> tree_util.treedef_tuple([tree_util.tree_structure(1), tree_util.tree_structure([1])])
    PyTreeDef((*, [*]))
    """
    return pytree.treedef_tuple(default_registry, list(treedefs))


def treedef_args_kwargs(args: tuple[object, ...], kwargs: Mapping[str, object]) -> PyTreeDef:
    """The definition of ``(args, kwargs)``: the form of arguments in the whole engine."""
    return default_registry.flatten((args, kwargs))[1]


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the definition is one node: a leaf, or a node without children such as None.

    >>> from tracebridge import tree_util
    >>> tree_util.treedef_is_leaf(tree_util.tree_structure(1))
    True
    """
    return treedef.num_nodes == 1


def treedef_is_strict_leaf(treedef: PyTreeDef) -> bool:
    """Whether the definition is a leaf and no node without children."""
    return treedef.num_nodes == 1 and treedef.num_leaves == 1


def is_plain(treedef: PyTreeDef) -> bool:
    """Whether a definition holds no object of users: lists, tuples, dicts with strings, and None.

    >>> from tracebridge import tree_util
    >>> is_plain(tree_util.tree_structure({"a": [1, None]}))
    True
    """
    try:
        treedef.serialize_using_proto()  # by far the quickest way to find out
    except ValueError:
        return False
    return True


def leaf_paths(treedef: PyTreeDef) -> list[KeyPath]:
    """The key path of each leaf of a definition.

    Where a class refuses placeholders, its children and those of other classes have index keys.
    """
    try:
        tree = treedef.unflatten(range(treedef.num_leaves))
        flat, again = default_registry.flatten_with_path(tree)
        is_same = again == treedef
    except Exception:  # noqa: BLE001  (user code of a node class may raise anything)
        return _index_paths(treedef, ())
    if not is_same:
        return _index_paths(treedef, ())
    return [path for path, _ in flat]


def _index_paths(treedef: PyTreeDef, path: KeyPath) -> list[KeyPath]:
    if treedef_is_strict_leaf(treedef):
        return [path]
    node: Any = treedef.node_data()
    kind, aux = node
    result: list[KeyPath] = []
    for i, child in enumerate(treedef.children()):
        key: Any = pytree.FlattenedIndexKey(i)
        if kind is tuple or kind is list:
            key = pytree.SequenceKey(i)
        elif kind is dict:
            key = pytree.DictKey(aux[i])
        result.extend(_index_paths(child, (*path, key)))
    return result


def compose(outer: PyTreeDef, inner: PyTreeDef) -> PyTreeDef:
    """The definition of ``outer`` with ``inner`` at each leaf."""
    return outer.compose(inner)


def from_children(node: tuple[type, Any] | None, children: Iterable[PyTreeDef]) -> PyTreeDef:
    """The definition with the top node ``node_data()`` and these children."""
    return make_treedef(node, children)
