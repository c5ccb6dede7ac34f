"""Functions of complex numbers at branch cuts, infinities and NaN, for the CPU.

XLA's own forms lose the sign of zero, which says on what side of a branch cut a number lies, make
NaN of infinities, and cancel in sinh, cosh, sin and cos of numbers beside an axis. A correction
gets the operand and XLA's result, and repairs the parts that the C standard (annex G) and NumPy
define. ``core/lowering/platforms.py`` puts them in place.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.elementwise import complex_logarithms
from tracebridge.core.lax.elementwise.cpu_lowerings import with_sign_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracebridge.core.ir.value import Value


def _parts(z: Value) -> tuple[Any, Any]:
    return lax.real(z), lax.imag(z)


def _zero(x: Value) -> Any:
    """Where ``x`` is 0 of either sign."""
    return lax.eq(x, 0.0)


def _nan(x: Value) -> Any:
    return lax.ne(x, x)


def _infinite(x: Value) -> Any:
    return lax.eq(lax.abs(x), math.inf)


def _unbounded(x: Value) -> Any:
    """Where ``x`` is infinite or NaN."""
    return lax.bitwise_not(lax.lt(lax.abs(x), math.inf))


def _where(condition: Any, value: Any, otherwise: Any) -> Any:
    """``value`` where the condition holds; a number takes the dtype of ``otherwise``."""
    if isinstance(value, float):
        value = literal(value, otherwise.aval.dtype)
    return lax.select_n(condition, otherwise, value)


def _both(a: Value, b: Value) -> Any:
    return lax.bitwise_and(a, b)


def _either(a: Value, b: Value) -> Any:
    return lax.bitwise_or(a, b)


def _undefined(x: Value, y: Value) -> Any:
    """Where one part is NaN, and the other one is not infinite."""
    return _both(_either(_nan(x), _nan(y)), lax.bitwise_not(_either(_infinite(x), _infinite(y))))


def _signed(size: Any, x: Value) -> Any:
    return with_sign_of(lax.abs(size), x)


def sqrt(z: Any, plain: Any) -> Any:
    """The root in the right half plane, on the side of the cut that the sign of 0 says."""
    (x, y), (real, imag) = _parts(z), _parts(plain)
    # An infinite imaginary part outweighs a NaN, and so does an infinite real part.
    real = _where(_infinite(y), math.inf, real)
    imag = _where(_infinite(y), math.inf, imag)
    lost = _nan(y)
    real = _where(_both(lost, lax.eq(x, math.inf)), math.inf, real)
    imag = _where(_both(lost, lax.eq(x, -math.inf)), math.inf, imag)
    return lax.complex(real, _signed(imag, y))


def _finite_log(x: Any, y: Any, real: Any) -> Any:
    """The real part of a logarithm: infinite where the operand is, also beside a NaN."""
    return _where(_either(_infinite(x), _infinite(y)), math.inf, real)


def exp(z: Any, plain: Any) -> Any:
    """A zero imaginary part keeps its sign; infinities beside NaN."""
    (x, y), (real, imag) = _parts(z), _parts(plain)
    far = _unbounded(y)
    vanishes, grows = (_both(far, lax.eq(x, end)) for end in (-math.inf, math.inf))
    real = _where(vanishes, 0.0, _where(grows, math.inf, real))
    imag = _where(vanishes, _signed(literal(0.0, x.aval.dtype), y), imag)
    return lax.complex(real, _where(_zero(y), y, imag))


def exp2(z: Value) -> Any:
    """Two to the power ``z``: no product of complex numbers, which makes NaN of infinities."""
    x, y = (lax.mul(part, math.log(2.0)) for part in _parts(z))
    return lax.exp(lax.complex(x, y))


def expm1(z: Value, plain: Any) -> Any:
    """As ``exp`` less 1; 0 keeps both signs, the imaginary part all its digits far below 0."""
    (x, y), real = _parts(z), lax.real(plain)
    real = _where(_both(_zero(x), _zero(y)), x, real)
    far = _unbounded(y)
    vanishes, grows = (_both(far, lax.eq(x, end)) for end in (-math.inf, math.inf))
    real = _where(vanishes, -1.0, _where(grows, math.inf, real))
    imag = _where(_both(_nan(real), lax.ne(y, 0.0)), math.nan, lax.imag(lax.exp(z)))
    return lax.complex(real, imag)


def _odd(u: Value, v: Value) -> tuple[Any, Any]:
    """``(sinh u cos v, cosh u sin v)``, the parts of sinh(u + iv)."""
    first = lax.mul(lax.sinh(u), lax.cos(v))
    second = lax.mul(lax.cosh(u), lax.sin(v))
    far = _unbounded(v)
    first = _where(_both(_zero(u), far), u, first)
    return _where(_both(_infinite(u), far), u, first), _where(_zero(v), v, second)


def _even(u: Any, v: Any) -> tuple[Any, Any]:
    """``(cosh u cos v, sinh u sin v)``, the parts of cosh(u + iv)."""
    first = lax.mul(lax.cosh(u), lax.cos(v))
    second = lax.mul(lax.sinh(u), lax.sin(v))
    far = _unbounded(v)
    second = _where(_both(_zero(u), far), u, second)
    product = lax.mul(_signed(literal(1.0, u.aval.dtype), u), v)
    return _where(_both(_infinite(u), far), math.inf, first), _where(_zero(v), product, second)


def sinh(z: Value) -> Any:
    """Hyperbolic sine, from the functions of the parts."""
    return lax.complex(*_odd(*_parts(z)))


def cosh(z: Value) -> Any:
    """Hyperbolic cosine."""
    return lax.complex(*_even(*_parts(z)))


def sin(z: Value) -> Any:
    """Sine: ``-i sinh(iz)``."""
    x, y = _parts(z)
    imag, real = _odd(y, x)
    return lax.complex(real, imag)


def cos(z: Value) -> Any:
    """Cosine: ``cosh(iz)``."""
    x, y = _parts(z)
    return lax.complex(*_even(lax.neg(y), x))


def _tanh_parts(x: Value, y: Value, real: Any, imag: Any) -> tuple[Any, Any]:
    """Zeros keep their signs; the imaginary part vanishes at infinity."""
    imag = _where(_both(_infinite(x), _unbounded(y)), _signed(literal(0.0, x.aval.dtype), y), imag)
    return _where(_zero(x), x, real), _where(_zero(y), y, imag)


def tanh(z: Value, plain: Any) -> Any:
    """Hyperbolic tangent."""
    return lax.complex(*_tanh_parts(*_parts(z), *_parts(plain)))


def tan(z: Value, plain: Any) -> Any:
    """Tangent: ``-i tanh(iz)``."""
    (x, y), (real, imag) = _parts(z), _parts(plain)
    imag, real = _tanh_parts(y, x, imag, real)
    return lax.complex(real, imag)


def _inverse(u: Any, v: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """Parts of an odd function: their signs are the operand's, and NaN spoils both."""
    lost = _undefined(u, v)
    first = _where(lost, math.nan, first)
    second = _where(lost, math.nan, second)
    return _where(_both(lost, _zero(u)), u, _signed(first, u)), _signed(second, v)


