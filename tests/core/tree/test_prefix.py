"""Tree prefixes and the messages about trees that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.core.tree.tree_strategies import Point, trees
from tracebridge.core.errors.transform_errors import TreeMismatchError
from tracebridge.core.tree import prefix, registry, tree


def is_none(x):
    """None as a value of a specification."""
    return x is None


@given(trees)
def test_every_tree_is_a_prefix_of_itself(value):
    """No differences, and broadcasting gives the leaves."""
    assert prefix.prefix_errors(value, value) == []
    assert prefix.equality_errors(value, value) == []
    assert tree.leaves(value) == prefix.broadcast_prefix(value, value)


@given(trees)
def test_one_value_for_all_leaves(value):
    """A leaf is a prefix of every tree."""
    n = tree.structure(value).num_leaves

    assert [5] * n == prefix.broadcast_prefix(5, value)
    assert [None] * n == prefix.broadcast_prefix(None, value, is_none)
    assert [None] * n == prefix.flatten_axes("f", tree.structure(value), None)


@given(trees)
def test_structures_compare_like_trees(value):
    """Differences of structures and of trees come together."""
    other = [value, 0]
    assert prefix.equality_errors(value, other) != []
    assert prefix.equality_errors_of_structures(tree.structure(value), tree.structure(other)) != []
    assert not prefix.equality_errors_of_structures(tree.structure(value), tree.structure(value))


def test_broadcast_prefix():
    """Each leaf of the prefix is repeated for its subtree."""
    full = ({"a": 1, "b": (2, 3)}, [4, None], 5)

    assert prefix.broadcast_prefix((0, 1, 2), full) == [0, 0, 0, 1, 2]
    assert prefix.broadcast_prefix(({"a": "x", "b": "y"}, None, 2), full, is_none) == [
        "x",
        "y",
        "y",
        None,
        2,
    ]


def test_broadcast_prefix_error():
    """The names of the caller appear in the message."""
    with pytest.raises(TreeMismatchError, match=r"vmap: .*in_axes\[1\] is a list of 1, x\[1\] is"):
        prefix.broadcast_prefix((0, [1]), (1, 2), call="vmap", prefix_name="in_axes", full_name="x")


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        (0, [0, 0, 0]),
        ((0, None), [0, None, None]),
        ((None, {"a": 1, "b": 2}), [None, 1, 2]),
    ],
)
def test_flatten_axes(axes, expected):
    """A specification is spread over leaves; None is a value."""
    treedef = tree.structure((1, {"a": 2, "b": 3}))

    assert expected == prefix.flatten_axes("vmap", treedef, axes)


def test_flatten_axes_with_a_list_for_a_tuple():
    """A list stands for the tuple of arguments, and for no other tuple."""
    treedef = tree.structure((1, {"a": 2, "b": 3}))

    assert prefix.flatten_axes("jit", treedef, [0, None], of_arguments=True) == [0, None, None]
    with pytest.raises(TreeMismatchError, match="is a list of 2"):
        prefix.flatten_axes("vmap", treedef, [0, None])


def test_flatten_axes_with_values_that_are_nodes():
    """A predicate says which nodes are single values of the specification."""
    treedef = tree.structure(([1, 2], 3))

    assert prefix.flatten_axes(
        "shard_map", treedef, (("x",), None), is_leaf=lambda x: x == ("x",)
    ) == [("x",), ("x",), None]


def test_flatten_axes_runs_no_user_code():
    """Constructors of node classes are not called with placeholders."""

    class Picky:
        def __init__(self, x):
            assert isinstance(x, int)
            self.x = x

    registry.register_pytree_node(Picky, lambda p: ((p.x,), None), lambda _, c: Picky(*c))

    assert prefix.flatten_axes("vmap", tree.structure((Picky(1), 2)), (0, 1)) == [0, 1]


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ((0,), "in_axes is a tuple of 1, the arguments is a tuple of 2"),
        ((0, {"a": 1}), "in_axes[1] is a dict with keys ['a'], the arguments[1] is a dict with"),
        (((0, 1), 0), "in_axes[0] is a tuple of 2, the arguments[0] is a leaf"),
    ],
)
def test_flatten_axes_errors(axes, words):
    """The message names the place in the specification."""
    treedef = tree.structure((1, {"a": 2, "b": 3}))

    with pytest.raises(TreeMismatchError) as info:
        prefix.flatten_axes("vmap", treedef, axes)
    assert words in str(info.value)


def test_check_same_structure():
    """Equal structures pass; others are compared in words."""
    one, two = tree.structure({"a": (1, 2)}), tree.structure({"a": (1, [2])})

    prefix.check_same_structure("scan", one, one)
    with pytest.raises(TreeMismatchError, match=r"carry in\['a'\]\[1\] is a leaf, carry out"):
        prefix.check_same_structure("scan", one, two, "carry in", "carry out")


def test_equality_and_prefix_differ_at_leaves():
    """A leaf against a subtree is a difference for equality only."""
    assert prefix.prefix_errors((1, 2), (1, [2])) == []
    (difference,) = prefix.equality_errors((1, 2), (1, [2]))
    assert (difference.first, difference.second) == ("a leaf", "a list of 1")


def test_all_differences_are_found():
    """Each differing place is listed, with its path."""
    first = {"a": (1, 2), "b": [1], "c": Point(1, 2)}
    second = {"a": (1, 2, 3), "b": (1,), "c": Point(1, (2, 3))}

    assert [prefix.keystr(d.path) for d in prefix.equality_errors(first, second)] == [
        "['a']",
        "['b']",
        "['c'].y",
    ]


def test_static_data_that_cannot_be_compared():
    """A message about arrays as static data does not fail on their ambiguous equality."""

    class Node:
        def __init__(self, aux):
            self.aux = aux

    registry.register_pytree_node(Node, lambda n: ((), n.aux), lambda aux, _: Node(aux))
    (difference,) = prefix.equality_errors(Node(np.ones(2)), Node(np.ones(2)))

    assert difference.reason == "different static data"
