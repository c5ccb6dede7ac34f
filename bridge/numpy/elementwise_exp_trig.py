"""Exponentials, logarithms, powers to fixed exponents, trigonometric and hyperbolic functions.

Integers and bools become floats.
"""

from __future__ import annotations

__all__ = [
    "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "deg2rad", "degrees",
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "rad2deg", "radians", "sin",
    "sinc", "sinh", "sqrt", "tan", "tanh",
]  # fmt: skip

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.numpy._promote import (
    inexact_operands,
    promote_inexact,
    strong_array,
    strongly,
    widened,
)
from tracebridge.numpy._staging import binary_function, unary_function

# 1 / log(2) and 1 / log(10), each in two parts: log(10) of float64 is rounded, as is its inverse.
_PER_LOG_2 = (1.4426950408889634, 2.0355273740931033e-17)
_PER_LOG_10 = (0.4342944819032518, 1.0983196502167651e-17)


def _scaled(x: Value, factor: tuple[float, float]) -> Any:
    """A multiple; of complex numbers part by part, as a product makes NaN of infinities."""
    if is_complex(x.aval.dtype):
        return lax.complex(_scaled(lax.real(x), factor), _scaled(lax.imag(x), factor))
    whole, rest = factor
    high = x.aval.dtype.type(whole)
    if float(high) > whole:  # the parts have one sign: no infinity is taken from another
        high = np.nextafter(high, np.zeros_like(high))
    return lax.add(lax.mul(x, float(high)), lax.mul(x, whole - float(high) + rest))


def _inexact(operation: Callable[[Value], Value]) -> Callable[[Any], Any]:
    """Integers become floats, then ``operation``."""

    def run(x: Value) -> Any:
        return operation(*promote_inexact(x))

    return run


sin = unary_function(
    _inexact(lambda x: lax.sin(x)),
    "sin",
    """Sine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.sin(0.0))
    0.0
    """,
)
cos = unary_function(
    _inexact(lambda x: lax.cos(x)),
    "cos",
    """Cosine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.cos(0.0))
    1.0
    """,
)
tan = unary_function(
    _inexact(lambda x: lax.tan(x)),
    "tan",
    """Tangent, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.tan(0.0))
    0.0
    """,
)
sinh = unary_function(
    _inexact(lambda x: lax.sinh(x)),
    "sinh",
    """Hyperbolic sine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.sinh(0.0))
    0.0
    """,
)
cosh = unary_function(
    _inexact(lambda x: lax.cosh(x)),
    "cosh",
    """Hyperbolic cosine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.cosh(0.0))
    1.0
    """,
)
tanh = unary_function(
    _inexact(lambda x: lax.tanh(x)),
    "tanh",
    """Hyperbolic tangent, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.tanh(0.0))
    0.0
    """,
)
exp = unary_function(
    _inexact(lambda x: lax.exp(x)),
    "exp",
    """Exponential, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.exp(0.0))
    1.0
    """,
)
expm1 = unary_function(
    _inexact(lambda x: lax.expm1(x)),
    "expm1",
    """``exp(x) - 1``, exact for small ``x``, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.expm1(0.0))
    0.0
    """,
)
exp2 = unary_function(
    _inexact(lambda x: lax.exp2(x)),
    "exp2",
    """``2 ** x``, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.exp2(3.0))
    8.0
    """,
)
log = unary_function(
    _inexact(lambda x: lax.log(x)),
    "log",
    """Natural logarithm, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.log(1.0))
    0.0
    """,
)
log1p = unary_function(
    _inexact(lambda x: lax.log1p(x)),
    "log1p",
    """``log(1 + x)``, exact for small ``x``, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.log1p(0.0))
    0.0
    """,
)
sqrt = unary_function(
    _inexact(lambda x: lax.sqrt(x)),
    "sqrt",
    """Square root, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.sqrt(4.0))
    2.0
    """,
)
cbrt = unary_function(
    _inexact(lambda x: lax.cbrt(x)),
    "cbrt",
    """Cube root, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.cbrt(8.0))
    2.0
    """,
)
arcsin = unary_function(
    _inexact(lambda x: lax.asin(x)),
    "arcsin",
    """Inverse sine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arcsin(0.0))
    0.0
    """,
)
asin = arcsin
arccos = unary_function(
    _inexact(lambda x: lax.acos(x)),
    "arccos",
    """Inverse cosine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arccos(1.0))
    0.0
    """,
)
acos = arccos
arctan = unary_function(
    _inexact(lambda x: lax.atan(x)),
    "arctan",
    """Inverse tangent, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arctan(0.0))
    0.0
    """,
)
atan = arctan
arcsinh = unary_function(
    _inexact(lambda x: lax.asinh(x)),
    "arcsinh",
    """Inverse hyperbolic sine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arcsinh(0.0))
    0.0
    """,
)
asinh = arcsinh
arccosh = unary_function(
    _inexact(lambda x: lax.acosh(x)),
    "arccosh",
    """Inverse hyperbolic cosine, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arccosh(1.0))
    0.0
    """,
)
acosh = arccosh
arctanh = unary_function(
    _inexact(lambda x: lax.atanh(x)),
    "arctanh",
    """Inverse hyperbolic tangent, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arctanh(0.0))
    0.0
    """,
)
atanh = arctanh
log2 = unary_function(
    strongly(_inexact(widened(lambda x: _scaled(lax.log(x), _PER_LOG_2)))),
    "log2",
    """Logarithm to base 2, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.log2(8.0))
    3.0
    """,
)
log10 = unary_function(
    strongly(_inexact(widened(lambda x: _scaled(lax.log(x), _PER_LOG_10)))),
    "log10",
    """Logarithm to base 10, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> round(float(tnp.log10(1000.0)), 5)
    3.0
    """,
)
deg2rad = unary_function(
    _inexact(lambda x: strong_array(lax.mul(x, math.pi / 180.0))),
    "deg2rad",
    """Degrees to radians, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> round(float(tnp.deg2rad(180.0)), 4)
    3.1416
    """,
)
radians = deg2rad
rad2deg = unary_function(
    _inexact(lambda x: strong_array(lax.mul(x, 180.0 / math.pi))),
    "rad2deg",
    """Radians to degrees, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.rad2deg(0.0))
    0.0
    """,
)
degrees = rad2deg


