"""The gamma functions at poles and zeros, and their derivatives of all orders."""

from __future__ import annotations

import math

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
    for m in (0.0, 2.0):
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
    """polygamma says that it lacks a derivative in the first argument."""
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


def _exact_zeta(s: int, q: float) -> mp.mpf:
    """Hurwitz' sum; mpmath's own digits are absolute ones, and it has none for negative ``q``."""
    below = [mp.mpf(q) + k for k in range(max(0, math.ceil(-q)))]
    with mp.workprec(400):
        return mp.zeta(s, mp.mpf(q) + len(below)) + mp.fsum(v**-s for v in below)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_zeta_and_polygamma_of_all_numbers(dtype: type) -> None:
    """Far below 0, of orders whose factorials overflow, and where the first term vanishes."""
    points = [
        (2, -9.9), (3, -10.49), (8, -25.3), (19, -9.43), (4, 1e5), (17, 1238.07), (7, 469402.9),
        (31, 22.0), (2, 1e30), (37, 17.3), (2, 1e-3), (26, 29.15), (60, 20.0), (12, 3.25),
    ]  # fmt: skip
    s, q = (np.array(v, dtype) for v in zip(*points, strict=True))
    sums = [_exact_zeta(int(a), float(b)) for a, b in zip(s, q, strict=True)]
    derivatives = [(-1) ** a * mp.gamma(a) * v for (a, _), v in zip(points, sums, strict=True)]
    with tb.enable_x64(True):
        actual = np.asarray(lax.zeta(put_numpy(s), put_numpy(q)))
        orders = np.asarray(lax.polygamma(put_numpy(s - 1), put_numpy(q)))

    tiny, eps = np.finfo(dtype).tiny, np.finfo(dtype).eps
    for a, got, order, one, other in zip(s, actual, orders, sums, derivatives, strict=True):
        assert abs(got - one) <= max(30 * eps * abs(one), tiny)
        assert abs(order - other) <= max((30 + float(a)) * eps * abs(other), tiny)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_gamma_functions_below_zero_keep_their_digits(dtype: type) -> None:
    """To a few units in the last place, or those of 1 beside the zeros."""
    points = [-1e-20, -0.1, -0.126, -0.2, -0.249, -0.26, -0.75, -1.3, -2.4, -3.6, -9.55, -700.3]
    x = np.array(points, dtype)
    with tb.enable_x64(True):
        logs, slopes = (np.asarray(f(put_numpy(x))) for f in (lax.lgamma, lax.digamma))

    eps = float(np.finfo(dtype).eps)
    for v, log, slope in zip(x, logs, slopes, strict=True):
        with mp.workprec(200):
            expected, rate = mp.log(abs(mp.gamma(float(v)))), mp.digamma(float(v))
        assert abs(log - expected) <= 3 * eps * max(abs(expected), 1)
        assert abs(slope - rate) <= 3 * eps * max(abs(rate), 1)
