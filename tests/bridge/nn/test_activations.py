"""Activation functions agree with PyTorch or with their formulas; derivatives at the corners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpmath import mp

import tracebridge as tb
import tracebridge.nn as nn
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.testing import assert_allclose, check_rules

SMOOTH = np.array([-6.5, -2.5, -0.7, 0.3, 1.2, 2.1, 4.4, 7.5], np.float32)
LN2 = np.log(2.0)


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


FORMULAS: dict[str, Any] = {
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "identity": lambda x: x,
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "log_sigmoid": lambda x: np.log(_logistic(x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "sigmoid": _logistic,
    "silu": lambda x: x * _logistic(x),
    "soft_sign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "sparse_plus": lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4)),
    "sparse_sigmoid": lambda x: np.clip((x + 1) / 2, 0, 1),
    "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_and_rules(name: str) -> None:
    """Value, derivatives to second order and batching, away from the corners."""
    check_rules(
        getattr(nn, name),
        SMOOTH,
        reference=lambda x: FORMULAS[name](x.astype(np.float64)),
        rtol=1e-5,
        atol=1e-6,
    )


CORNERS: dict[str, tuple[list[float], list[float]]] = {
    "relu": ([-0.0, 0.0], [0, 0]),
    "relu6": ([0.0, 6.0], [0, 0]),
    "elu": ([0.0], [1]),
    "celu": ([0.0], [1]),
    "leaky_relu": ([0.0], [1]),
    "hard_tanh": ([-1.0, 1.0], [1, 1]),
    "soft_sign": ([0.0], [1]),
    "gelu": ([0.0], [0.5]),
}


@pytest.mark.parametrize("name", CORNERS)
def test_derivatives_at_corners(name: str) -> None:
    """They are those that the field agreed on."""
    points, expected = CORNERS[name]

    assert expected == [float(tb.grad(getattr(nn, name))(x)) for x in points]


@pytest.mark.parametrize("name", sorted({*FORMULAS, "gelu"} - {"identity"}))
def test_far_from_zero_nothing_is_nan(name: str) -> None:
    """Values and derivatives stay finite at large arguments, and a NaN stays a NaN."""
    fun = getattr(nn, name)
    x = np.array([-200.0, 200.0], np.float32)

    assert np.isfinite(np.asarray(fun(x))).all()
    assert np.isfinite(np.asarray(tb.vmap(tb.grad(fun))(x))).all()
    assert np.isnan(float(fun(np.nan)))


def test_gelu_both_forms() -> None:
    """By tanh as published, and by the error function."""
    from scipy import special

    x = SMOOTH.astype(np.float64)
    exact = x * special.ndtr(x)
    by_tanh = x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    check_rules(lambda x: nn.gelu(x, approximate=False), SMOOTH, reference=lambda _: exact,
                rtol=1e-5, atol=1e-6)  # fmt: skip
    check_rules(nn.gelu, SMOOTH, reference=lambda _: by_tanh, rtol=1e-5, atol=1e-6)


def test_log1mexp_near_and_far() -> None:
    """No cancellation on either side of log 2; minus infinity at 0."""
    x = np.array([1e-6, 0.1, LN2, 1.0, 20.0], np.float32)
    wide = x.astype(np.float64)
    expected = np.where(wide < LN2, np.log(-np.expm1(-wide)), np.log1p(-np.exp(-wide)))

    assert_allclose(np.asarray(nn.log1mexp(x)), expected.astype(np.float32), rtol=1e-5)
    assert float(nn.log1mexp(0.0)) == -np.inf
    check_rules(nn.log1mexp, x[1:4])


def test_glu_halves_an_axis() -> None:
    """The first half times the sigmoid of the second; odd sizes are refused."""
    x = np.arange(12, dtype=np.float32).reshape(2, 6) / 4

    check_rules(
        nn.glu, x, reference=lambda x: x[:, :3] * _logistic(x[:, 3:].astype(np.float64)),
        rtol=1e-5,
    )  # fmt: skip
    assert nn.glu(x, axis=0).shape == (1, 6)
    with pytest.raises(ShapeMismatchError, match="odd"):
        nn.glu(x[:, :5])


def test_names_and_dtypes() -> None:
    """Second names are the same functions; narrow and weak dtypes stay."""
    assert nn.swish is nn.silu
    assert nn.hard_swish is nn.hard_silu
    for name in FORMULAS:
        out = getattr(nn, name)(tb.numpy.ones(2, "bfloat16"))
        assert out.dtype == "bfloat16", name
    assert nn.sigmoid(tb.numpy.arange(2)).dtype == np.float32


def test_complex_corners_and_squares() -> None:
    """Functions with bounds take complex numbers, ordered by their real parts first."""
    x = np.array([1j, 2, -3, 0.5 + 1j], np.complex64)

    expected = np.array([0.5j, 2, 0, 0.3125 + 0.75j], np.complex64)

    assert_allclose(nn.sparse_plus(x), expected, rtol=1e-6)
    assert_allclose(nn.squareplus(x), (x + np.sqrt(x * x + 4)) / 2, rtol=1e-6)
    assert np.isnan(float(nn.sparse_plus(np.nan)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["gelu", "silu", "mish", "squareplus", "sigmoid"])
def test_narrow_floats_are_right_far_below_zero(name: str, dtype: str) -> None:
    """What a formula loses to cancellation or overflow is not lost to narrow dtypes."""
    x = tb.numpy.asarray([-11.5, -6.0, -3.75, -1.0, 0.5, 300.0], dtype)
    function = getattr(nn, name)
    with tb.enable_x64(True):
        expected = np.asarray(function(x.astype("float64")))
    eps = float(tb.numpy.finfo(dtype).eps)

    np.testing.assert_allclose(
        np.asarray(function(x), np.float64), expected, rtol=eps, atol=1e-7 if eps < 1e-3 else 1e-11
    )


# Of smooth functions far below 0, where their factors are smaller than any float.
TAILS: dict[str, tuple[Any, Any, list[float], list[float]]] = {
    "silu": (
        nn.silu,
        lambda x: x / (1 + mp.exp(-x)),
        [-91.0, -88.0, -20.0, -1.0],
        [-714.0, -709.0, -30.0, -1.0],
    ),
    "mish": (
        nn.mish,
        lambda x: x * mp.tanh(mp.log1p(mp.exp(x))),
        [-91.0, -88.0, -20.0, -1.0],
        [-714.0, -709.0, -30.0, -1.0],
    ),
    "gelu": (
        nn.gelu,
        lambda x: x / (1 + mp.exp(-mp.sqrt(8 / mp.pi) * (x + mp.mpf("0.044715") * x**3))),
        [-9.5, -6.0, -2.0],
        [-9.5, -6.0, -2.0],
    ),
    "gelu_by_erfc": (
        lambda x: nn.gelu(x, approximate=False),
        lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
        [-4.0, -2.0, -1.0],
        [-37.0, -26.8, -9.4, -1.0],
    ),
    "squareplus": (
        nn.squareplus,
        lambda x: (x + mp.sqrt(x * x + 4)) / 2,
        [-1e18, -1e5, -10.0, 0.0, 3.0],
        [-1e18, -1e5, -10.0, 0.0, 3.0],
    ),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", TAILS)
def test_tails_keep_their_digits(name: str, dtype: Any) -> None:
    """Values and slopes to a few units in the last place, those of the argument times the slope."""
    fun, exact, narrow, wide = TAILS[name]
    points = np.array(narrow if dtype is np.float32 else wide, dtype)
    with tb.enable_x64(True):
        values, pull = tb.vjp(fun, points)
        slopes = pull(np.ones_like(points))[0]

    with mp.workprec(300):
        for x, value, slope in zip(points, values.tolist(), slopes.tolist(), strict=True):
            x_ = mp.mpf(float(x))
            expected, rate = exact(x_), mp.diff(exact, x_)
            bound = float(np.finfo(dtype).eps) * (12 if name == "gelu" else 4)
            if name == "gelu":  # of the rounding of its cubic polynomial
                bound *= 1 + abs(float(x_ * rate / expected))
            least = float(np.finfo(dtype).tiny)  # threads may take subnormal numbers for zeros
            assert abs(value - expected) <= bound * abs(expected) + least
            assert abs(slope - rate) <= 4 * bound * abs(rate) + least


def test_weak_types_of_integers() -> None:
    """What a number of the formula makes of integers gives way to the dtypes of arrays."""
    for function in (nn.elu, nn.selu, nn.celu, nn.leaky_relu):
        out = function(np.arange(3))
        assert ("float32", True) == (str(out.dtype), out.weak_type)
        assert not function(np.arange(3, dtype=np.float32)).weak_type
