"""Tree prefixes: one value for a whole subtree, and messages that say where two trees differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tracebridge.core._jaxlib.pytree import DictKey, FlattenedIndexKey, PyTreeDef, SequenceKey
from tracebridge.core.errors.transform_errors import TreeMismatchError
from tracebridge.core.tree.one_level import flatten_one_level_with_keys
from tracebridge.core.tree.paths import KeyPath, keystr
from tracebridge.core.tree.registry import default_registry

IsLeaf = Callable[[Any], bool] | None

_flatten = default_registry.flatten


def flatten_asking(tree: object, is_leaf: Callable[[Any], Any]) -> tuple[list[Any], PyTreeDef]:
    """Flatten with a leaf predicate, which may raise.

    An exception may not pass through jaxlib: each level of the tree would take one from the
    recursion limit of the thread for good.
    """
    failures: list[BaseException] = []

    def ask(node: object) -> Any:
        if failures:
            return True
        try:
            return is_leaf(node)
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            failures.append(error)
            return True

    flat = _flatten(tree, ask)
    if not failures:
        return flat
    try:
        if isinstance(failures[0], RecursionError):
            _flatten(tree)  # raises the error of trees that are too deep, if that is why
        raise failures[0]
    finally:
        failures.clear()  # the traceback has this frame


class Difference(NamedTuple):
    """One place where two trees differ."""

    path: KeyPath
    first: str
    """What the first tree has there."""
    second: str
    """What the second tree has there."""
    reason: str

    def describe(self, first_name: str, second_name: str) -> str:
        """A sentence that names both places."""
        at = keystr(self.path)
        return (
            f"{self.reason}: {first_name}{at} is {self.first}, {second_name}{at} is {self.second}"
        )


def prefix_errors(
    prefix_tree: object, full_tree: object, is_leaf: IsLeaf = None
) -> list[Difference]:
    """All places where ``prefix_tree`` is no prefix of ``full_tree``; empty if it is one."""
    return list(_differences(prefix_tree, full_tree, is_leaf, (), equal=False))


def equality_errors(tree1: object, tree2: object, is_leaf: IsLeaf = None) -> list[Difference]:
    """All places where the structures of two trees differ; empty if they are equal."""
    return list(_differences(tree1, tree2, is_leaf, (), equal=True))


def equality_errors_of_structures(first: PyTreeDef, second: PyTreeDef) -> list[Difference]:
    """All places where two tree definitions differ."""
    return list(_structure_differences(first, second, (), equal=True))


def _differences(
    first: object, second: object, is_leaf: IsLeaf, path: KeyPath, *, equal: bool
) -> Iterable[Difference]:
    one, two = _describe(first, is_leaf), _describe(second, is_leaf)
    if one is None:
        if equal and two is not None:
            yield Difference(path, "a leaf", _kind(two), "a leaf against a subtree")
        return
    if two is None:
        yield Difference(
            path, _kind(one), f"a leaf of type {type(second).__name__}", "a subtree against a leaf"
        )
        return
    reason = _node_difference(one, two)
    if reason is not None:
        yield Difference(path, reason[1], reason[2], reason[0])
        return
    for (key, left), (_, right) in zip(one.items, two.items, strict=True):
        yield from _differences(left, right, is_leaf, (*path, key), equal=equal)


class _Node(NamedTuple):
    type: type
    data: Any
    items: list[tuple[Any, Any]]


def _describe(tree: object, is_leaf: IsLeaf) -> _Node | None:
    """One level of ``tree``, or None for a leaf."""
    if is_leaf is not None and is_leaf(tree):
        return None
    if not default_registry.is_node(type(tree)):
        return None
    items, data = flatten_one_level_with_keys(tree)
    # The registry gives a named tuple's class as its data; a definition gives None.
    return _Node(type(tree), None if data is type(tree) else data, list(items))


def _kind(node: _Node) -> str:
    if node.type is type(None):
        return "None"
    if issubclass(node.type, dict):
        return f"a {node.type.__name__} with keys {_keys(node)}"
    return f"a {node.type.__name__} of {len(node.items)}"


def _keys(node: _Node) -> str:
    names = [repr(key.key) if isinstance(key, DictKey) else str(key) for key, _ in node.items]
    return "[" + ", ".join(names) + "]"


def _node_difference(one: _Node, two: _Node) -> tuple[str, str, str] | None:
    """(reason, first, second) where the two nodes themselves differ."""
    if one.type is not two.type:
        return "different types", _kind(one), _kind(two)
    if issubclass(one.type, dict):
        if _keys(one) != _keys(two):
            return "Dict key mismatch", _kind(one), _kind(two)
    elif len(one.items) != len(two.items):
        return "different lengths", _kind(one), _kind(two)
    if not _same_data(one.data, two.data):
        name = one.type.__name__
        return (
            "different static data",
            f"a {name} with {one.data!r}",
            f"a {name} with {two.data!r}",
        )
    return None


def _same_data(one: object, two: object) -> bool:
    try:
        return bool(one == two)
    except Exception:  # noqa: BLE001  (arrays and user classes may refuse; a message must not)
        return one is two


def _structure_node(treedef: PyTreeDef) -> _Node | None:
    found = treedef.node_data()
    if found is None:
        return None
    children = treedef.children()
    kind, data = found
    if issubclass(kind, dict) and not isinstance(data, tuple):
        entries: list[Any] = [DictKey(key) for key in data]
    elif kind in (tuple, list):
        entries = [SequenceKey(i) for i in range(len(children))]
    else:
        entries = [FlattenedIndexKey(i) for i in range(len(children))]
    return _Node(kind, data, list(zip(entries, children, strict=True)))


def _structure_differences(
    first: PyTreeDef, second: PyTreeDef, path: KeyPath, *, equal: bool
) -> Iterable[Difference]:
    one = _structure_node(first)
    if one is None and not equal:
        return
    two = _structure_node(second)
    if one is None and two is None:
        return
    if one is None or two is None:
        left = "a leaf" if one is None else _kind(one)
        right = "a leaf" if two is None else _kind(two)
        yield Difference(path, left, right, "a leaf against a subtree")
        return
    reason = _node_difference(one, two)
    if reason is not None:
        yield Difference(path, reason[1], reason[2], reason[0])
        return
    for (key, left_def), (_, right_def) in zip(one.items, two.items, strict=True):
        yield from _structure_differences(left_def, right_def, (*path, key), equal=equal)


def mismatch(
    call: str, differences: list[Difference], first_name: str, second_name: str
) -> TreeMismatchError:
    """The error for a list of differences; the first three are written out."""
    lines = [d.describe(first_name, second_name) for d in differences[:3]]
    more = len(differences) - len(lines)
    if more > 0:
        lines.append(f"and {more} more")
    return TreeMismatchError(
        f"{call}: the structure of {first_name} does not fit {second_name}: " + "; ".join(lines),
        hint=f"give {first_name} the containers and keys of {second_name}",
    )


def check_same_structure(
    call: str,
    first: PyTreeDef,
    second: PyTreeDef,
    first_name: str = "the first tree",
    second_name: str = "the second tree",
) -> None:
    """Raise TreeMismatchError, naming the paths, unless the two definitions are equal."""
    if first != second:
        found = equality_errors_of_structures(first, second)
        raise mismatch(call, found, first_name, second_name)


def flatten_up_to(
    call: str,
    treedef: PyTreeDef,
    prefix_tree: object,
    full_tree: object,
    is_leaf: IsLeaf = None,
    prefix_name: str = "the prefix tree",
    full_name: str = "the full tree",
) -> list[Any]:
    """The subtrees of ``full_tree`` at the leaves of ``prefix_tree``, whose definition is given.

    Raises:
        TreeMismatchError: no prefix; the message names each path.
    """
    try:
        return treedef.flatten_up_to(full_tree)
    except ValueError as error:
        errors = prefix_errors(prefix_tree, full_tree, is_leaf)
        if not errors:
            raise
        raise mismatch(call, errors, prefix_name, full_name) from error


def broadcast_prefix(
    prefix_tree: object,
    full_tree: object,
    is_leaf: IsLeaf = None,
    *,
    call: str = "broadcast_prefix",
    prefix_name: str = "the prefix tree",
    full_name: str = "the full tree",
) -> list[Any]:
    """The leaves of ``prefix_tree``, each repeated for every leaf below it in ``full_tree``.

    Args:
        prefix_tree: a tree whose leaves stand for whole subtrees.
        full_tree: the tree that sets how often each is repeated.
        is_leaf: what counts as a leaf of the prefix; ``lambda x: x is None`` makes None a value.
        call: the public function, for messages.
        prefix_name: what messages call the prefix.
        full_name: what messages call the full tree.

    Returns:
        One entry for each leaf of ``full_tree``.

    Raises:
        TreeMismatchError: no prefix; the message names each path.
    """
    leaves, treedef = (
        _flatten(prefix_tree) if is_leaf is None else flatten_asking(prefix_tree, is_leaf)
    )
    subtrees = flatten_up_to(call, treedef, prefix_tree, full_tree, is_leaf, prefix_name, full_name)
    result: list[Any] = []
    for leaf, subtree in zip(leaves, subtrees, strict=True):
        result.extend([leaf] * _flatten(subtree)[1].num_leaves)
    return result


def flatten_axes(
    call: str,
    treedef: PyTreeDef,
    axes: object,
    *,
    is_leaf: IsLeaf = None,
    axes_name: str = "in_axes",
    full_name: str = "the arguments",
    of_arguments: bool = False,
) -> list[Any]:
    """A specification such as ``in_axes``, spread over the leaves of a tree definition.

    None counts as a value of the specification.

    Args:
        call: the public function, for messages.
        treedef: definition of the tree that is specified.
        axes: the specification, a prefix of that tree.
        is_leaf: what besides None is one value of the specification.
        axes_name: what messages call the specification.
        full_name: what messages call the tree.
        of_arguments: a list at the top may stand for the tuple of arguments, because users write
            argument lists either way.

    Returns:
        One value for each leaf of ``treedef``.

    Raises:
        TreeMismatchError: the specification is no prefix of the tree.
    """

    def is_value(x: object) -> bool:
        return x is None or (is_leaf is not None and is_leaf(x))

    if of_arguments and type(axes) is list and (treedef.node_data() or (None,))[0] is tuple:
        axes = tuple(axes)
    values, prefix = _flatten(axes, is_value)
    if prefix.node_data() is None:
        return values * treedef.num_leaves
    # Compared as definitions: rebuilding the tree would call constructors of user classes.
    differences = list(_structure_differences(prefix, treedef, (), equal=False))
    if differences:
        raise mismatch(call, differences, axes_name, full_name)
    result: list[Any] = []
    for value, count in zip(values, _leaf_counts(prefix, treedef), strict=True):
        result.extend([value] * count)
    return result


def _leaf_counts(prefix: PyTreeDef, full: PyTreeDef) -> Iterable[int]:
    """For each leaf of ``prefix``, how many leaves ``full`` has below it."""
    if prefix.node_data() is None:
        yield full.num_leaves
        return
    for one, other in zip(prefix.children(), full.children(), strict=True):
        yield from _leaf_counts(one, other)
