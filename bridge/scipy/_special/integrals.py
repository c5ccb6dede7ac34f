"""Exponential, sine, cosine, Fresnel and error integrals, and the dilogarithm."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import promote_inexact, strongly, widened
from tracebridge.scipy._nested import nested
from tracebridge.scipy._special import faddeeva
from tracebridge.scipy._special import integral_formulas as formulas
from tracebridge.scipy._special.elementwise import floats

_STAGED = {
    name: floats(name, strongly(function), full=True)
    for name, function in {
        "dawsn": faddeeva.dawsn,
        "exp1": formulas.exp1,
        "expi": formulas.expi,
        "fresnel": lambda x: [formulas.fresnel_s(x), formulas.fresnel_c(x)],
        "owens_t": faddeeva.owens_t,
        "sici": lambda x: [formulas.sine_integral(x), formulas.cosine_integral(x)],
        "spence": formulas.spence,
    }.items()
}


def _erfcx(x: Array) -> Any:
    (x,) = promote_inexact(x)
    if is_complex(x.aval.dtype):
        return faddeeva.wofz(lax.complex(-lax.imag(x), lax.real(x)))
    return widened(faddeeva.erfcx)(x)


def _wofz(z: Array) -> Any:
    (z,) = promote_inexact(z)
    if not is_complex(z.aval.dtype):
        wide = z.aval.dtype == np.dtype(np.float64)
        z = lax.convert_dtype(z, np.dtype(np.complex128 if wide else np.complex64))
    return faddeeva.wofz(z)


_erfcx_staged = StagedFunction(strongly(_erfcx), "erfcx")
_wofz_staged = StagedFunction(strongly(_wofz), "wofz")


def _call(name: str, *xs: ArrayLike) -> Any:
    return _STAGED[name](xs)


def dawsn(x: ArrayLike) -> Array:
    """Dawson's integral: ``exp(-x**2)`` times the integral of ``exp(t**2)`` from 0 to ``x``.

    Accurate to 4 units in the last place.

    Args:
        x: real numbers.

    Raises:
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.dawsn(1.0))
    0.538...
    """
    return _call("dawsn", x)


def erfcx(x: ArrayLike) -> Array:
    """``exp(x**2) * erfc(x)``, which neither overflows nor vanishes where ``x`` is large.

    Accurate to 6 units in the last place for real numbers, for complex ones like ``wofz``.

    Args:
        x: real or complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.erfcx(1.0))
    0.427...
    """
    return _erfcx_staged((x,))


def wofz(z: ArrayLike) -> Array:
    """The Faddeeva function ``exp(-z**2) * erfc(-i z)``.

    Real and imaginary part are accurate to 50 units in the last place above the real axis. Below,
    it has zeros and grows like ``exp(-z**2)``, whose angle is ``2 x y``: errors are of that size.

    Args:
        z: real or complex numbers.

    Returns:
        Complex numbers; NaN where a part of ``z`` is NaN.

    >>> import tracebridge as tb
    >>> complex(tb.scipy.special.wofz(1j))
    (0.427...+0j)
    """
    return _wofz_staged((z,))


def exp1(x: ArrayLike) -> Array:
    """The exponential integral: of ``exp(-t) / t`` from ``x`` to infinity.

    Accurate to 5 units in the last place.

    Args:
        x: real numbers; the result is NaN below 0 and infinite at 0.

    Raises:
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.exp1(1.0))
    0.219...
    """
    return _call("exp1", x)


def expi(x: ArrayLike) -> Array:
    """The exponential integral, principal value: of ``exp(t) / t`` from minus infinity to ``x``.

    Accurate to 5 units in the last place, also beside its zero.

    Args:
        x: real numbers.

    Raises:
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.expi(1.0))
    1.895...
    """
    return _call("expi", x)


def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """The Fresnel integrals of ``sin(pi t**2 / 2)`` and ``cos(pi t**2 / 2)`` from 0 to ``x``.

    Accurate to 4 units in the last place, and so are their derivatives for ``x`` of any size.

    Args:
        x: real numbers.

    Returns:
        The integral of the sine, then that of the cosine.

    Raises:
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> [float(v) for v in tb.scipy.special.fresnel(1.0)]
    [0.438..., 0.779...]
    """
    return tuple(_call("fresnel", x))


def sici(x: ArrayLike) -> tuple[Array, Array]:
    """The sine and the cosine integral.

    The first is the integral of ``sin(t) / t`` from 0 to ``x``, the second minus that of
    ``cos(t) / t`` from ``x`` to infinity; of ``abs(x)`` where ``x`` is negative. Accurate to 4
    units in the last place, the second to 20 units of a number of size 0.1.

    Args:
        x: real numbers.

    Returns:
        The sine integral, then the cosine integral.

    Raises:
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> [float(v) for v in tb.scipy.special.sici(1.0)]
    [0.946..., 0.337...]
    """
    return tuple(_call("sici", x))


def spence(x: Array) -> Array:
    """The dilogarithm of ``1 - x``: the integral of ``log(t) / (1 - t)`` from 1 to ``x``.

    Accurate to 5 units in the last place.

    Args:
        x: real numbers; the result is NaN below 0.

    Raises:
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.spence(0.0))
    1.644...
    """
    return _call("spence", nested(x))


def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    """Owen's function: of ``exp(-h**2 (1 + t**2) / 2) / (1 + t**2) / (2 pi)`` from 0 to ``a``.

    The probability that a normal number is above ``h`` and another between 0 and ``a`` times the
    first. Accurate to 20 units in the last place.

    Args:
        h: real numbers.
        a: real numbers, broadcastable to ``h``.

    Raises:
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.owens_t(0.0, 1.0))
    0.125
    """
    return _call("owens_t", h, a)
