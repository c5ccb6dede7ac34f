"""Distributions without scale or shape that are functions of uniform or normal numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_float
from tracebridge.core.dtypes.dtypes import is_float
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.arrays.argument_types import DType, ShapeLike, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.random._fine_gumbel import fine_gumbels
from tracebridge.random._streams import (
    chosen,
    constant,
    draw,
    exponentials,
    float_dtype,
    joint_shape,
    normals,
    sample,
    samplers,
    sizes_of,
    spread,
    stream_of,
    uniforms,
    unit_floats,
)

Sizes = tuple[int, ...]


def _exponential(key: Value, shape: Sizes, dtype: DType) -> Any:
    return exponentials(stream_of("exponential", key), shape, dtype)


def _cauchy(key: Value, shape: Sizes, dtype: Any) -> Any:
    u = uniforms(stream_of("cauchy", key), shape, dtype, float(finfo(dtype).eps), 1)
    angle = lax.sub(u, constant(0.5, shape, dtype))
    return lax.tan(lax.mul(constant(math.pi, shape, dtype), angle))


def _laplace(key: Value, shape: Sizes, dtype: Any) -> Any:
    lowest = float(dtype.type(-1) + dtype.type(finfo(dtype).epsneg))
    u = uniforms(stream_of("laplace", key), shape, dtype, lowest, 1)
    return lax.mul(lax.sign(u), lax.log1p(lax.neg(lax.abs(u))))


def _logistic(key: Value, shape: Sizes, dtype: Any) -> Any:
    u = uniforms(stream_of("logistic", key), shape, dtype, float(finfo(dtype).tiny), 1)
    return lax.sub(lax.log(u), lax.log1p(lax.neg(u)))


def gumbels(stream: Any, shape: Sizes, dtype: Any, mode: str) -> Any:
    """Gumbel numbers; above the mode "low" two draws are joined to one with more bits near zero."""
    if mode == "low":
        u = uniforms(stream, shape, dtype, float(finfo(dtype).tiny), 1)
        return lax.neg(lax.log(lax.neg(lax.log(u))))
    if mode == "highest" and dtype == np.float32:
        return fine_gumbels(stream, shape)
    info = finfo(dtype)
    pair = unit_floats(stream, (2, *shape), dtype)
    upper, lower = (
        lax.reshape(lax.slice(pair, (i, *[0] * len(shape)), (i + 1, *shape)), shape)
        for i in range(2)
    )
    step = lax.mul(constant(2.0**-info.nmant, shape, dtype), lower)
    fine = lax.add(lax.add(upper, step), constant(float(info.tiny), shape, dtype))
    # From 1/2 on the sum could round up to 1.
    x = lax.select(lax.ge(upper, constant(0.5, shape, dtype)), upper, fine)
    return lax.neg(lax.log(lax.neg(lax.log1p(lax.neg(x)))))


def gumbel_mode(call: str, mode: str | None) -> str:
    """The argument ``mode``: None means "low"."""
    return chosen(call, "mode", "low" if mode is None else mode, ("low", "high", "highest"))


def _gumbel(key: Value, shape: Sizes, dtype: DType, mode: str) -> Any:
    return gumbels(stream_of("gumbel", key), shape, dtype, mode)


def maxwells(stream: Any, shape: Sizes, dtype: DType) -> Any:
    """Lengths of vectors of three normal numbers."""
    z = normals(stream, (*shape, 3), dtype)
    return lax.sqrt(lax.reduce_sum_p.bind(lax.mul(z, z), axes=(len(shape),)))


def _maxwell(key: Value, shape: Sizes, dtype: DType) -> Any:
    return maxwells(stream_of("maxwell", key), shape, dtype)


def signs(stream: Any, shape: Sizes, dtype: Any) -> Any:
    """-1 or 1, of any dtype."""
    kind = default_float()  # the chance of 1/2 is compared in it
    positive = lax.lt(unit_floats(stream, shape, kind), constant(0.5, shape, kind))
    return lax.select(positive, constant(1, shape, dtype), constant(-1, shape, dtype))


def _bernoulli(key: Value, p: Value, shape: Sizes | None, mode: str) -> Any:
    if not is_float(p.aval.dtype):
        msg = f"bernoulli: p is {p.aval.str_short()}, expected floating numbers"
        raise UnsupportedDtypeError(msg, hint="convert it: float(p), or p.astype('float32')")
    shape = joint_shape("bernoulli", shape, p.aval.shape)
    stream, dtype = stream_of("bernoulli", key), p.aval.dtype
    p = spread(p, shape, dtype)
    if mode == "low":
        return lax.lt(unit_floats(stream, shape, dtype), p)
    pair = unit_floats(stream, (2, *shape), dtype)
    upper, lower = (
        lax.reshape(lax.slice(pair, (i, *[0] * len(shape)), (i + 1, *shape)), shape)
        for i in range(2)
    )
    # The second draw decides between neighbours of the first.
    step = lax.mul(lower, constant(2.0 ** -finfo(dtype).nmant, shape, dtype))
    return lax.lt(step, lax.sub(p, upper))


_STAGED = samplers(
    _exponential,
    _cauchy,
    _laplace,
    _logistic,
    _gumbel,
    _maxwell,
    _bernoulli,
)


def exponential(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Exponential numbers of mean 1.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.exponential(key, (2,)).shape
    (2,)
    """
    return draw(_STAGED, "exponential", key, (), shape, dtype, out_sharding)


