"""The error functions at the ends of their ranges."""

from __future__ import annotations

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
