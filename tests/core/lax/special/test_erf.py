"""The error functions at the ends of their ranges."""

from __future__ import annotations

import mpmath
import numpy as np
from scipy import special

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge.core import lax
from tracebridge.core.runtime.arrays.transfer import put_numpy


def test_erfc_keeps_its_digits_far_out() -> None:
    """1 - erf would be 0 beyond 6; erfc is accurate until it underflows."""
    x = np.linspace(0.0, 25.0, 51)

    actual = np.asarray(lax.erfc(put_numpy(x)))

    np.testing.assert_allclose(actual, special.erfc(x), rtol=1e-13)


def test_erf_inv_is_infinite_at_the_ends() -> None:
    """erf reaches -1 and 1 only at infinity, and nothing beyond."""
    actual = np.asarray(lax.erf_inv(put_numpy(np.array([-1.0, 1.0, 1.5]))))

    np.testing.assert_array_equal([-np.inf, np.inf, np.nan], actual)


def test_derivatives_of_third_order() -> None:
    """The derivatives of derivatives are right."""
    x = np.array([-0.8, 0.1, 0.6])
    for f in (lax.erf, lax.erfc, lax.erf_inv):
        check_grads(f, (x,), order=3, rtol=1e-4, atol=1e-4)


def test_second_derivatives_at_infinity() -> None:
    """They are 0, and NaN of NaN."""
    for fun in (lax.erf, lax.erfc):
        curve = tb.vmap(tb.grad(tb.grad(fun)))(np.array([-np.inf, np.inf, 40, np.nan], np.float32))

        np.testing.assert_array_equal(np.abs(curve), [0.0, 0.0, 0.0, np.nan])


def test_slopes_keep_their_digits_far_out() -> None:
    """The square in their exponential is not rounded: 2.5 units in the last place, of any order."""
    x = np.linspace(-26, 26, 131)
    with tb.enable_x64():
        for fun, sign in ((lax.erf, 1), (lax.erfc, -1)):
            first = np.asarray(tb.jit(tb.vmap(tb.grad(fun)))(x))
            second = np.asarray(tb.jit(tb.vmap(tb.grad(tb.grad(fun))))(x))
            with mpmath.workdps(50):
                bells = [
                    sign * 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-(mpmath.mpf(v) ** 2)) for v in x
                ]
                slopes = [-2 * v * b for v, b in zip(x, bells, strict=True)]
                for found, exact, bound in ((first, bells, 2.5), (second, slopes, 4)):
                    for value, e in zip(found, exact, strict=True):
                        assert abs(value - e) <= bound * np.spacing(abs(float(e)))


def test_slopes_at_infinity_vanish() -> None:
    """And those of NaN are NaN."""
    with tb.enable_x64():
        slopes = tb.vmap(tb.grad(lax.erf))(np.array([-np.inf, np.inf, 1e300, np.nan]))

    np.testing.assert_array_equal(slopes, [0, 0, 0, np.nan])
