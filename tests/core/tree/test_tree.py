"""Functions of pytrees: laws of flatten, map, reduce, transpose, broadcast; paths; errors."""

from __future__ import annotations

import collections
import functools
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.tree.tree_strategies import Point, trees
from tracebridge.core.errors.transform_errors import TreeMismatchError
from tracebridge.core.tree import registry, tree, treedefs
from tracebridge.core.tree.paths import keystr


def is_pair(x):
    """A predicate for leaves that are nodes otherwise."""
    return isinstance(x, tuple) and len(x) == 2


@given(trees)
def test_unflatten_inverts_flatten(value):
    """Leaves and structure together are the tree, of equal types in every place."""
    leaves, treedef = tree.flatten(value)
    again = tree.unflatten(treedef, leaves)

    assert value == again
    assert repr(tree.map(lambda _: 0, value)) == repr(tree.map(lambda _: 0, again))
    assert len(leaves) == treedef.num_leaves


@given(trees)
def test_structure_does_not_depend_on_leaves(value):
    """Equal structures are equal and hash alike; other structures differ."""
    one, two = tree.structure(value), tree.structure(tree.map(str, value))

    assert one == two
    assert hash(one) == hash(two)
    assert one != tree.structure([value])


@given(trees)
def test_structures_can_be_pickled(value):
    """A structure survives pickling, and finds the registry of this package again."""
    treedef = tree.structure(value)

    assert treedef == pickle.loads(pickle.dumps(treedef))


def test_structures_can_be_pickled_between_processes(subprocess_environment):
    """The pickle of a structure names no object of the process that made it."""
    code = (
        "import pickle, sys; from tracebridge.core.tree import tree;"
        "d = pickle.loads(sys.stdin.buffer.read()); print(d.unflatten([1, 2]))"
    )
    data = pickle.dumps(tree.structure({"b": 0, "a": (0, None)}))
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=data,
        capture_output=True,
        env=subprocess_environment,
        check=False,
    )

    assert done.stdout.decode().strip() == "{'a': (1, None), 'b': 2}", done.stderr.decode()


@given(trees)
def test_map_obeys_the_functor_laws(value):
    """Mapping identity changes nothing; mapping twice is mapping the composition."""
    assert value == tree.map(lambda x: x, value)
    assert tree.map(lambda x: str(x + 1), value) == tree.map(str, tree.map(lambda x: x + 1, value))


@given(trees)
def test_paths_lead_to_the_leaves(value):
    """Every path, followed from the root, ends at its leaf; the order is that of the leaves."""
    pairs, treedef = tree.flatten_with_path(value)

    assert tree.leaves(value) == [leaf for _, leaf in pairs]
    assert tree.structure(value) == treedef
    for path, leaf in pairs:
        at = value
        for key in path:
            name = type(key).__name__
            if name == "GetAttrKey":
                at = getattr(at, key.name)
            else:
                at = at[key.idx if name == "SequenceKey" else key.key]
        assert leaf == at


@given(trees)
def test_paths_of_a_structure(value):
    """A structure alone knows the paths of its leaves."""
    assert [path for path, _ in tree.leaves_with_path(value)] == treedefs.leaf_paths(
        tree.structure(value)
    )


def test_paths_of_a_structure_whose_class_refuses_placeholders():
    """Where a tree cannot be rebuilt without its leaves, paths have the index in such a class."""

    class Picky:
        def __init__(self, x):
            assert isinstance(x, str)
            self.x = x

    registry.register_pytree_node(Picky, lambda p: ((p.x,), None), lambda _, c: Picky(*c))
    paths = treedefs.leaf_paths(tree.structure(["a", {"k": (Picky("b"),)}]))

    assert list(map(keystr, paths)) == ["[0]", "[1]['k'][0][<flat index 0>]"]


@given(trees)
def test_children_rebuild_a_structure(value):
    """A structure is its node data and the structures of its children."""
    treedef = tree.structure(value)
    children = treedefs.treedef_children(treedef)

    assert treedef == treedefs.from_children(treedef.node_data(), children)
    assert treedef.num_nodes == 1 + sum(child.num_nodes for child in children)


@given(st.lists(trees, max_size=3))
def test_treedef_tuple(values):
    """The structure of a tuple of trees."""
    assert tree.structure(tuple(values)) == treedefs.treedef_tuple(
        [tree.structure(v) for v in values]
    )


@given(trees, trees)
def test_transpose(outer, inner):
    """Transposing exchanges the two structures, and twice is the identity."""
    outer_def, inner_def = tree.structure(outer), tree.structure(inner)
    if not (outer_def.num_leaves and inner_def.num_leaves):
        return
    nested = tree.map(lambda i: tree.map(lambda j: (i, j).__repr__(), inner), outer)
    turned = tree.transpose(outer_def, inner_def, nested)

    assert treedefs.compose(inner_def, outer_def) == tree.structure(turned)
    assert nested == tree.transpose(inner_def, outer_def, turned)
    assert turned == tree.transpose(outer_def, None, nested)


