"""Elementwise arithmetic and functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.dtypes import (
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
)
from tracebridge.torch._aten.builder import Builder, Operand, aten, rule
from tracebridge.torch._aten.carriers import (
    BITS,
    LEAST,
    DType,
    carrier,
    is_carried,
    is_wide_unsigned,
)
from tracebridge.torch._aten.integers import divided, exact_bits, in_order, masked, remainder

_PLAIN = {
    "exp": aten.exp.default,
    "log": aten.log.default,
    "log1p": aten.log1p.default,
    "expm1": aten.expm1.default,
    "logistic": aten.sigmoid.default,
    "sin": aten.sin.default,
    "cos": aten.cos.default,
    "tan": aten.tan.default,
    "asin": aten.asin.default,
    "acos": aten.acos.default,
    "atan": aten.atan.default,
    "sinh": aten.sinh.default,
    "cosh": aten.cosh.default,
    "tanh": aten.tanh.default,
    "asinh": aten.asinh.default,
    "acosh": aten.acosh.default,
    "atanh": aten.atanh.default,
    "sqrt": aten.sqrt.default,
    "rsqrt": aten.rsqrt.default,
    "floor": aten.floor.default,
    "ceil": aten.ceil.default,
    "real": aten.real.default,
    "imag": aten.imag.default,
    "conj": aten.conj_physical.default,
    "erf": aten.erf.default,
    "erfc": aten.erfc.default,
    "ndtr": aten.special_ndtr.default,
    "erf_inv": aten.erfinv.default,
    "lgamma": aten.lgamma.default,
    "bessel_i0": aten.i0.default,
    "bessel_i0e": aten.special_i0e.default,
    "bessel_i1": aten.special_i1.default,
    "bessel_i1e": aten.special_i1e.default,
}


def _plain(target: Any) -> Any:
    def emit(b: Builder, x: fx.Proxy, **_: object) -> Any:
        return b.call(target, x)

    return emit


for _name, _target in _PLAIN.items():
    rule(_name)(_plain(_target))


@rule("is_finite")
def _is_finite(b: Builder, x: fx.Proxy) -> Any:
    return b.call(aten.lt.Scalar, b.call(aten.abs.default, x), math.inf)


@rule("exp2")
def _exp2(b: Builder, x: fx.Proxy, **_: object) -> Any:
    if is_complex(b.aval.dtype):
        return b.call(aten.exp.default, b.call(aten.mul.Scalar, x, math.log(2.0)))
    return b.call(aten.exp2.default, x)


@rule("digamma")
def _digamma(b: Builder, x: fx.Proxy) -> Any:
    # torch has infinities at the zeros alone of its poles.
    pole = b.call(aten.eq.Scalar, x, 0)
    return b.call(aten.masked_fill.Scalar, b.call(aten.digamma.default, x), pole, math.nan)


@rule("cbrt")
def _cbrt(b: Builder, x: fx.Proxy, **_: object) -> Any:
    dtype = b.aval.dtype
    if dtype.itemsize == 2:
        # A third in half precision is far from one where the exponent is large.
        return b.convert(_cube_root(b, b.convert(x, torch.float32)), carrier(dtype))
    return _cube_root(b, x)


def _cube_root(b: Builder, x: fx.Proxy) -> Any:
    # Two choices, so that the derivative at zero is the infinity that it is.
    below = b.call(aten.signbit.default, x)
    size = b.call(aten.where.self, below, b.call(aten.neg.default, x), x)
    size = b.call(aten.pow.Tensor_Scalar, size, 1 / 3)
    return b.call(aten.where.self, below, b.call(aten.neg.default, size), size)


@rule("round")
def _round(b: Builder, x: fx.Proxy, rounding_method: Any = 0) -> Any:
    if int(rounding_method) == 1:
        return b.call(aten.round.default, x)
    whole = b.call(aten.trunc.default, x)
    rest = b.call(aten.abs.default, b.call(aten.sub.Tensor, x, whole))
    away = b.call(aten.add.Tensor, whole, b.call(aten.sgn.default, x))
    return b.call(aten.where.self, b.call(aten.ge.Scalar, rest, 0.5), away, whole)


@rule("nextafter")
def _nextafter(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    return b.call(aten.nextafter.default, x, y)


# signs ------------------------------------------------------------------------------------------


@rule("neg")
def _neg(b: Builder, x: fx.Proxy) -> Any:
    return masked(b, b.call(aten.neg.default, x), b.aval.dtype)


@rule("sign")
def _sign(b: Builder, x: fx.Proxy) -> Any:
    dtype = b.aval.dtype
    if is_complex(dtype):
        return b.call(aten.sgn.default, x)
    if d.is_unsigned(dtype):
        return b.convert(b.call(aten.ne.Scalar, x, 0), carrier(dtype))
    sign = b.call(aten.sign.default, x)
    if is_integer(dtype):
        return sign
    # torch gives 0 for NaN and for -0.0.
    other = b.call(aten.logical_not.default, b.call(aten.ne.Scalar, sign, 0))
    return b.call(aten.where.self, other, b.call(aten.detach.default, x), sign)


@rule("abs")
def _abs(b: Builder, x: fx.Proxy) -> Any:
    return x if d.is_unsigned(b.aval.dtype) else b.call(aten.abs.default, x)


@rule("square")
def _square(b: Builder, x: fx.Proxy) -> Any:
    return masked(b, b.call(aten.mul.Tensor, x, x), b.aval.dtype)


# two operands -------------------------------------------------------------------------------------


def _ordered(xs: Sequence[Operand]) -> Sequence[Operand]:
    """Operands of an operation that commutes, the tensor first."""
    return (xs[1], xs[0]) if isinstance(xs[0], bool | int | float | complex) else xs


@rule("add", numbers=True)
def _add(b: Builder, *xs: Operand) -> Any:
    return masked(b, b.call(aten.add.Tensor, *_ordered(xs)), b.aval.dtype)


@rule("mul", numbers=True)
def _mul(b: Builder, *xs: Operand) -> Any:
    return masked(b, b.call(aten.mul.Tensor, *_ordered(xs)), b.aval.dtype)


@rule("sub", numbers=True)
def _sub(b: Builder, x: Operand, y: Operand) -> Any:
    if isinstance(x, bool | int | float | complex):
        return masked(b, b.call(aten.rsub.Scalar, y, x), b.aval.dtype)
    return masked(b, b.call(aten.sub.Tensor, x, y), b.aval.dtype)


@rule("div")
def _div(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    if is_inexact(b.aval.dtype):
        return b.call(aten.div.Tensor, x, y)
    return divided(b, x, y, b.aval.dtype)


@rule("rem")
def _rem(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    if is_inexact(b.aval.dtype):
        return b.call(aten.fmod.Tensor, x, y)
    return remainder(b, x, y, b.aval.dtype)


@rule("pow")
def _pow(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    dtype = b.aval.dtype
    if is_integer(b.avals[1].dtype):
        if is_integer(dtype):
            return masked(b, b.call(aten.pow.Tensor_Tensor, x, y), dtype)
        y = converted(b, y, b.avals[1].dtype, dtype)
    return b.call(aten.pow.Tensor_Tensor, x, y)


@rule("integer_pow")
def _integer_pow(b: Builder, x: fx.Proxy, y: int) -> Any:
    return masked(b, b.call(aten.pow.Tensor_Scalar, x, y), b.aval.dtype)


@rule("atan2")
def _atan2(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    if is_complex(b.aval.dtype):
        # -i log((y + i x) / sqrt(x^2 + y^2)), which is what XLA computes.
        squares = [b.call(aten.mul.Tensor, v, v) for v in (x, y)]
        size = b.call(aten.sqrt.default, b.call(aten.add.Tensor, *squares))
        top = b.call(aten.add.Tensor, y, b.call(aten.mul.Scalar, x, 1j))
        log = b.call(aten.log.default, b.call(aten.div.Tensor, top, size))
        return b.call(aten.mul.Scalar, log, -1j)
    return b.call(aten.atan2.default, x, y)


@rule("complex")
def _complex(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    return b.call(aten.complex.default, *b.call_all(aten.broadcast_tensors.default, 2, [x, y]))


@rule("max")
def _max(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    return extreme_of_two(b, x, y, most=True)


@rule("min")
def _min(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    return extreme_of_two(b, x, y, most=False)


def extreme_of_two(b: Builder, x: fx.Proxy, y: fx.Proxy, *, most: bool) -> Any:
    """The larger or the smaller of two, NaN if one is: complex numbers by real part first."""
    dtype = b.aval.dtype
    if is_complex(dtype):
        wins = aten.gt if most else aten.lt
        (rx, ry), (ix, iy) = (
            [b.call(part, v) for v in (x, y)] for part in (aten.real.default, aten.imag.default)
        )
        by_imag = b.call(wins.Tensor, ix, iy)
        by_real = b.call(wins.Tensor, rx, ry)
        first = b.call(aten.where.self, b.call(aten.eq.Tensor, rx, ry), by_imag, by_real)
        first = b.call(aten.logical_and.default, first, b.call(aten.eq.Tensor, y, y))
        nan = b.call(aten.ne.Tensor, x, x)
        return b.call(aten.where.self, b.call(aten.logical_or.default, first, nan), x, y)
    target = aten.maximum.default if most else aten.minimum.default
    if is_wide_unsigned(dtype):
        return in_order(b, b.call(target, in_order(b, x), in_order(b, y)))
    return b.call(target, x, y)


# special functions ------------------------------------------------------------------------------


@rule("polygamma")
def _polygamma(b: Builder, order: fx.Proxy, x: fx.Proxy) -> Any:
    """The derivative of order n of digamma is ``(-1)^(n+1) n! zeta(n + 1, x)``."""
    order = b.call(aten.detach.default, order)
    above = b.call(aten.add.Scalar, order, 1.0)
    size = b.call(aten.exp.default, b.call(aten.lgamma.default, above))
    value = b.call(aten.mul.Tensor, size, b.call(aten.special_zeta.default, above, x))
    odd = b.call(aten.ne.Scalar, b.call(aten.remainder.Scalar, order, 2.0), 0)
    value = b.call(aten.where.self, odd, value, b.call(aten.neg.default, value))
    plain = b.call(aten.digamma.default, x)
    return b.call(aten.where.self, b.call(aten.eq.Scalar, order, 0), plain, value)


@rule("zeta")
def _zeta(b: Builder, x: fx.Proxy, q: fx.Proxy) -> Any:
    return b.call(aten.special_zeta.default, x, q)


# conversions ------------------------------------------------------------------------------------


@rule("convert_element_type")
def _convert(b: Builder, x: fx.Proxy, new_dtype: DType, **_: object) -> Any:
    return converted(b, x, b.avals[0].dtype, new_dtype)


def converted(b: Builder, x: fx.Proxy, old: DType, new: DType) -> Any:
    """The elements as XLA converts them: floats saturate, NaN becomes 0."""
    if old == new:
        return x
    if is_complex(old) and not is_complex(new):
        x, old = b.call(aten.real.default, x), d.real_of(old)
        if old == new:
            return x
    if is_bool(new):
        return b.call(aten.ne.Scalar, x, 0)
    if is_integer(new) and is_float(old):
        return _saturated(b, x, old, new)
    if is_wide_unsigned(old) and is_inexact(new):
        return _wide_to_float(b, x, new)
    return masked(b, b.convert(x, carrier(new)), new)


def _saturated(b: Builder, x: fx.Proxy, old: DType, new: DType) -> Any:
    bits = new.itemsize * 8
    unsigned = d.is_unsigned(new)
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if old != d.float64:
        x = b.convert(x, torch.float32)
    too_low = b.call(aten.le.Scalar, x, float(low))
    too_high = b.call(aten.ge.Scalar, x, float(high + 1))
    outside = b.call(aten.logical_or.default, too_low, too_high)
    outside = b.call(aten.logical_or.default, outside, b.call(aten.ne.Tensor, x, x))
    inner = b.call(aten.where.ScalarOther, b.call(aten.logical_not.default, outside), x, 0.0)
    if is_wide_unsigned(new):
        half = b.call(aten.ge.Scalar, inner, 2.0**63)
        small = b.call(aten.where.ScalarOther, b.call(aten.logical_not.default, half), inner, 0.0)
        upper_half = b.call(
            aten.where.ScalarOther, half, b.call(aten.sub.Scalar, inner, 2.0**63), 0.0
        )
        upper_half = b.call(aten.bitwise_xor.Scalar, b.convert(upper_half, torch.int64), LEAST)
        whole = b.call(aten.where.self, half, upper_half, b.convert(small, torch.int64))
    else:
        whole = b.convert(b.convert(inner, torch.int64), carrier(new))
    top = -1 if is_wide_unsigned(new) else high
    whole = b.call(aten.masked_fill.Scalar, whole, too_low, low)
    return b.call(aten.masked_fill.Scalar, whole, too_high, top)


def _wide_to_float(b: Builder, x: fx.Proxy, new: DType) -> Any:
    """Numbers from 2**63 on are halved (keeping a one that was shifted out), and doubled again."""
    half = b.call(
        aten.bitwise_and.Scalar, b.call(aten.bitwise_right_shift.Tensor_Scalar, x, 1), 2**63 - 1
    )
    half = b.call(aten.bitwise_or.Tensor, half, b.call(aten.bitwise_and.Scalar, x, 1))
    big = b.call(aten.mul.Scalar, b.convert(half, carrier(new)), 2.0)
    small = b.convert(x, carrier(new))
    return b.call(aten.where.self, b.call(aten.lt.Scalar, x, 0), big, small)


@rule("copy")
def _copy(b: Builder, x: fx.Proxy) -> Any:
    return b.call(aten.clone.default, x)


@rule("bitcast_convert_type")
def _bitcast(b: Builder, x: fx.Proxy, new_dtype: DType) -> Any:
    old = b.avals[0].dtype
    if old == new_dtype:
        return x
    x = exact_bits(b, x, old)
    narrow, wide = old.itemsize > new_dtype.itemsize, old.itemsize < new_dtype.itemsize
    if narrow:
        x = b.call(aten.unsqueeze.default, x, -1)
    to_float = is_float(new_dtype)
    target = carrier(new_dtype) if to_float else BITS[new_dtype.itemsize]
    x = b.call(aten.view.dtype, b.call(aten.contiguous.default, x), target)
    if wide:
        x = b.call(aten.squeeze.dim, x, -1)
    if to_float or not d.is_unsigned(new_dtype):
        return x
    if new_dtype == d.uint8:
        return b.call(aten.view.dtype, x, torch.uint8)
    return masked(b, b.convert(x, carrier(new_dtype)), new_dtype) if is_carried(new_dtype) else x
