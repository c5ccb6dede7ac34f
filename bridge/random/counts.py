"""Numbers of events: geometric and Poisson."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.dtypes.canonicalize import default_int
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.dtypes.finfo import iinfo
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.core.ir.value import Value
from tracebridge.core.prng.implementations import key_and_counters, threefry
from tracebridge.core.runtime.arrays.argument_types import DType, ShapeLike, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.special.count_draws import poisson_count_p
from tracebridge.core.special.rejection import where_needed
from tracebridge.random._streams import (
    Stream,
    constant,
    default_float,
    integer_dtype,
    joint_shape,
    of_real_parameters,
    sample,
    sizes_of,
    spread,
    stream_of,
    unit_floats,
)

Sizes = tuple[int, ...]
_FLOAT = np.dtype(np.float32)
# From this rate on transformed rejection takes fewer steps than counting events.
_LARGE_RATE = 10


def _real(x: Value) -> Any:
    return x if is_inexact(x.aval.dtype) else lax.convert_dtype(x, default_float())


def _geometric(key: Value, p: Value, shape: Sizes | None, dtype: DType) -> Any:
    """The inverse of the distribution function; a draw of 0 stands for 1."""
    shape = joint_shape("geometric", shape, p.aval.shape)
    p = spread(_real(p), shape)
    kind = p.aval.dtype
    u = unit_floats(stream_of("geometric", key), shape, kind)
    one = constant(1, shape, kind)
    u = lax.select(lax.eq(u, constant(0, shape, kind)), one, u)
    steps = lax.floor(lax.div(lax.log(u), lax.log1p(lax.neg(p))))
    # The logarithm of 1 plus the other zero would have the other sign.
    never = lax.eq(p, constant(0, shape, kind))
    steps = lax.select(never, constant(np.inf, shape, kind), steps)
    return lax.convert_dtype(lax.add(steps, one), dtype)


def _any(x: Value) -> Any:
    return lax.reduce_or_p.bind(x, axes=tuple(range(x.aval.ndim)))


def _counted(stream: Stream, rate: Value, dtype: Any) -> Any:
    """Knuth's method: how many uniform numbers have a product of at least ``exp(-rate)``."""
    shape = rate.aval.shape
    limit = lax.neg(rate)

    def open_(total: ArrayLike) -> Any:
        return lax.gt(total, lax.convert_dtype(limit, _FLOAT))

    def step(carry: Any) -> Any:
        count, words, total = carry
        following, own = stream.at(words).split()
        more = lax.convert_dtype(open_(total), dtype)
        total = lax.add(total, lax.log(unit_floats(own, shape, _FLOAT)))
        return lax.add(count, more), following.words, total

    start = constant(0, shape, dtype), stream.words, constant(0, shape, _FLOAT)
    count = while_loop(lambda c: _any(open_(c[2])), step, start)[0]
    return lax.sub(count, constant(1, shape, dtype))


def _rejected(stream: Stream, rate: Value, dtype: DType) -> Any:
    """Hoermann (1993), the transformed rejection method PTRS."""
    shape, kind = rate.aval.shape, rate.aval.dtype

    def number(x: float) -> Any:
        return constant(x, shape, kind)

    b = number(0.931) + number(2.53) * lax.sqrt(rate)
    a = number(-0.059) + number(0.02483) * b
    inverse_alpha = number(1.1239) + number(1.1328) / (b - number(3.4))
    v_r = number(0.9277) - number(3.6224) / (b - number(2))

    def step(carry: Any) -> Any:
        last_state, words = carry
        following, first, second = stream.at(words).split(3)
        u = unit_floats(first, shape, kind) - number(0.5)
        v = unit_floats(second, shape, kind)
        us = number(0.5) - lax.abs(u)
        k = lax.floor((number(2) * a / us + b) * u + rate + number(0.43))
        left = lax.log(v * inverse_alpha / (a / (us * us) + b))
        right = k * lax.log(rate) - rate - lax.lgamma(k + number(1))
        quick = (us >= number(0.07)) & (v <= v_r)
        outside = (k < number(0)) | ((us < number(0.013)) & (v > us))
        accepted = quick | (~outside & (left <= right))
        return lax.select(accepted, k, last_state), following.words

    # One array is carried, as each is computed in a pass of its own: numbers are below 0 until
    # one is accepted. Later ones take the place of earlier ones, as long as some element waits.
    start = number(-1), stream.words
    last_state = while_loop(lambda c: _any(c[0] < number(0)), step, start)[0]
    return lax.convert_dtype(last_state, dtype)


