"""Integrals of samples at equal distances are sums with half of both ends."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp


@pytest.mark.parametrize(
    ("shape", "axis"), [((5,), 0), ((1,), 0), ((0,), 0), ((3, 4), 0), ((3, 4), -1), ((64, 100), 1)]
)
@pytest.mark.parametrize("dx", [1.0, 0.5, np.float32(3.0)])
def test_values(shape: tuple[int, ...], axis: int, dx: float) -> None:
    """As NumPy has them, of any number of samples."""
    y = np.random.default_rng(0).standard_normal(shape).astype(np.float32)

    found = np.asarray(tnp.trapezoid(tnp.asarray(y), dx=dx, axis=axis))

    np.testing.assert_allclose(found, np.trapezoid(y, dx=dx, axis=axis), rtol=1e-5, atol=1e-5)


def test_infinite_ends() -> None:
    """An infinite sample is half of infinity at an end, not the difference of two infinities."""
    assert tnp.trapezoid(tnp.asarray([1.0, tnp.inf])).item() == np.inf
    assert tnp.trapezoid(tnp.asarray([-tnp.inf, 1.0, 2.0])).item() == -np.inf


@pytest.mark.parametrize("sample", [np.inf, np.nan])
def test_one_sample_that_is_no_number(sample: float) -> None:
    """There is no interval to integrate over."""
    assert tnp.trapezoid(tnp.asarray([sample])).item() == 0


def test_rows_of_complex_samples() -> None:
    """Real and imaginary parts have integrals of their own, also in a single row."""
    y = np.asarray([1 + 2j, 3.0, 4j], np.complex64)

    assert np.trapezoid(y) == tnp.trapezoid(tnp.asarray(y)).item()


def test_slopes_of_a_row() -> None:
    """Each sample has its weight, twice over, also beside an infinite one."""
    y = tnp.asarray([tnp.inf, 1.0, 2.0])

    assert [0.5, 1.0, 0.5] == tb.grad(tnp.trapezoid)(y).tolist()
    twice = tb.grad(lambda v: tb.grad(lambda w: tnp.trapezoid(w * w))(v).sum())(y[1:])
    assert [1.0, 1.0] == twice.tolist()


def test_a_row_needs_no_memory() -> None:
    """Weights as long as the samples were computed first, and read again."""
    y = tnp.ones(1 << 16)

    assert tb.jit(tnp.trapezoid).lower(y).compile().memory_analysis().temp_size_in_bytes < 1024
