"""composite: what compilers may know by a name, and what it computes when they do not."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.errors import ArgumentTypeError, ArgumentValueError

X = np.float32([0.1, 0.2, 0.3])


def tangent(x):
    return lax.sin(x) / lax.cos(x)


named_tangent = lax.composite(tangent, "my.tangent", version=2)


@pytest.mark.parametrize("transform", [lambda f: f, tb.jit, tb.vmap, lambda f: tb.jit(tb.vmap(f))])
def test_computes_its_decomposition(transform):
    """The result is that of the decomposition, under each transformation."""
    np.testing.assert_allclose(np.tan(X), transform(named_tangent)(X), rtol=1e-6)


def test_stands_in_the_program():
    """The name, the version and the attributes stand in the text, the decomposition beside it."""

    @functools.partial(lax.composite, name="my.scaled")
    def scaled(x, /, *, by, flag=None, table=None):
        assert flag is None
        return x * by + table.sum()

    f = tb.jit(lambda x: named_tangent(scaled(x, by=2.5, flag=None, table=np.arange(2.0))))
    text = f.lower(X).as_text()
    assert 'stablehlo.composite "my.tangent"' in text
    assert "version = 2" in text
    assert "by = 2.500000e+00 : f64" in text
    assert "table = dense<[0.000000e+00, 1.000000e+00]>" in text
    assert "flag" not in text
    np.testing.assert_allclose(np.tan(X * 2.5 + 1), f(X), rtol=1e-5)


def test_attributes_are_arrays_of_the_library_as_well():
    """They stand in the program as those of NumPy do; traced values are no attributes."""
    scaled = lax.composite(lambda x, *, by: x * by, "my.scaled")
    texts = {
        tb.jit(lambda x, by=by: scaled(x, by=by)).lower(X).as_text()
        for by in (np.float32([1, 2, 3]), lax.iota("float32", 3) + 1)
    }
    assert len(texts) == 1
    np.testing.assert_allclose(X * [1, 2, 3], scaled(X, by=lax.iota("float32", 3) + 1))
    with pytest.raises(ArgumentTypeError, match="attribute"):
        tb.jit(lambda by: scaled(X, by=by))(X)


def test_attributes_tell_programs_apart():
    """1, 1.0 and True are different attributes."""
    typed = lax.composite(lambda x, *, k: x + len(type(k).__name__), "my.typed")
    assert [3.0, 5.0, 4.0] == [
        float(tb.jit(lambda x, k=k: typed(x, k=k))(0.0)) for k in (1, 1.0, True)
    ]


def test_derivatives_are_those_of_the_decomposition():
    """grad, jvp and both together agree with the function itself."""
    assert tb.grad(tangent)(0.3) == tb.grad(named_tangent)(0.3)
    assert tb.jvp(tangent, (0.3,), (2.0,)) == tb.jvp(named_tangent, (0.3,), (2.0,))
    np.testing.assert_allclose(tb.hessian(tangent)(0.3), tb.hessian(named_tangent)(0.3), rtol=1e-6)
    gradient = tb.jit(tb.vmap(tb.grad(named_tangent)))
    np.testing.assert_allclose(1 / np.cos(X) ** 2, gradient(X), rtol=1e-5)


def test_in_loops_with_trees_and_closures():
    """Trees go in and out, and values of the outside may be used."""

    def f(c):
        pair = lax.composite(lambda d: {"sum": d["a"] + d["b"], "scaled": d["a"] * c}, "my.pair")
        return lax.scan(lambda s, x: (pair({"a": s, "b": x})["sum"], s), c, X)[0]

    np.testing.assert_allclose(1.6, f(np.float32(1.0)), rtol=1e-6)
    np.testing.assert_allclose(1.0, tb.grad(f)(np.float32(1.0)), rtol=1e-6)


def test_unused_results_stay():
    """A composite keeps the results that its name promises."""
    pair = lax.composite(lambda x: (lax.sin(x), lax.cos(x)), "my.pair")
    (eqn,) = tb.make_jaxpr(lambda x: pair(x)[1])(1.0).eqns
    assert 2 == len(eqn.outvars)


def test_symbolic_sizes():
    """With symbolic sizes the decomposition is called."""
    text = tb.jit(named_tangent).lower(
        tb.ShapeDtypeStruct(tb.export.symbolic_shape("b"), "float32")
    )
    assert "call @my.tangent" in text.as_text()


def test_wrong_arguments():
    """Names without a dot, what is no function and what is no attribute are refused."""
    for name in ("tangent", "my.", "1.a", 3):
        with pytest.raises(ArgumentValueError, match="with a dot"):
            lax.composite(tangent, name)
    with pytest.raises(ArgumentTypeError, match="expected a function"):
        lax.composite(3, "my.three")
    with pytest.raises(ArgumentTypeError, match="got the attribute"):
        lax.composite(lambda x, *, k: x, "my.x")(1.0, k=object())


def test_tokens():
    """Tokens have no elements, and after_all takes tokens only."""
    token = lax.create_token()
    assert 0 == token.size == lax.after_all().size
    assert 0 == tb.jit(lambda t: lax.after_all(t, lax.create_token()))(token).size
    with pytest.raises(ArgumentTypeError, match=r"operand 1 is f32\[3\]"):
        lax.after_all(token, X)
