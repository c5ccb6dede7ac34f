"""custom_gradient: the rule comes with the result."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_gradient import custom_gradient
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.transform_errors import CustomRuleError


@custom_gradient
def square(x):
    """A square with a hundred times its argument as slope."""
    return x**2, lambda ct: ct * 100.0 * x


@custom_gradient
def product(x, y):
    s = tnp.sin(y["a"])
    return {"r": x * s}, lambda ct: (ct["r"] * s, {"a": ct["r"] * 7.0})


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["plain", "jit"])
def test_gradients(wrap):
    """The rule closes over values of the call, in every composition."""
    f = wrap(square)

    assert float(f(3.0)) == 9.0
    assert float(tb.grad(f)(3.0)) == 300.0
    assert float(tb.jit(tb.grad(f))(3.0)) == 300.0
    assert float(tb.grad(tb.grad(f))(3.0)) == 100.0
    assert tb.vmap(tb.grad(f))(tnp.asarray([1.0, 2.0])).tolist() == [100.0, 200.0]
    assert tb.grad(lambda x: tb.vmap(f)(x).sum())(tnp.asarray([1.0, 2.0])).tolist() == [
        100.0,
        200.0,
    ]


def test_trees():
    """Arguments, results and cotangents are trees."""
    x_bar, y_bar = tb.grad(lambda x, y: product(x, y)["r"], argnums=(0, 1))(2.0, {"a": 1.0})

    assert float(x_bar) == pytest.approx(0.84147, rel=1e-4)
    assert float(y_bar["a"]) == 7.0
    assert square.__name__ == "square"
    assert square.__doc__.startswith("A square")


def test_results_that_are_integers():
    """The rule gets zeros of float0 for them, under jit and twice differentiated as well."""
    seen = []

    @custom_gradient
    def rounded(x):
        def rule(ct):
            seen.append(ct[1].dtype)
            return ct[0] * x

        return (x, tnp.round(x).astype(int)), rule

    def loss(x):
        y, i = tb.lax.stop_gradient(rounded(x))
        assert i.dtype == np.int32
        return tnp.sum(rounded(y * 0 + x)[0])

    x = tnp.asarray([1.0, 2.5])

    assert tb.grad(loss)(x).tolist() == tb.jit(tb.grad(loss))(x).tolist() == [1.0, 2.5]
    assert tb.grad(lambda v: tb.grad(loss)(v).sum())(x).tolist() == [1.0, 1.0]
    assert set(seen) == {float0}


def test_wrong_result():
    """The function returns a pair of a result and a function."""
    with pytest.raises(CustomRuleError, match=r"returned a tuple of 2(.|\n)*rule is a function"):
        custom_gradient(lambda x: (x, x))(1.0)
