"""Functions of pytrees: flatten, rebuild, map, reduce, transpose.

``flatten`` and ``flatten_with_path`` are the bound C++ methods, for hot paths: they take the leaf
predicate by position and word their errors briefly. ``checked_flatten`` explains them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sized
from typing import Any, Final, TypeVar

from tracebridge.core._jaxlib import pytree
from tracebridge.core._jaxlib.pytree import PyTreeDef
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.transform_errors import TreeMismatchError
from tracebridge.core.tree.one_level import flatten_one_level_with_keys
from tracebridge.core.tree.paths import KeyPath, named_path
from tracebridge.core.tree.prefix import (
    IsLeaf,
    check_same_structure,
    flatten_asking,
    flatten_up_to,
)
from tracebridge.core.tree.registry import (
    default_registry,
)

T = TypeVar("T")
PathIsLeaf = Callable[..., bool] | None

flatten = default_registry.flatten
flatten_with_path_raw = default_registry.flatten_with_path


class _Missing:
    """Type of the default of arguments for which None is a value."""

    def __repr__(self) -> str:
        return "<no value>"


MISSING: Final = _Missing()

leaf_treedef: Final = flatten(0)[1]
"""The definition of a tree that is one leaf."""
none_treedef: Final = flatten(None)[1]
"""The definition of None, a node without leaves."""


def checked_flatten(tree: object, is_leaf: IsLeaf = None) -> tuple[list[Any], PyTreeDef]:
    """Take a tree apart into its leaves and its structure.

    Args:
        tree: nested containers; dict entries come in the order of their sorted keys.
        is_leaf: called on every node; where it is true the whole subtree is one leaf.

    Returns:
        The list of leaves and the definition that ``unflatten`` takes.

    Raises:
        TreeMismatchError: the keys of a dict cannot be sorted.
        TreeDepthError: the tree is deeper than Python's recursion limit allows, or contains itself.

    >>> from tracebridge import tree
    >>> tree.flatten({'b': (2, 3), 'a': 1})
    ([1, 2, 3], PyTreeDef({'a': *, 'b': (*, *)}))
    """
    try:
        try:
            return flatten(tree) if is_leaf is None else flatten_asking(tree, is_leaf)
        except ValueError as error:
            _explain_keys(tree, is_leaf, error)
            raise
    except Exception as error:
        hide_internal_frames(error)
        raise


def _explain_keys(tree: object, is_leaf: IsLeaf, error: ValueError) -> None:
    """Raise a better error if ``error`` is about dict keys that do not compare."""
    if not isinstance(error.__cause__, TypeError):
        return
    found = _unsortable(tree, is_leaf, ())
    if found is None:
        return
    path, keys = found
    kinds = sorted({type(key).__name__ for key in keys})
    raise TreeMismatchError(
        f"tree: the keys of the dict at {named_path('tree', path)} cannot be sorted: "
        f"they are of types {', '.join(kinds)}",
        expected="keys that compare with <",
        hint="use keys of one type, or an OrderedDict, which keeps its own order",
    ) from error


def _unsortable(tree: object, is_leaf: IsLeaf, path: KeyPath) -> tuple[KeyPath, list[Any]] | None:
    if is_leaf is not None and is_leaf(tree):
        return None
    if not default_registry.is_node(type(tree)):
        return None
    try:
        items, _ = flatten_one_level_with_keys(tree)
    except (ValueError, TypeError):
        return (path, list(tree)) if isinstance(tree, dict) else None
    for key, child in items:
        found = _unsortable(child, is_leaf, (*path, key))
        if found is not None:
            return found
    return None


def unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of a definition and its leaves.

    Raises:
        TreeMismatchError: the number of leaves is wrong.
        ArgumentTypeError: ``treedef`` is no structure of a tree.

    >>> from tracebridge import tree
    >>> tree.unflatten(tree.structure({'a': 0, 'b': (0, 0)}), [1, 2, 3])
    {'a': 1, 'b': (2, 3)}
    """
    try:
        return treedef.unflatten(leaves)
    except Exception as error:
        failure = _misfit(treedef, leaves, error)
        if failure is None:
            hide_internal_frames(error)
            raise
        cause = error
    try:
        raise failure from cause
    except TracebridgeError as error:
        hide_internal_frames(error)
        raise


def _misfit(treedef: object, leaves: object, error: Exception) -> TracebridgeError | None:
    """The error of ``unflatten`` for arguments that do not fit; None: a user's class raised."""
    if not isinstance(treedef, PyTreeDef):
        return ArgumentTypeError(
            f"tree.unflatten: treedef is of type {type(treedef).__name__}",
            expected="the definition of a tree, which tree.structure(tree) gives",
        )
    count = len(leaves) if isinstance(leaves, Sized) else None
    if not isinstance(error, ValueError) or count is None or count == treedef.num_leaves:
        return None
    return TreeMismatchError(
        f"tree.unflatten: got {count} leaves, but {treedef} has {treedef.num_leaves}"
    )


