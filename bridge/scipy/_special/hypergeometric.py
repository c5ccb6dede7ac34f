"""Hypergeometric functions."""

from __future__ import annotations

from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.scipy._nested import nested
from tracebridge.scipy._special import hypergeometric_formulas as formulas
from tracebridge.scipy._special.elementwise import floats

_hyp1f1_staged = floats("hyp1f1", formulas.hyp1f1, full=True)
_hyp2f1_staged = floats("hyp2f1", formulas.hyp2f1, full=True)


def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The confluent hypergeometric function of Kummer: the sum of ``(a)_k x**k / ((b)_k k!)``.

    Computed in float64: float32 results are exact to the last digit for parameters and arguments of
    ordinary size. Where terms cancel they are summed with 32 digits: float64 results have 13 digits
    for parameters up to 20 and arguments up to 60, and 6 for those up to 50 and 100. Where no digit
    is left, the result is NaN.

    Args:
        a: real numbers.
        b: real numbers; the result is infinite where they are whole and not positive, unless the
            sum ends before.
        x: real numbers. Differentiable to any order; in ``a`` and ``b`` once in reverse mode, more
            often in forward mode.

    Raises:
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.hyp1f1(1.0, 2.0, 1.0))
    1.718...
    """
    return _hyp1f1_staged((nested(a), nested(b), nested(x)))


def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """The hypergeometric function of Gauss: the sum of ``(a)_k (b)_k x**k / ((c)_k k!)``.

    Continued to ``x < -1``, along the differential equation close to 1. Computed in float64:
    float32 results are exact to the last digit for parameters of ordinary size. Digits are lost
    where terms cancel, with large parameters of different signs; where none is left, the result is
    NaN.

    Args:
        a: real numbers.
        b: real numbers.
        c: real numbers; the result is infinite where they are whole and not positive, unless the
            sum ends before.
        x: real numbers; the result is infinite beyond 1, unless the sum ends. Differentiable to any
            order; in the parameters once in reverse mode, more often in forward mode.

    Raises:
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.hyp2f1(1.0, 2.0, 3.0, 0.5))
    1.545...
    """
    return _hyp2f1_staged((nested(a), nested(b), nested(c), nested(x)))
