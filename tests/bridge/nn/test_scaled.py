"""Products in formats of few bits: how arrays are rounded, and the straight-through derivative."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tracebridge as tb
from tracebridge import nn

RANDOM = np.random.default_rng(0)
ROWS = (((1,), (1,)), ((), ()))


def rounded(x: Any, mode: Any, whole: float = 1.0) -> Any:
    """What a format keeps of the rows of ``x``, by NumPy."""
    form = nn.get_scaled_dot_general_config(mode)
    top = float(ml_dtypes.finfo(form.data_type).max)
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, form.block_size) / np.float32(whole)
    share = np.abs(blocks).max(-1, keepdims=True) / np.float32(top)
    if mode == "mxfp8":
        scale = np.exp2(np.ceil(np.log2(share)))
    else:
        scale = np.minimum(share, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    kept = np.clip(blocks / scale, -top, top).astype(form.data_type).astype(np.float32)
    return (kept * scale).reshape(x.shape) * whole


@pytest.mark.parametrize(("mode", "error"), [("mxfp8", 0.05), ("nvfp4", 0.3)])
def test_products_of_rounded_operands(mode: Any, error: float) -> None:
    """Exactly those, and near the product of the operands; under jit and for a batch, too."""
    x = RANDOM.normal(size=(2, 3, 64)).astype(np.float32)
    y = RANDOM.normal(size=(64, 2, 4)).astype(np.float32)
    forms = [nn.get_scaled_dot_general_config(mode, 2.0 if mode == "nvfp4" else None)] * 3
    numbers = (((2,), (0,)), ((0,), (1,)))

    def product(x: Any, y: Any) -> Any:
        return nn.scaled_dot_general(x, y, numbers, configs=forms)

    found = np.asarray(tb.jit(product)(x, y))

    whole = 2.0 if mode == "nvfp4" else 1.0
    columns = rounded(y.transpose(1, 2, 0), mode, whole)
    expected = np.einsum("bmk,bnk->bmn", rounded(x, mode, whole), columns)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-4)
    exact = np.einsum("bmk,kbn->bmn", x, y)
    assert np.linalg.norm(found - exact) < error * np.linalg.norm(exact)


@pytest.mark.parametrize("mode", ["mxfp8", "nvfp4"])
def test_derivatives_go_straight_through(mode: Any) -> None:
    """As without rounding, where nothing is lost by it; sizes that are no multiples of blocks."""
    x = RANDOM.choice([-2.0, -1.0, 0.0, 1.0, 2.0], (5, 24)).astype(np.float32)
    y = RANDOM.choice([-2.0, -1.0, 0.0, 1.0, 2.0], (6, 24)).astype(np.float32)
    x[:, ::8] = y[:, ::8] = 6.0
    forms = [nn.get_scaled_dot_general_config(mode)] * 3
    ct = np.ones((5, 6), np.float32)

    def product(x: Any, y: Any) -> Any:
        return nn.scaled_dot_general(x, y, ROWS, configs=forms)

    @tb.jit
    def both(x: Any, y: Any) -> Any:
        out, pull = tb.vjp(product, x, y)
        return out, pull(ct)

    out, (gx, gy) = both(x, y)

    np.testing.assert_allclose(np.asarray(out), x @ y.T)
    np.testing.assert_allclose(np.asarray(gx), ct @ y)
    np.testing.assert_allclose(np.asarray(gy), ct.T @ x)


def test_what_is_cut_off_has_no_derivative() -> None:
    """Elements beyond the range of nvfp4 and its scales."""
    x = np.full((1, 16), 1e4, np.float32)
    x[0, 3] = 1.0
    forms = [nn.get_scaled_dot_general_config("nvfp4")] * 3

    @tb.jit
    @tb.grad
    def slope(x: Any) -> Any:
        return nn.scaled_dot_general(x, x * 0 + 1, ROWS, configs=forms).sum()

    slopes = slope(x)

    assert [float(i == 3) for i in range(16)] == slopes[0].tolist()


def test_odd_numbers() -> None:
    """Zeros, nothing at all, other dtypes, and no formats."""
    forms = [nn.get_scaled_dot_general_config("mxfp8")] * 3
    zeros = np.zeros((2, 32), np.float32)
    product = tb.jit(lambda x, y: nn.scaled_dot_general(x, y, ROWS, "bfloat16", forms))
    assert not product(zeros, zeros + 1).any()
    none = np.zeros((2, 0), np.float32)
    assert not product(none, none).any()
    half = product(zeros + 1, zeros + 1)
    assert ("bfloat16", 32.0) == (str(half.dtype), float(half[0, 0]))
    assert 32 == nn.scaled_dot_general(zeros + 1, zeros + 1, ROWS)[0, 0]


def test_scaled_matmul() -> None:
    """Rows with rows, scales for blocks; also of integers."""
    x, y = np.array([[[1, 2, 3, 4]]]), np.array([[[4, 5, 6, 7]]])
    half = np.array([[[0.5, 2.0]]])

    found = nn.scaled_matmul(x, y, half, half)

    assert [[[(4 + 10) / 4 + (18 + 28) * 4]]] == found.tolist()
    assert "bfloat16" == nn.scaled_matmul(x, y, half, half, "bfloat16").dtype


X = np.ones((1, 2, 8))
UNKNOWN: Any = "int4"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: nn.get_scaled_dot_general_config(UNKNOWN), ValueError, "'nvfp4' or 'mxfp8'"),
        (lambda: nn.scaled_matmul(X[0], X, X, X), ValueError, "three axes"),
        (lambda: nn.scaled_matmul(X, X[..., :4], X, X), ValueError, "first and last sizes"),
        (lambda: nn.scaled_matmul(X, X, X, X[..., :4]), ValueError, "first and last sizes"),
        (lambda: nn.scaled_dot_general(X, X, ROWS, "int32"), TypeError, "float32, bfloat16"),
        (lambda: nn.scaled_dot_general(X, X, ROWS, configs=[]), ValueError, "0 configs"),
    ],
)
def test_errors(call: Any, error: type[Exception], words: str) -> None:
    """What is refused."""
    with pytest.raises(error, match=words):
        call()