def _poisson(key: Value, lam: Any, shape: Sizes | None, dtype: Any) -> Any:
    stream = stream_of("poisson", key)
    if stream.implementation is not threefry:
        msg = f"poisson: got a key of {stream.implementation.name}, expected one of threefry2x32"
        raise UnsupportedArgumentError(
            msg, hint="tracebridge.random.key(seed, impl='threefry2x32')"
        )
    shape = joint_shape("poisson", shape, lam.aval.shape)
    # Rates are float32 whatever comes, so that the stream does not depend on it.
    lam = spread(lax.convert_dtype(lam, _FLOAT), shape)
    kind = lam.aval.dtype
    endless = lax.eq(lam, constant(np.inf, shape, kind))
    lam = lax.select(endless, constant(1e5, shape, kind), lam)
    # Comparisons with NaN are false: NaN counts as a small rate, and gives -1.
    large = lax.ge(lam, constant(_LARGE_RATE, shape, kind))
    small = lax.select(large, constant(0, shape, kind), lam)
    if stream.is_partitionable:
        few = poisson_count_p.bind(*key_and_counters(stream.words, shape), small)
        few = lax.sub(lax.convert_dtype(few, dtype), constant(1, shape, dtype))
    else:
        few = _counted(stream, small, dtype)
    many = where_needed(
        large,
        constant(0, shape, dtype),
        lambda: _rejected(stream, lax.select(large, lam, constant(1e5, shape, kind)), dtype),
    )
    zero = constant(0, shape, dtype)
    result = lax.select(large, many, few)
    result = lax.select(endless, constant(int(iinfo(dtype).max), shape, dtype), result)
    return lax.select(lax.eq(lam, constant(0, shape, kind)), zero, result)


_geometric_staged = StagedFunction(of_real_parameters("geometric", _geometric), "geometric")
_poisson_staged = StagedFunction(of_real_parameters("poisson", _poisson), "poisson")


def geometric(
    key: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """How many trials it takes until one succeeds.

    Args:
        key: one key, typed or as words.
        p: probability of success, in ``(0, 1]``, broadcastable to ``shape``.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: ``p`` does not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no integer dtype.

    >>> import tracebridge as tb
    >>> tb.random.geometric(tb.random.key(0), 0.5, (3,)).shape
    (3,)
    """
    kind = integer_dtype("geometric", dtype, default_int())
    return sample(_geometric_staged, key, (p,), (sizes_of("geometric", shape), kind), out_sharding)


def poisson(
    key: ArrayLike,
    lam: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """How many independent events of a given rate happen in a unit of time.

    A rate of NaN, or below 0, gives -1; an infinite one the largest integer of the dtype.

    Args:
        key: one key, typed or as words.
        lam: rate, not negative, broadcastable to ``shape``.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        UnsupportedArgumentError: the key is of another generator than threefry2x32.
        BroadcastError: ``lam`` does not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no integer dtype.

    >>> import tracebridge as tb
    >>> tb.random.poisson(tb.random.key(0), 3.0, (3,)).shape
    (3,)
    """
    kind = integer_dtype("poisson", dtype, default_int())
    return sample(_poisson_staged, key, (lam,), (sizes_of("poisson", shape), kind), out_sharding)
