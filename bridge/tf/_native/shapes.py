"""Operations that move elements about, and those that make arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tracebridge.core.dtypes import dtypes as d
from tracebridge.tf._native.arithmetic import converted, larger, smaller
from tracebridge.tf._native.builder import Builder, DType, Spread, Tensor, is_static, rule
from tracebridge.tf._xla_call_module import tf_dtype

_SAME = (
    "stop_gradient",
    "unchosen",
    "name",
    "to_memory",
    "xla_metadata_value",
    "stage",
    "device_put",
    "layout_constraint",
    "sharding_constraint",
    "unsplit",
    "stored",
    "mark_shared",
    "pcast",
    "random_wrap",
    "random_unwrap",
    "key_use",
)


@rule(*_SAME)
def _same(b: Builder, x: Tensor, **_: object) -> Tensor:
    return tf.identity(x)


@rule("optimization_barrier", "shard_alike")
def _barrier(b: Builder, *xs: Tensor) -> list[Tensor]:
    return [tf.identity(x) for x in xs]


@rule("select_n")
def _select_n(b: Builder, which: Tensor, *cases: Tensor) -> Tensor:
    if len(cases) == 1:
        return cases[0]
    if b.avals[0].dtype == d.bool_:
        return tf.where(which, cases[1], cases[0])
    found = cases[0]
    for i, case in enumerate(cases[1:], 1):
        found = tf.where(which >= i, case, found)
    return found


@rule("clamp", spreads=True)
def _clamp(b: Builder, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    return smaller(larger(x, low, b.aval.dtype), high, b.aval.dtype)


# shapes -------------------------------------------------------------------------------------------


@rule("broadcast_in_dim")
def _broadcast_in_dim(
    b: Builder, x: Tensor, shape: Sequence[object], broadcast_dimensions: Sequence[int]
) -> Any:
    return spread(b, x, b.avals[0].shape, shape, broadcast_dimensions)


def spread(
    b: Builder, x: Tensor, old: Sequence[Any], shape: Sequence[object], dims: Sequence[int]
) -> Any:
    """``x`` with its axes at ``dims`` of ``shape``, to be repeated along the others."""
    if len(shape) == len(old) == 0:
        return x
    place = dict(zip(dims, old, strict=True))
    return Spread(b.reshape(x, [place.get(axis, 1) for axis in range(len(shape))]), shape)


@rule("reshape")
def _reshape(b: Builder, x: Tensor, new_sizes: Sequence[object], **_: object) -> Tensor:
    return b.reshape(x, new_sizes)


def permuted(x: Tensor, order: Sequence[int]) -> Tensor:
    """``x`` with its axes in another order."""
    order = [int(a) for a in order]
    return x if order == list(range(len(order))) else tf.transpose(x, order)


def reshaped(b: Builder, x: Tensor, old: Sequence[object], new: Sequence[object]) -> Tensor:
    """``x`` of shape ``old`` with shape ``new``."""
    return x if tuple(old) == tuple(new) else b.reshape(x, new)


@rule("squeeze")
def _squeeze(b: Builder, x: Tensor, dimensions: Sequence[int]) -> Tensor:
    axes = [int(a) for a in dimensions]
    return tf.squeeze(x, axes) if axes else x


@rule("transpose")
def _transpose(b: Builder, x: Tensor, permutation: Sequence[int]) -> Tensor:
    return permuted(x, permutation)


@rule("rev")
def _rev(b: Builder, x: Tensor, dimensions: Sequence[int]) -> Tensor:
    return tf.reverse(x, [int(a) for a in dimensions])


@rule("roll")
def _roll(b: Builder, x: Tensor, shift: int, dimension: int) -> Tensor:
    return tf.roll(x, shift, dimension)


@rule("concatenate")
def _concatenate(b: Builder, *xs: Tensor, dimension: int) -> Tensor:
    return tf.concat(xs, dimension)


@rule("stack")
def _stack(b: Builder, *xs: Tensor, axis: int) -> Tensor:
    return tf.stack(xs, axis)


@rule("unstack")
def _unstack(b: Builder, x: Tensor, axis: int) -> list[Tensor]:
    return tf.unstack(x, len(b.outs), axis)


@rule("split")
def _split(b: Builder, x: Tensor, sizes: Sequence[object], axis: int) -> list[Tensor]:
    return tf.split(x, b.shape(sizes), axis, num=len(b.outs))


@rule("tile")
def _tile(b: Builder, x: Tensor, reps: Sequence[object]) -> Tensor:
    return tf.tile(x, b.shape(reps))


@rule("slice")
def _slice(
    b: Builder,
    x: Tensor,
    start_indices: Sequence[object],
    limit_indices: Sequence[object],
    strides: Sequence[object] | None = None,
) -> Tensor:
    steps = strides if strides is not None else (1,) * len(start_indices)
    return sliced(b, x, start_indices, limit_indices, steps)


def sliced(
    b: Builder,
    x: Tensor,
    starts: Sequence[object],
    limits: Sequence[object],
    steps: Sequence[object],
) -> Tensor:
    """The elements from ``starts`` to ``limits``."""
    if not len(starts):
        return x
    return tf.strided_slice(x, b.shape(starts), b.shape(limits), b.shape(steps))


def cut(
    x: Tensor, axis: int, start: Tensor, limit: Tensor = None, step: int | None = None
) -> Tensor:
    """A slice along one axis; a limit of None is its end."""
    return x[(*(slice(None),) * axis, slice(start, limit, step))]


@rule("pad")
def _pad(b: Builder, x: Tensor, value: Tensor, padding_config: Sequence[Sequence[Any]]) -> Tensor:
    return padded(b, x, value, padding_config, b.avals[0].shape)


def padded(
    b: Builder,
    x: Tensor,
    value: Tensor,
    config: Sequence[Sequence[Any]],
    shape: Sequence[Any],
) -> Tensor:
    """``x`` with copies of a number around its elements and between them."""
    sizes = b.shape(shape)
    for axis, (_, _, between) in enumerate(config):
        inner, n = b.size(between), sizes[axis]
        if isinstance(inner, int) and inner == 0:
            continue
        x = tf.expand_dims(x, axis + 1)
        amounts = [[0, 0]] * (axis + 1) + [[0, inner]] + [[0, 0]] * (len(sizes) - axis - 1)
        x = tf.pad(x, amounts, constant_values=value)
        sizes[axis] = n * (inner + 1)
        x = tf.reshape(x, sizes)
        sizes[axis] = _at_least_0(sizes[axis] - inner)
        x = cut(x, axis, 0, sizes[axis])
    return _around(b, x, value, [entry[:2] for entry in config])


def _around(b: Builder, x: Tensor, value: Tensor, config: Sequence[Sequence[Any]]) -> Tensor:
    """All that is added comes first: less may remain of the elements than is cut off."""
    amounts = [b.shape(pair) for pair in config]
    added = [[_at_least_0(n) for n in pair] for pair in amounts]
    if any([not isinstance(n, int) or n for pair in added for n in pair]):
        x = tf.pad(x, added, constant_values=value)
    if all([isinstance(n, int) and n >= 0 for pair in amounts for n in pair]):
        return x
    starts = [_at_least_0(-low) for low, _ in amounts]
    ends = [_at_least_0(-high) for _, high in amounts]
    if is_static(starts) and is_static(ends):
        return x[tuple([slice(s, -e if e else None) for s, e in zip(starts, ends, strict=True)])]
    sizes = tf.unstack(tf.shape(x))
    limits = [n - e for n, e in zip(sizes, ends, strict=True)]
    return tf.strided_slice(x, starts, limits)


def _at_least_0(n: Tensor) -> Tensor:
    return max(n, 0) if isinstance(n, int) else tf.maximum(n, 0)


# arrays from nothing ------------------------------------------------------------------------------


@rule("iota")
def _iota(
    b: Builder, *_: object, dtype: DType, shape: Sequence[Any], dimension: int, **__: object
) -> Any:
    row = converted(b.arange(shape[dimension]), d.int32, dtype)
    return spread(b, row, (shape[dimension],), shape, (dimension,))


@rule("dimension_size")
def _dimension_size(b: Builder, dim: object, dtype: DType, **_: object) -> Tensor:
    return tf.cast(b.size(dim), tf_dtype(dtype))


@rule("dce_sink")
def _dce_sink(b: Builder, *_: object, **__: object) -> list[Tensor]:
    return []


@rule("create_token", "after_all")
def _token(b: Builder, *_: object, **__: object) -> Tensor:
    return tf.zeros([0], tf.bool)
