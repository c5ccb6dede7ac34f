"""Gamma and beta functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import promote_inexact, strongly, widened
from tracebridge.scipy._special import formulas, gamma_formulas, zeta_formulas
from tracebridge.scipy._special.elementwise import floats

_STAGED = {
    name: floats(name, function, full=True)
    for name, function in {
        "gammaln": formulas.gammaln,
        "gammasgn": formulas.gammasgn,
        "digamma": gamma_formulas.digamma,
        "gammainc": formulas.gammainc,
        "gammaincc": formulas.gammaincc,
        "beta": formulas.beta,
        "betaln": formulas.log_beta,
        "betainc": formulas.incomplete_beta,
        "poch": formulas.poch,
        "polygamma": zeta_formulas.polygamma,
    }.items()
}


def _real_or_complex(name: str, real: Callable[..., Any], other: Callable[..., Any]) -> Any:
    """A staged function of one array with a formula for complex numbers of its own."""

    def run(x: Array) -> Any:
        (x,) = promote_inexact(x)
        return other(x) if is_complex(x.aval.dtype) else real(x)

    return StagedFunction(run, name)


_gamma_staged = _real_or_complex(
    "gamma",
    strongly(widened(gamma_formulas.gamma)),
    strongly(gamma_formulas.gamma_of_complex),
)
_loggamma_staged = _real_or_complex(
    "loggamma", widened(formulas.loggamma), strongly(gamma_formulas.log_gamma_of_complex)
)


def _call(name: str, *xs: ArrayLike) -> Any:
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
    """The gamma function; infinite at 0 with its sign, NaN at the poles below 0.

    Real results are accurate to 6 units in the last place (those of whole numbers are whole),
    complex ones to as many as the logarithm has in front of its point.

    Args:
        x: real or complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.gamma(5.0))
    24.0
    """
    return _gamma_staged((x,))


def loggamma(x: ArrayLike) -> Array:
    """Logarithm of the gamma function, continued from the positive axis to the complex plane.

    It is cut along the negative axis, where the sign of the imaginary part says on which side a
    number is. The imaginary part is not that of the logarithm of ``gamma(x)``, which jumps.

    Args:
        x: real numbers, where the result is NaN below 0, or complex ones, where it is NaN at poles.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.loggamma(5.0))
    3.178...
    """
    return _loggamma_staged((x,))


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
    """Regularized incomplete beta function, differentiable in ``x``, and once in ``a`` and ``b``.

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
