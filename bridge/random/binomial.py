"""Numbers of successes: binomial and multinomial.

Sources: Hoermann (1993), J. Stat. Comput. Simul. 46, the method BTRS; for few expected successes
the distances between them, which are geometric.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.dtypes.dtypes import as_dtype, is_integer
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.ir.value import Value
from tracebridge.core.prng.implementations import key_and_counters
from tracebridge.core.runtime.arrays.argument_types import DType, ShapeLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.special.count_draws import binomial_count_p
from tracebridge.core.special.rejection import where_needed
from tracebridge.numpy._promote import promote_inexact
from tracebridge.random._streams import (
    Stream,
    constant,
    float_dtype,
    joint_shape,
    sample,
    sizes_of,
    spread,
    stream_of,
    unit_floats,
)

Sizes = tuple[int, ...]
# Up to so many expected successes, of the rarer outcome, the distances between them are drawn.
_FEW = 10
# log(k!) less Stirling's formula, for k = 0, ..., 9.
_TAILS = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
    0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
    0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _any(x: Value) -> Any:
    return lax.reduce_or_p.bind(x, axes=tuple(range(x.aval.ndim)))


def _tail(k: Value) -> Any:
    """What Stirling's formula lacks of ``log(k!)``."""
    shape, dtype = k.aval.shape, k.aval.dtype

    def number(x: float) -> Any:
        return constant(x, shape, dtype)

    small = k <= number(9)
    inside = lax.floor(lax.clamp(constant(0, (), dtype), k, constant(9, (), dtype)))
    table = number(_TAILS[9])
    for i in reversed(range(9)):
        table = lax.select(inside <= number(i), number(_TAILS[i]), table)
    above = lax.clamp(constant(0, (), dtype), k, constant(9, (), dtype)) + number(1)
    square = above * above
    inner = number(1 / 360) - number(1 / 1260) / square
    series = (number(1 / 12) - inner / square) / above
    return lax.select(small, table, series)


def _by_distances(stream: Stream, count: Any, p: Any) -> Any:
    """How many distances between successes fit into the number of trials."""
    shape, dtype = p.aval.shape, p.aval.dtype
    log_failure = lax.log1p(-p)

    def step(carry: Any) -> Any:
        found, at, words = carry
        own, rest = stream.at(words).split()
        found = lax.select(at <= count, found + constant(1, shape, dtype), found)
        u = unit_floats(own, shape, dtype)
        return found, at + lax.ceil(lax.log(u) / log_failure), rest.words

    zero = constant(0, shape, dtype)
    found = while_loop(lambda c: _any(c[1] <= count), step, (zero, zero, stream.words))[0]
    return found - constant(1, shape, dtype)


def _by_rejection(stream: Stream, count: Any, p: Any) -> Any:
    shape, dtype = p.aval.shape, p.aval.dtype

    def number(x: float) -> Any:
        return constant(x, shape, dtype)

    one, half = number(1), number(0.5)
    deviation = lax.sqrt(count * p * (one - p))
    b = number(1.15) + number(2.53) * deviation
    a = number(-0.0873) + number(0.0248) * b + number(0.01) * p
    c = count * p + half
    v_r = number(0.92) - number(4.2) / b
    r = p / (one - p)
    alpha = (number(2.83) + number(5.1) / b) * deviation
    m = lax.floor((count + one) * p)

    def step(carry: Any) -> Any:
        numbers, words = carry
        following, first, second = stream.at(words).split(3)
        u = unit_floats(first, shape, dtype) - half
        v = unit_floats(second, shape, dtype)
        us = half - lax.abs(u)
        quick = (us >= number(0.07)) & (v <= v_r)
        k = lax.floor((number(2) * a / us + b) * u + c)
        outside = (k < number(0)) | (k > count)
        v = lax.log(v * alpha / (a / (us * us) + b))
        bound = (
            (m + half) * lax.log((m + one) / (r * (count - m + one)))
            + (count + one) * lax.log((count - m + one) / (count - k + one))
            + (k + half) * lax.log(r * (count - k + one) / (k + one))
            + _tail(m)
            + _tail(count - m)
            - _tail(k)
            - _tail(count - k)
        )
        accepted = quick | (~outside & (v <= bound))
        return lax.select(accepted, k, numbers), following.words

    # One array is carried, as each is computed in a pass of its own: numbers are below 0 until
    # one is accepted. Later ones take the place of earlier ones, as long as some element waits.
    return while_loop(lambda c: _any(c[0] < number(0)), step, (number(-1), stream.words))[0]


