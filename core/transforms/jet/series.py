"""Truncated power series, and arithmetic on their coefficients.

A series is a list of K + 1 coefficients, the value first: ``x(t) = x[0] + x[1] t + ...``. A
coefficient ``None`` is a symbolic zero; the value never is. Sources: Griewank and Walther,
"Evaluating Derivatives" (2008), chapter 13, for the recurrences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lax.ad_util import full_of, zeros_of

Series = list[Any]


def constant(x: Any, order: int) -> Series:
    """The series of a value that does not depend on ``t``."""
    return [x, *[None] * order]


def is_constant(x: Series) -> bool:
    """Whether all coefficients but the first are zero."""
    return all([c is None for c in x[1:]])


def filled(x: Series) -> Series:
    """The series without symbolic zeros."""
    zeros: Any = None
    given: Series = []
    for c in x:
        if c is None and zeros is None:
            zeros = zeros_of(x[0].aval.tangent)
        given.append(zeros if c is None else c)
    return given


def scaled(c: Any, k: float) -> Any:
    """``k c``."""
    if c is None or k == 1:
        return c
    return lax.neg(c) if k == -1 else lax.mul(c, full_of(c.aval.update(shape=()), k))


def plus(a: Any, b: Any) -> Any:
    """``a + b``."""
    if a is None or b is None:
        return b if a is None else a
    return lax.add(a, b)


def minus(a: Any, b: Any) -> Any:
    """``a - b``."""
    if b is None:
        return a
    return lax.neg(b) if a is None else lax.sub(a, b)


def total(terms: Sequence[object]) -> Any:
    """The sum of coefficients."""
    result: Any = None
    for term in terms:
        result = plus(result, term)
    return result


def times(a: Any, b: Any) -> Any:
    """``a b``."""
    return None if a is None or b is None else lax.mul(a, b)


def fitted(c: Any, out: ShapedArray) -> Any:
    """A coefficient repeated to the shape of the result; scalars may stand beside arrays."""
    if c is None or c.aval.shape == out.shape:
        return c
    return lax.broadcast_in_dim(c, out.shape, ())


def convolved(a: Series, b: Series, k: int, op: Callable[[Any, Any], Any], start: int = 0) -> Any:
    """Coefficient ``k`` of a product: the sum of ``op(a[i], b[k - i])`` from ``i = start`` on."""
    return total(
        [
            op(a[i], b[k - i])
            for i in range(start, k + 1)
            if a[i] is not None and b[k - i] is not None
        ]
    )


def product(a: Series, b: Series, op: Callable[[Any, Any], Any] = times) -> Series:
    """All coefficients of a product."""
    return [convolved(a, b, k, op) for k in range(len(a))]


def quotient(a: Series, b: Series) -> Series:
    """``a / b``: ``b q = a``, solved for one coefficient after the other."""
    out: Series = [lax.div(a[0], b[0])]
    for k in range(1, len(a)):
        rest = minus(a[k], convolved(b, [*out, None], k, times, 1))
        out.append(None if rest is None else lax.div(rest, b[0]))
    return out


def integrated(first: object, slope: Callable[[int, Series], Any], x: Series) -> Series:
    """``y`` with ``y' = p x'``, where ``slope(k, y)`` is coefficient ``k`` of ``p``.

    It is called when ``y`` is known up to coefficient ``k``, and may depend on it.
    """
    out: Series = [first]
    slopes: Series = []
    for k in range(1, len(x)):
        slopes.append(slope(k - 1, out))
        terms = [scaled(times(x[j], slopes[k - j]), float(j)) for j in range(1, k + 1)]
        out.append(scaled(total(terms), 1.0 / k))
    return out
