"""Operators that draw random numbers: each is given a key of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.random.binomial import binomial
from tracebridge.random.counts import geometric, poisson
from tracebridge.random.gamma import dirichlet, gamma
from tracebridge.random.selection import categorical, permutation
from tracebridge.random.transforms import bernoulli, cauchy
from tracebridge.random.uniform import normal, randint, uniform
from tracebridge.torch._translate.numbers import Operator, as_numpy_dtype, cast, is_array, promoted

INDEX = np.dtype(np.int64)


def _dropout(key: Value, x: Value, p: float, train: bool | None = True) -> tuple[Any, Any]:
    if train is False or p == 0:
        return x, tnp.ones(x.shape, bool)
    if p == 1:
        return x * cast(0, x.dtype), tnp.zeros(x.shape, bool)
    kept = bernoulli(key, 1 - p, x.shape)
    return tnp.where(kept, x * cast(1 / (1 - p), x.dtype), cast(0, x.dtype)), kept


def _drawn(fun: Operator) -> Operator:
    def run(
        key: Value, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: object
    ) -> Any:
        return fun(key, tuple(size), as_numpy_dtype(dtype))

    return run


def _drawn_like(fun: Operator) -> Operator:
    def run(key: Value, x: Value, *, dtype: torch.dtype | None = None, **_: object) -> Any:
        return fun(key, x.shape, x.dtype if dtype is None else as_numpy_dtype(dtype))

    return run


def _randint(
    key: Value,
    low: int,
    high: int,
    size: Sequence[Any],
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> Any:
    kind = INDEX if dtype is None else as_numpy_dtype(dtype)
    return cast(randint(key, tuple(size), low, high, INDEX), kind)


def _randint_like(
    key: Value, x: Value, low: int, high: int, *, dtype: torch.dtype | None = None, **_: object
) -> Any:
    kind = x.dtype if dtype is None else as_numpy_dtype(dtype)
    return cast(randint(key, x.shape, low, high, INDEX), kind)


def _randperm(key: Value, n: Any, *, dtype: torch.dtype | None = None, **_: object) -> Any:
    kind = INDEX if dtype is None else as_numpy_dtype(dtype)
    return cast(permutation(key, n), kind)


def _uniform(
    key: Value, x: Value, low: float = 0.0, high: float = 1.0, *, generator: object = None
) -> Any:
    return uniform(key, x.shape, x.dtype, low, high)


def _normal(
    key: Value, x: Value, mean: float = 0.0, std: float = 1.0, *, generator: object = None
) -> Any:
    return normal(key, x.shape, x.dtype) * cast(std, x.dtype) + cast(mean, x.dtype)


def _normal_by(key: Value, mean: Any, std: Any = 1.0, generator: object = None) -> Any:
    """Around each mean, or with each deviation. Of samples torch has no derivatives."""
    given = [lax.stop_gradient(x) if is_array(x) else x for x in (mean, std)]
    mean, std = tnp.broadcast_arrays(*promoted(*given, floats=True))
    return _normal(key, mean, mean, std)


def _normal_of(
    key: Value,
    mean: float,
    std: float,
    size: Sequence[Any],
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> Any:
    return _normal(key, tnp.zeros(tuple(size), as_numpy_dtype(dtype)), mean, std)


def _exponential(key: Value, x: Value, rate: float = 1.0, *, generator: object = None) -> Any:
    return -tnp.log1p(-uniform(key, x.shape, x.dtype)) / cast(rate, x.dtype)


def _cauchy(
    key: Value, x: Value, median: float = 0.0, sigma: float = 1.0, *, generator: object = None
) -> Any:
    return cauchy(key, x.shape, x.dtype) * cast(sigma, x.dtype) + cast(median, x.dtype)


def _log_normal(
    key: Value, x: Value, mean: float = 1.0, std: float = 2.0, *, generator: object = None
) -> Any:
    return tnp.exp(_normal(key, x, mean, std))


def _geometric(key: Value, x: Value, p: float, *, generator: object = None) -> Any:
    return cast(geometric(key, p, x.shape), x.dtype)


def _poisson(key: Value, rate: Value, generator: object = None) -> Any:
    return cast(poisson(key, lax.stop_gradient(rate), rate.shape), rate.dtype)


def _binomial(key: Value, count: Value, p: Value, generator: object = None) -> Any:
    return binomial(key, lax.stop_gradient(count), lax.stop_gradient(p), dtype=count.dtype)


def _gamma(key: Value, shape: Value, generator: object = None) -> Any:
    return gamma(key, shape, shape.shape, shape.dtype)


def _dirichlet(key: Value, weights: Value, generator: object = None) -> Any:
    return dirichlet(key, weights, weights.shape[:-1], weights.dtype)


def _multinomial(
    key: Value, weights: Value, n: int, replacement: bool = False, *, generator: object = None
) -> Any:
    logits = tnp.log(lax.stop_gradient(weights))
    places = categorical(key, logits, -1, (n, *logits.shape[:-1]), replacement)
    return cast(tnp.moveaxis(places, 0, -1), INDEX)


def _bernoulli(key: Value, x: Value, p: Any = None, *, generator: object = None) -> Any:
    if p is None:
        return cast(bernoulli(key, x), x.dtype)
    if isinstance(p, float) and not math.isfinite(p):
        p = 0.0
    return cast(bernoulli(key, p, x.shape), x.dtype)


def _rrelu(
    key: Value,
    x: Value,
    noise: Value,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: object = None,
) -> tuple[Any, Any]:
    """A slope for each negative number, or the mean one."""
    del generator
    if not training:
        return tnp.where(x > 0, x, x * cast((lower + upper) / 2, x.dtype)), noise
    slope = tnp.where(x > 0, cast(1, x.dtype), uniform(key, x.shape, x.dtype, lower, upper))
    return x * slope, slope


def draws_in_rrelu(*args: Any, training: bool = False, **_: Any) -> bool:
    """Whether slopes are drawn: in training."""
    place = 4
    return bool(args[place]) if len(args) > place else training


_DRAWN: Final[dict[str, Operator]] = {
    "rand": _drawn(uniform),
    "rand_like": _drawn_like(uniform),
    "randint": lambda key, high, size, **kw: _randint(key, 0, high, size, **kw),
    "randint_like": lambda key, x, high, **kw: _randint_like(key, x, 0, high, **kw),
    "randn": _drawn(normal),
    "randn_like": _drawn_like(normal),
    "randperm": _randperm,
}

KEYED_ROWS: Final[dict[str, Operator]] = {
    **{f"{name}.default": fun for name, fun in _DRAWN.items()},
    # Of a generator, in the place of which there is a key.
    **{f"{name}.generator": fun for name, fun in _DRAWN.items()},
    "bernoulli.Tensor": _bernoulli,
    "bernoulli.default": _bernoulli,
    "bernoulli.p": _bernoulli,
    "binomial.default": _binomial,
    "cauchy.default": _cauchy,
    "geometric.default": _geometric,
    "log_normal.default": _log_normal,
    "multinomial.default": _multinomial,
    "poisson.default": _poisson,
    "_sample_dirichlet.default": _dirichlet,
    "_standard_gamma.default": _gamma,
    "exponential.default": _exponential,
    "native_dropout.default": _dropout,
    "normal.Tensor_Tensor": _normal_by,
    "normal.Tensor_float": _normal_by,
    "normal.float_Tensor": _normal_by,
    "normal.float_float": _normal_of,
    "normal_functional.default": _normal,
    "rrelu_with_noise_functional.default": _rrelu,
    "randint.low": _randint,
    "randint.low_generator": _randint,
    "randint_like.low_dtype": _randint_like,
    "randint_like.low_generator_dtype": _randint_like,
    "uniform.default": _uniform,
}
