"""Rounding to formats with fewer bits."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from tracebridge.core.dtypes.finfo import finfo
from tracebridge.torch._aten.builder import Builder, aten, rule
from tracebridge.torch._aten.carriers import BITS, carrier

_FORMATS = {
    (8, 7): torch.bfloat16,
    (5, 10): torch.float16,
    (8, 23): torch.float32,
    (11, 52): torch.float64,
}


@rule("reduce_precision")
def _reduce_precision(b: Builder, x: fx.Proxy, exponent_bits: int, mantissa_bits: int) -> Any:
    dtype = b.aval.dtype
    through = _FORMATS.get((exponent_bits, mantissa_bits))
    if through is None:
        return _by_bits(b, x, exponent_bits, mantissa_bits)
    narrow = b.convert(b.convert(x, through), carrier(dtype))
    least = torch.finfo(through).tiny
    if least <= torch.finfo(carrier(dtype)).tiny:
        return narrow
    # Numbers below the normal ones become zero, whose derivative is 1 as that of the others.
    none = b.call(aten.lt.Scalar, b.call(aten.abs.default, narrow), least)
    zero = b.call(aten.sub.Tensor, narrow, b.call(aten.detach.default, narrow))
    return b.call(aten.where.self, none, zero, narrow)


def _by_bits(b: Builder, x: fx.Proxy, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round the bits of the mantissa to even, then cut the range of exponents."""
    info = finfo(b.aval.dtype)
    width, own_mantissa = 8 * b.aval.dtype.itemsize, info.nmant
    own_exponent = width - 1 - own_mantissa
    still = b.call(aten.detach.default, x)
    kind = BITS[b.aval.dtype.itemsize]
    bits = b.call(aten.view.dtype, b.call(aten.contiguous.default, still), kind)
    sign = b.call(aten.bitwise_and.Scalar, bits, -(2 ** (width - 1)))
    size = b.call(aten.bitwise_and.Scalar, bits, 2 ** (width - 1) - 1)
    gone = own_mantissa - mantissa_bits
    if gone > 0:
        last = b.call(aten.bitwise_right_shift.Tensor_Scalar, size, gone)
        last = b.call(aten.bitwise_and.Scalar, last, 1)
        size = b.call(aten.add.Tensor, size, b.call(aten.add.Scalar, last, 2 ** (gone - 1) - 1))
        size = b.call(aten.bitwise_and.Scalar, size, -(2**gone))
    infinity = (2**own_exponent - 1) << own_mantissa
    if exponent_bits < own_exponent:
        middle, reach = 2 ** (own_exponent - 1) - 1, 2 ** (exponent_bits - 1) - 1
        below = b.call(aten.lt.Scalar, size, (middle - reach + 1) << own_mantissa)
        above = b.call(aten.ge.Scalar, size, (middle + reach + 1) << own_mantissa)
        size = b.call(aten.masked_fill.Scalar, size, below, 0)
        size = b.call(aten.masked_fill.Scalar, size, above, infinity)
    rounded = b.call(aten.bitwise_or.Tensor, sign, size)
    rounded = b.call(aten.view.dtype, rounded, carrier(b.aval.dtype))
    rounded = b.call(aten.where.self, b.call(aten.ne.Tensor, still, still), still, rounded)
    # A zero with the derivative of x: -0.0, which is added to either zero without a trace.
    is_finite = b.call(aten.lt.Scalar, b.call(aten.abs.default, still), math.inf)
    move = b.call(aten.neg.default, b.call(aten.sub.Tensor, still, x))
    move = b.call(aten.where.ScalarOther, is_finite, move, -0.0)
    return b.call(aten.add.Tensor, rounded, move)
