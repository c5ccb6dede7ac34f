"""Entropies of numbers of any size, where quotients and sums of them overflow or vanish."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.scipy import special

INF = np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_relative_entropy_of_extreme_numbers(dtype: type) -> None:
    """Of the largest and the smallest normal floats, and of infinities."""
    info = np.finfo(dtype)
    p = np.array([info.max, info.max, info.tiny, info.max, INF, 1, INF], dtype)
    q = np.array([info.max / 2, info.tiny, info.max, 2, 1, INF, info.max], dtype)
    wide = p.astype(np.longdouble), q.astype(np.longdouble)
    with np.errstate(all="ignore"):
        expected = (wide[0] * (np.log(wide[0]) - np.log(wide[1]))).astype(dtype)
    with tb.enable_x64(True):
        found = np.asarray(special.rel_entr(p, q))

    np.testing.assert_allclose(found, expected, rtol=4 * info.eps, atol=4 * float(info.tiny))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_divergence_outside(dtype: type) -> None:
    """As in SciPy: the second number beside 0, infinite below it, and NaN beside NaN."""
    p = np.array([0, 0, -1, 1, np.nan, 0, 2], dtype)
    q = np.array([3, 0, 1, -1, 1, np.nan, 2], dtype)
    with tb.enable_x64(True):
        found = np.asarray(special.kl_div(p, q))

    np.testing.assert_array_equal(found, [3, 0, INF, INF, np.nan, np.nan, 0])
