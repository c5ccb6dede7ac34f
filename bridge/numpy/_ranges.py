"""Python integers outside the range of the other operands' dtype, where they are no error.

Division, limits and the like with such a number are refused. Sums, products and bitwise
operations wrap it, as they are modulo the range; choosing among arrays does, as NumPy; and
comparing, limiting or searching with it has an exact result. Functions come here only after a
range error, so that numbers that fit cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracebridge.core.dtypes.promotion import promote
from tracebridge.core.ir.values import scalar_value
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.numpy._staging import value_of


def integer_limits(xs: Sequence[ArrayLike]) -> tuple[int, int] | None:
    """The smallest and the largest number of the dtype that ``xs`` have together, if integer."""
    avals = [scalar_value(0).aval if type(x) is int else value_of(x).aval for x in xs]
    dtype = promote(tuple([(a.dtype, a.weak_type) for a in avals]))[0]
    if dtype.kind not in "iu":
        return None
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def side_of(x: ArrayLike | None, limits: tuple[int, int] | None) -> int:
    """-1 for a Python int below the limits, 1 for one above, else 0."""
    if type(x) is not int or limits is None:
        return 0
    return (x > limits[1]) - (x < limits[0])


def wrapped(xs: Sequence[Any]) -> list[Any] | None:
    """``xs`` with Python ints wrapped into the range; None where none needs it or has a dtype.

    An int that the default integer dtype cannot hold is a mistake wherever it goes.
    """
    limits = integer_limits(xs)
    if limits is None or not any([side_of(x, limits) for x in xs]):
        return None
    default = integer_limits((0,))
    if any([side_of(x, default) for x in xs if side_of(x, limits)]):
        return None
    low, high = limits
    return [(x - low) % (high - low + 1) + low if type(x) is int else x for x in xs]


def sides_of(xs: tuple[ArrayLike, ArrayLike]) -> tuple[int, int]:
    """On which side of the dtype's range each of two operands lies: see ``side_of``."""
    limits = integer_limits(xs)
    return side_of(xs[0], limits), side_of(xs[1], limits)
