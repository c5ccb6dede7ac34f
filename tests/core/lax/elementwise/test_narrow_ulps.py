"""Elementwise functions of floats of 16 bits are those of float64, rounded about once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special as host_special

import tracebridge as tb
from tracebridge import lax, nn
from tracebridge import numpy as tnp
from tracebridge.scipy import special

Host = np.ndarray[Any, Any]
Function = Callable[..., Any]

NUMPY = (
    "sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
    "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh",
    "deg2rad", "rad2deg", "square", "reciprocal",
)  # fmt: skip
SCIPY = (
    "erf", "erfc", "erfinv", "digamma", "expit", "logit", "entr", "i0e", "i1e", "ndtr", "ndtri",
    "log_ndtr", "gamma", "exp1", "expi", "erfcx", "dawsn",
)  # fmt: skip


def _elu(x: Host, alpha: float = 1.0) -> Host:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


VALUES: dict[str, tuple[Function, Function]] = {
    **{name: (getattr(tnp, name), getattr(np, name)) for name in NUMPY},
    **{name: (getattr(special, name), getattr(host_special, name)) for name in SCIPY},
    "rsqrt": (lax.rsqrt, lambda x: 1 / np.sqrt(x)),
    "sinc": (tnp.sinc, lambda x: np.where((x == np.round(x)) & (x != 0), 0 * x, np.sinc(x))),
    "elu": (nn.elu, _elu),
    "celu": (nn.celu, _elu),
    "selu": (nn.selu, lambda x: 1.0507009873554805 * _elu(x, 1.6732632423543772)),
    "soft_sign": (nn.soft_sign, lambda x: np.where(np.isinf(x), np.nan, x / (1 + abs(x)))),
    "squareplus": (
        nn.squareplus,
        lambda x: np.where(x < 0, 2 / (np.hypot(x, 2) - x), (x + np.hypot(x, 2)) / 2),
    ),
}
# Derivatives that are no functions of the rounded result.
SLOPES: dict[str, tuple[Function, Function]] = {
    "rsqrt": (lax.rsqrt, lambda x: -0.5 * x**-1.5),
    "soft_sign": (nn.soft_sign, lambda x: (1 + abs(x)) ** -2.0),
    "erfinv": (
        special.erfinv,
        lambda p: np.sqrt(np.pi) / 2 * np.exp(host_special.erfinv(p) ** 2),
    ),
    "entr": (special.entr, lambda x: np.where(x >= 0, -1 - np.log(x), np.nan)),
}


def _points(dtype: Any) -> Host:
    """Each 37th float, zeros, infinities and NaN, but no subnormal numbers."""
    x = np.arange(0, 2**16, 37).astype(np.uint16).view(dtype)
    x = np.concatenate([x, np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], dtype)])
    with np.errstate(invalid="ignore"):
        return x[~((x != 0) & (abs(x) < ml_dtypes.finfo(dtype).tiny))]


def _units(got: Host, wanted: Host, dtype: Any) -> Host:
    """Distances in units in the last place; results may overflow and underflow by rounding."""
    with np.errstate(all="ignore"):
        info = ml_dtypes.finfo(dtype)
        tiny, eps, largest = float(info.tiny), float(info.eps), float(info.max)
        size = np.abs(wanted)
        unit = 2.0 ** np.floor(np.log2(np.clip(size, tiny, largest))) * eps
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
        over = np.isinf(got) & (size >= largest * (1 - eps)) & (np.sign(got) == np.sign(wanted))
        under = (size < tiny) & (np.abs(got) <= tiny)
        units = np.where(same | over | under, 0.0, np.abs(got - wanted) / unit)
        return np.where(np.isnan(units), np.inf, units)


def _wrong(got: Any, wanted: Host, x: Host, bound: float) -> list[tuple[float, ...]]:
    assert np.asarray(got).dtype == x.dtype
    got = np.asarray(got).astype(np.float64)
    units = _units(got, wanted, x.dtype)
    return [
        (float(x[i]), got[i], wanted[i], units[i]) for i in np.flatnonzero(~(units <= bound))[:8]
    ]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("name", VALUES)
def test_values(name: str, dtype: Any) -> None:
    """At most one unit in the last place."""
    fun, exact = VALUES[name]
    x = _points(dtype)

    with np.errstate(all="ignore"):
        wanted = np.asarray(exact(x.astype(np.float64)))
    assert [] == _wrong(fun(x), wanted, x, 1.01)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("name", SLOPES)
def test_slopes(name: str, dtype: Any) -> None:
    """At most two units: the derivative is taken in float32 where its formula cancels."""
    fun, exact = SLOPES[name]
    x = _points(dtype)

    with np.errstate(all="ignore"):
        x = x[np.isfinite(x)]
        wanted = np.asarray(exact(x.astype(np.float64)))
    got = tb.vmap(tb.grad(fun))(x)
    assert [] == _wrong(got, wanted, x, 2.0)


def _sums(x: Host) -> dict[str, tuple[Any, Host]]:
    """What is a sum of many elements, and what it is in float64."""
    wide, many = x.astype(np.float64), np.zeros(len(x[0]), np.int32)
    powers = np.exp(wide)
    return {
        "softmax": (nn.softmax(x), powers / powers.sum(-1, keepdims=True)),
        "logmeanexp": (nn.logmeanexp(x, 1), np.log(powers.mean(-1))),
        "segment_sum": (
            tb.ops.segment_sum(abs(x[0]), many, 1),
            abs(wide[0]).sum(keepdims=True),
        ),
        "convolve": (
            tnp.convolve(abs(x[0]), abs(x[1][:20]), "valid"),
            np.convolve(abs(wide[0]), abs(wide[1][:20]), "valid"),
        ),
    }


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
def test_sums_are_rounded_once(dtype: Any) -> None:
    """Not after each term: in bfloat16 a sum of ones would stop at 256."""
    x = np.random.default_rng(0).normal(size=(3, 3000)).astype(dtype)

    for name, (got, wanted) in _sums(x).items():
        assert np.asarray(got).dtype == dtype, name
        units = _units(np.asarray(got).astype(np.float64), wanted, dtype)
        assert units.max() <= 1.01, name
