"""Distributions that are functions of gamma numbers."""

from __future__ import annotations

import math
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.argument_errors import index_of
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.arrays.argument_types import DType, ShapeLike, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.random._gamma_numbers import gamma_numbers
from tracebridge.random._streams import (
    Stream,
    constant,
    exponentials,
    float_dtype,
    joint_shape,
    normals,
    sample,
    samplers,
    sizes_of,
    spread,
    stream_of,
)
from tracebridge.random.transforms import signs

Sizes = tuple[int, ...]


def _gamma(key: Value, a: Value, shape: Sizes | None, dtype: DType, log_space: bool) -> Any:
    call = "loggamma" if log_space else "gamma"
    shape = joint_shape(call, shape, a.aval.shape)
    return gamma_numbers(stream_of(call, key), a, shape, dtype, log_space)


def _beta(key: Value, a: Value, b: Value, shape: Sizes | None, dtype: DType) -> Any:
    shape = joint_shape("beta", shape, a.aval.shape, b.aval.shape)
    both = [spread(v, shape, dtype) for v in (a, b)]
    streams = stream_of("beta", key).split()
    logs = [_finite_logs(stream, v) for stream, v in zip(streams, both, strict=True)]
    # The larger of the two numbers is scaled to 1: neither overflows, and not both are 0.
    most = lax.max(*logs)
    first, second = (lax.exp(lax.sub(v, most)) for v in logs)
    share = lax.div(first, lax.add(first, second))
    unknown = lax.bitwise_and(*[lax.eq(v, lax.full_like(v, math.inf)) for v in both])
    return lax.select(unknown, lax.full_like(share, math.nan), share)


def _finite_logs(stream: Stream, a: Value) -> Any:
    """Logarithms of gamma numbers whose differences are no NaN: infinite ones are cut off.

    Those of the shape 0 stay: they are less than all others.
    """
    logs = gamma_numbers(stream, a, a.aval.shape, a.aval.dtype, True)
    most = float(finfo(logs.aval.dtype).max)
    cut = lax.max(lax.min(logs, most), -most)
    return lax.select(lax.eq(a, lax.full_like(a, 0)), logs, cut)


def _squares(stream: Stream, df: Value, shape: Sizes, dtype: DType) -> Any:
    two = constant(2, (), dtype)
    half = lax.div(lax.convert_dtype(df, dtype), two)
    return lax.mul(gamma_numbers(stream, half, shape, dtype, False), two)


def _chisquare(key: Value, df: Value, shape: Sizes | None, dtype: DType) -> Any:
    shape = joint_shape("chisquare", shape, df.aval.shape)
    return _squares(stream_of("chisquare", key), df, shape, dtype)


def _f(key: Value, above: Value, below: Value, shape: Sizes | None, dtype: DType) -> Any:
    shape = joint_shape("f", shape, above.aval.shape, below.aval.shape)
    second, first = stream_of("f", key).split()
    pairs = ((first, above), (second, below))
    return lax.exp(lax.sub(*[_log_mean(s, spread(df, shape, dtype)) for s, df in pairs]))


def _log_mean(stream: Stream, freedom: Value) -> Any:
    """The logarithm of a mean of squares of normal numbers, which may underflow."""
    half = lax.mul(freedom, 0.5)
    log = _finite_logs(stream, half)
    # Halves that are subnormal count as 0.
    none = lax.lt(lax.abs(freedom), 4 * float(finfo(freedom.aval.dtype).tiny))
    all_ = lax.eq(freedom, lax.full_like(freedom, math.inf))
    half = lax.select(lax.bitwise_or(none, all_), lax.full_like(half, 1), half)
    log = lax.sub(log, lax.log(half))
    log = lax.select(none, lax.full_like(log, -math.inf), log)
    # That of infinitely many numbers is 1.
    return lax.select(all_, lax.full_like(log, 0), log)


