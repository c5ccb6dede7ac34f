"""Wrong arguments of transformations: the message says what, where, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors

lax = tb.lax


def v() -> Any:
    """A vector."""
    return tnp.arange(3.0)


def m() -> Any:
    """A matrix."""
    return tnp.ones((2, 3))


Case = tuple[Callable[[], Any], type[Exception], tuple[str, ...]]

CASES: dict[str, Case] = {
    # vmap
    "sizes differ": (
        lambda: tb.vmap(lambda a, b: a)(m(), v()),
        errors.AxisSizeError,
        ("vmap(<lambda>)", "argument a", "2", "argument b", "3", "in_axes=None"),
    ),
    "in_axes too short": (
        lambda: tb.vmap(lambda a, b: a, in_axes=(0,))(m(), m()),
        errors.AxisSpecError,
        ("in_axes has 1 entries", "2 positional arguments", "one entry per positional argument"),
    ),
    "in_axes out of range": (
        lambda: tb.vmap(lambda a: a, in_axes=2)(m()),
        errors.AxisSpecError,
        ("axis 2 of argument a", "f32[2,3]", "from -2 to 1"),
    ),
    "in_axes of a wrong type": (
        lambda: tb.vmap(lambda a: a, in_axes="a"),
        errors.AxisSpecError,
        ("vmap in_axes must be an int, None", "'a'", "str"),
    ),
    "in_axes all None": (
        lambda: tb.vmap(lambda a: a, in_axes=None)(m()),
        errors.AxisSizeError,
        ("no argument is mapped", "axis_size"),
    ),
    "scalar mapped": (
        lambda: tb.vmap(lambda a: a)(1.0),
        errors.AxisSpecError,
        ("argument a", "f32[]", "in_axes=None"),
    ),
    "in_axes of another tree": (
        lambda: tb.vmap(lambda a: a, in_axes=({"b": 0},))({"a": m()}),
        errors.TreeMismatchError,
        ("in_axes", "['b']", "['a']"),
    ),
    "out_axes out of range": (
        lambda: tb.vmap(lambda a: a, out_axes=3)(m()),
        errors.AxisSpecError,
        ("out_axes is 3", "from -2 to 1"),
    ),
    "out_axes None of a mapped result": (
        lambda: tb.vmap(lambda a: a, out_axes=None)(m()),
        errors.AxisSpecError,
        ("out_axes is None", "depends on mapped", "int"),
    ),
    "out_axes of another tree": (
        lambda: tb.vmap(lambda a: a, out_axes=(0, 0))(m()),
        errors.TreeMismatchError,
        ("out_axes", "tuple of 2", "the result"),
    ),
    "unbound axis name": (
        lambda: lax.psum(v(), "i"),
        errors.UnboundAxisNameError,
        ("psum", "unbound axis name: i", "axis_name"),
    ),
    # grad and friends
    "grad of an array": (
        lambda: tb.grad(lambda a: a)(v()),
        errors.GradientTypeError,
        ("grad(<lambda>)", "f32[3]", "scalar", "jacrev"),
    ),
    "grad of a tree": (
        lambda: tb.grad(lambda a: (a, a))(1.0),
        errors.GradientTypeError,
        ("tree", "scalar-output functions", "has_aux"),
    ),
    "grad of an int": (
        lambda: tb.grad(lambda a: a * 1.0)(3),
        errors.GradientTypeError,
        ("argument a", "i32[]", "allow_int"),
    ),
    "grad to an int": (
        lambda: tb.grad(lambda a: tnp.sum(a).astype("int32"))(v()),
        errors.GradientTypeError,
        ("the result is i32[]", "real floating", "vjp"),
    ),
    "grad to a complex number": (
        lambda: tb.grad(lambda a: a * 1j)(1.0),
        errors.GradientTypeError,
        ("c64[]", "holomorphic"),
    ),
    "argnums out of range": (
        lambda: tb.grad(lambda a: a, argnums=2)(1.0),
        errors.ArgumentSpecError,
        ("argnums=2", "got 1"),
    ),
    "argnums of a wrong type": (
        lambda: tb.grad(lambda a: a, argnums="a"),
        TypeError,
        ("argnums", "'a'", "int"),
    ),
    "has_aux without a pair": (
        lambda: tb.grad(lambda a: a, has_aux=True)(1.0),
        errors.GradientTypeError,
        ("has_aux=True", "pair"),
    ),
    "tangent of another shape": (
        lambda: tb.jvp(tnp.sin, (v(),), (m(),)),
        errors.ShapeMismatchError,
        ("jvp(sin)", "tangents[0]", "(2, 3)", "primals[0]", "(3,)"),
    ),
    "tangent of another dtype": (
        lambda: tb.jvp(tnp.sin, (v(),), (tnp.arange(3),)),
        errors.DtypeMismatchError,
        ("tangents[0]", "int32", "float32"),
    ),
    "tangents of another tree": (
        lambda: tb.jvp(tnp.sin, (v(),), ((v(),),)),
        errors.TreeMismatchError,
        ("tangents", "primals", "tuple of 1"),
    ),
    "jvp of a bare array": (
        lambda: tb.jvp(tnp.sin, v(), v()),
        errors.TreeMismatchError,
        ("primals", "tuple or list", "jvp(f, (x,), (t,))"),
    ),
    "cotangent of another shape": (
        lambda: tb.vjp(tnp.sin, v())[1](m()),
        errors.ShapeMismatchError,
        ("pullback of sin", "(2, 3)", "(3,)"),
    ),
    "cotangent of another tree": (
        lambda: tb.vjp(tnp.sin, v())[1]((v(), v())),
        errors.TreeMismatchError,
        ("pullback of sin", "cotangent", "tuple of 2"),
    ),
    "transpose of what is not linear": (
        lambda: tb.linear_transpose(tnp.sin, v())(v()),
        errors.LinearityError,
        ("sin", "not linear", "vjp"),
    ),
    "reverse through while_loop": (
        lambda: tb.grad(lambda a: lax.while_loop(lambda c: c < 3.0, lambda c: c * 2, a))(1.0),
        errors.GradientTypeError,
        ("while_loop", "scan", "forward mode"),
    ),
    "custom_vjp without rules": (
        lambda: tb.grad(tb.custom_vjp(lambda a: a))(1.0),
        errors.CustomRuleError,
        ("custom_vjp", "defvjp"),
    ),
    # jit
    "static list": (
        lambda: tb.jit(lambda a, b: a, static_argnums=1)(1.0, [1]),
        errors.NonHashableStaticArgumentError,
        ("argument 1", "'b'", "list", "hashable", "tuple"),
    ),
    "static dict by name": (
        lambda: tb.jit(lambda a, b: a, static_argnames="b")(1.0, b={}),
        errors.NonHashableStaticArgumentError,
        ("'b'", "dict", "hashable"),
    ),
    "static position that is none": (
        lambda: tb.jit(lambda a: a, static_argnums=3),
        errors.ArgumentSpecError,
        ("static_argnums", "3", "(a)", "from -1 to 0"),
    ),
    "static name that is none": (
        lambda: tb.jit(lambda a: a, static_argnames="zz"),
        errors.ArgumentSpecError,
        ("static_argnames", "'zz'", "'a'"),
    ),
    "static and donated": (
        lambda: tb.jit(lambda a: a, static_argnums=0, donate_argnums=0),
        errors.ArgumentSpecError,
        ("argument 0", "static", "donated"),
    ),
    "string argument": (
        lambda: tb.jit(lambda name: name)("abc"),
        errors.UnsupportedDtypeError,
        ("name", "'abc'", "str", "static_argnames"),
    ),
    "object in a tree": (
        lambda: tb.jit(lambda p: p)({"k": "abc"}),
        errors.UnsupportedDtypeError,
        ("p['k']", "str"),
    ),
    "string result": (
        lambda: tb.jit(lambda a: "abc")(1.0),
        errors.UnsupportedDtypeError,
        ("<lambda>: the result is", "'abc'", "str"),
    ),
    "jit of a number": (lambda: tb.jit(3), TypeError, ("jit", "3", "int", "function")),
    # control flow
    "carry of another tree": (
        lambda: lax.scan(lambda c, a: ((c, c), a), 0.0, v()),
        errors.TreeMismatchError,
        ("scan", "carry", "tuple of 2"),
    ),
    "carry of another dtype": (
        lambda: lax.scan(lambda c, a: (c.astype("int32"), a), 0.0, v()),
        errors.DtypeMismatchError,
        ("scan", "carry", "f32[]", "i32[]"),
    ),
    "carry of another shape": (
        lambda: lax.scan(lambda c, a: (c * v(), a), 0.0, v()),
        errors.ShapeMismatchError,
        ("scan", "carry", "f32[]", "f32[3]"),
    ),
    "lengths differ": (
        lambda: lax.scan(lambda c, a: (c, a), 0.0, (v(), m())),
        errors.AxisSizeError,
        ("scan", "xs[0] has 3", "xs[1] has 2"),
    ),
    "no length": (
        lambda: lax.scan(lambda c, a: (c, a), 0.0, None),
        errors.AxisSizeError,
        ("scan", "length"),
    ),
    "branches of different trees": (
        lambda: lax.cond(True, lambda a: (a, a), lambda a: a, 1.0),
        errors.TreeMismatchError,
        ("cond", "true_fun", "false_fun", "tuple of 2"),
    ),
    "branches of different dtypes": (
        lambda: lax.cond(True, lambda a: a, lambda a: a.astype("int32"), tnp.float32(1.0)),
        errors.DtypeMismatchError,
        ("cond", "i32[]", "f32[]"),
    ),
    "predicate is an array": (
        lambda: lax.cond(v(), lambda a: a, lambda a: a, 1.0),
        errors.ArgumentSpecError,
        ("cond", "pred", "f32[3]", "scalar"),
    ),
    "condition is an array": (
        lambda: lax.while_loop(lambda c: c, lambda c: c, v()),
        errors.ArgumentSpecError,
        ("while_loop", "cond_fun", "f32[3]", "scalar bool"),
    ),
    "no branches": (lambda: lax.switch(0, [], 1.0), errors.ArgumentSpecError, ("switch", "one")),
    # trees and options
    "trees of different lengths": (
        lambda: tb.tree.map(lambda a, b: a, (1, 2), (1, 2, 3)),
        errors.TreeMismatchError,
        ("tree.map", "tuple of 2", "tuple of 3"),
    ),
    "unknown option": (
        lambda: tb.config.update("nope", 1),
        errors.UnknownOptionError,
        ("'nope'", "one of", "enable_x64"),
    ),
    "unknown platform": (
        lambda: tb.devices("nope"),
        errors.BackendNotFoundError,
        ("'nope'", "cpu"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    """The class and every key word of the message; nothing is chained to it unasked."""
    run, cls, words = CASES[name]
    with pytest.raises(cls) as caught:
        run()
    message = str(caught.value)
    missing = [word for word in words if word not in message]
    assert [] == missing, message
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n][1] is not TypeError])
def test_class_is_ours_and_builtin(name: str) -> None:
    """Each class is a TracebridgeError and derives from the builtin that a reader would expect."""
    cls = CASES[name][1]
    assert issubclass(cls, errors.TracebridgeError)
    assert issubclass(cls, TypeError | ValueError | AttributeError | NameError | RuntimeError)


def test_missing_argument_is_pythons_own_error() -> None:
    """A call that does not fit the function fails as the function would."""
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        tb.jit(lambda a, b: a)(1.0)


def test_errors_of_user_functions_pass_unchanged() -> None:
    """What the traced function raises arrives as the same object, from every transformation."""
    mine = ZeroDivisionError("mine")

    def f(x: Any) -> Any:
        raise mine

    for transform in (tb.jit, tb.grad, tb.vmap, tb.linearize, tb.jacfwd, tb.make_jaxpr):
        with pytest.raises(ZeroDivisionError) as caught:
            transform(f)(v()) if transform is not tb.linearize else tb.linearize(f, v())
        assert mine is caught.value


def test_traceback_of_a_transformed_function_shows_user_frames() -> None:
    """Between the user's call and the user's function stands at most the public function."""

    def inner(x: Any) -> Any:
        return x @ x.reshape(3, 1, 1) @ tnp.ones((7, 7))

    with pytest.raises(errors.ShapeMismatchError) as caught:
        tb.jit(tb.grad(lambda x: tnp.sum(inner(x))))(v())
    files = [entry.path.name for entry in caught.traceback]
    assert "test_transformations.py" in files
    assert len(files) <= 6


# cotangents --------------------------------------------------------------------------------------


def pullback() -> Any:
    """The pullback of a function ``two`` with a tree as result."""

    def two(x: Any, y: Any) -> Any:
        return {"a": x * 2.0, "b": (y,)}

    return tb.vjp(two, tnp.arange(3.0), 1.0)[1]


COTANGENTS: dict[str, tuple[tuple[Any, ...], type[Exception], tuple[str, ...]]] = {
    "shape": (
        ({"a": np.ones(4, "f"), "b": (1.0,)},),
        errors.ShapeMismatchError,
        ("cotangent['a'] has shape (4,)", "result['a'] has shape (3,)"),
    ),
    "dtype": (
        ({"a": np.ones(3, "i"), "b": (1.0,)},),
        errors.DtypeMismatchError,
        ("cotangent['a'] has dtype int32", "cotangents have dtype float32"),
    ),
    "leaf": (
        ({"a": np.ones(3, "f"), "b": 1.0},),
        errors.TreeMismatchError,
        ("cotangent['b'] is a leaf", "result['b'] is a tuple of 1"),
    ),
    "keys": (
        ({"a": np.ones(3, "f"), "c": (1.0,)},),
        errors.TreeMismatchError,
        ("cotangent is a dict with keys ['a', 'c']",),
    ),
    "text": (
        ({"a": "text", "b": (1.0,)},),
        errors.UnsupportedDtypeError,
        ("cotangent['a'] is 'text' of type str",),
    ),
    "two": ((np.ones(3, "f"), 1.0), TypeError, ("got 2 arguments", "one cotangent", "tuple")),
    "none": ((), errors.ArgumentTypeError, ("got 0 arguments",)),
}


@pytest.mark.parametrize("name", COTANGENTS)
def test_wrong_cotangent(name: str) -> None:
    """The message names the leaf, what it is and what fits; it speaks of cotangents only."""
    given, cls, words = COTANGENTS[name]
    with pytest.raises(cls) as caught:
        pullback()(*given)

    text = str(caught.value)
    assert [] == [word for word in ("pullback of two", *words) if word not in text]
    assert " tangent" not in text
    assert "Pullback" not in text


# results -----------------------------------------------------------------------------------------

AUX: dict[str, Any] = {
    "grad": lambda f: tb.grad(f, has_aux=True)(1.0),
    "value_and_grad": lambda f: tb.value_and_grad(f, has_aux=True)(1.0),
    "vjp": lambda f: tb.vjp(f, 1.0, has_aux=True),
    "jvp": lambda f: tb.jvp(f, (1.0,), (1.0,), has_aux=True),
    "linearize": lambda f: tb.linearize(f, 1.0, has_aux=True),
    "jacfwd": lambda f: tb.jacfwd(f, has_aux=True)(1.0),
    "jacrev": lambda f: tb.jacrev(f, has_aux=True)(1.0),
    "hessian": lambda f: tb.hessian(f, has_aux=True)(1.0),
}
NO_PAIRS: dict[str, tuple[Any, str]] = {
    "array": (lambda x: x, "an array f32[]"),
    "three": (lambda x: (x, x, x), "a tuple of 3"),
    "dict": (lambda x: {"a": x}, "a dict of 1"),
    "none": (lambda x: None, "None"),
    "text": (lambda x: "ab", "a value of type str"),
}


@pytest.mark.parametrize("transformation", AUX)
@pytest.mark.parametrize("result", NO_PAIRS)
def test_auxiliary_data_need_a_pair(transformation: str, result: str) -> None:
    """The message says in the user's terms what was returned; no class of the engine."""
    function, words = NO_PAIRS[result]
    with pytest.raises(errors.GradientTypeError) as caught:
        AUX[transformation](function)

    for word in (words, "has_aux=True", "pair", "way out"):
        assert word in str(caught.value)
    assert "Tracer" not in str(caught.value)