def cauchy(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Standard Cauchy numbers.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.cauchy(key, (2,)).shape
    (2,)
    """
    return draw(_STAGED, "cauchy", key, (), shape, dtype, out_sharding)


def laplace(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Standard Laplace numbers: both sides exponential.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.laplace(key, (2,)).shape
    (2,)
    """
    return draw(_STAGED, "laplace", key, (), shape, dtype, out_sharding)


def logistic(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Standard logistic numbers.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.logistic(key, (2,)).shape
    (2,)
    """
    return draw(_STAGED, "logistic", key, (), shape, dtype, out_sharding)


def maxwell(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Lengths of vectors of three normal numbers.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.maxwell(key, (3,)).shape
    (3,)
    """
    return draw(_STAGED, "maxwell", key, (), shape, dtype, out_sharding)


def gumbel(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    mode: Any = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Standard Gumbel numbers: what makes the largest of several logits a random choice.

    Args:
        key: one key, typed or as words.
        shape: sizes of the result.
        dtype: dtype of the result; ``None`` means the default one.
        mode: ``"high"`` spends twice the bits, for events rarer than one in ``1e7``; ``None`` and
            ``"low"`` do not; ``"highest"`` has 24 digits for both tails of float32 numbers, and is
            ``"high"`` for other dtypes.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ArgumentValueError: there is no such mode.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.gumbel(tb.random.key(0), (2,)).shape
    (2,)
    """
    statics = sizes_of("gumbel", shape), float_dtype("gumbel", dtype), gumbel_mode("gumbel", mode)
    return sample(_STAGED["gumbel"], key, (), statics, out_sharding)


def bernoulli(
    key: ArrayLike,
    p: ArrayLike = 0.5,
    shape: ShapeLike | None = None,
    mode: str = "low",
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """True with probability ``p``.

    Args:
        key: one key, typed or as words.
        p: probability, of a floating dtype, broadcastable to ``shape``.
        shape: sizes of the result; ``None`` means that of the parameters together.
        mode: ``"high"`` spends twice the bits, for probabilities below ``1e-7``.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ArgumentValueError: there is no such mode.
        BroadcastError: ``p`` does not fit into ``shape``.
        UnsupportedDtypeError: ``p`` has no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.bernoulli(tb.random.key(0), 0.3, (4,)).dtype
    dtype('bool')
    """
    chosen("bernoulli", "mode", mode, ("low", "high"))
    statics = sizes_of("bernoulli", shape), mode
    return sample(_STAGED["bernoulli"], key, (p,), statics, out_sharding)
