"""Normalisation over batches, layers and groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import Operator, cast, wide


def _moments(x: Value, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """Mean and biased variance, with axes of one element."""
    mean = tnp.mean(x, axis=axes, keepdims=True)
    return mean, tnp.mean((x - mean) ** 2, axis=axes, keepdims=True)


def _scaled(x: Value, weight: Value | None, bias: Value | None, shape: tuple[Any, ...]) -> Any:
    if weight is not None:
        x *= tnp.reshape(wide(weight), shape)
    return x if bias is None else x + tnp.reshape(wide(bias), shape)


def _batch_norm(
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Any,
    var: Any,
    training: bool,
    momentum: Any,
    eps: Any,
) -> tuple[Any, ...]:
    """Results, statistics of the batch, and the new running statistics."""
    exact = wide(x)
    shape = (1, x.shape[1]) + (1,) * (x.ndim - 2)
    if not training:
        centre, spread = tnp.reshape(wide(mean), shape), tnp.reshape(wide(var), shape)
        scale = lax.rsqrt(spread + cast(eps, exact.dtype))
        y = _scaled((exact - centre) * scale, weight, bias, shape)
        empty = tnp.zeros((0,), exact.dtype)
        return cast(y, x.dtype), empty, empty, mean, var
    axes = (0, *range(2, x.ndim))
    centre, spread = _moments(exact, axes)
    scale = lax.rsqrt(spread + cast(eps, exact.dtype))
    y = _scaled((exact - centre) * scale, weight, bias, shape)
    flat = (x.shape[1],)
    saved = tnp.reshape(centre, flat), tnp.reshape(scale, flat)
    if mean is not None:
        count = math.prod([x.shape[a] for a in axes])
        unbiased = tnp.reshape(spread, flat) * _ratio(count, exact.dtype)
        mean = _moved(mean, saved[0], momentum)
        var = _moved(var, unbiased, momentum)
    return cast(y, x.dtype), *saved, mean, var


def _ratio(count: Any, dtype: Any) -> Any:
    """``count / (count - 1)``, which makes a variance unbiased."""
    return cast(count, dtype) / cast(count - 1, dtype)


def _moved(running: Value, new: Value, momentum: Any) -> Any:
    new = cast(lax.stop_gradient(new), running.dtype)
    return running * cast(1 - momentum, running.dtype) + new * cast(momentum, running.dtype)


def _without_stats(
    x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: Any, eps: Any
) -> tuple[Any, ...]:
    return _batch_norm(x, weight, bias, None, None, True, momentum, eps)[:3]


def _no_training(
    x: Value, weight: Value | None, bias: Value | None, mean: Any, var: Any, momentum: Any, eps: Any
) -> tuple[Any, ...]:
    return _batch_norm(x, weight, bias, mean, var, False, momentum, eps)[:3]


def _with_update(
    x: Value, weight: Value | None, bias: Value | None, mean: Any, var: Any, momentum: Any, eps: Any
) -> tuple[Any, ...]:
    """As in training; the fourth result is memory that GPUs keep for the pullback."""
    *found, mean, var = _batch_norm(x, weight, bias, mean, var, True, momentum, eps)
    return *found, tnp.zeros((0,), np.uint8), mean, var


def _layer_norm(
    x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, eps: Any
) -> tuple[Any, Any, Any]:
    exact = wide(x)
    mean, var = _moments(exact, tuple(range(x.ndim - len(shape), x.ndim)))
    scale = lax.rsqrt(var + cast(eps, exact.dtype))
    y = _scaled((exact - mean) * scale, weight, bias, tuple(shape))
    return cast(y, x.dtype), mean, scale


def _layer_norm_alone(
    x: Value,
    shape: Sequence[Any],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: Any = 1e-05,
    cudnn_enable: bool = True,
) -> Any:
    return _layer_norm(x, shape, weight, bias, eps)[0]


def _group_norm(
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: Any = 1e-05,
    *_: object,
) -> Any:
    return _native_group_norm(x, weight, bias, None, None, None, groups, eps)[0]


def _native_group_norm(
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: Any,
    c: Any,
    hxw: Any,
    groups: int,
    eps: Any,
) -> tuple[Any, Any, Any]:
    exact = wide(x)
    batch, channels = x.shape[:2]
    split = tnp.reshape(exact, (batch, groups, channels // groups, *x.shape[2:]))
    mean, var = _moments(split, tuple(range(2, split.ndim)))
    scale = lax.rsqrt(var + cast(eps, exact.dtype))
    y = tnp.reshape((split - mean) * scale, x.shape)
    y = _scaled(y, weight, bias, (1, channels) + (1,) * (x.ndim - 2))
    return cast(y, x.dtype), *[tnp.reshape(s, (batch, groups)) for s in (mean, scale)]


ROWS: Final[dict[str, Operator]] = {
    "_batch_norm_with_update_functional.default": _with_update,
    "_native_batch_norm_legit.no_stats": _without_stats,
    "_native_batch_norm_legit_functional.default": _batch_norm,
    "_native_batch_norm_legit_no_training.default": _no_training,
    "group_norm.default": _group_norm,
    "layer_norm.default": _layer_norm_alone,
    "native_group_norm.default": _native_group_norm,
    "native_layer_norm.default": _layer_norm,
}
