"""Rows along axes that are not the last: vectors go across rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import lax, nn
from tracebridge.torch import wrap

pytestmark = needs_kernels

RNG = np.random.default_rng(0)
SHAPES = [(8, 64, 16, 16), (4, 21, 33, 35), (3, 5, 50, 64), (2, 1000, 5, 5), (7, 300, 17)]


def _softmax(x: Any) -> Any:
    return nn.softmax(x, axis=1)


def _log_softmax(x: Any) -> Any:
    return nn.log_softmax(x, axis=1)


def _total(x: Any) -> Any:
    return nn.logsumexp(x, axis=1)


def _normal(x: Any, scale: Any) -> Any:
    """A layer norm over channels, each with a scale of its own."""
    centred = x - x.mean(1, keepdims=True)
    spread = tnp.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return centred / spread * scale.reshape(-1, *[1] * (x.ndim - 2))


def _cross_entropy(logits: Any, labels: Any) -> Any:
    picked = tnp.take_along_axis(_log_softmax(logits), labels[:, None], axis=1)
    return -picked.mean()


def _labels(shape: tuple[int, ...]) -> Any:
    return RNG.integers(0, shape[1], (shape[0], *shape[2:])).astype(np.int32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("f", [_softmax, _log_softmax, _total])
def test_softmax_over_channels(f: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    """One kernel forward and one for the gradient, with the numbers of the plain form."""
    x = array(*shape)
    ct = np.asarray(array(*tb.eval_shape(f, x).shape))

    def gradient(x: Any, ct: Any) -> Any:
        return tb.vjp(f, x)[1](ct)

    assert kernels_in(f, x) == 1
    assert kernels_in(gradient, x, ct) == 1
    is_as_plain(f, x, tolerance=3e-6)
    is_as_plain(gradient, x, ct, tolerance=3e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_norm_of_channels(shape: tuple[int, ...]) -> None:
    x, scale, ct = array(*shape), array(shape[1]), array(*shape)

    assert kernels_in(_normal, x, scale) == 1
    is_as_plain(_normal, x, scale, tolerance=1e-5)
    is_as_plain(lambda x, s, ct: tb.vjp(_normal, x, s)[1](ct), x, scale, ct, tolerance=3e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy_of_images_is_that_of_torch(shape: tuple[int, ...]) -> None:
    logits, labels = torch.from_numpy(array(*shape)), torch.from_numpy(_labels(shape))
    logits.requires_grad_()
    ours = wrap(_cross_entropy)(logits, labels)
    theirs = torch.nn.functional.cross_entropy(logits, labels.long())
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    expected = torch.autograd.grad(theirs, logits)
    torch.testing.assert_close(torch.autograd.grad(ours, logits), expected, rtol=1e-4, atol=1e-8)


def test_values_are_those_of_scipy() -> None:
    """In float64, over the first axis and over one in the middle."""
    x = array(70, 3, 500)
    for axis in (0, 1):
        expected = special.softmax(x.astype(np.float64), axis=axis)
        made = tb.jit(lambda x, axis=axis: nn.softmax(x, axis=axis))(x)
        np.testing.assert_allclose(made, expected, rtol=2e-6)


@pytest.mark.parametrize("special_one", [np.nan, np.inf, -np.inf, 3e38])
def test_rows_keep_their_infinities(special_one: float) -> None:
    """What is in one row is seen in no other one, though they share vectors."""
    x = array(4, 40, 300)
    x[1, 7, 11] = x[3, 0, 299] = special_one
    x[2, :, 5] = special_one

    assert kernels_in(_softmax, x) == 1
    for f in (_softmax, _log_softmax, _total):
        is_as_plain(f, x, tolerance=3e-6)


def test_divisors_without_inverse() -> None:
    """One of the rows of a vector divides by a subnormal number, or by a very large one."""
    x = np.abs(array(30, 2000)) + 1

    def shares(x: Any) -> Any:
        return x / tnp.sum(x, 0) + tnp.max(x, 0)

    for scale in (2.0**-127, 2.0**110):
        x[:, 77] *= np.float32(scale)
        is_as_plain(shares, x, tolerance=3e-6)


def test_indices_masks_and_sixteen_bits() -> None:
    """Indices along and across rows, flags that are read and written, and bfloat16 in memory."""
    x, mask = array(6, 50, 40), RNG.random((6, 50, 40)) < 0.7
    lengths = RNG.integers(1, 50, (6, 40)).astype(np.int32)

    def program(x: Any, mask: Any, lengths: Any) -> Any:
        along = lax.broadcasted_iota(np.int32, x.shape, 1)
        across = lax.broadcasted_iota(np.int32, x.shape, 2)
        seen = mask & (along < lengths[:, None])
        share = nn.softmax(tnp.where(seen, x, -1e9), axis=1)
        wide = share * across
        return wide.astype(tnp.bfloat16), share > 0.1, share.sum(1)

    is_as_plain(program, x, mask, lengths, tolerance=1e-2)


@pytest.mark.parametrize("axis", [(0, 1), (1, 2)])
def test_rows_of_several_axes(axis: tuple[int, ...]) -> None:
    x = array(10, 12, 9, 40)
    f = lambda x: nn.softmax(x, axis=axis)

    assert kernels_in(f, x) == 1
    is_as_plain(f, x, tolerance=3e-6)


def test_operands_that_end_within_the_rows() -> None:
    """A bias that is the same for the lines of an image: vectors end with a line."""
    x, bias = array(3, 20, 30, 40), array(40)
    f = lambda x, b: nn.softmax(x + b, axis=1)

    assert kernels_in(f, x, bias) == 1
    is_as_plain(f, x, bias, tolerance=3e-6)


def test_what_stays_with_xla() -> None:
    """Rows that are long, few neighbours, sums that nothing reads again, and nothing at all."""
    assert kernels_in(lambda x: nn.softmax(x, axis=0), array(5000, 20)) == 0
    assert kernels_in(lambda x: nn.softmax(x, axis=1), array(50, 200, 8)) == 0
    assert (
        kernels_in(lambda x, y: (x.sum(0), (x * y).sum(0)), array(300, 200), array(300, 200)) == 0
    )
    for shape in ((0, 64, 40, 40), (4, 0, 40, 40), (4, 64, 0, 40)):
        assert _softmax(tnp.zeros(shape)).shape == shape


def test_batches_and_threads() -> None:
    """Under vmap, and with blocks that several threads do, whose units overlap."""
    x = array(4, 6, 100, 1001)
    f = tb.vmap(_softmax)

    assert kernels_in(f, x) == 1
    is_as_plain(f, x, tolerance=3e-6)