def test_results_are_shown_as_trees_of_types() -> None:
    """What a function returned is written as the tree that it is."""
    with pytest.raises(errors.GradientTypeError, match=r"\{'a': f32\[\], 'b': \[f32\[3\]\]\}"):
        tb.grad(lambda x: {"a": x, "b": [x * np.ones(3, "f")]})(1.0)
    with pytest.raises(errors.UnsupportedDtypeError, match=r"the result\['b'\]\[1\] is 'text'"):
        tb.jit(lambda x: {"a": x, "b": [x, "text"]})(1.0)


def test_bodies_and_rules_that_return_no_pair() -> None:
    """Types of arrays, never the classes that stand for them while tracing."""
    with pytest.raises(
        errors.ArgumentSpecError, match=r"returned an array f32\[\], expected a pair"
    ):
        tb.lax.scan(lambda c, x: c, 0.0, tnp.arange(3.0))

    @tb.custom_jvp
    def f(x: Any) -> Any:
        return x

    f.defjvp(lambda primals, tangents: primals[0])
    with pytest.raises(errors.CustomRuleError, match=r"returned an array f32\[\], expected a pair"):
        tb.jit(tb.grad(f))(1.0)


def test_attributes_that_do_not_exist() -> None:
    """The message of an unknown attribute says whether the value is traced."""
    with pytest.raises(AttributeError, match="Tracer' object has no attribute 'shpae'"):
        tb.jit(lambda x: x.shpae)(1.0)
    with pytest.raises(AttributeError, match="'Array' object has no attribute 'shpae'"):
        tnp.ones(3).shpae  # noqa: B018 - the access is the test