def _height(u: Any, v: Any, plain: Any) -> Any:
    """The part that vanishes on the cut: above and below its ends the root of the distance.

    There the square of the distance underflows.
    """
    size = lax.abs(v)
    near = _both(lax.eq(lax.abs(u), 1.0), lax.lt(size, float(np.finfo(u.aval.dtype).eps)))
    return _where(near, lax.sqrt(size), plain)


def asin(z: Value, plain: Any) -> Any:
    """Inverse sine; cuts on the real axis outside [-1, 1]."""
    (x, y), (real, imag) = _parts(z), _parts(plain)
    return lax.complex(*_inverse(x, y, real, _height(x, y, imag)))


def asinh(z: Value, plain: Any) -> Any:
    """Inverse hyperbolic sine; cuts on the imaginary axis."""
    (x, y), (real, imag) = _parts(z), _parts(plain)
    imag, real = _inverse(y, x, imag, _height(y, x, real))
    return lax.complex(real, imag)


def _acos_parts(x: Any, y: Any, angle: Any, size: Any) -> tuple[Any, Any]:
    lost = _undefined(x, y)
    size = _height(x, y, size)
    angle = _where(lost, math.nan, angle)
    angle = _where(_both(lost, _zero(x)), math.pi / 2, angle)
    return angle, _where(lost, math.nan, size)


