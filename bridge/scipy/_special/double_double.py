"""Sums of two float64 numbers that stand for one of about 32 digits.

For sums whose terms cancel. The operations are exact to about ``2**-102``, and so are their
derivatives in forward mode, to any order: each has its rule in numbers of this kind.
"""

from __future__ import annotations

from typing import Any

import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge.core.lax.roundings import exact_product, exact_sum
from tracebridge.core.runtime.arrays.array import Array

Double = tuple[Any, Any]
EPS = 2.0**-100


def double(x: Array) -> Double:
    """A float64 number as one of this kind."""
    return x, tnp.zeros_like(x)


def _ordered_sum(x: Array, y: Array) -> Double:
    """The exact sum where ``x`` is the larger one."""
    total = x + y
    return total, y - (total - x)


def _add(x: Double, y: Double) -> Double:
    high, low = exact_sum(x[0], y[0])
    more, rest = exact_sum(x[1], y[1])
    high, low = _ordered_sum(high, low + more)
    return _ordered_sum(high, low + rest)


def _multiply(x: Double, y: Double) -> Double:
    high, low = exact_product(x[0], y[0])
    return _ordered_sum(high, low + (x[0] * y[1] + x[1] * y[0]))


def _divide(x: Double, y: Double) -> Double:
    first = x[0] / y[0]
    rest = _add(x, negative(_multiply(double(first), y)))
    second = rest[0] / y[0]
    rest = _add(rest, negative(_multiply(double(second), y)))
    return _add(_ordered_sum(first, second), double(rest[0] / y[0]))


def negative(x: Double) -> Double:
    """``-x``."""
    return -x[0], -x[1]


add: Any = custom_jvp(_add)
multiply: Any = custom_jvp(_multiply)
divide: Any = custom_jvp(_divide)


@add.defjvp
def _(primals: tuple[Double, Double], tangents: tuple[Double, Double]) -> Any:
    return add(*primals), add(*tangents)


@multiply.defjvp
def _(primals: tuple[Double, Double], tangents: tuple[Double, Double]) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return multiply(x, y), add(multiply(dx, y), multiply(x, dy))


@divide.defjvp
def _(primals: tuple[Double, Double], tangents: tuple[Double, Double]) -> Any:
    (x, y), (dx, dy) = primals, tangents
    quotient = divide(x, y)
    return quotient, divide(add(dx, negative(multiply(quotient, dy))), y)
