"""Registration of classes as pytree nodes, Partial, and the independence of the registry."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
from typing import NamedTuple

import pytest

from tracebridge.core._jaxlib.pytree import GetAttrKey
from tracebridge.core.errors.transform_errors import TreeMismatchError
from tracebridge.core.tree import one_level, registry, tree
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.printing import format_treedef


class Base:
    """Children x and y, static name."""

    def __init__(self, x, y, name="n"):
        self.x, self.y, self.name = x, y, name

    def __eq__(self, other):
        return (self.x, self.y, self.name) == (other.x, other.y, other.name)

    __hash__ = None

    def tree_flatten(self):
        return (self.x, self.y), self.name

    @classmethod
    def tree_unflatten(cls, name, children):
        return cls(*children, name)


class Keyed(Base):
    """The same with key path entries."""

    def tree_flatten_with_keys(self):
        return [(GetAttrKey("x"), self.x), (GetAttrKey("y"), self.y)], self.name


class Pair(NamedTuple):
    """A named tuple."""

    first: object
    second: object


def paths_of(value):
    """The paths of the leaves as text."""
    return [keystr(path) for path, _ in tree.leaves_with_path(value)]


def test_register_pytree_node():
    """A registered class is a node with index paths; its subclasses are leaves."""

    class Node(Base):
        pass

    class Sub(Node):
        pass

    registry.register_pytree_node(Node, Node.tree_flatten, Node.tree_unflatten)

    assert Node(2, [3]) == tree.map(lambda x: x + 1, Node(1, [2]))
    assert paths_of(Node(1, [2])) == ["[<flat index 0>]", "[<flat index 1>][0]"]
    assert one_level.is_tree_node(Node)
    assert not one_level.is_tree_node(Sub)


def test_static_data_is_part_of_the_structure():
    """Trees with other static data have another structure."""

    class Node(Base):
        pass

    registry.register_pytree_node_class(Node)

    assert tree.structure(Node(1, 2, "a")) == tree.structure(Node(3, 4, "a"))
    assert tree.structure(Node(1, 2, "a")) != tree.structure(Node(1, 2, "b"))
    with pytest.raises(TreeMismatchError, match="different static data: tree is a Node with 'a'"):
        tree.map(max, Node(1, 2, "a"), Node(1, 2, "b"))


def test_decorators_return_the_class():
    """The class decorators do not replace the class."""

    class One(Base):
        pass

    class Two(Keyed):
        pass

    class Three(str):
        __slots__ = ()

    assert registry.register_pytree_node_class(One) is One
    assert registry.register_pytree_with_keys_class(Two) is Two
    assert registry.register_static(Three) is Three


@pytest.mark.parametrize("flatten", [None, Base.tree_flatten])
def test_register_with_keys(flatten):
    """The keys make paths; the function without keys is derived where it is not given."""

    class Node(Keyed):
        pass

    registry.register_pytree_with_keys(
        Node, Node.tree_flatten_with_keys, Node.tree_unflatten, flatten
    )

    assert paths_of([Node(1, {"k": 2})]) == ["[0].x", "[0].y['k']"]
    assert Node(2, 3) == tree.map(lambda x: x + 1, Node(1, 2))


def test_class_with_keys_but_without_plain_flatten():
    """tree_flatten is optional for classes with keys."""

    @registry.register_pytree_with_keys_class
    class Node:
        def __init__(self, x):
            self.x = x

        def tree_flatten_with_keys(self):
            return [(GetAttrKey("x"), self.x)], None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    assert tree.leaves(Node([1, 2])) == [1, 2]
    assert paths_of(Node([1, 2])) == [".x[0]", ".x[1]"]


def test_register_static():
    """A static object has no leaves and must be equal for structures to be equal."""

    @registry.register_static
    class Mode(str):
        __slots__ = ()

    assert tree.leaves((1, Mode("a"))) == [1]
    assert tree.map(lambda x: x + 1, (1, Mode("a"))) == (2, "a")
    assert tree.structure(Mode("a")) != tree.structure(Mode("b"))


def test_dataclass_fields_are_inferred():
    """Constructor fields are children, but for those that are marked static."""

    @registry.register_dataclass
    @dataclasses.dataclass
    class Layer:
        weight: object
        name: str = registry.static(default="dense")
        calls: int = dataclasses.field(init=False, default=7)

    layer = Layer([1, 2], "first")
    doubled = tree.map(lambda x: 2 * x, layer)

    assert paths_of(layer) == [".weight[0]", ".weight[1]"]
    assert Layer([2, 4], "first") == doubled
    assert doubled.calls == 7
    assert tree.structure(layer) != tree.structure(Layer([1, 2], "second"))


def test_dataclass_fields_are_given():
    """Lists choose children, static fields and dropped fields; the order is that of the list."""

    @functools.partial(
        registry.register_dataclass,
        data_fields=["b", "a"],
        meta_fields=["c"],
        drop_fields=["d"],
    )
    @dataclasses.dataclass
    class Node:
        a: object
        b: object
        c: str
        d: int = 0

    assert tree.leaves(Node(1, 2, "c", 5)) == [2, 1]
    assert Node(1, 2, "c", 0) == tree.map(lambda x: x, Node(1, 2, "c", 5))


def test_a_class_like_a_dataclass():
    """With lists the class needs a constructor with keywords only."""

    class Node:
        def __init__(self, *, x, tag):
            self.x, self.tag = x, tag

    registry.register_dataclass(Node, data_fields=["x"], meta_fields=["tag"])
    again = tree.map(lambda x: x + 1, Node(x=1, tag="t"))

    assert (again.x, again.tag) == (2, "t")


def test_frozen_dataclass_with_slots():
    """Immutable dataclasses are rebuilt by their constructor."""

    @registry.register_dataclass
    @dataclasses.dataclass(frozen=True, slots=True)
    class Node:
        x: object

    assert Node(2) == tree.map(lambda x: x + 1, Node(1))


@dataclasses.dataclass
class Unregistered:
    """A dataclass that the error tests use; it stays a leaf."""

    a: int
    b: int = 0


@pytest.mark.parametrize(
    ("cls", "lists", "error", "words"),
    [
        (int, {}, TypeError, "is no dataclass"),
        (Unregistered, {"data_fields": ["a"]}, TypeError, "both data_fields and meta_fields"),
        (Unregistered, {"data_fields": "a", "meta_fields": []}, TypeError, "is the string 'a'"),
        (
            Unregistered,
            {"data_fields": ["a"], "meta_fields": []},
            ValueError,
            r"missing \['b'\], unknown \[\]",
        ),
        (
            Unregistered,
            {"data_fields": ["a", "b"], "meta_fields": ["c"]},
            ValueError,
            r"unknown \['c'\]",
        ),
        (
            Unregistered,
            {"data_fields": ["a", "b"], "meta_fields": ["a"]},
            ValueError,
            r"\['a'\] of Unregistered are listed twice",
        ),
        (Unregistered(1), {}, TypeError, "expected a class"),
    ],
)
def test_dataclass_errors(cls, lists, error, words):
    """The message names the fields that do not fit, and nothing is registered."""
    with pytest.raises(error, match=words):
        registry.register_dataclass(cls, **lists)
    assert not one_level.is_tree_node(Unregistered)


@pytest.mark.parametrize("cls", [tuple, dict, list, type(None), registry.Partial])
def test_a_class_is_registered_once(cls):
    """Built-in nodes and registered classes cannot be registered again."""
    with pytest.raises(ValueError, match="is a pytree node already"):
        registry.register_pytree_node(cls, lambda x: ((), x), lambda aux, _: aux)


def test_named_tuples_may_be_registered():
    """Once; what is registered comes before the fields of the class."""

    class Tagged(NamedTuple):
        value: int
        tag: str

    class Static(NamedTuple):
        n: int

    registry.register_pytree_with_keys(
        Tagged,
        lambda x: (((registry.GetAttrKey("value"), x.value),), x.tag),
        lambda tag, children: Tagged(*children, tag),
    )
    one = Tagged(1, "a")

    assert tree.leaves(one) == [1]
    assert tree.map(lambda x: x + 1, one) == Tagged(2, "a")
    assert tree.structure(one) != tree.structure(Tagged(1, "b"))
    assert [str(path[0]) for path, _ in tree.leaves_with_path(one)] == [".value"]
    assert one_level.flatten_one_level(one) == ([1], "a")
    assert format_treedef(tree.structure(one)) == "Tagged['a'](*)"
    with pytest.raises(ValueError, match="Tagged is a pytree node already"):
        registry.register_pytree_node(Tagged, lambda x: ((), x), lambda aux, _: aux)
    registry.register_static(Static)
    assert tree.leaves((Static(3), 4)) == [4]


def test_missing_methods():
    """The decorators name the methods that a class lacks."""
    with pytest.raises(TypeError, match="no method tree_flatten and no tree_unflatten"):
        registry.register_pytree_node_class(int)
    with pytest.raises(TypeError, match="no method tree_flatten_with_keys"):
        registry.register_pytree_with_keys_class(Base)


def test_one_level():
    """The children of the top node, with and without keys."""
    children, aux = one_level.flatten_one_level({"b": (1, 2), "a": 3})
    assert list(children) == [3, (1, 2)]
    assert list(aux) == ["a", "b"]

    items, _ = one_level.flatten_one_level_with_keys(Pair(1, 2))
    assert [(str(key), child) for key, child in items] == [(".first", 1), (".second", 2)]

    assert one_level.flatten_one_level(None) == ((), None)
    for call in (one_level.flatten_one_level, one_level.flatten_one_level_with_keys):
        with pytest.raises(TreeMismatchError, match="a leaf of type int"):
            call(1)


def add(*args, **kwargs):
    """A function to be partially applied."""
    return sum(args) + sum(kwargs.values())


class TestPartial:
    """functools.partial as a pytree."""

    def test_calls(self):
        """It is callable like functools.partial."""
        assert registry.Partial(add, 1, k=2)(3, m=4) == 10
        assert isinstance(registry.Partial(add), functools.partial)

    def test_bound_arguments_are_children(self):
        """Positional and keyword arguments are leaves, the function is structure."""
        partial = registry.Partial(add, 1, k=[2, 3])
        again = tree.map(lambda x: 10 * x, partial)

        assert tree.leaves(partial) == [1, 2, 3]
        assert again.args == (10,)
        assert again.keywords == {"k": [20, 30]}
        assert tree.structure(partial) != tree.structure(registry.Partial(max, 1, k=[2, 3]))
        assert paths_of(partial) == [".args[0]", ".keywords['k'][0]", ".keywords['k'][1]"]

    def test_of_a_plain_partial(self):
        """Arguments bound by functools.partial stay static, and compare by value."""
        one = registry.Partial(functools.partial(add, 1), 2)
        two = registry.Partial(functools.partial(add, 1), 5)

        assert one(3) == 6
        assert tree.leaves(one) == [2]
        assert tree.structure(one) == tree.structure(two)
        assert tree.structure(one) != tree.structure(registry.Partial(functools.partial(add, 9), 2))

    def test_of_a_plain_partial_equals_it(self) -> None:
        """Also where the arguments that it binds have no hash."""
        for bound in (1, [1]):
            plain = functools.partial(add, bound)
            one, two = registry.Partial(plain, 2), registry.Partial(plain, 3)

            assert plain == one.func
            assert one.func == two.func
            assert hash(one.func) == hash(two.func)
            assert tree.structure(one) == tree.structure(two)

    def test_of_a_partial(self):
        """Arguments of both become children."""
        nested = registry.Partial(registry.Partial(add, 1), 2, k=3)

        assert nested(4) == 10
        assert tree.leaves(nested) == [1, 2, 3]

    def test_subclasses_of_the_arguments_survive_copies(self):
        """Copies and pickles keep the class."""
        partial = registry.Partial(add, 1)

        assert type(copy.copy(partial)) is registry.Partial
        assert pickle.loads(pickle.dumps(partial))(2) == 3


def test_the_registry_is_our_own():
    """Registration here does not reach the process-wide registry of the same library."""
    from jaxlib import _jax

    class Node(Base):
        pass

    registry.register_pytree_node_class(Node)

    assert not _jax.pytree.default_registry().is_node(Node)
    assert registry.default_registry is not _jax.pytree.default_registry()