def _t(key: Value, df: Value, shape: Sizes | None, dtype: DType) -> Any:
    shape = joint_shape("t", shape, df.aval.shape)
    first, second = stream_of("t", key).split()
    n = normals(first, shape, dtype)
    # The mean of the squares underflows where there are few of them, the number does not yet.
    log = _log_mean(second, spread(df, shape, dtype))
    return lax.mul(n, lax.exp(lax.mul(log, -0.5)))


def _dirichlet(key: Value, alpha: Value, shape: Sizes | None, dtype: DType) -> Any:
    if not alpha.aval.ndim:
        msg = "dirichlet: alpha has no axes, expected the concentrations along its last axis"
        raise RankError(msg)
    *batch, count = alpha.aval.shape
    shape = (*joint_shape("dirichlet", shape, tuple(batch)), count)
    alpha = spread(alpha, shape, dtype)
    logs = _finite_logs(stream_of("dirichlet", key), alpha)
    last = (len(shape) - 1,)
    kept = tuple(range(len(shape) - 1))
    # Where there are no concentrations, there is nothing to scale either.
    most = lax.stop_gradient(lax.reduce_max(logs, last)) if count else lax.reduce_sum(logs, last)
    parts = lax.exp(lax.sub(logs, lax.broadcast_in_dim(most, shape, kept)))
    shares = lax.div(parts, lax.broadcast_in_dim(lax.reduce_sum(parts, last), shape, kept))
    infinite = lax.convert_dtype(lax.eq(alpha, lax.full_like(alpha, math.inf)), dtype)
    unknown = lax.gt(lax.reduce_sum(infinite, last), 1.0)
    unknown = lax.broadcast_in_dim(unknown, shape, kept)
    return lax.select(unknown, lax.full_like(shares, math.nan), shares)


def _powers(stream: Stream, p: Any, shape: Sizes, dtype: DType) -> Any:
    first, second = stream.split()
    # Without end the powers leave numbers between 0 and 1 as likely as each other.
    least = 8 * float(finfo(dtype).tiny)
    inverse = lax.max(lax.convert_dtype(1 / p, dtype), least)
    log = gamma_numbers(first, inverse, shape, dtype, True)
    return signs(second, shape, dtype) * lax.exp(log * spread(inverse, shape))


def _generalized_normal(key: Value, p: Value, shape: Sizes, dtype: DType) -> Any:
    joint_shape("generalized_normal", shape, p.aval.shape)
    return _powers(stream_of("generalized_normal", key), p, shape, dtype)


def _ball(key: Value, p: Any, count: int, shape: Sizes, dtype: DType) -> Any:
    first, second = stream_of("ball", key).split()
    g = _powers(first, p, (*shape, count), dtype)
    e = exponentials(second, shape, dtype)
    size: Any = lax.reduce_sum(lax.abs(g) ** p, (len(shape),)) + e
    radius = size ** (1 / p)
    return lax.div(g, lax.broadcast_in_dim(radius, g.aval.shape, tuple(range(len(shape)))))


_STAGED = samplers(_gamma, _beta, _chisquare, _f, _t, _dirichlet, _generalized_normal, _ball)


def _draw(
    name: str,
    key: Any,
    parameters: tuple[Any, ...],
    shape: Any,
    dtype: Any,
    place: Any,
    *more: Any,
) -> Array:
    statics = (sizes_of(name, shape), float_dtype(name, dtype), *more)
    return sample(_STAGED[name], key, parameters, statics, place)


