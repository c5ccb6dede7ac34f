"""convolve, correlate, polymul, i0 and kaiser against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import tracebridge as tb
import tracebridge.numpy as tnp


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
@pytest.mark.parametrize(
    ("n", "m"), [(5, 3), (3, 5), (100, 60), (7, 1), (60, 100), (4, 6), (60, 57)]
)
def test_sums_are_those_of_numpy(name, mode, n, m):
    """Few taps are written out, many are a loop; lengths and values are NumPy's."""
    a, v = (np.random.standard_normal(k).astype(np.float32) for k in (n, m))

    expected = getattr(np, name)(a, v, mode)
    actual = np.asarray(getattr(tnp, name)(a, v, mode))

    assert expected.shape == actual.shape
    np.testing.assert_allclose(expected, actual, atol=1e-4)


def test_convolution_has_gradients():
    """The gradient of a sum of outputs is the sum of the other operand."""
    a, v = np.ones(50, np.float32), np.arange(40, dtype=np.float32)

    np.testing.assert_allclose(
        np.full(50, v.sum()), tb.grad(lambda a: tnp.convolve(a, v).sum())(a), rtol=1e-5
    )


def test_unknown_mode_is_refused():
    """The message names the modes that exist."""
    with pytest.raises(ValueError, match="'full', 'same' or 'valid'"):
        tnp.convolve(tnp.ones(3), tnp.ones(2), mode="half")


def test_polymul_multiplies_polynomials():
    """(x + 2) (x + 3) = x^2 + 5 x + 6."""
    assert [1.0, 5.0, 6.0] == tnp.polymul(tnp.array([1.0, 2.0]), tnp.array([1.0, 3.0])).tolist()


def test_derivatives_of_i0_at_zero():
    """Odd ones vanish; the others are binomial coefficients over powers of two."""
    f = tnp.i0
    for expected in (1.0, 0.0, 0.5, 0.0, 0.375):
        assert expected == float(f(0.0))
        f = tb.grad(f)
    x = np.float32([-0.5, -0.1, -0.0, 0.0, 0.1, 0.5, 0.49999997])
    np.testing.assert_allclose(special.i1(x), tb.vmap(tb.grad(tnp.i0))(x), rtol=1e-6)


def test_i0_is_accurate_and_differentiable():
    """Both formulas agree with NumPy; the derivative is I1."""
    x = np.linspace(-80, 80, 501)
    with tb.enable_x64(True):
        np.testing.assert_allclose(np.i0(x), tnp.i0(x), rtol=1e-14)
        np.testing.assert_allclose(
            special.i1(x[:200]), tb.vmap(tb.grad(tnp.i0))(x[:200]), rtol=1e-13
        )
        np.testing.assert_allclose(np.kaiser(31, 8.6), tnp.kaiser(31, 8.6), atol=1e-14)
