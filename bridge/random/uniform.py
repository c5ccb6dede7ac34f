"""Bits, uniform numbers and what is a simple function of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit, default_int, default_uint
from tracebridge.core.dtypes.dtypes import int32, is_bool, is_integer, is_unsigned, itemsize_bits
from tracebridge.core.dtypes.finfo import iinfo
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.prng.implementations import UINTS
from tracebridge.core.runtime.arrays.argument_types import DType, ShapeLike, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.random._streams import (
    constant,
    float_dtype,
    integer_dtype,
    joint_shape,
    normals,
    of_real_parameters,
    sample,
    sizes_of,
    spread,
    stream_of,
    uniforms,
)


def _bits(key: Value, shape: tuple[int, ...], width: int) -> Any:
    return stream_of("bits", key).bits(width, shape)


def _uniform(key: Value, low: Value, high: Value, shape: tuple[int, ...], dtype: DType) -> Any:
    bounds = low.aval.shape, high.aval.shape
    if shape == () and {d for s in bounds for d in s} == {1}:
        # One number between bounds that are arrays of one element has their shape: programs count
        # on it, and no number is drawn that was not asked for.
        shape = joint_shape("uniform", None, *bounds)
    joint_shape("uniform", shape, *bounds)
    return uniforms(stream_of("uniform", key), shape, dtype, low, high)


def _unit(key: Value, shape: tuple[int, ...], dtype: Any) -> Any:
    return uniforms(stream_of("uniform", key), shape, dtype, 0, 1)


def _normal(key: Value, shape: tuple[int, ...], dtype: DType) -> Any:
    return normals(stream_of("normal", key), shape, dtype)


def _bound(x: Value, dtype: DType, extra: int) -> Any:
    """A bound in a dtype that holds it and those of ``dtype``; floats are cut off."""
    if not is_integer(x.aval.dtype):
        x = lax.convert_dtype(x, int32 if is_bool(x.aval.dtype) else default_int())
    own, info = iinfo(x.aval.dtype), iinfo(dtype)
    low, high = max(int(own.min), int(info.min)), min(int(own.max), int(info.max) + extra)
    scalar = x.aval.strong.update(shape=())
    return lax.clamp(full_of(scalar, low), x, full_of(scalar, high))


def _randint(key: Value, low: Value, high: Value, shape: tuple[int, ...], dtype: Any) -> Any:
    """An offset of twice as many bits as the dtype has, modulo the number of integers."""
    joint_shape("randint", shape, low.aval.shape, high.aval.shape)
    streams = stream_of("randint", key).split()
    narrow = itemsize_bits(dtype) < 32
    wide = int32 if narrow else dtype
    holder = UINTS[itemsize_bits(wide)]
    # A narrow result has one integer more to give than its largest one as an upper bound.
    low = _bound(low, dtype, 0)
    beyond = _above(high, wide)
    high = _bound(high, dtype, 1 if narrow else 0)
    low, high = (lax.convert_dtype(v, wide) for v in (low, high))
    # What depends on the bounds is computed once where these are scalars.
    joint = np.broadcast_shapes(low.aval.shape, high.aval.shape)
    low, high, beyond = (spread(v, joint) for v in (low, high, beyond))
    one = constant(1, joint, holder)
    span = lax.convert_dtype(lax.sub(high, low), holder)
    span = lax.select(lax.le(high, low), one, span)
    span = lax.select(lax.bitwise_and(beyond, lax.gt(high, low)), lax.add(span, one), span)
    bits = itemsize_bits(wide)
    root = lax.rem(constant(2 ** (bits // 2), joint, holder), span)
    factor = lax.rem(lax.mul(root, root), span)
    low, span, factor = (spread(v, shape) for v in (low, span, factor))
    upper, lower = (lax.rem(s.bits(bits, shape), span) for s in streams)
    offset = lax.rem(lax.add(lax.mul(upper, factor), lower), span)
    return lax.convert_dtype(lax.add(low, lax.convert_dtype(offset, wide)), dtype)


def _above(high: Value, dtype: Any) -> Any:
    """Whether an upper bound is larger than the largest number of ``dtype``."""
    kind = high.aval.dtype
    if not is_integer(kind) or int(iinfo(kind).max) <= int(iinfo(dtype).max):
        return constant(False, high.aval.shape, np.dtype(np.bool_))
    return lax.gt(high, constant(int(iinfo(dtype).max), high.aval.shape, kind))


_bits_staged = StagedFunction(_bits, "bits")
_uniform_staged = StagedFunction(of_real_parameters("uniform", _uniform), "uniform", judges=False)
_unit_staged = StagedFunction(_unit, "uniform")
_normal_staged = StagedFunction(_normal, "normal")
_randint_staged = StagedFunction(of_real_parameters("randint", _randint), "randint", judges=False)


def bits(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Random bits: unsigned integers, each as likely as the others.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no unsigned integer dtype of 8 to 64 bits.

    >>> import tracebridge as tb
    >>> tb.random.bits(tb.random.key(0), (2,)).tolist()
    [4070199207, 4202968722]
    """
    kind = default_uint() if dtype is None else canonicalize_explicit(dtype, "bits")
    if not is_unsigned(kind) or itemsize_bits(kind) not in UINTS:
        msg = f"bits: got dtype {kind.name}, expected an unsigned integer dtype"
        raise UnsupportedDtypeError(msg, hint="uint8, uint16, uint32 or uint64")
    return sample(
        _bits_staged, key, (), (sizes_of("bits", shape), itemsize_bits(kind)), out_sharding
    )


def uniform(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Uniform numbers in ``[minval, maxval)``.

    Args:
        key: one key, typed or as words.
        shape: sizes of the result.
        dtype: dtype of the result; ``None`` means the default one.
        minval: lower bound, broadcastable to ``shape``; for the shape ``()`` an array of one
            element too, and then the result has its shape.
        maxval: upper bound; where it is below the lower one, this is the result.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.uniform(tb.random.key(0), (2,)).tolist()
    [0.947..., 0.978...]
    """
    statics = sizes_of("uniform", shape), float_dtype("uniform", dtype)
    plain = type(minval) in (int, float) and type(maxval) in (int, float)
    if plain and minval == 0 and maxval == 1:
        return sample(_unit_staged, key, (), statics, out_sharding)
    return sample(_uniform_staged, key, (minval, maxval), statics, out_sharding)


def normal(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Standard normal numbers; complex ones have parts of variance 1/2.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating or complex dtype.

    >>> import tracebridge as tb
    >>> tb.random.normal(tb.random.key(0), (2,)).tolist()
    [1.62..., 2.02...]
    """
    statics = sizes_of("normal", shape), float_dtype("normal", dtype, complexes=True)
    return sample(_normal_staged, key, (), statics, out_sharding)


def randint(
    key: ArrayLike,
    shape: Any,
    minval: ArrayLike,
    maxval: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Uniform integers in ``[minval, maxval)``.

    Each integer has the same chance up to one part in ``2**32`` or less.

    Args:
        key: one key, typed or as words.
        shape: sizes of the result.
        minval: lower bound, broadcastable to ``shape``; bounds outside the dtype are moved into it.
        maxval: upper bound; where it is not above the lower one, that is the result.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no integer dtype.

    >>> import tracebridge as tb
    >>> tb.random.randint(tb.random.key(0), (4,), 0, 10).tolist()
    [9, 0, 2, 3]
    """
    statics = sizes_of("randint", shape), integer_dtype("randint", dtype, default_int())
    return sample(_randint_staged, key, (minval, maxval), statics, out_sharding)