@given(trees)
def test_broadcast(value):
    """One leaf fills the whole tree; the tree itself is its own prefix."""
    assert tree.map(lambda _: 7, value) == tree.broadcast(7, value)
    assert value == tree.broadcast(value, value)


@given(st.lists(st.text(max_size=2), min_size=1))
def test_reductions_combine_in_order(words):
    """Both reductions keep the order of the leaves."""
    joined = "".join(words)

    assert joined == tree.reduce(lambda a, b: a + b, words)
    assert joined == tree.reduce_associative(lambda a, b: a + b, words)
    assert "x" + joined == tree.reduce(lambda a, b: a + b, words, "x")


def test_reduce_associative_is_balanced():
    """The depth grows with the logarithm of the number of leaves."""

    def depth(a, b):
        return 1 + max(a, b)

    assert tree.reduce_associative(depth, [0] * 8) == 3
    assert tree.reduce_associative(depth, [0] * 9) == 4


def test_reductions_of_nothing():
    """Without leaves the initial value is the result; None is a value."""
    assert tree.reduce(max, [], None) is None
    assert tree.reduce_associative(max, [], identity=None) is None
    with pytest.raises(TypeError, match="give an initializer"):
        tree.reduce(max, [])
    with pytest.raises(TypeError, match="give identity"):
        tree.reduce_associative(max, {})


def test_all():
    """True for a tree without false leaves; nodes do not count."""
    assert tree.all({"a": 1, "b": [], "c": None})
    assert not tree.all((1, [0]))
    assert tree.all((0, 0), is_leaf=is_pair)


def test_all_leaves():
    """Only elements that are no nodes count as leaves."""
    assert tree.all_leaves([1, "x"])
    assert not tree.all_leaves([1, None])
    assert not tree.all_leaves([()])
    assert tree.all_leaves([(1, 2)], is_leaf=is_pair)
    assert not tree.all_leaves([(1, 2, 3)], is_leaf=is_pair)


def test_is_leaf():
    """Where the predicate is true the subtree is a leaf; a falsy answer is no."""
    value = {"a": (1, 2), "b": [3, (4, 5)]}

    assert tree.leaves(value, is_leaf=is_pair) == [(1, 2), 3, (4, 5)]
    assert tree.map(str, value, is_leaf=is_pair) == {"a": "(1, 2)", "b": ["3", "(4, 5)"]}
    assert tree.leaves(value, is_leaf=lambda _: None) == [1, 2, 3, 4, 5]
    assert [value] == tree.leaves(value, is_leaf=lambda _: True)
    assert tree.leaves(None, is_leaf=lambda x: x is None) == [None]


def test_is_leaf_with_path():
    """The predicate of the path functions may see the path."""
    value = {"a": (1, 2), "b": (3, 4)}

    def at_a(path, _):
        return keystr(path) == "['a']"

    found = tree.leaves_with_path(value, is_leaf=at_a, is_leaf_takes_path=True)
    plain = tree.leaves_with_path(value, is_leaf=is_pair)

    assert [(keystr(path), leaf) for path, leaf in found] == [
        ("['a']", (1, 2)),
        ("['b'][0]", 3),
        ("['b'][1]", 4),
    ]
    assert [leaf for _, leaf in plain] == [(1, 2), (3, 4)]


def test_map_of_several_trees():
    """The first tree sets the structure; the others may go deeper."""
    assert tree.map(lambda x, y: (x, y), {"a": 1}, {"a": [2, 3]}) == {"a": (1, [2, 3])}
    assert tree.map(lambda *xs: sum(xs), [1, 2], [10, 20], [100, 200]) == [111, 222]
    assert tree.map_with_path(lambda path, x, y: (keystr(path), x, y), {"a": 1}, {"a": 2}) == {
        "a": ("['a']", 1, 2)
    }


def test_dicts_come_in_the_order_of_their_keys():
    """Insertion order does not matter for dicts and default dicts, but for OrderedDicts."""
    assert tree.leaves({"b": 2, "a": 1}) == [1, 2]
    assert tree.structure({"b": 2, "a": 1}) == tree.structure({"a": 1, "b": 2})
    assert tree.leaves(collections.OrderedDict(b=2, a=1)) == [2, 1]
    assert tree.leaves(collections.defaultdict(int, b=2, a=1)) == [1, 2]


def test_default_dicts_keep_their_factory():
    """A rebuilt default dict makes the same defaults."""
    value = collections.defaultdict(list, a=1)
    again = tree.map(lambda x: x + 1, value)

    assert again["new"] == []
    assert again["a"] == 2


