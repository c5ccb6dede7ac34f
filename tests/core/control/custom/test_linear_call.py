"""linear_call: linear functions with transposes of the user's."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.transform_errors import ArgumentSpecError, CustomRuleError
from tracebridge.custom_derivatives import linear_call


def scale(k, x):
    """``x * k``, with ten times its transpose."""
    return linear_call(lambda k, x: x * k, lambda k, ct: ct * k * 10.0, k, x)


@pytest.mark.parametrize("f", [scale, tb.jit(scale)], ids=["plain", "jit"])
def test_modes(f):
    """Forward mode is the function, reverse mode the given transpose, twice transposed the
    function again."""
    by_x = lambda x: f(3.0, x)

    assert float(f(3.0, 2.0)) == 6.0
    assert [float(v) for v in tb.jvp(by_x, (2.0,), (1.0,))] == [6.0, 3.0]
    assert float(tb.grad(by_x)(2.0)) == 30.0
    pullback = lambda ct: tb.vjp(by_x, 2.0)[1](ct)[0]
    assert float(tb.grad(pullback)(1.0)) == 3.0


def test_batched():
    """Residuals, linear arguments, or both may be batched."""
    k, x = tnp.asarray([3.0, 4.0]), tnp.asarray([1.0, 2.0])
    slope = lambda k, x: tb.grad(lambda x: scale(k, x))(x)

    assert tb.vmap(scale)(k, x).tolist() == [3.0, 8.0]
    assert tb.vmap(scale, (0, None))(k, 2.0).tolist() == [6.0, 8.0]
    assert tb.vmap(slope)(k, x).tolist() == [30.0, 40.0]
    assert tb.vmap(slope, (None, 0))(3.0, x).tolist() == [30.0, 30.0]
    summed = tb.grad(lambda x: tb.vmap(scale, (0, None))(k, x).sum())(2.0)
    assert float(summed) == 70.0


def test_trees_and_closures():
    """Both functions may close over traced values; arguments are trees."""

    def f(a, x):
        return linear_call(
            lambda r, x: {"y": x["u"] * r * a}, lambda r, ct: {"u": ct["y"] * r * a}, 2.0, x
        )["y"]

    slope = tb.jit(lambda a, x: tb.grad(lambda x: f(a, x))(x))(3.0, {"u": 1.0})
    assert float(slope["u"]) == 6.0


def test_errors():
    """Residuals have no derivative; the transpose must give the type of the linear arguments."""
    with pytest.raises(CustomRuleError, match="a residual is differentiated"):
        tb.grad(lambda k: scale(k, 2.0))(3.0)
    with pytest.raises(
        CustomRuleError, match=r"another type(.|\n)*got: f32\[1\]\n *expected: f32\[\]"
    ):
        linear_call(lambda k, x: x, lambda k, ct: ct[None], 1.0, np.float32(2.0))
    with pytest.raises(ArgumentSpecError, match="fun is 3 of type int"):
        linear_call(3, lambda k, ct: ct, 1.0, 2.0)
