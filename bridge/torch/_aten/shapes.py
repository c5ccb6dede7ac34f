"""Operations that move elements about, and those that make arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.ir.values import Literal
from tracebridge.torch._aten.arithmetic import converted
from tracebridge.torch._aten.builder import Builder, aten, rule
from tracebridge.torch._aten.carriers import DType, carrier
from tracebridge.torch._aten.integers import compared, narrowed

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
)


def _same(b: Builder, x: fx.Proxy, **_: object) -> Any:
    del b
    return x


for _name in _SAME:
    rule(_name)(_same)


@rule("stop_gradient", "unchosen")
def _stop_gradient(b: Builder, x: fx.Proxy, **_: object) -> Any:
    return b.call(aten.detach.default, x)


@rule("optimization_barrier", "shard_alike")
def _barrier(b: Builder, *xs: fx.Proxy) -> list[Any]:
    del b
    return list(xs)


@rule("select_n")
def _select_n(b: Builder, which: fx.Proxy, *cases: fx.Proxy) -> Any:
    if b.avals[0].dtype == d.bool_:
        if len(cases) == 1:
            return cases[0]
        return b.call(aten.where.self, which, cases[1], cases[0])
    found = cases[0]
    for i, case in enumerate(cases[1:], 1):
        found = b.call(aten.where.self, b.call(aten.ge.Scalar, which, i), case, found)
    return found


@rule("clamp")
def _clamp(b: Builder, low: Any, x: fx.Proxy, high: Any) -> Any:
    dtype = b.aval.dtype
    if not d.is_float(dtype):
        above = _larger(b, x, low, dtype)
        limited = b.call(aten.where.self, above, x, low)
        below = _larger(b, high, limited, dtype)
        return b.call(aten.where.self, below, limited, high)
    plain = b.call(aten.minimum.default, b.call(aten.maximum.default, x, low), high)
    plain = b.call(aten.detach.default, plain)
    # Bounds that are met have no derivative here; torch would give x the whole of it.
    above, below = b.call(aten.gt.Tensor, x, low), b.call(aten.lt.Tensor, x, high)
    inside = b.call(aten.logical_and.default, above, below)
    clamped = b.call(aten.where.self, inside, x, plain)
    is_low = b.call(
        aten.logical_and.default,
        b.call(aten.lt.Tensor, x, low),
        b.call(aten.lt.Tensor, low, high),
    )
    clamped = b.call(aten.where.self, is_low, low, clamped)
    is_high = b.call(aten.gt.Tensor, x, high)
    if type(b.literals[0]) is not Literal:
        # A bound that is NaN makes everything NaN.
        is_high = b.call(aten.logical_and.default, is_high, b.call(aten.eq.Tensor, low, low))
    return b.call(aten.where.self, is_high, high, clamped)


def _larger(b: Builder, x: fx.Proxy, y: fx.Proxy, dtype: DType) -> Any:
    if d.is_bool(dtype):
        return b.call(aten.gt.Tensor, x, y)
    return compared(b, "gt", x, y, dtype)


# shapes -------------------------------------------------------------------------------------------


@rule("broadcast_in_dim")
def _broadcast_in_dim(
    b: Builder, x: fx.Proxy, shape: Sequence[object], broadcast_dimensions: Sequence[int]
) -> Any:
    return broadcast(b, x, shape, broadcast_dimensions)


def broadcast(b: Builder, x: fx.Proxy, shape: Sequence[object], dims: Sequence[int]) -> Any:
    """``x`` with its axes at ``dims`` of ``shape``, repeated along the others."""
    for axis in range(len(shape)):
        if axis not in dims and len(dims):
            x = b.call(aten.unsqueeze.default, x, axis)
    return b.call(aten.expand.default, x, b.shape(shape))


@rule("reshape")
def _reshape(b: Builder, x: fx.Proxy, new_sizes: Sequence[object], **_: object) -> Any:
    return b.call(aten.reshape.default, x, b.shape(new_sizes))


def permuted(b: Builder, x: fx.Proxy, order: Sequence[int]) -> Any:
    """``x`` with its axes in another order."""
    order = [int(a) for a in order]
    return x if order == list(range(len(order))) else b.call(aten.permute.default, x, order)


def reshaped(b: Builder, x: fx.Proxy, old: Sequence[object], new: Sequence[object]) -> Any:
    """``x`` of shape ``old`` with shape ``new``."""
    return x if tuple(old) == tuple(new) else b.call(aten.reshape.default, x, b.shape(new))


@rule("squeeze")
def _squeeze(b: Builder, x: fx.Proxy, dimensions: Sequence[int]) -> Any:
    axes = [int(a) for a in dimensions]
    return b.call(aten.squeeze.dims, x, axes) if axes else x


@rule("transpose")
def _transpose(b: Builder, x: fx.Proxy, permutation: Sequence[int]) -> Any:
    return permuted(b, x, permutation)


@rule("rev")
def _rev(b: Builder, x: fx.Proxy, dimensions: Sequence[int]) -> Any:
    return b.call(aten.flip.default, x, [int(a) for a in dimensions])


@rule("roll")
def _roll(b: Builder, x: fx.Proxy, shift: int, dimension: int) -> Any:
    return b.call(aten.roll.default, x, [shift], [dimension])


@rule("concatenate")
def _concatenate(b: Builder, *xs: fx.Proxy, dimension: int) -> Any:
    return b.call(aten.cat.default, list(xs), dimension)


@rule("stack")
def _stack(b: Builder, *xs: fx.Proxy, axis: int) -> Any:
    return b.call(aten.stack.default, list(xs), axis)


@rule("unstack")
def _unstack(b: Builder, x: fx.Proxy, axis: int) -> list[Any]:
    return b.call_all(aten.unbind.int, len(b.outs), x, axis)


@rule("split")
def _split(b: Builder, x: fx.Proxy, sizes: Sequence[object], axis: int) -> list[Any]:
    return b.call_all(aten.split_with_sizes.default, len(b.outs), x, b.shape(sizes), axis)


@rule("tile")
def _tile(b: Builder, x: fx.Proxy, reps: Sequence[object]) -> Any:
    return b.call(aten.repeat.default, x, b.shape(reps))


@rule("slice")
def _slice(
    b: Builder,
    x: fx.Proxy,
    start_indices: Sequence[object],
    limit_indices: Sequence[object],
    strides: Any = None,
) -> Any:
    steps = strides if strides is not None else (1,) * len(start_indices)
    shape = b.avals[0].shape
    for axis, (low, high, step) in enumerate(zip(start_indices, limit_indices, steps, strict=True)):
        is_whole = type(low) is int and low == 0 and high == shape[axis] and step == 1
        if not is_whole:
            x = b.call(aten.slice.Tensor, x, axis, *b.shape((low, high, step)))
    return x


@rule("pad")
def _pad(b: Builder, x: fx.Proxy, value: fx.Proxy, padding_config: Any) -> Any:
    config = [tuple(b.shape(entry)) for entry in padding_config]
    padded = with_padding(b, x, 0, config, b.avals[0].shape)
    literal = b.literals[1]
    if type(literal) is Literal and literal.value == 0 and not str(literal.value).startswith("-"):
        return padded
    inside = b.full(b.shape(b.avals[0]), value=True, dtype=torch.bool)
    inside = with_padding(b, inside, False, config, b.avals[0].shape)
    return b.call(aten.where.self, inside, padded, value)


def with_padding(
    b: Builder, x: fx.Proxy, value: float, config: Any, shape: Sequence[object]
) -> Any:
    """``x`` with copies of a number around its elements and between them."""
    for axis, (_, _, inner) in enumerate(config):
        n = shape[axis]
        if type(inner) is int and inner == 0:
            continue
        after = [0] * (2 * (len(shape) - axis - 1))
        x = b.call(aten.unsqueeze.default, x, axis + 1)
        x = b.call(aten.constant_pad_nd.default, x, [*after, 0, inner], value)
        size = b.size(n)
        x = b.call(aten.flatten.using_ints, x, axis, axis + 1)
        end = size * (inner + 1) - inner
        end = max(end, 0) if isinstance(end, int) else end
        x = b.call(aten.slice.Tensor, x, axis, 0, end, 1)
    amounts = [amount for low, high, _ in reversed(config) for amount in (low, high)]
    if all([isinstance(a, int) and a == 0 for a in amounts]):
        return x
    if not _mixed(config):
        return b.call(aten.constant_pad_nd.default, x, amounts, value)
    # All that is added comes first: less may remain of the elements than is cut off.
    added = [max(a, 0) if isinstance(a, int) else a for a in amounts]
    x = b.call(aten.constant_pad_nd.default, x, added, value)
    for axis, (low, high, _) in enumerate(config):
        start, end = (-a if isinstance(a, int) and a < 0 else 0 for a in (low, high))
        if start or end:
            x = b.call(aten.slice.Tensor, x, axis, start, -end if end else 2**63 - 1)
    return x


def _mixed(config: Any) -> bool:
    """Whether an axis is padded at one end and cut at the other."""
    return any([min(c[:2]) < 0 < max(c[:2]) for c in config if _is_static(c)])


def _is_static(entry: Sequence[object]) -> bool:
    return all([isinstance(a, int) for a in entry[:2]])


# arrays from nothing ------------------------------------------------------------------------------


@rule("iota")
def _iota(
    b: Builder, *_: object, dtype: DType, shape: Sequence[object], dimension: int, **__: object
) -> Any:
    row = b.arange(b.size(shape[dimension]))
    row = narrowed(b, row, dtype) if d.is_integer(dtype) else converted(b, row, d.int64, dtype)
    return broadcast(b, row, shape, (dimension,))


@rule("dimension_size")
def _dimension_size(b: Builder, dim: Any, dtype: DType, **_: object) -> Any:
    size = b.size(dim)
    return b.call(aten.full.default, [], size, dtype=carrier(dtype), device=b.device)


@rule("dce_sink")
def _dce_sink(b: Builder, *_: object, **__: object) -> list[Any]:
    del b
    return []


@rule("create_token")
def _create_token(b: Builder, *_: object, **__: object) -> Any:
    return b.full([0], value=False, dtype=torch.bool)


@rule("after_all")
def _after_all(b: Builder, *_: object, **__: object) -> Any:
    return b.full([0], value=False, dtype=torch.bool)


@rule("key_use")
def _key_use(b: Builder, x: fx.Proxy, **_: object) -> Any:
    del b
    return x
