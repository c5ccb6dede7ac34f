"""Operators that draw random numbers: each is given a key of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.random.selection import permutation
from tracebridge.random.transforms import bernoulli
from tracebridge.random.uniform import normal, randint, uniform
from tracebridge.torch._translate.numbers import Operator, as_numpy_dtype, cast

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


def _exponential(key: Value, x: Value, rate: float = 1.0, *, generator: object = None) -> Any:
    return -tnp.log1p(-uniform(key, x.shape, x.dtype)) / cast(rate, x.dtype)


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
    "exponential.default": _exponential,
    "native_dropout.default": _dropout,
    "normal_functional.default": _normal,
    "rrelu_with_noise_functional.default": _rrelu,
    "randint.low": _randint,
    "randint.low_generator": _randint,
    "randint_like.low_dtype": _randint_like,
    "randint_like.low_generator_dtype": _randint_like,
    "uniform.default": _uniform,
}