def leaves(tree: object, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree, in order.

    >>> from tracebridge import tree
    >>> tree.leaves({'b': (2, 3), 'a': 1, 'c': None})
    [1, 2, 3]
    """
    try:
        return checked_flatten(tree, is_leaf)[0]
    except Exception as error:
        hide_internal_frames(error)
        raise


def structure(tree: object, is_leaf: IsLeaf = None) -> PyTreeDef:
    """The definition of a tree: everything but its leaves.

    >>> from tracebridge import tree
    >>> tree.structure([1, (2, None)])
    PyTreeDef([*, (*, None)])
    """
    try:
        return checked_flatten(tree, is_leaf)[1]
    except Exception as error:
        hide_internal_frames(error)
        raise


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether no element is a node. None is a node.

    >>> from tracebridge import tree_util
    >>> tree_util.all_leaves([1, 'x']), tree_util.all_leaves([1, (2,)])
    (True, False)
    """
    if is_leaf is None:
        return pytree.all_leaves(default_registry, list(iterable))
    found = list(iterable)
    flat = checked_flatten(found, is_leaf)[0]
    return len(flat) == len(found) and all_of(a is b for a, b in zip(flat, found, strict=True))


all_of = all


def map(f: Callable[..., object], tree: object, *rest: object, is_leaf: IsLeaf = None) -> Any:
    """The tree of ``f(leaf, *subtrees)``: ``tree`` sets the structure, ``rest`` may go deeper.

    Raises:
        TreeMismatchError: ``tree`` is no prefix of one of ``rest``; names the paths.

    >>> from tracebridge import tree
    >>> tree.map(lambda x, y: x + y, {'a': 1, 'b': [2]}, {'a': 10, 'b': [20]})
    {'a': 11, 'b': [22]}
    """
    try:
        flat, treedef = checked_flatten(tree, is_leaf)
        if not rest:
            return treedef.unflatten([f(leaf) for leaf in flat])
        columns = [flat, *_columns("tree.map", treedef, tree, rest, is_leaf)]
        return treedef.unflatten([f(*row) for row in zip(*columns, strict=True)])
    except Exception as error:
        hide_internal_frames(error)
        raise


def _columns(
    call: str, treedef: PyTreeDef, tree: object, others: tuple[object, ...], is_leaf: IsLeaf
) -> list[list[Any]]:
    return [
        flatten_up_to(call, treedef, tree, other, is_leaf, "tree", f"rest[{i}]")
        for i, other in enumerate(others)
    ]


def all(tree: object, *, is_leaf: IsLeaf = None) -> bool:
    """Whether all leaves are true.

    >>> from tracebridge import tree
    >>> tree.all({'a': True, 'b': [1, 0]})
    False
    """
    return all_of(leaves(tree, is_leaf))


def reduce(
    function: Callable[[Any, Any], Any],
    tree: object,
    initializer: object = MISSING,
    is_leaf: IsLeaf = None,
) -> Any:
    """The leaves combined from left to right, beginning with ``initializer`` if there is one.

    Args:
        function: ``(result so far, leaf) -> result``.
        tree: the leaves come from here.
        initializer: the result so far for the first leaf; left out, that is the first leaf.
        is_leaf: which nodes count as leaves.

    Raises:
        TypeError: no leaf and no initializer.
        ArgumentTypeError: there are no leaves and no ``initializer``.

    >>> from tracebridge import tree
    >>> tree.reduce(lambda total, x: total + x, {'a': 1, 'b': (2, 3)}, 10)
    16
    """
    flat = leaves(tree, is_leaf)
    if initializer is not MISSING:
        return functools.reduce(function, flat, initializer)
    if not flat:
        msg = "tree.reduce: the tree has no leaves; give an initializer to get a result for it"
        raise ArgumentTypeError(msg)
    return functools.reduce(function, flat)


def reduce_associative(
    operation: Callable[[Any, Any], Any],
    tree: object,
    *,
    identity: object = MISSING,
    is_leaf: IsLeaf = None,
) -> Any:
    """The leaves combined as a balanced binary tree: logarithmic depth, smaller rounding errors.

    Args:
        operation: associative.
        tree: a pytree.
        identity: the result for a tree without leaves; not used otherwise.
        is_leaf: what counts as a leaf besides.

    Raises:
        TypeError: no leaf and no identity.
        ArgumentTypeError: there are no leaves and no ``identity``.

    >>> from tracebridge import tree
    >>> tree.reduce_associative(lambda x, y: f'({x}{y})', list('abcd'))
    '((ab)(cd))'
    """
    flat = leaves(tree, is_leaf)
    if not flat:
        if identity is MISSING:
            msg = "tree.reduce_associative: the tree has no leaves; give identity for this case"
            raise ArgumentTypeError(msg)
        return identity

    def combine(low: int, high: int) -> Any:
        if high - low == 1:
            return flat[low]
        middle = (low + high) // 2
        return operation(combine(low, middle), combine(middle, high))

    return combine(0, len(flat))


def broadcast(prefix_tree: object, full_tree: object, is_leaf: IsLeaf = None) -> Any:
    """``full_tree`` with the leaves of ``prefix_tree`` in place of all leaves below them.

    Raises:
        TreeMismatchError: ``prefix_tree`` is no prefix of ``full_tree``.

    >>> from tracebridge import tree
    >>> tree.broadcast((1, 2), ('x', {'a': 'y', 'b': 'z'}))
    (1, {'a': 2, 'b': 2})
    """
    flat, treedef = checked_flatten(prefix_tree, is_leaf)
    subtrees = flatten_up_to(
        "tree.broadcast", treedef, prefix_tree, full_tree, is_leaf, "prefix_tree", "full_tree"
    )
    return treedef.unflatten(
        [_fill(subtree, leaf, is_leaf) for leaf, subtree in zip(flat, subtrees, strict=True)]
    )


def _fill(tree: object, value: object, is_leaf: IsLeaf) -> Any:
    treedef = checked_flatten(tree, is_leaf)[1]
    return treedef.unflatten([value] * treedef.num_leaves)


def transpose(
    outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: object
) -> Any:
    """A tree of trees turned inside out: a list of pairs becomes a pair of lists.

    Args:
        outer_treedef: definition of the outer tree.
        inner_treedef: definition of each inner tree; None takes that of the first one.
        pytree_to_transpose: a tree with the leaves of outer over inner. Its containers may
            differ from theirs: what a registered class flattens to is its own affair.

    Raises:
        TreeMismatchError: the tree has another number of leaves, or no inner tree shows the
            structure.

    >>> from tracebridge import tree
    >>> pairs = [(1, 2), (3, 4), (5, 6)]
    >>> tree.transpose(tree.structure([0, 0, 0]), tree.structure((0, 0)), pairs)
    ([1, 3, 5], [2, 4, 6])
    """
    flat, treedef = checked_flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = _first_inner(outer_treedef, pytree_to_transpose)
    inner, outer = inner_treedef.num_leaves, outer_treedef.num_leaves
    if treedef.num_leaves != inner * outer:
        expected = outer_treedef.compose(inner_treedef)
        check_same_structure(
            "tree.transpose", treedef, expected, "pytree_to_transpose", "outer over inner"
        )
    columns = [flat[i::inner] for i in range(inner)]
    return inner_treedef.unflatten([outer_treedef.unflatten(column) for column in columns])


def _first_inner(outer: PyTreeDef, tree: object) -> PyTreeDef:
    if outer.num_leaves == 0:
        raise TreeMismatchError(
            "tree.transpose: the outer tree has no leaves, so that the inner structure is unknown",
            hint="give inner_treedef",
        )
    try:
        subtrees = outer.flatten_up_to(tree)
    except ValueError as error:
        raise TreeMismatchError(
            f"tree.transpose: pytree_to_transpose does not begin with the outer structure {outer}"
        ) from error
    return flatten(subtrees[0])[1]


def flatten_with_path(
    tree: object, is_leaf: PathIsLeaf = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """``([(path, leaf), ...], treedef)``.

    Args:
        tree: a pytree.
        is_leaf: what counts as a leaf besides.
        is_leaf_takes_path: ``is_leaf`` is called with ``(path, subtree)``.

    >>> from tracebridge import tree
    >>> tree.flatten_with_path({'a': [5]})
    ([((DictKey(key='a'), SequenceKey(idx=0)), 5)], PyTreeDef({'a': [*]}))
    """
    takes_path = is_leaf
    if is_leaf is not None and not is_leaf_takes_path:
        takes_path = _ignoring_path(is_leaf)
    try:
        return flatten_with_path_raw(tree, takes_path)
    except ValueError as error:
        _explain_keys(tree, None if is_leaf_takes_path else is_leaf, error)
        raise


def _ignoring_path(is_leaf: Callable[[Any], bool]) -> Callable[[KeyPath, Any], bool]:
    return lambda _, subtree: is_leaf(subtree)


def leaves_with_path(
    tree: object, is_leaf: PathIsLeaf = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """``[(path, leaf), ...]``.

    >>> from tracebridge import tree
    >>> tree.leaves_with_path((5, None))
    [((SequenceKey(idx=0),), 5)]
    """
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def map_with_path(
    f: Callable[..., object],
    tree: object,
    *rest: object,
    is_leaf: PathIsLeaf = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Like ``map``, with ``f(path, leaf, *subtrees)``.

    Args:
        f: function of the path of a leaf, the leaf, and the subtrees of ``rest`` at its place.
        tree: the leaves come from here.
        *rest: trees that begin with the structure of ``tree``.
        is_leaf: which nodes count as leaves.
        is_leaf_takes_path: ``is_leaf`` gets the path too.

    >>> from tracebridge import tree, tree_util
    >>> tree.map_with_path(lambda path, x: tree_util.keystr(path) + '=' + str(x), {'a': [5]})
    {'a': ["['a'][0]=5"]}
    """
    flat, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    if not rest:
        return treedef.unflatten([f(path, leaf) for path, leaf in flat])
    plain = None if is_leaf_takes_path else is_leaf
    columns = _columns("tree.map_with_path", treedef, tree, rest, plain)
    return treedef.unflatten(
        [f(path, leaf, *row) for (path, leaf), *row in zip(flat, *columns, strict=True)]
    )
