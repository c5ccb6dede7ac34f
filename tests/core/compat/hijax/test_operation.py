"""Operations that are objects: each rule is used where it is due."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.experimental.hijax import VJPHiPrimitive

sys.path.insert(0, str(Path(__file__).parent))

from high_types import Product, product

X = np.arange(3.0, dtype=np.float32)
Y = X + 1


class Power(VJPHiPrimitive):
    """By ``lin`` and ``linearized``, with numbers looked at."""

    def __init__(self, aval, exponent):
        self.in_avals, self.out_aval = (aval,), aval
        self.params = {"exponent": exponent}
        super().__init__()

    def expand(self, x):
        return x**self.exponent

    def lin(self, nonzero, x):
        return self(x), x

    def linearized(self, x, t):
        return t * self.exponent * x ** (self.exponent - 1)

    def batch(self, axis, args, dims):
        return type(self)(tb.typeof(args[0]), self.exponent)(*args), dims[0]


class Accumulated(Power):
    """By ``vjp_fwd`` and accumulators."""

    def vjp_fwd(self, nonzero, x):
        return self(x), x

    def vjp_bwd(self, x, ct, accum):
        accum.accum(ct * self.exponent * x ** (self.exponent - 1))


def power(kind, x):
    return kind(tb.typeof(x), 3)(x)


@pytest.mark.parametrize("kind", [Power, Accumulated])
@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit])
def test_rules_of_one_argument(kind, wrap):
    """Value, forward and reverse mode, batches and their compositions."""
    f = wrap(lambda x: power(kind, x))

    assert 8.0 == f(2.0)
    assert 12.0 == tb.grad(f)(2.0)
    assert 12.0 == tb.linearize(f, 2.0)[1](1.0)
    np.testing.assert_allclose(tb.vmap(f)(X), X**3)
    np.testing.assert_allclose(tb.vmap(tb.grad(f))(X), 3 * X**2)
    np.testing.assert_allclose(tb.jit(tb.grad(lambda x: tb.vmap(f)(x).sum()))(X), 3 * X**2)


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit, tb.checkpoint])
def test_rules_of_two_arguments(wrap):
    """The product, alone, mapped and differentiated twice."""
    f = wrap(product)

    dx, dy = tb.grad(lambda x, y: f(x, y).sum(), (0, 1))(X, Y)
    np.testing.assert_allclose(dx, Y)
    np.testing.assert_allclose(dy, X)
    rows = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(tb.vmap(f, (0, None))(rows, Y), rows * Y)
    np.testing.assert_allclose(tb.grad(lambda y: tb.vmap(f, (0, None))(rows, y).sum())(Y), [2] * 3)
    assert 12.0 == tb.hessian(lambda a: f(a, a * a))(2.0)
    np.testing.assert_allclose(tb.jacfwd(lambda a: f(a, a))(X), np.diag(2 * X))


def test_which_arguments_are_differentiated():
    """``vjp_fwd`` is told; ``jvp`` sees symbolic zeros."""
    Product.log.clear()
    tb.grad(product)(2.0, 3.0)
    tb.grad(product, 1)(2.0, 3.0)
    tb.jvp(lambda x: product(x, tnp.float32(3.0)), (tnp.float32(2.0),), (tnp.float32(1.0),))

    assert [(True, False), (False, True), (False, True)] == Product.log


def test_rules_see_numbers():
    """Outside of compiled functions a rule may branch on its arguments."""

    class Branching(Power):
        def vjp_fwd(self, nonzero, x):
            return self(x), 2.0 if x > 1 else 0.0

        def vjp_bwd_retval(self, slope, ct):
            return (ct * slope,)

    f = lambda x: power(Branching, x)

    assert (2.0, 0.0) == (float(tb.grad(f)(2.0)), float(tb.grad(f)(0.5)))


def test_errors():
    """What a class lacks is named; arguments of other types are refused."""

    class Both(Power):
        def vjp_bwd(self, *args):
            """One."""

        def vjp_bwd_retval(self, *args):
            """And the other."""

    class Nothing(VJPHiPrimitive):
        def __init__(self):
            self.in_avals, self.out_aval, self.params = (tb.typeof(1.0),), tb.typeof(1.0), {}
            super().__init__()

        def expand(self, x):
            return x

    with pytest.raises(AttributeError, match="both"):
        power(Both, 2.0)
    with pytest.raises(NotImplementedError, match="jvp"):
        tb.grad(Nothing())(1.0)
    with pytest.raises(NotImplementedError, match="batch_dim_rule"):
        tb.vmap(Nothing())(X)
    with pytest.raises(Exception, match="made for"):
        Nothing()(X)
