"""Elementwise functions of one operand."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.dtypes import is_complex, is_float, is_integer
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.tf._native.builder import Builder, Tensor, number, rule
from tracebridge.tf._native.integers import negated


def _log1p(z: Tensor) -> Tensor:
    """Of complex numbers, by the size of 1 + z; TensorFlow's own is inexact near 0."""
    x, y = tf.math.real(z), tf.math.imag(z)
    near = tf.math.log1p(x * (2 + x) + y * y) / 2
    size = tf.where(tf.abs(z) < number(x, 0.5), near, tf.math.log(tf.abs(z + 1)))
    return tf.complex(size, tf.atan2(y, x + 1))


def _erf_inv(x: Tensor) -> Tensor:
    """With one step of Newton's method near 0, where TensorFlow's is inexact."""
    near = tf.abs(x) < number(x, 0.5)
    root = tf.math.erfinv(x)
    small = tf.where(near, root, tf.zeros_like(x))
    slope = number(x, math.sqrt(math.pi) / 2) * tf.exp(small * small)
    return tf.where(near, small - (tf.math.erf(small) - x) * slope, root)


# Those of all floats and of complex numbers.
_PLAIN = {
    "exp": tf.exp,
    "log": tf.math.log,
    "expm1": tf.math.expm1,
    "logistic": tf.sigmoid,
    "sin": tf.sin,
    "cos": tf.cos,
    "tan": tf.tan,
    "sinh": tf.sinh,
    "cosh": tf.cosh,
    "tanh": tf.tanh,
    "sqrt": tf.sqrt,
    "rsqrt": tf.math.rsqrt,
    "real": tf.math.real,
    "imag": tf.math.imag,
    "conj": tf.math.conj,
}
# Those of real numbers that TensorFlow has at all widths.
_REAL = {
    "floor": tf.floor,
    "ceil": tf.math.ceil,
    "erf": tf.math.erf,
    "erfc": tf.math.erfc,
    "ndtr": lambda x: tf.math.erfc(x * -math.sqrt(0.5)) * 0.5,
}
# Those that it has at 32 and 64 bits: numbers of 16 bits go through float32.
_WIDE = {
    "erf_inv": _erf_inv,
    "lgamma": tf.math.lgamma,
    "digamma": tf.math.digamma,
    "bessel_i0": tf.math.special.bessel_i0,
    "bessel_i0e": tf.math.special.bessel_i0e,
    "bessel_i1": tf.math.special.bessel_i1,
    "bessel_i1e": tf.math.special.bessel_i1e,
    "nextafter": tf.math.nextafter,
    "zeta": tf.math.zeta,
    "igamma": tf.math.igamma,
    "igammac": tf.math.igammac,
    "igamma_grad_a": lambda a, x: tf.raw_ops.IgammaGradA(a=a, x=x),
    "random_gamma_grad": lambda a, x: tf.raw_ops.RandomGammaGrad(alpha=a, sample=x),
    "regularized_incomplete_beta": tf.math.betainc,
}


def _plain(target: Any) -> Any:
    def emit(b: Builder, x: Tensor, **_: object) -> Tensor:
        if b.aval.dtype.itemsize == 2 and is_float(b.aval.dtype):
            return tf.cast(target(tf.cast(x, tf.float32)), x.dtype)
        return target(x)

    return emit


def _real(target: Any) -> Any:
    def emit(b: Builder, *xs: Tensor, **_: object) -> Any:
        dtype = b.aval.dtype
        if is_complex(dtype):
            return NotImplemented
        if dtype.itemsize > 2:
            return target(*xs)
        return tf.cast(target(*[tf.cast(x, tf.float32) for x in xs]), xs[0].dtype)

    return emit


for _name, _target in _PLAIN.items():
    rule(_name)(_plain(_target))
for _name, _target in {**_REAL, **_WIDE}.items():
    rule(_name)(_real(_target))


# inverse functions --------------------------------------------------------------------------------


def _turned(z: Tensor) -> Tensor:
    """``i z``, by parts: products of infinities would be NaN."""
    return tf.complex(-tf.math.imag(z), tf.math.real(z))


def _back(z: Tensor) -> Tensor:
    """``-i z``."""
    return tf.complex(tf.math.imag(z), -tf.math.real(z))


def _asinh(z: Tensor) -> Tensor:
    """Without cancellation near 0, nor in the left half of the plane: it is odd."""
    left = tf.math.real(z) < 0
    z = tf.where(left, -z, z)
    square = z * z
    root = _log1p(z + square / (1 + tf.sqrt(1 + square)))
    return tf.where(left, -root, root)


def _atanh(z: Tensor) -> Tensor:
    twice = _log1p(z) - _log1p(-z)
    return tf.complex(tf.math.real(twice) / 2, tf.math.imag(twice) / 2)


def _asin(z: Tensor) -> Tensor:
    return _back(_asinh(_turned(z)))


def _acosh(z: Tensor) -> Tensor:
    return 2 * tf.math.log(tf.sqrt((z + 1) / 2) + tf.sqrt((z - 1) / 2))


# Of real numbers, and of complex ones, of which TensorFlow has none or no exact one.
_INVERSE = {
    "log1p": (tf.math.log1p, _log1p),
    "asin": (tf.asin, _asin),
    "acos": (tf.acos, lambda z: number(z, math.pi / 2) - _asin(z)),
    "atan": (tf.atan, lambda z: _back(_atanh(_turned(z)))),
    "asinh": (tf.asinh, _asinh),
    "acosh": (tf.acosh, _acosh),
    "atanh": (tf.atanh, _atanh),
}


