"""Eigenvalues of tridiagonal matrices without the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

import tracebridge as tb
from tracebridge.scipy.linalg import eigh_tridiagonal
from tracebridge.scipy.linalg._bisection import SMALL, bisected

RANDOM = np.random.default_rng(0)
N = SMALL + 3
MAIN, BESIDE = RANDOM.normal(size=N), RANDOM.normal(size=N - 1)


def eigenvalues(*xs: Any, **kwargs: Any) -> Any:
    """Without vectors."""
    return eigh_tridiagonal(*xs, eigvals_only=True, **kwargs)


def test_eigenvalues_of_a_large_matrix() -> None:
    """All, and those of a range of indices or values, as SciPy's; no matrix is made."""
    expected = scipy.linalg.eigvalsh_tridiagonal(MAIN, BESIDE)
    with tb.enable_x64():
        program = str(tb.make_jaxpr(eigenvalues)(MAIN, BESIDE))
        found = eigenvalues(MAIN, BESIDE)
        some = eigenvalues(MAIN, BESIDE, select="i", select_range=(3, 7))
        above = eigenvalues(MAIN, BESIDE, select="v", select_range=(0.5, 9.0))

    assert f"{N},{N}]" not in program
    np.testing.assert_allclose(found, expected, atol=1e-14)
    np.testing.assert_allclose(some, expected[3:8], atol=1e-14)
    np.testing.assert_allclose(above, expected[expected > 0.5], atol=1e-14)


def test_hard_diagonals() -> None:
    """Equal eigenvalues, none at all, sizes whose squares are no floats, complex elements."""
    turned = BESIDE[:4] * np.exp(1j * np.arange(4))
    with tb.enable_x64():
        run = tb.jit(lambda d, e: bisected(d, e, 0, 5))
        for main, beside in (
            (np.zeros(5), np.zeros(4)), (np.ones(5), np.zeros(4)), (np.arange(5.0), np.zeros(4)),
            (1e200 * MAIN[:5], 1e200 * BESIDE[:4]), (1e-200 * MAIN[:5], 1e-200 * BESIDE[:4]),
        ):  # fmt: skip
            expected = scipy.linalg.eigvalsh_tridiagonal(main, beside)
            # A matrix of zeros is bisected like one of size 1.
            bound = 1e-14 * (np.abs(expected).max() or 1)
            np.testing.assert_allclose(run(main, beside), expected, rtol=0, atol=bound)
        assert np.isnan(np.asarray(run(MAIN[:5] * np.nan, BESIDE[:4]))).all()
        whole = np.diag(MAIN[:5]) + np.diag(turned, -1) + np.diag(turned.conj(), 1)
        np.testing.assert_allclose(
            bisected(MAIN[:5], turned, 0, 5), np.linalg.eigvalsh(whole), atol=1e-14
        )


def test_derivative() -> None:
    """That of the whole matrix: the square of an eigenvector's elements."""
    with tb.enable_x64():
        slope = tb.grad(lambda d: eigenvalues(d, BESIDE)[2])(MAIN)
    vectors = scipy.linalg.eigh_tridiagonal(MAIN, BESIDE)[1]

    np.testing.assert_allclose(slope, vectors[:, 2] ** 2, atol=1e-12)
