"""custom_vjp: rules before one that returns None are called with zeros."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tracebridge import custom_derivatives as cd


@tb.custom_vjp
def _counted(x, state):
    """A rule whose cotangent of ``state`` is the next state, whatever the cotangents are."""
    del state
    return x * 2


_counted.defvjp(lambda x, state: (x * 2, state), lambda state, ct: (ct * 2, state + 7))


@tb.custom_vjp
def _cut(y):
    return y * 3


_cut.defvjp(lambda y: (y * 3, None), lambda _, ct: (None,))


def _scanned(x, state):
    return tb.lax.scan(lambda c, _: (_cut(_counted(c, state)), None), x, None, length=3)[0]


BEHIND_NONE = {
    "alone": (lambda x, s: _cut(_counted(x, s)), [0.0, 9.0]),
    "beside another": (lambda x, s: _cut(_counted(x, s)) + x, [1.0, 9.0]),
    "with operations between": (lambda x, s: _cut(tnp.sin(_counted(x, s)) * x), [0.0, 9.0]),
    "two of them": (lambda x, s: _cut(_counted(_counted(x, s), s)), [0.0, 18.0]),
    "scan": (_scanned, [0.0, 27.0]),
    "jit": (lambda x, s: tb.jit(lambda x, s: _cut(_counted(x, s)))(x, s), [0.0, 9.0]),
    "checkpoint": (lambda x, s: tb.checkpoint(lambda x, s: _cut(_counted(x, s)))(x, s), [0.0, 9.0]),
    "not used": (lambda x, s: (_cut(_counted(x, s)), x)[1], [1.0, 0.0]),
    "stopped": (lambda x, s: tb.lax.stop_gradient(_cut(_counted(x, s))) + x, [1.0, 0.0]),
}


@pytest.mark.parametrize("how", ["plain", "jit", "vmap"])
@pytest.mark.parametrize("name", BEHIND_NONE)
def test_rules_behind_a_rule_that_returns_none(name, how):
    """None is a zero: the rule before it is called with zeros, and may give what it likes."""
    fun, expected = BEHIND_NONE[name]
    slopes = tb.grad(fun, (0, 1))

    if how == "vmap":
        found = tb.vmap(slopes)(tnp.ones(2), tnp.full(2, 2.0))
        expected = [[e, e] for e in expected]
    else:
        found = (tb.jit(slopes) if how == "jit" else slopes)(1.0, 2.0)

    np.testing.assert_array_equal(expected, np.array(found))


def test_symbolic_zeros_behind_a_rule_that_returns_none():
    """A rule that asks for them is told that its cotangents are zeros."""
    seen = []

    @tb.custom_vjp
    def f(x):
        return x

    def bwd(_, ct):
        seen.append(type(ct) is cd.SymbolicZero)
        return (ct,)

    f.defvjp(lambda x: (x.value, None), bwd, symbolic_zeros=True)

    assert (0.0, [True]) == (float(tb.grad(lambda x: _cut(f(x)))(1.0)), seen)
