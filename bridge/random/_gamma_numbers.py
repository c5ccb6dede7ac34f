"""Gamma numbers from one key each, by rejection.

Source: Marsaglia, Tsang (2000), ACM Trans. Math. Softw. 26(3). A shape below 1 is served by the
shape above it: the product with a power of a uniform number.
"""

from __future__ import annotations

import math
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.control.loops.map import map as lax_map
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.ir.value import Value
from tracebridge.core.prng.implementations import key_and_counters
from tracebridge.core.runtime.arrays.argument_types import DType
from tracebridge.core.special.gamma_draws import gamma_draw_p
from tracebridge.core.special.gamma_numbers import random_gamma_p
from tracebridge.core.symbolic.compare import dim_size_product, is_empty
from tracebridge.random._streams import (
    Stream,
    constant,
    exponentials,
    normals,
    spread,
    unit_floats,
)

Sizes = tuple[int, ...]


def gamma_numbers(stream: Stream, a: Any, shape: Sizes, dtype: DType, log_space: bool) -> Any:
    """Gamma numbers of shapes ``a``, or their logarithms; differentiable in ``a``."""
    a = spread(a, shape, dtype)
    fixed = lax.stop_gradient(a)
    count: Any = dim_size_product(shape)
    if is_empty(count):
        return a
    if stream.is_partitionable:
        words = key_and_counters(stream.words, shape)
        x = gamma_draw_p.bind(*words, fixed, log_space=log_space)
        return _moving(x, a, log_space)
    words = stream.implementation.split(stream.words, (count,))
    shapes = lax.reshape(fixed, (count,))

    def one(words: Value, a: Value) -> Any:
        return _one(stream.at(words), a, log_space)

    # Other generators do not give the same words for several keys at once.
    x = lax_map(lambda pair: one(*pair), (words, shapes))
    return _moving(lax.reshape(x, shape), a, log_space)


def _moving(x: Value, a: Value, log_space: bool) -> Any:
    """Numbers that depend on their shapes; those of the shapes 0 are all 0."""
    zero = lax.eq(a, lax.full_like(a, 0))
    x = lax.select(zero, lax.full_like(x, -math.inf if log_space else 0), x)
    return random_gamma_p.bind(x, a, log_space=log_space)


def _one(stream: Stream, a: Value, log_space: bool) -> Any:
    dtype = a.aval.dtype

    def number(x: float) -> Any:
        return constant(x, (), dtype)

    zero, one = number(0), number(1)
    third = number(1 / 3)
    plain = lax.ge(a, one)
    d = lax.sub(lax.select(plain, a, lax.add(a, one)), third)
    c = lax.div(third, lax.sqrt(d))

    def rejected(carry: Any) -> Any:
        _, x, v, u = carry
        slow = lax.ge(u, lax.sub(one, lax.mul(number(0.0331), lax.mul(x, x))))
        bound = lax.mul(d, lax.add(lax.sub(one, v), lax.log(v)))
        bound = lax.add(lax.mul(x, number(0.5)), bound)
        return lax.bitwise_and(slow, lax.ge(lax.log(u), bound))

    def positive(carry: Any) -> Any:
        words, _, _ = carry
        following, own = stream.at(words).split()
        x = normals(own, (), dtype)
        return following.words, x, lax.add(one, lax.mul(x, c))

    def step(carry: Any) -> Any:
        following, normal, uniform = stream.at(carry[0]).split(3)
        start = normal.words, zero, number(-1)
        _, x, v = while_loop(lambda s: lax.le(s[2], zero), positive, start)
        cube = lax.mul(lax.mul(v, v), v)
        return following.words, lax.mul(x, x), cube, unit_floats(uniform, (), dtype)

    following, last = stream.split()
    v = while_loop(rejected, step, (following.words, zero, one, number(2)))[2]
    power = lax.div(one, a)
    if log_space:
        log = lax.neg(exponentials(last, (), dtype))
        none = lax.bitwise_or(plain, lax.eq(log, zero))
        boost = lax.select(none, zero, lax.mul(log, power))
        return lax.add(lax.add(lax.log(d), lax.log(v)), boost)
    rest_of_1 = lax.sub(one, unit_floats(last, (), dtype))
    return lax.mul(lax.mul(d, v), lax.select(plain, one, lax.pow(rest_of_1, power)))
