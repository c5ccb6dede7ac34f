"""float0 arrays in trees: tangents of integers, which no device holds.

In the structure of arguments and results they become nodes without leaves; rebuilding the tree
gives the float0 array again. So compiled functions can take and give them. Loops and branches
hold arrays without elements in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.tree.registry import register_pytree_node
from tracebridge.core.tree.tree import flatten


@final
class Float0Node:
    """Stands for a float0 array of this shape."""

    __slots__ = ("shape",)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


def float0_zeros(shape: Any) -> np.ndarray[Any, Any]:
    """The tangent or cotangent of an integer or boolean array: it stores nothing."""
    return np.zeros(shape, float0)


def _take_apart(node: Float0Node) -> tuple[tuple[()], tuple[int, ...]]:
    return (), node.shape


def _put_together(shape: object, children: object) -> Any:
    # An array again, not a node: the node exists only inside flattened trees.
    del children
    return float0_zeros(shape)


register_pytree_node(Float0Node, _take_apart, _put_together)


def is_float0(x: object) -> bool:
    """Whether ``x`` is an array of dtype float0."""
    return getattr(x, "dtype", None) == float0


def _is_array(x: object) -> bool:
    return type(x) is np.ndarray and x.dtype == float0


def has_float0(leaves: Sequence[object]) -> bool:
    """Whether a leaf is a float0 array."""
    # Every trace asks for all its leaves, hardly any of which is of NumPy.
    return np.ndarray in map(type, leaves) and any([_is_array(x) for x in leaves])


def hide_float0(leaves: Sequence[Any], tree: Any) -> tuple[list[Any], Any]:
    """Leaves and structure of the same tree with nodes in place of float0 arrays.

    Traced ones stay: their sizes may be symbolic, and structures hold no symbolic sizes.
    """
    hidden = [Float0Node(x.shape) if _is_array(x) else x for x in leaves]
    return flatten(tree.unflatten(hidden))


@final
class _HeldFloat0:
    """Stands for a float0 array in loops and branches, with an array of no elements below it."""

    __slots__ = ("empty",)

    def __init__(self, empty: Any) -> None:
        self.empty = empty


def _held_apart(node: _HeldFloat0) -> tuple[tuple[Any], None]:
    return (node.empty,), None


def _held_together(_: None, children: Any) -> Any:
    (empty,) = children
    # Something else than an array, such as a number of a leaf, stays what it is.
    return float0_zeros(empty.shape[:-1]) if hasattr(empty, "shape") else empty


register_pytree_node(_HeldFloat0, _held_apart, _held_together)


def hold_float0(leaves: Sequence[Any], tree: Any) -> tuple[list[Any], Any]:
    """Leaves and structure with an empty array of shape ``(*shape, 0)`` per float0 array.

    Loops stack and slice the empty arrays as any others, so that shapes come out right.
    """
    held = [_HeldFloat0(np.empty((*x.shape, 0), bool)) if _is_array(x) else x for x in leaves]
    return flatten(tree.unflatten(held))


def leaves_for(leaves: Sequence[object], tree: object, wanted: Any) -> tuple[Sequence[Any], Any]:
    """``leaves`` and ``tree``, without float0 arrays where ``wanted`` has nodes for them."""
    template, full = flatten(wanted.unflatten([0] * wanted.num_leaves))
    if full != tree:
        return leaves, tree
    return [x for x, t in zip(leaves, template, strict=True) if not is_float0(t)], wanted