def gamma(
    key: ArrayLike,
    a: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Gamma numbers of scale 1.

    Differentiable in the shape: a number moves so that its probability stays.

    Args:
        key: one key, typed or as words.
        a: shape of the distribution, positive.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.gamma(tb.random.key(0), 2.0, (3,)).shape
    (3,)
    """
    statics = sizes_of("gamma", shape), float_dtype("gamma", dtype), False
    return sample(_STAGED["gamma"], key, (a,), statics, out_sharding)


def loggamma(
    key: ArrayLike,
    a: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Logarithms of the numbers that `gamma` gives: small shapes do not underflow.

    Args:
        key: one key, typed or as words.
        a: shape of the distribution, positive.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.loggamma(tb.random.key(0), 1e-3, (3,)).shape
    (3,)
    """
    statics = sizes_of("loggamma", shape), float_dtype("loggamma", dtype), True
    return sample(_STAGED["gamma"], key, (a,), statics, out_sharding)


def beta(
    key: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Beta numbers, between 0 and 1.

    Args:
        key: one key, typed or as words.
        a: first parameter, positive; at 0 and infinity the result is the limit, 0 and 1.
        b: second parameter, positive; the other way round. Where both are 0 or infinite there is
            no limit, and the result is NaN.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.beta(tb.random.key(0), 2.0, 3.0, (3,)).shape
    (3,)
    """
    return _draw("beta", key, (a, b), shape, dtype, out_sharding)


def chisquare(
    key: ArrayLike,
    df: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Chi-square numbers: sums of squares of normal ones.

    Args:
        key: one key, typed or as words.
        df: degrees of freedom, positive.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.chisquare(tb.random.key(0), 3.0, (3,)).shape
    (3,)
    """
    return _draw("chisquare", key, (df,), shape, dtype, out_sharding)


def f(
    key: ArrayLike,
    dfnum: ArrayLike,
    dfden: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """F numbers: quotients of mean squares of normal ones.

    Args:
        key: one key, typed or as words.
        dfnum: degrees of freedom above, positive.
        dfden: degrees of freedom below, positive.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.f(tb.random.key(0), 3.0, 4.0, (3,)).shape
    (3,)
    """
    return _draw("f", key, (dfnum, dfden), shape, dtype, out_sharding)


def t(
    key: ArrayLike,
    df: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Numbers of Student's t distribution.

    Args:
        key: one key, typed or as words.
        df: degrees of freedom, positive.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.t(tb.random.key(0), 3.0, (3,)).shape
    (3,)
    """
    return _draw("t", key, (df,), shape, dtype, out_sharding)


def dirichlet(
    key: ArrayLike,
    alpha: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Dirichlet vectors: positive numbers whose sum is 1.

    Args:
        key: one key, typed or as words.
        alpha: concentrations, positive, along the last axis.
        shape: sizes of the result but for its last axis; ``None`` means those of ``alpha``.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: ``alpha`` does not fit into ``shape``.
        RankError: ``alpha`` is a scalar.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.dirichlet(tb.random.key(0), tb.numpy.ones(4), (3,)).shape
    (3, 4)
    """
    return _draw("dirichlet", key, (alpha,), shape, dtype, out_sharding)


def generalized_normal(
    key: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Numbers of density proportional to ``exp(-abs(x)**p)``.

    Args:
        key: one key, typed or as words.
        p: the power, positive; 2 gives normal numbers of variance 1/2.
        shape: sizes of the result.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: ``p`` does not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.generalized_normal(tb.random.key(0), 1.5, (3,)).shape
    (3,)
    """
    return _draw("generalized_normal", key, (p,), shape, dtype, out_sharding)


def ball(
    key: ArrayLike,
    d: int,
    p: ArrayLike = 2,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Points of the unit ball of the p-norm, each as likely as the others.

    Args:
        key: one key, typed or as words.
        d: number of dimensions, the last axis of the result.
        p: the power of the norm, positive.
        shape: sizes of the result but for its last axis.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ArgumentTypeError: ``d`` is no integer.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.ball(tb.random.key(0), 3, shape=(5,)).shape
    (5, 3)
    """
    count = index_of(d, "ball", "d")
    statics = count, sizes_of("ball", shape), float_dtype("ball", dtype)
    return sample(_STAGED["ball"], key, (p,), statics, out_sharding)
