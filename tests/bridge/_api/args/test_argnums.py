"""Positions and names of arguments."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest

from tracebridge._api.args.argnums import argument_names_at, indices, names, resolve
from tracebridge._api.args.statics import Splitter, static_key
from tracebridge.core.ir.debug_info import name_of, parameter_names, where_is
from tracebridge.errors import ArgumentSpecError


def f(a: Any, b: Any, c: Any = 0, *, d: Any = 0) -> Any:
    """A function with all plain kinds of parameters."""
    return a, b, c, d


@pytest.mark.parametrize(
    ("nums", "given", "expected"),
    [
        (None, None, ((), ())),
        ((), None, ((), ())),
        (1, None, ((1,), ("b",))),
        ((-1, 0), None, ((0, 2), ("a", "c"))),
        (None, "b", ((1,), ("b",))),
        (None, ("d", "a"), ((0,), ("a", "d"))),
        (0, "b", ((0,), ("b",))),
        ([0, 0], (), ((0,), ())),
    ],
)
def test_positions_and_names_derive_each_other(nums: Any, given: Any, expected: Any) -> None:
    """Only if one of the two is missing."""
    assert expected == resolve("jit", f, "static", nums, given)


def test_positional_only_and_variadic_parameters() -> None:
    """Names that cannot be given by keyword are not derived; *args takes any position."""

    def g(a: Any, /, b: Any, *rest: Any, **kw: Any) -> Any:
        return a, b, rest, kw

    assert ((0, 1), ("b",)) == resolve("jit", g, "static", (0, 1), None)
    assert ((-1, 7), ()) == resolve("jit", g, "static", (7, -1), None)
    assert ((), ("anything",)) == resolve("jit", g, "static", None, "anything")


def test_builtins_have_no_signature() -> None:
    """Their positions are taken as they are."""
    with pytest.raises(ValueError, match="no signature found"):
        inspect.signature(max)

    assert ((0, 5), ()) == resolve("jit", max, "static", (5, 0), None)


def test_no_positions_at_all() -> None:
    """The message fits functions without parameters."""
    with pytest.raises(ArgumentSpecError, match="expected: no position at all"):
        resolve("jit", lambda: None, "static", 0, None)
    with pytest.raises(ArgumentSpecError, match="expected: no name at all"):
        resolve("jit", lambda: None, "static", None, "x")


def test_types_of_options() -> None:
    """Ints for positions, strings for names."""
    assert (1,) == indices("jit", "argnums", True)
    assert ("a", "b") == names("jit", "argnames", ["a", "b"])
    for bad in (None, 1.0, "1", ["1"]):
        with pytest.raises(TypeError, match="expected an int or a sequence of ints"):
            indices("jit", "argnums", bad)
    for bad in (3, [3]):
        with pytest.raises(TypeError, match="expected a string or a sequence of strings"):
            names("jit", "argnames", bad)


def test_names_of_arguments() -> None:
    """Parameters where they are known, positions where not."""

    class Model:
        def apply(self, x: Any) -> Any:
            return x

    assert ("a", "b", "c") == parameter_names(f)
    assert ("x",) == parameter_names(Model().apply)
    assert () == parameter_names(max)
    assert ("argument b", "argument c") == argument_names_at(f, (1, -1))
    assert ("argument args[3]",) == argument_names_at(max, (3,))
    assert "f" == name_of(functools.partial(f, 1))
    assert "Model" == name_of(Model())
    assert "test_argnums.py" in where_is(functools.partial(f, 1))


def test_keys_of_static_values() -> None:
    """Equal keys for equal values of one class only."""
    assert static_key(1) == static_key(1)
    assert static_key((1, "a")) == static_key((1, "a"))
    for one, two in ((1, 1.0), (1, True), (0.0, -0.0), ((1,), (1.0,)), (1, "1"), (None, 0)):
        assert static_key(one) != static_key(two)
    assert static_key(float("nan")) == static_key(float("nan"))


def test_both_keys_split_alike() -> None:
    """The flat key and the tree key leave the same arguments dynamic, in any order of keywords."""
    splitter = Splitter("jit", f, (0, 2), ("a", "c"), ((1,), ("b", "d")))

    given, key = splitter.flat_key((1, 2.0, "s"), {"d": 4.0})
    leaves, (tree, tree_key) = splitter.tree_key((1, 2.0, "s"), {"d": 4.0})

    assert [2.0, 4.0] == list(given) == leaves
    assert hash(key) is not None
    assert hash(tree_key) is not None
    assert (0, 1) == splitter.donated_leaves(tree, 3)
    arguments = splitter.arguments((1, 2.0), {"c": "s", "d": 4.0})
    assert (1, 20.0, "s", 40.0) == arguments.fun(20.0, d=40.0)
    assert ("b",) == arguments.parameters


def test_names_of_variadic_arguments() -> None:
    """Arguments in ``*args`` and ``**kwargs`` are called by these parameters and their place."""

    def f(x: Any, *xs: Any, k: Any = 0, **options: Any) -> None:
        del x, xs, k, options

    names = parameter_names(f)
    assert ["x", "xs[0]", "xs[1]"] == [names.at(i) for i in range(3)]
    assert ["x", "k", "options['z']"] == [names.keyword(n) for n in ("x", "k", "z")]
    assert ("xs[0]", "xs[2]") == names.only((1, 3))
    assert "options['z']" == names.only(()).keyword("z")
    assert ["args[0]", "args[1]"] == [parameter_names(max).at(i) for i in range(2)]
    assert "k" == parameter_names(max).keyword("k")


def test_names_of_arguments_of_partials() -> None:
    """A partial application has the parameters that it leaves open."""

    def f(a: Any, b: Any, c: Any, *rest: Any) -> None:
        del a, b, c, rest

    assert ("b", "c") == parameter_names(functools.partial(f, 1))
    assert ("b",) == parameter_names(functools.partial(f, 1, c=2))
    assert "rest[0]" == parameter_names(functools.partial(f, 1)).at(2)
