"""Activation functions of every number of 16 bits, and their slopes, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import nn

Host = np.ndarray[Any, Any]
# So many times the smallest normal number, as parts of a result already vanish there.
_LEAST = 16.0
_SELU = 1.0507009873554804934, 1.6732632423543772848


def _gelu(x: Host) -> Host:
    return x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def _sparse(x: Host) -> Host:
    return np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4))


def _squareplus(x: Host) -> Host:
    root = np.sqrt(x * x + 4)
    return np.where(x < 0, 2 / (root - np.minimum(x, 0)), (x + root) / 2)


def _log1mexp(x: Host) -> Host:
    return np.where(x < 0.7, np.log(-np.expm1(-x)), np.log1p(-np.exp(-x)))


# The function, its value, and its largest error in units in the last place.
ROWS: dict[str, tuple[Callable[[Any], Any], Callable[[Host], Host], float]] = {
    "relu": (nn.relu, lambda x: np.maximum(x, 0), 0),
    "relu6": (nn.relu6, lambda x: np.clip(x, 0, 6), 0),
    "hard_tanh": (nn.hard_tanh, lambda x: np.clip(x, -1, 1), 0),
    "leaky_relu": (nn.leaky_relu, lambda x: np.where(x >= 0, x, 0.01 * x), 1),
    "softplus": (nn.softplus, lambda x: np.logaddexp(x, 0), 0.51),
    "log_sigmoid": (nn.log_sigmoid, lambda x: -np.logaddexp(-x, 0), 0.51),
    "sigmoid": (nn.sigmoid, special.expit, 0.51),
    "tanh": (nn.tanh, np.tanh, 0.51),
    "silu": (nn.silu, lambda x: x * special.expit(x), 0.51),
    "mish": (nn.mish, lambda x: x * np.tanh(np.logaddexp(x, 0)), 0.51),
    "gelu": (nn.gelu, _gelu, 0.51),
    "exact gelu": (lambda x: nn.gelu(x, approximate=False), lambda x: x * special.ndtr(x), 0.51),
    "elu": (nn.elu, lambda x: np.where(x > 0, x, np.expm1(x)), 0.51),
    "celu": (nn.celu, lambda x: np.where(x > 0, x, np.expm1(x)), 0.51),
    "selu": (
        nn.selu,
        lambda x: _SELU[0] * np.where(x > 0, x, _SELU[1] * np.expm1(x)),
        0.51,
    ),
    "soft_sign": (nn.soft_sign, lambda x: x / (1 + np.abs(x)), 0.51),
    "squareplus": (nn.squareplus, _squareplus, 0.51),
    "hard_sigmoid": (nn.hard_sigmoid, lambda x: np.clip(x + 3, 0, 6) / 6, 0.51),
    "hard_silu": (nn.hard_silu, lambda x: x * np.clip(x + 3, 0, 6) / 6, 0.51),
    "sparse_plus": (nn.sparse_plus, _sparse, 0.51),
    "sparse_sigmoid": (nn.sparse_sigmoid, lambda x: np.clip((x + 1) / 2, 0, 1), 0.51),
    "log1mexp": (nn.log1mexp, _log1mexp, 0.51),
}


def _errors(found: Host, value: Host, info: Any) -> Host:
    """In units in the last place; of results about to vanish there are none."""
    size = np.abs(value)
    unit = 2.0 ** (np.floor(np.log2(np.maximum(size, float(info.tiny)))) - info.nmant)
    error = np.abs(found.astype(np.float64) - value) / unit
    # Half a unit above the largest number is infinity.
    error = np.where((size > float(info.max)) & (np.abs(found) >= info.max), 0, error)
    lost = (size < _LEAST * float(info.tiny)) & (error < _LEAST * 2**info.nmant)
    return np.where(lost, 0, error)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_every_number_of_16_bits(dtype: Any) -> None:
    """Values are those of the function, rounded once; a product with a constant twice."""
    x = np.arange(2**16, dtype=np.uint16).view(dtype)
    info = ml_dtypes.finfo(dtype)
    with np.errstate(all="ignore"):
        size = np.abs(x.astype(np.float64))
    x = x[(size >= float(info.tiny)) & (size <= float(info.max))]
    run = tb.jit(lambda x: {name: row[0](x) for name, row in ROWS.items()})
    with np.errstate(all="ignore"):
        for name, found in run(tnp.asarray(x)).items():
            _, exact, bound = ROWS[name]
            value = exact(x.astype(np.float64))
            errors = _errors(np.asarray(found), value, info)[~np.isnan(value)]

            assert errors.max() <= bound, name


def _bell(x: Host) -> Host:
    return special.expit(x) * special.expit(-x)


SLOPES: dict[str, tuple[Callable[[Any], Any], Callable[[Host], Host]]] = {
    "sigmoid": (nn.sigmoid, _bell),
    "tanh": (tnp.tanh, lambda x: 4 * _bell(2 * x)),
    "slope of sigmoid": (tb.grad(nn.sigmoid), lambda x: -np.tanh(x / 2) * _bell(x)),
    "slope of tanh": (tb.grad(tnp.tanh), lambda x: -8 * np.tanh(x) * _bell(2 * x)),
}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_slopes_beside_1(dtype: Any) -> None:
    """Slopes vanish where the distance to 1 does, not where 1 is the nearest number."""
    x = np.linspace(-30, 30, 481).astype(dtype)
    info = ml_dtypes.finfo(dtype)
    run = tb.jit(lambda x: {name: tb.vmap(tb.grad(row[0]))(x) for name, row in SLOPES.items()})
    for name, found in run(tnp.asarray(x)).items():
        value = SLOPES[name][1](x.astype(np.float64))

        assert dtype == found.dtype
        assert _errors(np.asarray(found), value, info).max() <= 2, name