def test_other_containers_are_leaves():
    """Sets, deques, strings and arrays are leaves."""
    for value in ({1, 2}, collections.deque([1]), "text", b"bytes", range(3)):
        assert [value] == tree.leaves(value)


def test_leaf_structures():
    """A leaf and a childless node both count as leaves, unless asked strictly."""
    assert treedefs.treedef_is_leaf(tree.leaf_treedef)
    assert treedefs.treedef_is_leaf(tree.none_treedef)
    assert treedefs.treedef_is_strict_leaf(tree.leaf_treedef)
    assert not treedefs.treedef_is_strict_leaf(tree.none_treedef)
    assert not treedefs.treedef_is_leaf(tree.structure([1]))


def test_treedef_args_kwargs():
    """Arguments flatten as a pair."""
    assert tree.structure(((1,), {"a": 2})) == treedefs.treedef_args_kwargs((1,), {"a": 2})


@pytest.mark.parametrize(
    "call",
    [tree.leaves, tree.structure, tree.leaves_with_path, functools.partial(tree.map, str)],
)
def test_keys_that_do_not_compare(call):
    """The message names the dict and the types of its keys."""
    with pytest.raises(TreeMismatchError, match=r"tree\['x'\]\[0\].*types int, str"):
        call({"x": [{1: 2, "a": 3}]})


def test_errors_of_user_code_stay():
    """An error that a node class or predicate raises is not replaced."""

    def predicate(_):
        msg = "from the predicate"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="from the predicate") as info:
        tree.leaves([1], is_leaf=predicate)
    assert not isinstance(info.value, TreeMismatchError)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((1, 2), (1, 2, 3), "tree is a tuple of 2, rest[0] is a tuple of 3"),
        ({"a": [1]}, {"a": (1,)}, "tree['a'] is a list of 1, rest[0]['a'] is a tuple of 1"),
        (
            [{"a": 1}],
            [{"b": 1}],
            "tree[0] is a dict with keys ['a'], rest[0][0] is a dict with keys ['b']",
        ),
        (None, 1, "tree is None, rest[0] is a leaf of type int"),
        (Point(1, None), Point(1, 2), "tree.y is None, rest[0].y is a leaf of type int"),
    ],
)
def test_mismatch(first, second, words):
    """The message names the path and what is there in both trees."""
    with pytest.raises(TreeMismatchError) as info:
        tree.map(lambda x, _: x, first, second)

    assert words in str(info.value)
    assert str(info.value).startswith("tree.map: ")


def test_mismatch_lists_three_places():
    """More differences are counted."""
    with pytest.raises(TreeMismatchError, match="and 2 more"):
        tree.map(max, [(1,)] * 5, [1] * 5)


class _Flat(dict[str, Any]):
    """A mapping that flattens to all leaves below it at once."""


def _unflatten_flat(keys: Any, leaves: Any) -> _Flat:
    return _Flat(tree.unflatten(keys, leaves))


registry.register_pytree_node(
    _Flat, lambda f: (tree.leaves(dict(f)), tree.structure(dict(f))), _unflatten_flat
)


def test_transpose_of_other_containers():
    """The leaves count: containers may differ, and registered classes hide what is below them."""
    pair, triple = tree.structure((0, 0)), tree.structure([0, 0, 0])
    outer, nested = tree.structure(_Flat(a=1, b=2)), _Flat(a=[3, 4], b=[5, 6])

    assert ([1, 3, 5], [2, 4, 6]) == tree.transpose(triple, pair, ((1, 2), (3, 4), (5, 6)))
    assert [_Flat(a=3, b=5), _Flat(a=4, b=6)] == tree.transpose(
        outer, tree.structure([0, 0]), nested
    )


def test_transpose_mismatch():
    """A tree with another number of leaves is refused with the place that differs."""
    pair, triple = tree.structure((0, 0)), tree.structure([0, 0, 0])

    with pytest.raises(TreeMismatchError, match=r"pytree_to_transpose\[1\] is a tuple of 3"):
        tree.transpose(triple, pair, [(1, 2), (3, 4, 5), (6, 7)])
    with pytest.raises(TreeMismatchError, match="does not begin with the outer structure"):
        tree.transpose(triple, None, [1, 2])
    with pytest.raises(TreeMismatchError, match="give inner_treedef"):
        tree.transpose(tree.structure([]), None, [])


def test_number_of_leaves():
    """Too few and too many leaves are refused."""
    with pytest.raises(TreeMismatchError, match=r"got 1 leaves, but .* has 2"):
        tree.unflatten(tree.structure((0, 0)), [1])
    with pytest.raises(ValueError, match="got 3 leaves"):
        tree.unflatten(tree.structure((0, 0)), [1, 2, 3])
    with pytest.raises(TypeError, match=r"treedef is of type list(.|\n)*tree.structure"):
        tree.unflatten([0, 0], [1, 2])