def _inverse(real: Any, of_complex: Any) -> Any:
    plain = _plain(real)

    def emit(b: Builder, x: Tensor, **_: object) -> Tensor:
        return of_complex(x) if is_complex(b.aval.dtype) else plain(b, x)

    return emit


for _name, _pair in _INVERSE.items():
    rule(_name)(_inverse(*_pair))


# powers, signs, rounding --------------------------------------------------------------------------


@rule("is_finite")
def _is_finite(b: Builder, x: Tensor) -> Tensor:
    return tf.math.is_finite(x)


@rule("exp2")
def _exp2(b: Builder, x: Tensor, **_: object) -> Tensor:
    if b.aval.dtype.itemsize == 2:
        return tf.cast(tf.pow(2.0, tf.cast(x, tf.float32)), x.dtype)
    return tf.pow(number(x, 2.0), x)


@rule("cbrt")
def _cbrt(b: Builder, x: Tensor, **_: object) -> Tensor:
    wide = tf.cast(x, tf.float32) if b.aval.dtype.itemsize == 2 else x
    size = tf.abs(wide)
    root = tf.pow(size, number(wide, 1 / 3))
    # One step of Newton's method for the last bits.
    better = root - (root - size / (root * root)) / 3
    root = tf.where(tf.math.is_finite(better), better, root)
    root = tf.where(wide < 0, -root, tf.where(size == 0, wide, root))
    return tf.cast(root, x.dtype)


@rule("round")
def _round(b: Builder, x: Tensor, rounding_method: Any = 0) -> Tensor:
    if int(rounding_method) == 1:
        return tf.round(x)
    whole = tf.where(x < 0, tf.math.ceil(x), tf.floor(x))
    away = whole + tf.where(x < 0, number(x, -1.0), number(x, 1.0))
    return tf.where(tf.abs(x - whole) >= number(x, 0.5), away, whole)


@rule("neg")
def _neg(b: Builder, x: Tensor) -> Tensor:
    return negated(x) if d.is_unsigned(b.aval.dtype) else -x


@rule("sign")
def _sign(b: Builder, x: Tensor) -> Tensor:
    dtype = b.aval.dtype
    if d.is_unsigned(dtype):
        return tf.cast(tf.not_equal(x, tf.zeros_like(x)), x.dtype)
    if is_float(dtype):
        # TensorFlow loses the sign of -0.0.
        return tf.where(tf.equal(x, number(x, 0.0)), x, tf.sign(x))
    return tf.sign(x)


@rule("abs")
def _abs(b: Builder, x: Tensor) -> Tensor:
    return x if d.is_unsigned(b.avals[0].dtype) else tf.abs(x)


@rule("square")
def _square(b: Builder, x: Tensor) -> Tensor:
    return x * x


@rule("integer_pow")
def _integer_pow(b: Builder, x: Tensor, y: int) -> Tensor:
    """By squaring, as XLA computes it."""
    result, power, rest = tf.ones_like(x), x, abs(y)
    while rest:
        if rest & 1:
            result = result * power
        rest >>= 1
        if rest:
            power = power * power
    if y >= 0:
        return result
    return NotImplemented if is_integer(b.aval.dtype) else tf.ones_like(x) / result


@rule("polygamma")
def _polygamma(b: Builder, order: Tensor, x: Tensor) -> Tensor:
    """The derivative of order n of digamma is ``(-1)^(n+1) n! zeta(n + 1, x)``."""
    above = order + 1
    value = tf.exp(tf.math.lgamma(above)) * tf.math.zeta(above, x)
    odd = tf.not_equal(tf.math.floormod(order, number(x, 2.0)), number(x, 0.0))
    plain = tf.math.digamma(x)
    return tf.where(tf.equal(order, number(x, 0.0)), plain, tf.where(odd, value, -value))


def _with_fewer_bits(b: Builder, x: Tensor, exponent_bits: int, mantissa_bits: int) -> Any:
    """Numbers of as large exponents, their last bits rounded away: to even, where it is half."""
    dtype = b.aval.dtype
    if dtype.name not in ("float32", "float64") or exponent_bits != finfo(dtype).nexp:
        return NotImplemented
    gone = finfo(dtype).nmant - mantissa_bits
    bits = tf.bitcast(x, tf.int32 if dtype.itemsize == 4 else tf.int64)

    def integer(value: int) -> Any:
        return tf.constant(value, bits.dtype)

    odd = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, integer(gone)), integer(1))
    rounded = bits + integer((1 << (gone - 1)) - 1) + odd
    kept = tf.bitcast(tf.bitwise.bitwise_and(rounded, integer(-(1 << gone))), x.dtype)
    # What is rounded away is exact, and no part of the derivative, which is 1.
    return tf.where(tf.math.is_finite(x), x - tf.stop_gradient(x - kept), x)


@rule("reduce_precision")
def _reduce_precision(b: Builder, x: Tensor, exponent_bits: int, mantissa_bits: int) -> Any:
    formats = {
        (8, 7): tf.bfloat16,
        (5, 10): tf.float16,
        (8, 23): tf.float32,
        (11, 52): tf.float64,
    }
    through = formats.get((exponent_bits, mantissa_bits))
    if through is None:
        return _with_fewer_bits(b, x, exponent_bits, mantissa_bits)
    narrow = tf.cast(tf.cast(x, through), x.dtype)
    least = float(finfo(through.as_numpy_dtype).tiny)
    if least <= float(finfo(b.aval.dtype).tiny):
        return narrow
    # Numbers below the normal ones become zero.
    zero = tf.where(x < 0, number(x, -0.0), number(x, 0.0))
    return tf.where(tf.abs(narrow) < number(x, least), zero, narrow)
