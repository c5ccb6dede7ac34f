"""The registered classes of tree nodes as a mapping, for code that takes single nodes apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, final

from tracebridge.core.tree.one_level import flatten_one_level, is_tree_node
from tracebridge.core.tree.registry import make_treedef
from tracebridge.core.tree.tree import structure, unflatten


class NodeType(NamedTuple):
    """How nodes of a class come apart, and how they are put together."""

    to_iter: Callable[[Any], tuple[Iterable[Any], Any]]
    """From a node to its children and the rest of it."""
    from_iter: Callable[[Any, Iterable[Any]], Any]
    """From the rest and the children to a node."""


@final
class NodeTypes:
    """``types[class]`` for the classes whose instances are nodes of trees.

    >>> from tracebridge._src import tree_util
    >>> dict in tree_util._registry, float in tree_util._registry
    (True, False)
    >>> node = tree_util._registry[dict]
    >>> node.from_iter(node.to_iter({"a": 1, "b": 2})[1], [3, 4])
    {'a': 3, 'b': 4}
    """

    __slots__ = ()

    def __contains__(self, cls: type) -> bool:
        return is_tree_node(cls)

    def __getitem__(self, cls: type) -> NodeType:
        if not is_tree_node(cls):
            raise KeyError(cls)

        def from_iter(aux_data: object, children: Iterable[Any]) -> Any:
            leaf = structure(0)
            values = list(children)
            return unflatten(make_treedef((cls, aux_data), [leaf] * len(values)), values)

        return NodeType(flatten_one_level, from_iter)

    def get(self, cls: type, default: object = None) -> Any:
        """What is known of a class, or ``default``."""
        return self[cls] if is_tree_node(cls) else default


NODE_TYPES = NodeTypes()
