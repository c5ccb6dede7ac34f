"""The gamma functions at poles and zeros, and their derivatives of all orders."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp
from scipy import special

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge.core import lax
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.testing import check_rules


def test_lgamma_is_infinite_at_its_poles_and_ends() -> None:
    """0 and negative integers are poles; both infinities give infinity."""
    x = put_numpy(np.array([0.0, -0.0, -1.0, -2.0, np.inf, -np.inf, np.nan]))

    actual = np.asarray(lax.lgamma(x))

    np.testing.assert_array_equal([np.inf] * 6 + [np.nan], actual)


def test_lgamma_is_accurate_on_both_sides_of_zero() -> None:
    """Reflection serves negative arguments."""
    x = np.linspace(-3.9, 6.1, 101)

    actual = np.asarray(lax.lgamma(put_numpy(x)))

    np.testing.assert_allclose(actual, special.gammaln(x), rtol=1e-12, atol=1e-13)


def test_digamma_has_no_value_at_its_poles() -> None:
    """The two-sided limits do not exist at 0, -1, -2, ... (XLA gives NaN or, newer, -inf at 0)."""
    x = put_numpy(np.array([0.0, -1.0, -2.0, -np.inf, np.inf]))

    actual = np.asarray(lax.digamma(x))

    np.testing.assert_array_equal([np.nan] * 3 + [np.inf], actual[1:])
    assert np.isnan(actual[0]) or actual[0] == -np.inf


def test_lgamma_can_be_differentiated_again_and_again() -> None:
    """The derivatives are digamma and the polygamma functions."""
    check_grads(lax.lgamma, (np.array([0.7, 2.5, -1.3]),), order=3)


def test_polygamma_and_zeta_follow_scipy() -> None:
    """Orders and exponents beyond the first; derivatives in the second argument."""
    x = np.array([0.6, 1.5, 4.0])
    for m in (0.0, 1.0, 2.0, 5.0):
        check_rules(
            lambda x, m=m: lax.polygamma(m, x),
            x,
            reference=lambda x, m=m: special.polygamma(int(m), x),
            rtol=1e-10,
        )
    check_rules(
        lambda q: lax.zeta(3.0, q),
        x,
        reference=lambda q: special.zeta(3.0, q),
        rtol=1e-10,
    )


def test_orders_are_not_differentiable() -> None:
    """polygamma and zeta say that they lack a derivative in the first argument."""
    with pytest.raises(MissingRuleError, match="first argument"):
        check_grads(lambda m: lax.polygamma(m, 1.5), (np.float64(1.0),), order=1)


@pytest.mark.parametrize("x", [-0.3, -2.5, -8.9145, -20.75, -100.25, 0.4, 3.0, 1e4])
def test_second_derivatives_of_lgamma(x: float) -> None:
    """At negative numbers too, however far from 0."""
    for wide, bound in ((False, 5e-5), (True, 1e-9)):
        with tb.enable_x64(wide):
            x_ = np.float64(x) if wide else np.float32(x)
            for order, fun in ((1, tb.grad(lax.digamma)), (2, tb.grad(tb.grad(lax.digamma)))):
                expected = float(mp.psi(order, float(x_)))
                assert abs(float(fun(x_)) - expected) <= bound * max(abs(expected), 1e-9)
            of_lgamma = float(tb.grad(tb.grad(lax.lgamma))(x_))
            assert np.isclose(of_lgamma, float(mp.psi(1, float(x_))), bound)
