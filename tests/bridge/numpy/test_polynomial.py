"""Polynomials whose coefficients have further axes."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import RankError

A = np.array([[2, 3, 1]])
B = np.array([[5, 7, 3], [8, 2, 6]])


@pytest.mark.parametrize("name", ["polyadd", "polysub"])
@pytest.mark.parametrize(("a", "b"), [(A, B), (B, A), (B, B), (B[:, :1], A)])
def test_columns_are_polynomials(name: str, a: np.ndarray, b: np.ndarray) -> None:
    """The first axis counts powers, each column is a polynomial of its own."""
    f, reference = getattr(tnp, name), getattr(np, name)
    n = max(a.shape[1], b.shape[1])
    expected = [reference(a[:, i % a.shape[1]], b[:, i % b.shape[1]]) for i in range(n)]

    np.testing.assert_array_equal(np.stack(expected, axis=1), f(a, b))


def test_different_ranks_are_refused() -> None:
    """A vector is not a row."""
    with pytest.raises(RankError, match="polyadd: coefficients must be vectors"):
        tnp.polyadd(B, np.ones(3, int))
    with pytest.raises(RankError, match="polymul: coefficients must be vectors"):
        tnp.polymul(np.ones(3, int), B)


def test_leading_zeros_are_trimmed_as_numpy_does() -> None:
    """Of both factors, also beside a number; of a remainder all but the last coefficient."""
    zero, long = np.array([0.0]), np.array([0.0, 0.0, 1.0, 2.0])
    for a, b in [(zero, long), (long, zero), (np.array([3.0]), long), (long, long)]:
        product = tnp.polymul(a, b, trim_leading_zeros=True)
        np.testing.assert_array_equal(np.polymul(a, b), product)
    for u, v in [([1.0, 0, -1], [1.0, 1]), ([0.1, 0.3, 0.5], [0.3, 0.7]), ([0.0], [1.0])]:
        expected = np.polydiv(u, v)
        found = tnp.polydiv(np.array(u), np.array(v), trim_leading_zeros=True)
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_allclose(other, one, 1e-5)


def test_dtypes_of_values_and_of_integrals_of_no_order() -> None:
    """Truth values stay what they are; integrals are floats however often one integrates."""
    p = tnp.array([True, False, True])

    assert ("bool", [True, True]) == (tnp.polyval(p, p[:2]).dtype, tnp.polyval(p, p[:2]).tolist())
    assert "float32" == tnp.polyint(tnp.array([1, 2]), 0).dtype
    with tb.enable_x64(True):
        assert "complex128" == tnp.roots(tnp.array([1])).dtype == tnp.roots(tnp.array([1, 2])).dtype


def test_edges_along_both_axes_have_one_dtype() -> None:
    """As the points have it together."""
    x = tnp.arange(3.0)

    assert ["float32"] * 2 == [e.dtype for e in tnp.histogram2d(x.astype("float16"), x)[1:]]


@pytest.mark.parametrize("n", [32, 33, 70])
def test_many_coefficients_and_columns_are_loops(n: int) -> None:
    """Values are NumPy's, and programs do not grow with the number of coefficients."""
    p, x = np.linspace(-1, 1, n), np.linspace(-1, 1, 5)

    np.testing.assert_allclose(tnp.polyval(p, x), np.polyval(p, x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tnp.vander(x, n), np.vander(x, n), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(tnp.vander(x, n, increasing=True), tnp.vander(x, n)[:, ::-1])
    text = tb.jit(tnp.polyval).lower(np.ones(500), x).as_text()
    assert len(text) < 20000
    assert len(tb.jit(lambda v: tnp.vander(v, 500)).lower(x).as_text()) < 20000
