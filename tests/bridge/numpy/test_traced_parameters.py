"""Parameters of numpy functions that may be traced, or are no integers by type, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

X = np.array([3.0, 1.0, 2.5, 9.0, 4.0], np.float32)
STEPS = np.array([0, 5, 1, 7, 2, 9], np.int32)
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
WHERE = np.array([True, False, True, True, True])
HOLES = np.array([3.0, 1.0, np.nan, 9.0, 4.0], np.float32)

# The function of either library and a parameter, and values of that.
CALLS: dict[str, tuple[Callable[[Any, Any], Any], list[Any]]] = {
    "var": (lambda np, d: np.var(X, ddof=d), [0, 1, 0.5]),
    "std of some": (lambda np, d: np.std(X, ddof=d, where=WHERE), [0, 1, 2.5]),
    "std along an axis": (lambda np, d: np.std(CUBE, 1, ddof=d), [0, 1]),
    "nanvar": (lambda np, d: np.nanvar(HOLES, ddof=d), [0, 1, 0.5]),
    "nanstd of some": (lambda np, d: np.nanstd(HOLES, ddof=d, where=WHERE), [0, 1]),
    "trace": (lambda np, k: np.trace(CUBE, k, 2, 1), [-2, -1, 0, 1, 5]),
    "trace of integers": (lambda np, k: np.trace(STEPS.reshape(2, 3), k), [-1, 0, 2]),
    "unwrap": (lambda np, p: np.unwrap(X, period=p), [2.0, 5.0]),
    "unwrap of integers": (lambda np, p: np.unwrap(STEPS, period=p), [4, 5]),
    "unwrap with a limit": (lambda np, p: np.unwrap(X, discont=3, period=p), [5.0]),
    "unravel_index": (lambda np, s: np.stack(np.unravel_index(STEPS, s)), [np.array([2, 5])]),
}


@pytest.mark.parametrize("name", CALLS)
def test_traced_parameters(name: str) -> None:
    """Traced, they have the results of known numbers."""
    call, values = CALLS[name]
    run = tb.jit(lambda v: call(tnp, v))
    for value in values:
        given = tuple(value.tolist()) if isinstance(value, np.ndarray) else value
        expected = call(np, given)

        np.testing.assert_allclose(run(value), expected, 1e-5, err_msg=str(value))
        np.testing.assert_allclose(call(tnp, given), expected, 1e-5, err_msg=str(value))


def test_too_large_a_correction_gives_nan() -> None:
    """Traced as well as known."""
    assert np.isnan(tb.jit(lambda d: tnp.var(X, ddof=d))(5))
    assert np.isnan(tnp.var(X, ddof=5))


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hanning"])
def test_windows_of_whole_floats(name: str) -> None:
    """A number of points may be a float, as NumPy's; a fraction of a point is refused."""
    np.testing.assert_allclose(getattr(tnp, name)(5.0), getattr(np, name)(5.0), 1e-6, 1e-6)
    with pytest.raises(TypeError, match=r"M is 5\.5"):
        getattr(tnp, name)(5.5)


def test_a_constant_has_no_roots() -> None:
    """Its size says so, whatever it is."""
    roots = tb.jit(tnp.roots)(np.float32(2))
    assert (0,) == roots.shape
    assert np.complex64 == roots.dtype