def _numbers(stream: Stream, n: Any, p: Any, shape: Sizes, dtype: DType) -> Any:
    kind = p.aval.dtype
    count, p = spread(n, shape, kind), spread(p, shape)

    def number(x: float) -> Any:
        return constant(x, shape, kind)

    # The rarer outcome is counted.
    rare = p < number(0.5)
    q = lax.select(rare, p, number(1) - p)
    no_count = lax.ne(count, count) | (count < number(0))
    no_chance = lax.ne(q, q)
    negative = q < number(0)
    endless = lax.eq(count, number(np.inf))
    q = lax.select(no_chance | negative, number(0.01), q)
    few = no_count | (count * q <= number(_FEW))
    count = lax.floor(count)
    # Trials without number would be counted for ever.
    by_distance = lax.select(few & ~no_count & ~endless, count, number(0))
    by_chance = lax.select(few | endless, number(1e4), count)
    many = where_needed(
        lax.bitwise_not(few | endless),
        number(0),
        lambda: _by_rejection(stream, by_chance, lax.select(few, number(0.5), q)),
    )
    if stream.is_partitionable:
        words = key_and_counters(stream.words, shape)
        fewer = binomial_count_p.bind(*words, by_distance, q) - number(1)
    else:
        fewer = _by_distances(stream, by_distance, q)
    result = lax.select(few, fewer, many)
    result = lax.convert_dtype(result, dtype)

    def final(x: float) -> Any:
        return constant(x, shape, dtype)

    invalid = negative | no_chance | no_count
    result = lax.select(invalid, final(np.nan), result)
    result = lax.select(endless & ~invalid, final(np.inf), result)
    others = lax.convert_dtype(count, dtype) - result
    return lax.select(rare | no_count | no_chance | endless, result, others)


def _binomial(key: Value, n: Any, p: Any, shape: Sizes | None, dtype: DType) -> Any:
    shape = joint_shape("binomial", shape, n.aval.shape, p.aval.shape)
    (p,) = promote_inexact(p)
    n, p = (lax.stop_gradient(v) for v in (n, p))
    return _numbers(stream_of("binomial", key), n, p, shape, dtype)


def _multinomial(key: Value, n: Any, p: Any, shape: Sizes | None, dtype: DType, unroll: Any) -> Any:
    stream = stream_of("multinomial", key)
    n, p = (lax.stop_gradient(v) for v in promote_inexact(n, p))
    if not p.aval.ndim:
        msg = "multinomial: p has no axes, expected the probabilities along its last axis"
        raise RankError(msg)
    shape = joint_shape("multinomial", shape, p.aval.shape)
    joint_shape("multinomial", shape[:-1], n.aval.shape)  # fits, or is refused
    trials_left, p = spread(n, shape[:-1]), spread(p, shape)
    last = len(shape) - 1
    p = lax.transpose(p, (last, *range(last)))
    left = lax.cumsum(p, axis=0, reverse=True)
    none = lax.eq(left, constant(0, left.aval.shape, left.aval.dtype))
    left = lax.select(none, constant(1, left.aval.shape, left.aval.dtype), left)
    zero, one = (constant(x, (), p.aval.dtype) for x in (0, 1))
    shares = lax.clamp(zero, lax.div(p, left), one)
    words = stream.implementation.split(stream.words, (shape[-1],))

    def step(trials_left: Any, share_and_words: Any) -> Any:
        share, own = share_and_words
        numbers = _numbers(stream.at(own), trials_left, share, shape[:-1], trials_left.aval.dtype)
        return trials_left - numbers, numbers

    counts = scan(step, trials_left, (shares, words), unroll=unroll)[1]
    return lax.convert_dtype(lax.transpose(counts, (*range(1, last + 1), 0)), dtype)


_binomial_staged = StagedFunction(_binomial, "binomial", judges=False)
_multinomial_staged = StagedFunction(_multinomial, "multinomial", judges=False)


def binomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """How many of ``n`` trials succeed.

    Args:
        key: one key, typed or as words.
        n: number of trials, not negative; a fraction is cut off.
        p: probability of success, broadcastable to ``shape``.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: floating dtype of the result; ``None`` means the default one.

    Returns:
        Whole numbers as floats; NaN where a parameter is NaN or negative, infinity where ``n`` is.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.binomial(tb.random.key(0), 10, 0.5, (3,)).shape
    (3,)
    """
    statics = sizes_of("binomial", shape), float_dtype("binomial", dtype)
    return sample(_binomial_staged, key, (n, p), statics)


def multinomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    *,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    unroll: int | bool = 1,
) -> Array:
    """How often each of several outcomes happens in ``n`` trials.

    Args:
        key: one key, typed or as words.
        n: number of trials, broadcastable to ``shape`` without its last axis.
        p: probabilities of the outcomes along the last axis, whose sum is 1.
        shape: sizes of the result; ``None`` means that of ``p``.
        dtype: dtype of the result, also one of integers; ``None`` means that of ``n`` and ``p``
            together.
        unroll: how many outcomes a turn of the loop over them works on.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        RankError: ``p`` is a scalar.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.
        UnsupportedDtypeError: ``dtype`` is one of truth values or complex numbers.
    >>> import tracebridge as tb
    >>> p = tb.numpy.array([0.2, 0.3, 0.5])
    >>> float(tb.random.multinomial(tb.random.key(0), 10, p).sum())
    10.0
    """
    if dtype is not None and is_integer(as_dtype(dtype)):
        return multinomial(key, n, p, shape=shape, unroll=unroll).astype(dtype)
    statics = sizes_of("multinomial", shape), float_dtype("multinomial", dtype), unroll
    return sample(_multinomial_staged, key, (n, p), statics)
