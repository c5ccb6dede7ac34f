"""Gamma and beta functions."""

from __future__ import annotations

from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.scipy._special import formulas
from tracebridge.scipy._special.elementwise import floats

_STAGED = {
    name: floats(name, function, full=True)
    for name, function in {
        "gammaln": formulas.gammaln,
        "gammasgn": formulas.gammasgn,
        "gamma": formulas.gamma,
        "loggamma": formulas.loggamma,
        "digamma": formulas.digamma,
        "gammainc": formulas.gammainc,
        "gammaincc": formulas.gammaincc,
        "beta": formulas.beta,
        "betaln": formulas.log_beta,
        "betainc": formulas.incomplete_beta,
        "poch": formulas.poch,
        "polygamma": lambda *xs: lax.polygamma(*xs),
    }.items()
}


def _call(name: str, *xs: Any) -> Any:
    return _STAGED[name](xs)


def gammaln(x: ArrayLike) -> Array:
    """Logarithm of the size of the gamma function.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.gammaln(5.0))
    3.178...
    """
    return _call("gammaln", x)


def gammasgn(x: ArrayLike) -> Array:
    """Sign of the gamma function; NaN at its poles below 0.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.gammasgn(-0.5))
    -1.0
    """
    return _call("gammasgn", x)


def gamma(x: ArrayLike) -> Array:
    """The gamma function; NaN at its poles below 0.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.gamma(5.0))
    24.0...
    """
    return _call("gamma", x)


def loggamma(x: ArrayLike) -> Array:
    """Logarithm of the gamma function, of real numbers; NaN below 0.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.loggamma(5.0))
    3.178...
    """
    return _call("loggamma", x)


def digamma(x: ArrayLike) -> Array:
    """Derivative of the logarithm of the gamma function.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.digamma(1.0))
    -0.577...
    """
    return _call("digamma", x)


def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """Regularized lower incomplete gamma function.

    Args:
        a: first parameter.
        x: numbers; integers become floats.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.gammainc(2.0, 1.0))
    0.264...
    """
    return _call("gammainc", a, x)


def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """Regularized upper incomplete gamma function.

    Args:
        a: first parameter.
        x: numbers; integers become floats.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.gammaincc(2.0, 1.0))
    0.735...
    """
    return _call("gammaincc", a, x)


def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """The beta function.

    Args:
        a: first parameter.
        b: second parameter.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.beta(2.0, 3.0))
    0.0833...
    """
    return _call("beta", a, b)


def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """Logarithm of the beta function, of positive numbers.

    Args:
        a: first parameter.
        b: second parameter.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.betaln(2.0, 3.0))
    -2.484...
    """
    return _call("betaln", a, b)


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Regularized incomplete beta function, differentiable in ``x``.

    Args:
        a: first parameter.
        b: second parameter.
        x: numbers; integers become floats.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.betainc(2.0, 3.0, 0.5))
    0.687...
    """
    return _call("betainc", a, b, x)


def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """Rising factorial ``gamma(z + m) / gamma(z)``.

    Args:
        z: numbers.
        m: how many factors.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.poch(2.0, 3.0))
    24.0...
    """
    return _call("poch", z, m)


def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """Derivative of order ``n`` of ``digamma``; differentiable in ``x``.

    Args:
        n: order, whole numbers.
        x: numbers; integers become floats.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.polygamma(1, 1.0))
    1.644...
    """
    return _call("polygamma", n, x)
