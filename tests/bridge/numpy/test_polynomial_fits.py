"""Roots of polynomials and fitted polynomials, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.testing import assert_allclose, check_grads

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=9), RANDOM.normal(size=(9, 2))
W = RANDOM.uniform(0.5, 2.0, size=9)
NAN = complex(np.nan, np.nan)


@pytest.mark.parametrize(
    "p",
    [
        [1.0, -3.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, -3.0, 4.0, 5.0], [0.0, 0.0, 1.0, -3.0, 2.0],
        [1.0, -3.0, 2.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0], [3.0], [], [1j, 2.0, 1.0 - 1j],
    ],
)  # fmt: skip
def test_roots(p: Any) -> None:
    """Zeros at both ends left out, as NumPy does, and where they stay."""
    with tb.enable_x64(True):
        want = np.roots(p)
        found = tnp.roots(np.asarray(p))
        assert want.shape == found.shape
        assert "complex128" == found.dtype
        assert_allclose(np.sort_complex(found), np.sort_complex(want + 0j), rtol=1e-10, atol=1e-12)
        every = np.asarray(tb.jit(lambda p: tnp.roots(p, strip_zeros=False))(np.asarray(p)))
        assert (max(len(p) - 1, 0),) == every.shape
        assert_allclose(every[: len(want)] ** 2, want[np.argsort(-abs(want), kind="stable")] ** 2,
                        rtol=1e-9, atol=1e-12)  # fmt: skip
        assert np.isnan(every[len(want) :]).all()


def test_derivatives_of_roots() -> None:
    """Simple roots move with the coefficients; a batch is mapped."""
    with tb.enable_x64(True):
        p = np.array([2.0, 1.0, -7.0, 0.5])
        check_grads(lambda p: tnp.roots(p).real, (p,), order=2)
        check_grads(lambda p: tnp.roots(p, strip_zeros=False).real, (p,), order=1)
        found = tb.vmap(lambda p: tnp.roots(p, strip_zeros=False))(np.stack([p, p[::-1]]))
        assert_allclose(np.sort(found[1].real), np.sort(np.roots(p[::-1]).real), rtol=1e-10)


@pytest.mark.parametrize("w", [None, W])
@pytest.mark.parametrize("y", [Y[:, 0], Y, Y + 1j * Y[::-1]])
@pytest.mark.parametrize("deg", [0, 3])
def test_polyfit(y: Any, w: Any, deg: int) -> None:
    """Coefficients, all else, and covariances; derivatives with respect to all."""
    with tb.enable_x64(True):
        want = np.polyfit(X, y, deg, w=w)
        assert_allclose(tb.jit(lambda x, y: tnp.polyfit(x, y, deg, w=w))(X, y), want, rtol=1e-9)
        full = tnp.polyfit(X, y, deg, full=True, w=w)
        expected: Any = np.polyfit(X, y, deg, full=True, w=w)
        for ours, theirs in zip(full, expected, strict=True):
            assert_allclose(ours, theirs, rtol=1e-9)
        if np.isrealobj(y):
            for cov in (True, "unscaled"):
                c, covariance = tnp.polyfit(X, y, deg, w=w, cov=cov)
                theirs = np.polyfit(X, y, deg, w=w, cov=cov)[1]
                assert_allclose(covariance, theirs, rtol=1e-9, atol=1e-12)
                assert c.shape == want.shape
    with tb.enable_x64(True):
        check_grads(lambda x, y: tnp.polyfit(x, y, deg, w=w), (X, y), order=1)


def test_types() -> None:
    """Integers become floats."""
    found = tnp.polyfit(np.arange(4), 3 * np.arange(4) - 1, 1)

    assert "float32" == found.dtype
    assert_allclose(found, [3.0, -1.0] @ np.eye(2), rtol=1e-4)


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (lambda: tnp.roots(np.ones((2, 2))), RankError),
        (lambda: tb.jit(tnp.roots)(np.ones(2)), ConcretizationTypeError),
        (lambda: tnp.polyfit(X, Y, -1), ArgumentValueError),
        (lambda: tnp.polyfit(X, Y[:3], 1), ShapeMismatchError),
        (lambda: tnp.polyfit(X, Y, 1, w=W[:3]), ShapeMismatchError),
        (lambda: tnp.polyfit(X[:2], Y[:2], 1, cov=True), ArgumentValueError),
    ],
)
def test_errors(run: Any, error: type[Exception]) -> None:
    """Shapes that do not fit, and sizes that values decide."""
    with pytest.raises(error):
        run()
