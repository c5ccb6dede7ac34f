"""closure_convert: closed-over values as arguments."""

from __future__ import annotations

from functools import partial

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import tree
from tracebridge.core.control.custom.closure_convert import closure_convert
from tracebridge.core.errors.transform_errors import ArgumentSpecError, TreeMismatchError


@partial(tb.custom_vjp, nondiff_argnums=(0,))
def apply(f, x, *values):
    """``f(x)`` with ten times its derivatives."""
    return f(x, *values)


def apply_fwd(f, x, *values):
    return tb.vjp(f, x, *values)


apply.defvjp(apply_fwd, lambda f, pullback, ct: tree.map(lambda g: 10.0 * g, pullback(ct)))


def scaled(y, x):
    f, values = closure_convert(lambda x: {"r": x["a"] * y * 2.0}, x)
    return apply(f, x, *values)["r"]


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["plain", "jit"])
def test_rules_for_closed_over_values(wrap):
    """A function with rules gets derivatives for what its argument closes over."""
    y_bar, x_bar = tb.grad(wrap(scaled), argnums=(0, 1))(3.0, {"a": 5.0})

    assert (100.0, 60.0) == (float(y_bar), float(x_bar["a"]))


def test_only_differentiated_values_move():
    """Arrays and integers stay inside; without a trace nothing moves."""
    k = tnp.asarray(2.0)
    f, values = closure_convert(lambda x: x * k, 1.0)
    assert values == []
    assert float(f(3.0)) == 6.0

    def g(n, y):
        f, values = closure_convert(lambda x: x * n * y * k, 1.0)
        return len(values), f(1.0, *values)

    n_values, result = tb.jit(g, static_argnums=())(3, 4.0)
    assert (int(n_values), float(result)) == (1, 24.0)


def test_errors():
    """The converted function takes what the examples were."""
    with pytest.raises(ArgumentSpecError, match="fun is 3 of type int"):
        closure_convert(3)
    f, _ = closure_convert(lambda x: x, 1.0)
    with pytest.raises(TreeMismatchError, match="the arguments differ from the examples"):
        f((1.0, 2.0))
    with pytest.raises(TreeMismatchError, match=r"1 values(.|\n)*and 0 values"):
        f(1.0, 2.0)
