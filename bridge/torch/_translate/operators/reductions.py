"""Operators that reduce, accumulate and sort along axes."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import torch

import tracebridge.core.lax as lax
import tracebridge.nn as nn
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import (
    Operator,
    as_numpy_dtype,
    axes_of,
    axis_of,
    cast,
    wide,
)

INDEX = np.dtype(np.int64)


def _summed(x: Value, dtype: Any) -> Any:
    """The operand of a sum: integers are added with 64 bits."""
    if dtype is not None:
        return cast(x, as_numpy_dtype(dtype))
    return cast(x, INDEX) if x.dtype.kind in "biu" else x


def _sum(
    x: Value, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    return tnp.sum(_summed(x, dtype), axis=axes_of(dim, x.ndim), keepdims=keepdim)


def _prod(
    x: Value, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    return tnp.prod(_summed(x, dtype), axis=axes_of(dim, x.ndim), keepdims=keepdim)


def _mean(
    x: Value, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    x = x if dtype is None else cast(x, as_numpy_dtype(dtype))
    return tnp.mean(x, axis=axes_of(dim, x.ndim), keepdims=keepdim)


def _var(x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    axes = axes_of(dim, x.ndim)
    exact = wide(x)
    count = math.prod([x.shape[a] for a in axes])
    centred = exact - tnp.mean(exact, axis=axes, keepdims=True)
    squares = tnp.sum(tnp.real(centred * tnp.conj(centred)), axis=axes, keepdims=keepdim)
    left = count - (1 if correction is None else correction)
    if isinstance(left, int | float):
        left = max(left, 0)
    return cast(squares / cast(left, squares.dtype), tnp.real(x).dtype)


def _var_dim(x: Value, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Any:
    return _var(x, dim, correction=int(unbiased), keepdim=keepdim)


def _extreme(fun: Operator) -> Operator:
    def run(x: Value, dim: Any = None, keepdim: bool = False) -> Any:
        return fun(x, axis=axes_of(dim, x.ndim), keepdims=keepdim)

    return run


def _extreme_at(fun: Operator) -> Operator:
    """Value and position; the derivative goes to that position alone."""

    def run(x: Value, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
        if not x.ndim:
            return x, tnp.zeros((), INDEX)
        axis = axis_of(dim, x.ndim)
        places = cast(fun(lax.stop_gradient(x), axis=axis, keepdims=True), INDEX)
        # Of 32 bits, as derivatives are computed outside of the width of the program.
        values = tnp.take_along_axis(x, cast(places, np.dtype(np.int32)), axis=axis)
        pair = values, places
        return pair if keepdim else (tnp.squeeze(values, axis), tnp.squeeze(places, axis))

    return run


def _position(fun: Operator) -> Operator:
    def run(x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
        if not x.ndim:
            return tnp.zeros((), INDEX)
        axis = None if dim is None else axis_of(dim, x.ndim)
        return cast(fun(x, axis=axis, keepdims=keepdim), INDEX)

    return run


def _truths(fun: Operator) -> Operator:
    def run(x: Value, dim: Any = None, keepdim: bool = False) -> Any:
        return fun(x != 0, axis=axes_of(dim, x.ndim), keepdims=keepdim)

    return run


def _running(fun: Operator) -> Operator:
    def run(x: Value, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        x = _summed(x, dtype)
        return fun(x, axis=axis_of(dim, x.ndim)) if x.ndim else x

    return run


def _safe_softmax(x: Value, dim: int, dtype: torch.dtype | None = None) -> Any:
    """Zeros, with zero derivatives, where there is nothing but minus infinity."""
    x = x if dtype is None else cast(x, as_numpy_dtype(dtype))
    nothing = tnp.all(lax.eq(x, cast(-math.inf, x.dtype)), axis=dim, keepdims=True)
    zero = cast(0, x.dtype)
    y = _softmax(nn.softmax)(tnp.where(nothing, zero, x), dim, False)
    return tnp.where(nothing, zero, y)


def _softmax(fun: Operator) -> Operator:
    def run(x: Value, dim: int, half_to_float: bool = False) -> Any:
        y = fun(wide(x), axis=axis_of(dim, x.ndim)) if x.ndim else fun(wide(x)[None], axis=0)[0]
        return y if half_to_float else cast(y, x.dtype)

    return run


def _sort(x: Value, dim: int = -1, descending: bool = False) -> tuple[Any, Any]:
    if not x.ndim:
        return x, tnp.zeros((), INDEX)
    axis = axis_of(dim, x.ndim)
    places = tnp.argsort(lax.stop_gradient(x), axis=axis, descending=descending, stable=True)
    places = cast(places, INDEX)
    return tnp.take_along_axis(x, places, axis=axis), places


def _sort_stable(
    x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Any, Any]:
    return _sort(x, dim, descending)


def _topk(
    x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Any, Any]:
    axis = axis_of(dim, x.ndim)
    if not x.ndim or axis != x.ndim - 1 or not largest:
        values, places = _sort(x, dim, largest)
        if not x.ndim:
            return values, places
        first = (slice(None),) * axis + (slice(0, k),)
        return values[first], places[first]
    values, places = lax.top_k(x, k)
    return values, cast(places, INDEX)


ROWS: Final[dict[str, Operator]] = {
    "_log_softmax.default": _softmax(nn.log_softmax),
    "_safe_softmax.default": _safe_softmax,
    "_softmax.default": _softmax(nn.softmax),
    "all.default": _truths(tnp.all),
    "all.dim": _truths(tnp.all),
    "all.dims": _truths(tnp.all),
    "amax.default": _extreme(tnp.max),
    "amin.default": _extreme(tnp.min),
    "any.default": _truths(tnp.any),
    "any.dim": _truths(tnp.any),
    "any.dims": _truths(tnp.any),
    "argmax.default": _position(tnp.argmax),
    "argmin.default": _position(tnp.argmin),
    "cumprod.default": _running(tnp.cumprod),
    "cumsum.default": _running(tnp.cumsum),
    "max.default": _extreme(tnp.max),
    "max.dim": _extreme_at(tnp.argmax),
    "mean.default": lambda x, *, dtype=None: _mean(x, dtype=dtype),
    "mean.dim": _mean,
    "min.default": _extreme(tnp.min),
    "min.dim": _extreme_at(tnp.argmin),
    "prod.default": lambda x, *, dtype=None: _prod(x, dtype=dtype),
    "prod.dim_int": _prod,
    "sort.default": _sort,
    "sort.stable": _sort_stable,
    "sum.default": lambda x, *, dtype=None: _sum(x, dtype=dtype),
    "sum.dim_IntList": _sum,
    "topk.default": _topk,
    "var.correction": _var,
    "var.dim": _var_dim,
}
