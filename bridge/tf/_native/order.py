"""Sorting, by the operation for the largest elements: it keeps the order of equal ones."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.tf._native.builder import Builder, DType, Tensor, number, rule
from tracebridge.tf._native.integers import sort_key
from tracebridge.tf._xla_call_module import tf_dtype


def _last(x: Tensor, axis: int) -> Tensor:
    """``x`` with an axis in the last place, or back from there."""
    ndim = x.shape.rank
    if axis % ndim == ndim - 1:
        return x
    order = [a for a in range(ndim) if a != axis]
    return tf.transpose(x, [*order, axis])


def _back(x: Tensor, axis: int) -> Tensor:
    ndim = x.shape.rank
    if axis % ndim == ndim - 1:
        return x
    order = list(range(ndim - 1))
    order.insert(axis, ndim - 1)
    return tf.transpose(x, order)


def _keys(x: Tensor, dtype: DType) -> list[Tensor]:
    if is_complex(dtype):
        parts = (tf.math.real(x), tf.math.imag(x))
        return [sort_key(part, part.dtype.as_numpy_dtype(0).dtype) for part in parts]
    return [sort_key(x, dtype)]


def _taken(x: Tensor, order: Tensor) -> Tensor:
    return tf.gather(x, order, axis=-1, batch_dims=x.shape.rank - 1)


def _turned(key: Tensor) -> Tensor:
    """Integers in the opposite order."""
    return number(key, -1) - key


@rule("sort")
def _sort(
    b: Builder, *xs: Tensor, dimension: int, num_keys: int, is_stable: bool = True
) -> list[Tensor]:
    axis, order = dimension, None
    rows = [_last(x, axis) for x in xs]
    n = tf.shape(rows[0])[-1]
    # From the last key to the first: a stable sort keeps the order of those before.
    for x, aval in reversed(list(zip(rows[:num_keys], b.avals[:num_keys], strict=True))):
        for key in reversed(_keys(x, aval.dtype)):
            chosen = key if order is None else _taken(key, order)
            found = tf.math.top_k(_turned(chosen), n, sorted=True).indices
            order = found if order is None else _taken(order, found)
    return [_back(_taken(x, order), axis) for x in rows]


def _best(b: Builder, x: Tensor, k: object, axis: int, *, most: bool) -> list[Tensor]:
    row = _last(x, axis)
    key = sort_key(row, b.avals[0].dtype)
    if not most:
        # NaN is first in both orders.
        key = _turned(key)
        if row.dtype.is_floating:
            key = tf.where(tf.math.is_nan(row), tf.constant(key.dtype.max, key.dtype), key)
    order = tf.math.top_k(key, b.size(k), sorted=True).indices
    indices = tf.cast(order, tf_dtype(b.outs[1].dtype))
    return [_back(_taken(row, order), axis), _back(indices, axis)]


@rule("top_k")
def _top_k(b: Builder, x: Tensor, k: object, axis: int, **_: object) -> list[Tensor]:
    return _best(b, x, k, axis, most=True)


@rule("approx_top_k")
def _approx_top_k(
    b: Builder, x: Tensor, k: object, reduction_dimension: int, is_max_k: bool, **_: object
) -> Any:
    return _best(b, x, k, reduction_dimension, most=is_max_k)
