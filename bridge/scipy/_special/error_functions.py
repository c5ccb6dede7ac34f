"""The error function, the normal distribution and Bessel functions."""

from __future__ import annotations

from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.special import bessel
from tracebridge.numpy._promote import strongly
from tracebridge.scipy._nested import nested
from tracebridge.scipy._special import formulas
from tracebridge.scipy._special.elementwise import floats

_STAGED = {
    name: floats(name, function, full=True)
    for name, function in {
        "erf": lambda *xs: lax.erf(*xs),
        "erfc": lambda *xs: lax.erfc(*xs),
        "erfinv": lambda *xs: lax.erf_inv(*xs),
        "ndtr": strongly(formulas.ndtr),
        "ndtri": strongly(formulas.ndtri),
        "i0": bessel.bessel_i0,
        "i0e": bessel.bessel_i0e,
        "i1": bessel.bessel_i1,
        "i1e": bessel.bessel_i1e,
    }.items()
}


def _call(name: str, *xs: ArrayLike) -> Any:
    return _STAGED[name](xs)


def erf(x: ArrayLike) -> Array:
    """The error function.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.erf(1.0))
    0.842...
    """
    return _call("erf", x)


def erfc(x: ArrayLike) -> Array:
    """``1 - erf(x)``, accurate for large ``x``.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.erfc(1.0))
    0.157...
    """
    return _call("erfc", x)


def erfinv(x: ArrayLike) -> Array:
    """Inverse of the error function; NaN outside [-1, 1].

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.erfinv(0.5))
    0.476...
    """
    return _call("erfinv", x)


def ndtr(x: ArrayLike) -> Array:
    """Distribution function of normal numbers.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.ndtr(0.0))
    0.5
    """
    return _call("ndtr", nested(x))


def ndtri(p: ArrayLike) -> Array:
    """Quantiles of normal numbers: the inverse of ``ndtr``.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.ndtri(0.5))
    0.0
    """
    return _call("ndtri", p)


def i0(x: ArrayLike) -> Array:
    """Modified Bessel function of order 0.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.i0(1.0))
    1.266...
    """
    return _call("i0", x)


def i0e(x: ArrayLike) -> Array:
    """``exp(-abs(x)) * i0(x)``.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.i0e(1.0))
    0.465...
    """
    return _call("i0e", x)


def i1(x: ArrayLike) -> Array:
    """Modified Bessel function of order 1.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.i1(1.0))
    0.565...
    """
    return _call("i1", x)


def i1e(x: ArrayLike) -> Array:
    """``exp(-abs(x)) * i1(x)``.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.i1e(1.0))
    0.207...
    """
    return _call("i1e", x)
