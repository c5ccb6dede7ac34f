"""Running reductions agree with NumPy, on every path of the lowering, and all rules agree."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import AxisError
from tracebridge.testing import assert_allclose, check_rules

Host = np.ndarray[Any, Any]
SCANS = {
    "cumsum": (lax.cumsum, np.add),
    "cumprod": (lax.cumprod, np.multiply),
    "cummax": (lax.cummax, np.maximum),
    "cummin": (lax.cummin, np.minimum),
    "cumlogsumexp": (lax.cumlogsumexp, np.logaddexp),
}
# One shape for each way to lower: a loop over rows, over rows of a moved axis, over blocks.
SHAPES = [
    ((7,), 0),
    ((3, 5, 4), 1),
    ((300, 120), 1),
    ((5000,), 0),
    ((2, 4099, 3), 1),
    ((4096, 2), 0),
]


def expected(name: str, x: Host, axis: int, *, reverse: bool) -> Host:
    """The running reduction by NumPy."""
    ufunc = SCANS[name][1]
    x = np.flip(x, axis) if reverse else x
    out = ufunc.accumulate(x, axis=axis, dtype=x.dtype)
    return np.flip(out, axis) if reverse else out


def sample(*shape: int, seed: int = 0) -> Host:
    """Numbers whose running products stay near one."""
    random = np.random.default_rng(seed)
    return np.exp(random.normal(size=shape) * 0.1) * random.choice([-1.0, 1.0], shape)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("name", SCANS)
def test_values(name: str, shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    """Every way of lowering gives NumPy's result."""
    x = sample(*shape)

    with enable_x64():
        result = SCANS[name][0](x, axis, reverse)

    assert_allclose(result, expected(name, x, axis, reverse=reverse), rtol=1e-9, check_dtype=True)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", SCANS)
def test_all_rules_agree(name: str, axis: int, reverse: bool) -> None:
    """Value, staging, jit, first and second derivatives, and batching."""
    check_rules(
        lambda x: SCANS[name][0](x, axis, reverse),
        sample(3, 5),
        reference=lambda x: expected(name, x, axis, reverse=reverse),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("name", SCANS)
def test_lengths(name: str, n: int) -> None:
    """The recursion on pairs that derivatives use has a remainder at odd lengths."""
    check_rules(
        lambda x: SCANS[name][0](x, 1),
        sample(2, n, seed=n),
        reference=lambda x: expected(name, x, 1, reverse=False),
        order=1,
        vmap=False,
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
def test_integers(name: str, dtype: str) -> None:
    """Integers keep their dtype and wrap around."""
    x = np.random.default_rng(0).integers(0, 9, (2, 30)).astype(dtype)

    check_rules(
        lambda x: SCANS[name][0](x, 1),
        x,
        reference=lambda x: expected(name, x, 1, reverse=False),
        order=0,
    )


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
def test_complex(name: str) -> None:
    """Complex numbers are ordered by their real part, then by the imaginary part."""
    x = sample(3, 4) + 1j * sample(3, 4, seed=1)
    x[0, 1] = complex(x[0, 0].real, 9)
    x[1, 1] = complex(x[1, 0].real, -9)

    check_rules(
        lambda x: SCANS[name][0](x, 1),
        x,
        reference=lambda x: expected(name, x, 1, reverse=False),
        order=1 if name in ("cumsum", "cumprod") else 0,
    )


def test_complex_log_of_sums() -> None:
    """cumlogsumexp of complex numbers is the logarithm of the running sum."""
    x = sample(6) + 1j * sample(6, seed=1)

    check_rules(
        lambda x: lax.cumlogsumexp(x), x, reference=lambda x: np.log(np.cumsum(np.exp(x))), order=1
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=str)
def test_narrow_floats(dtype: Any) -> None:
    """The dtype stays; small integers are exact."""
    x = np.arange(8).astype(dtype)

    result = np.asarray(lax.cumsum(x))

    assert np.dtype(dtype) == result.dtype
    assert [0, 1, 3, 6, 10, 15, 21, 28] == result.astype(np.float32).tolist()


@pytest.mark.parametrize("name", ["cumsum", "cummax", "cummin"])
def test_nan_persists(name: str) -> None:
    """Everything after a NaN is NaN, and nothing before."""
    x = np.array([1.0, 2.0, np.nan, 3.0], np.float32)

    assert [False, False, True, True] == np.isnan(np.asarray(SCANS[name][0](x))).tolist()
    assert [True, True, True, False] == np.isnan(np.asarray(SCANS[name][0](x, 0, True))).tolist()


def test_log_of_sums_with_infinities() -> None:
    """Log of zero contributes nothing, infinity wins, large numbers do not overflow."""
    inf = np.inf
    x = np.array([-inf, -inf, 0.0, -inf, 1000.0, 1000.0, inf, 1.0, inf], np.float32)

    result = np.asarray(lax.cumlogsumexp(x))

    expected = [-inf, -inf, 0.0, 0.0, 1000.0, 1000.0 + np.log(2), inf, inf, inf]
    assert_allclose(result, np.array(expected, np.float32))


def test_log_of_sums_has_finite_derivatives_at_log_of_zero() -> None:
    """Elements that contribute nothing get no derivative, and spoil that of no other."""
    x = np.array([-np.inf, -np.inf, 0.0, 0.0], np.float32)

    gradient = tb.grad(lambda x: lax.cumlogsumexp(x)[-1])(x)

    assert_allclose(gradient, np.array([0.0, 0.0, 0.5, 0.5]))


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_ties_share_the_derivative(name: str) -> None:
    """Each of k equal extremes so far gets 1/k of the derivative."""
    x = np.array([1.0, 3.0, 3.0, 2.0, 3.0], np.float32)
    f = SCANS[name][0]

    def row(i: int) -> list[float]:
        g = tb.grad(lambda x: f(x)[i])(x if name == "cummax" else -x)
        return g.tolist()

    assert [1.0, 0.0, 0.0, 0.0, 0.0] == row(0)
    assert [0.0, 0.5, 0.5, 0.0, 0.0] == row(3)
    assert_allclose(np.array(row(4)), np.array([0, 1, 1, 0, 1]) / 3, rtol=1e-6)


def test_products_with_zeros_have_the_right_derivative() -> None:
    """The derivative of a running product divides by nothing."""
    x = np.array([2.0, 0.0, 3.0, 5.0])

    with enable_x64():
        gradient = tb.grad(lambda x: lax.reduce_sum(lax.cumprod(x), (0,)))(x)

    assert_allclose(gradient, np.array([1.0, 2.0 + 6.0 + 30.0, 0.0, 0.0]))


def test_errors() -> None:
    """Wrong dtypes and axes are refused with the name of the function."""
    with pytest.raises(UnsupportedDtypeError, match="cumsum does not accept dtype bool"):
        lax.cumsum(np.ones(3, bool))
    with pytest.raises(UnsupportedDtypeError, match="it works on floating and complex"):
        lax.cumlogsumexp(np.ones(3, np.int32))
    with pytest.raises(AxisError, match="cummax: axis 1 is out of bounds"):
        lax.cummax(np.ones(3, np.float32), 1)
    with pytest.raises(AxisError, match="cumprod: axis 0 is out of bounds"):
        lax.cumprod(np.float32(1))