def _sin_pi(x: Value) -> Any:
    """``sin(pi * x)``, complex; its zeros are the whole numbers, which pi times x would miss."""
    along = lax.real(x)
    whole = lax.round(along, lax.RoundingMethod.TO_NEAREST_EVEN)
    is_odd = lax.ne(lax.mul(lax.floor(lax.mul(whole, 0.5)), 2.0), whole)
    sine = lax.sin(lax.mul(lax.complex(lax.sub(along, whole), lax.imag(x)), math.pi))
    return lax.select_n(is_odd, sine, lax.neg(sine))


# Of sin(pi r) / (pi r) in powers of r**2, highest first: up to 1/2 the next term is less than
# 1e-19, and so it is in the first derivatives.
_SINC = tuple(
    [(-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in range(12, -1, -1)]
)
_OF_FLOAT32 = 8


def _series_of_sinc(r: Value) -> Any:
    z = lax.mul(r, r)
    first, *rest = _SINC if finfo(z.aval.dtype).eps < 1e-10 else _SINC[-_OF_FLOAT32:]
    series = full_of(z.aval, first)
    for coefficient in rest:
        series = lax.add(lax.mul(series, z), coefficient)
    return series


def _sinc(x: Value) -> Any:
    if is_complex(x.aval.dtype):
        return _sinc_of_complex(x)
    whole = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    rest = lax.sub(x, whole)
    # Up to 1/2 the series alone, with all derivatives that are ever asked for: those of the
    # quotient lose their digits near zero. The quotient gets a harmless value there.
    small = lax.eq(whole, 0.0)
    away = lax.select_n(small, x, full_of(x.aval, 1))
    is_odd = lax.ne(lax.mul(lax.floor(lax.mul(whole, 0.5)), 2.0), whole)
    share = lax.div(lax.select_n(is_odd, rest, lax.neg(rest)), away)
    series = _series_of_sinc(rest)
    return strong_array(lax.select_n(small, lax.mul(series, share), series))


def _sinc_of_complex(x: Value) -> Any:
    t = lax.mul(x, math.pi)
    # Near zero derivatives of the quotient lose their digits: there the first terms of the series
    # stand, with all derivatives that are ever asked for. Each form gets harmless values where the
    # other one is taken, so that no infinite derivative of it comes back.
    small = lax.lt(lax.abs(t), 1.0)
    away = lax.select_n(small, x, full_of(x.aval, 0.5))
    near = lax.select_n(small, zeros_of(x.aval), x)
    quotient = lax.div(_sin_pi(away), lax.mul(away, math.pi))
    return strong_array(lax.select_n(small, quotient, _series_of_sinc(near)))


sinc = unary_function(
    _inexact(widened(_sinc)),
    "sinc",
    """``sin(pi * x) / (pi * x)``, 1 at zero, elementwise; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.sinc(0.0))
    1.0
    """,
)


arctan2 = binary_function(
    inexact_operands("arctan2", lambda x, y: lax.atan2(x, y)),
    "arctan2",
    """Angle of the point with ordinate ``x1`` and abscissa ``x2``, in ``(-pi, pi]``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.arctan2(0.0, 1.0))
    0.0
    """,
)
atan2 = arctan2