def acos(z: Value, plain: Any) -> Any:
    """Inverse cosine; cuts as those of ``asin``."""
    (x, y), (real, imag) = _parts(z), _parts(plain)
    real, imag = _acos_parts(x, y, real, imag)
    return lax.complex(real, _signed(imag, lax.neg(y)))


def acosh(z: Value, plain: Any) -> Any:
    """Inverse hyperbolic cosine; the cut goes from -infinity to 1."""
    (x, y), (real, imag) = _parts(z), _parts(plain)
    imag, real = _acos_parts(x, y, imag, real)
    return lax.complex(lax.abs(real), _signed(imag, y))


def _atanh_parts(u: Any, v: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """The parts of atanh(u + iv)."""
    # At the poles the square of v underflows.
    near = _both(lax.eq(lax.abs(u), 1.0), lax.lt(lax.abs(v), 1e-6))
    size = lax.mul(lax.sub(math.log(2.0), lax.log(lax.abs(v))), 0.5)
    first, second = _inverse(u, v, _where(near, size, first), second)
    far = _either(_infinite(u), _infinite(v))
    zero = literal(0.0, u.aval.dtype)
    # Where u is infinite the angle is a right one, and unknown beside NaN.
    second = _where(_both(far, _nan(v)), math.nan, _where(far, math.pi / 2, second))
    return _signed(_where(far, zero, first), u), _signed(second, v)


def atanh(z: Value, plain: Any) -> Any:
    """Inverse hyperbolic tangent; cuts on the real axis outside [-1, 1]."""
    return lax.complex(*_atanh_parts(*_parts(z), *_parts(plain)))


def atan(z: Value, plain: Any) -> Any:
    """Inverse tangent: ``-i atanh(iz)``; cuts on the imaginary axis."""
    (x, y), (real, imag) = _parts(z), _parts(plain)
    imag, real = _atanh_parts(y, x, imag, real)
    return lax.complex(real, imag)


def sign(z: Value, plain: Any) -> Any:
    """``z / abs(z)``; beside an infinite part the other one counts as 0."""
    (x, y), (real, imag) = _parts(z), _parts(plain)
    zero, one = (literal(v, x.aval.dtype) for v in (0.0, 1.0))
    # The size of the largest numbers is infinite.
    limit = float(np.finfo(x.aval.dtype).max) / 4
    factor = _where(lax.ge(lax.max(lax.abs(x), lax.abs(y)), limit), 0.25, one)
    a, b = lax.mul(x, factor), lax.mul(y, factor)
    size = lax.abs(lax.complex(a, b))
    none = lax.eq(size, 0.0)
    size = _where(none, 1.0, size)
    real, imag = lax.div(a, size), lax.div(b, size)
    far = lax.ne(_infinite(x), _infinite(y))
    real = _where(far, _where(_infinite(x), _signed(one, x), zero), real)
    imag = _where(far, _where(_infinite(y), _signed(one, y), zero), imag)
    return lax.complex(real, imag)


def abs(z: Value, plain: Any) -> Any:
    """Infinite where a part is, also beside NaN."""
    x, y = _parts(z)
    return _finite_log(x, y, plain)


def reciprocal(z: Value, plain: Any) -> Any:
    """``1 / z``: the conjugate over a square, and its parts have the signs of the conjugate."""
    (x, y), (real, imag) = _parts(z), _parts(plain)
    return lax.complex(_signed(real, x), _signed(imag, lax.neg(y)))


def _wide_pow(z: Any, w: Any) -> Any:
    """``exp(w log z)`` of complex64 in float64: faster than the plain operation, and exact."""
    real, angle = _parts(lax.log(lax.convert_dtype(z, COMPLEX[1])))
    c, d = _parts(lax.convert_dtype(w, COMPLEX[1]))
    size = lax.sub(lax.mul(c, real), lax.mul(d, angle))
    turn = lax.add(lax.mul(c, angle), lax.mul(d, real))
    return lax.convert_dtype(lax.exp(lax.complex(size, turn)), z.aval.dtype)


def _side(z: Value) -> Any:
    """The sign of the angle: 0 on the positive axis, and on the negative one that of 0."""
    x, y = _parts(z)
    one = literal(1.0, x.aval.dtype)
    on_axis = lax.select_n(lax.lt(x, 0.0), literal(0.0, x.aval.dtype), _signed(one, y))
    return lax.select_n(_zero(y), lax.sign(y), on_axis)


def pow(z: Value, w: Value, plain: Any) -> Any:
    """Powers of 0, of infinities and to infinities; to 1, 2 and 3 by products, as in NumPy."""
    w = lax.convert_dtype(w, z.aval.dtype)
    c, d = _parts(w)
    nothing = literal(0j, plain.aval.dtype)
    size = lax.abs(z)
    above = lax.select_n(lax.gt(size, 1.0), lax.neg(c), c)
    # Infinite where the logarithm of the size of the result is; its sign is that of the growth.
    far = _both(_infinite(size), lax.lt(lax.abs(d), math.inf))
    changes = _either(lax.lt(size, 1.0), lax.gt(size, 1.0))
    steep = _both(_infinite(c), _both(changes, lax.lt(lax.abs(d), math.inf)))
    growth = lax.select_n(_either(far, steep), literal(0.0, c.aval.dtype), above)
    turned = _both(_infinite(d), lax.lt(lax.max(lax.abs(c), size), math.inf))
    growth = lax.select_n(turned, growth, lax.neg(lax.mul(lax.sign(d), _side(z))))
    unknown = literal(complex(math.inf, math.nan), plain.aval.dtype)
    if z.aval.dtype == COMPLEX[0]:
        constant = lax.eq(w, literal(0j, w.aval.dtype))
        plain = lax.select_n(constant, _wide_pow(z, w), literal(1 + 0j, plain.aval.dtype))
    found = lax.select_n(lax.gt(growth, 0.0), plain, unknown)
    vanishes = _both(lax.eq(z, literal(0j, z.aval.dtype)), lax.gt(c, 0.0))
    found = lax.select_n(_either(vanishes, lax.lt(growth, 0.0)), found, nothing)
    square = lax.mul(z, z)
    for exponent, product in ((1, z), (2, square), (3, lax.mul(square, z))):
        whole = _both(lax.eq(c, float(exponent)), _zero(d))
        found = lax.select_n(whole, found, product)
    return found


COMPLEX = (np.dtype(np.complex64), np.dtype(np.complex128))
# These get the result of the plain operation as second operand.
CPU_COMPLEX_CORRECTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": sqrt, "exp": exp, "expm1": expm1, "tanh": tanh, "tan": tan, "asin": asin, "acos": acos,
    "asinh": asinh, "acosh": acosh, "atanh": atanh, "atan": atan, "sign": sign, "abs": abs,
    "pow": pow,
}  # fmt: skip
CPU_COMPLEX_RULES: dict[str, Callable[..., Any]] = {
    "log": complex_logarithms.log, "log1p": complex_logarithms.log1p, "exp2": exp2, "sinh": sinh,
    "cosh": cosh, "sin": sin, "cos": cos,
}  # fmt: skip
