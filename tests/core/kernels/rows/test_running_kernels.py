"""Reductions that run along rows are kernels: cumulative sums and their kin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import lax
from tracebridge.torch import wrap

pytestmark = needs_kernels

REFERENCES = {
    lax.cumsum: np.cumsum,
    lax.cumprod: np.cumprod,
    lax.cummax: np.maximum.accumulate,
    lax.cummin: np.minimum.accumulate,
}
SHAPES = [(300, 1000), (256, 64), (1000, 33), (3, 5000), (20, 5, 100), (9000,), (1, 8192)]


@pytest.mark.parametrize("f", REFERENCES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_those_of_numpy(f: Any, shape: tuple[int, ...]) -> None:
    """In float64, in both directions; rows of whole vectors and others.

    A sum near 0 of numbers whose sums were large has no more digits than those: sums are at most as
    far off as NumPy's in float32, one number after the other.
    """
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    if f is lax.cumprod:
        x = np.sign(x) * np.exp(0.05 * x)
    for reverse in (False, True):
        run = lambda x, reverse=reverse: f(x, axis=x.ndim - 1, reverse=reverse)
        turn = (..., slice(None, None, -1 if reverse else 1))
        wide, narrow = [REFERENCES[f](x[turn].astype(t), -1)[turn] for t in ("f8", "f4")]

        assert kernels_in(run, x) == 1
        if f is lax.cumsum:
            assert np.abs(tb.jit(run)(x) - wide).max() <= np.abs(narrow - wide).max()
        else:
            np.testing.assert_allclose(tb.jit(run)(x), wide, rtol=3e-5, atol=3e-5)


def test_gradient_is_that_of_torch() -> None:
    x = torch.from_numpy(array(100, 333)).requires_grad_()
    ct = torch.from_numpy(array(100, 333))
    ours = torch.autograd.grad(wrap(lambda x: tnp.cumsum(x, -1))(x), x, ct)
    theirs = torch.autograd.grad(x.cumsum(-1), x, ct)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("f", REFERENCES, ids=lambda f: f.__name__)
def test_what_is_no_number(f: Any) -> None:
    """NaN and infinities reach what comes after them, and no other row."""
    x = array(200, 70)
    x[3, 5], x[4, 0], x[5, 69], x[6, 40] = np.nan, np.inf, -np.inf, np.nan
    x[7, 3], x[7, 50] = np.inf, -np.inf
    for reverse in (False, True):
        is_as_plain(lambda x, r=reverse: f(x, axis=1, reverse=r), x, tolerance=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("f", "numbers"),
    [
        (lax.cumsum, [-3e38, 3e38, 3e38, -3e38, 1e38]),
        (lax.cumsum, [3e38, 3e38, -3e38, -3e38]),
        (lax.cumprod, [0, 1e30, 1e30, 1e30]),
        (lax.cumprod, [1e-30, 1e30, 1e30, 1e-30]),
        (lax.cumprod, [1e30, 1e-30, 1e-30, 1e30]),
        (lax.cumprod, [1e30, 1e-20, 1e-20, 1e30]),
    ],
)
def test_only_what_is_before_may_overflow(f: Any, numbers: list[float], reverse: bool) -> None:
    """Numbers in the middle of a row do not leave the range by themselves, as in NumPy."""
    x = np.full((300, 70), f is lax.cumprod, np.float32)
    for row, first in enumerate(range(66 - len(numbers))):
        x[row, first : first + len(numbers)] = numbers[::-1] if reverse else numbers
    run = lambda x: f(x, axis=1, reverse=reverse)
    turned = x[:, ::-1] if reverse else x
    with np.errstate(all="ignore"):
        expected = REFERENCES[f](turned, 1, dtype=np.float32)
    expected = expected[:, ::-1] if reverse else expected

    assert kernels_in(run, x) == 1
    np.testing.assert_allclose(tb.jit(run)(x), expected, rtol=1e-5)


def test_what_stays_with_xla() -> None:
    """Other axes and dtypes, short rows, few elements."""
    for axis, x in ((0, array(300, 400)), (1, array(3000, 20)), (1, array(3, 100))):
        assert kernels_in(lambda x, axis=axis: lax.cumsum(x, axis=axis), x) == 0
    assert kernels_in(lambda x: lax.cumsum(x, axis=1), np.ones((300, 400), np.int32)) == 0
    assert lax.cumsum(tnp.zeros((0, 400)), axis=1).shape == (0, 400)


def test_batches() -> None:
    """Under vmap the axis is the last one still; along another one it is none."""
    x = array(8, 40, 100)
    f = tb.vmap(lambda x: lax.cumsum(x, axis=1))

    assert kernels_in(f, x) == 1
    is_as_plain(f, x, tolerance=1e-5)
    assert kernels_in(tb.vmap(lambda x: lax.cumsum(x, axis=1), 2, 2), x) == 0
