"""Integers: what wraps, shifts and divides as XLA does it, and the order of unsigned ones."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import fx

from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.dtypes import is_bool, is_float
from tracebridge.torch._aten.builder import Builder, Operand, aten, rule
from tracebridge.torch._aten.carriers import (
    BITS,
    LEAST,
    DType,
    carrier,
    is_carried,
    is_wide_unsigned,
)

_MASKS = {d.uint16: 2**16 - 1, d.uint32: 2**32 - 1}


def masked(b: Builder, x: fx.Proxy, dtype: DType) -> Any:
    """``x`` modulo the range of an unsigned dtype that a wider one holds."""
    mask = _MASKS.get(dtype)
    return x if mask is None else b.call(aten.bitwise_and.Scalar, x, mask)


def in_order(b: Builder, x: fx.Proxy) -> Any:
    """64 unsigned bits as signed numbers in the same order, and back."""
    return b.call(aten.bitwise_xor.Scalar, x, LEAST)


def exact_bits(b: Builder, x: fx.Proxy, dtype: DType) -> Any:
    """The elements in the width of their dtype, where torch can view them as another one."""
    if is_carried(dtype):
        # Narrowing keeps the low bits.
        return b.convert(x, BITS[dtype.itemsize])
    return x


def bit_patterns(b: Builder, x: fx.Proxy, dtype: DType) -> Any:
    """Integers as ``int64`` with the bits of their dtype, and zeros above them."""
    if dtype.itemsize == 8 or is_carried(dtype):
        return b.convert(x, torch.int64)
    wide = b.convert(x, torch.int64)
    return b.call(aten.bitwise_and.Scalar, wide, 2 ** (8 * dtype.itemsize) - 1)


def narrowed(b: Builder, x: fx.Proxy, dtype: DType) -> Any:
    """``int64`` bits as elements of ``dtype``: the high ones fall away."""
    return masked(b, b.convert(x, carrier(dtype)), dtype)


def _logical_right(b: Builder, x: fx.Proxy, count: int) -> Any:
    """``int64`` shifted by a Python number of 1 to 63, with zeros coming in."""
    shifted = b.call(aten.bitwise_right_shift.Tensor_Scalar, x, count)
    return b.call(aten.bitwise_and.Scalar, shifted, 2 ** (64 - count) - 1)


# bitwise ------------------------------------------------------------------------------------------


@rule("and")
def _and(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    return b.call(aten.bitwise_and.Tensor, x, y)


@rule("or")
def _or(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    return b.call(aten.bitwise_or.Tensor, x, y)


@rule("xor")
def _xor(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    return b.call(aten.bitwise_xor.Tensor, x, y)


@rule("not")
def _not(b: Builder, x: fx.Proxy) -> Any:
    return masked(b, b.call(aten.bitwise_not.default, x), b.aval.dtype)


def _in_range(b: Builder, count: fx.Proxy) -> tuple[Any, Any]:
    """Whether counts of bits are below the width, and the counts with 0 where they are not."""
    bits = 8 * b.aval.dtype.itemsize
    inside = b.call(
        aten.logical_and.default,
        b.call(aten.ge.Scalar, count, 0),
        b.call(aten.lt.Scalar, count, bits),
    )
    return inside, b.call(aten.where.ScalarOther, inside, count, 0)


@rule("shift_left")
def _shift_left(b: Builder, x: fx.Proxy, count: fx.Proxy) -> Any:
    inside, count = _in_range(b, count)
    wide = b.convert(x, torch.int64)
    moved = b.call(aten.bitwise_left_shift.Tensor, wide, b.convert(count, torch.int64))
    moved = narrowed(b, moved, b.aval.dtype)
    return b.call(aten.where.ScalarOther, inside, moved, 0)


@rule("shift_right_logical")
def _shift_right_logical(b: Builder, x: fx.Proxy, count: fx.Proxy) -> Any:
    inside, count = _in_range(b, count)
    count = b.convert(count, torch.int64)
    dtype = b.aval.dtype
    bits = bit_patterns(b, x, dtype)
    moved = b.call(aten.bitwise_right_shift.Tensor, bits, count)
    if dtype.itemsize == 8:
        # The copies of the sign that came in: ones above 64 - count.
        room = b.call(aten.rsub.Scalar, count, 64)
        some = b.call(aten.ne.Scalar, count, 0)
        room = b.call(aten.where.ScalarOther, some, room, 0)
        ones = b.call(aten.bitwise_left_shift.Tensor, b.full([], -1, torch.int64), room)
        kept = b.call(aten.bitwise_and.Tensor, moved, b.call(aten.bitwise_not.default, ones))
        moved = b.call(aten.where.self, some, kept, moved)
    return b.call(aten.where.ScalarOther, inside, narrowed(b, moved, dtype), 0)


@rule("shift_right_arithmetic")
def _shift_right_arithmetic(b: Builder, x: fx.Proxy, count: fx.Proxy) -> Any:
    inside, count = _in_range(b, count)
    dtype = b.aval.dtype
    most = 8 * dtype.itemsize - 1
    count = b.convert(b.call(aten.where.ScalarOther, inside, count, most), torch.int64)
    # The top bit is a sign here, of unsigned numbers too.
    signed = b.convert(b.convert(x, BITS[dtype.itemsize]), torch.int64)
    return narrowed(b, b.call(aten.bitwise_right_shift.Tensor, signed, count), dtype)


def _ones(b: Builder, x: fx.Proxy) -> Any:
    """How many bits of ``int64`` are set."""
    total = None
    for half in (b.call(aten.bitwise_and.Scalar, x, 2**32 - 1), _logical_right(b, x, 32)):
        pairs = b.call(aten.bitwise_and.Scalar, _right(b, half, 1), 0x55555555)
        v = b.call(aten.sub.Tensor, half, pairs)
        low = b.call(aten.bitwise_and.Scalar, v, 0x33333333)
        v = b.call(
            aten.add.Tensor, low, b.call(aten.bitwise_and.Scalar, _right(b, v, 2), 0x33333333)
        )
        v = b.call(aten.bitwise_and.Scalar, b.call(aten.add.Tensor, v, _right(b, v, 4)), 0x0F0F0F0F)
        v = _right(b, b.call(aten.mul.Scalar, v, 0x01010101), 24)
        v = b.call(aten.bitwise_and.Scalar, v, 0xFF)
        total = v if total is None else b.call(aten.add.Tensor, total, v)
    return total


def _right(b: Builder, x: fx.Proxy, count: int) -> Any:
    return b.call(aten.bitwise_right_shift.Tensor_Scalar, x, count)


@rule("population_count")
def _population_count(b: Builder, x: fx.Proxy) -> Any:
    dtype = b.aval.dtype
    return b.convert(_ones(b, bit_patterns(b, x, dtype)), carrier(dtype))


@rule("clz")
def _clz(b: Builder, x: fx.Proxy) -> Any:
    dtype = b.aval.dtype
    bits = bit_patterns(b, x, dtype)
    for count in (1, 2, 4, 8, 16, 32):
        bits = b.call(aten.bitwise_or.Tensor, bits, _logical_right(b, bits, count))
    zeros = b.call(aten.rsub.Scalar, _ones(b, bits), 8 * dtype.itemsize)
    return b.convert(zeros, carrier(dtype))


# products and quotients ---------------------------------------------------------------------------


@rule("mulhi")
def _mulhi(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    dtype = b.aval.dtype
    bits = 8 * dtype.itemsize
    if bits < 64:
        product = b.call(aten.mul.Tensor, b.convert(x, torch.int64), b.convert(y, torch.int64))
        if dtype == d.uint32:
            return _logical_right(b, product, 32)
        return narrowed(b, _right(b, product, bits), dtype)
    high = _unsigned_mulhi(b, x, y)
    if is_wide_unsigned(dtype):
        return high
    for a, c in ((x, y), (y, x)):
        # A negative factor counts 2**64 too much in unsigned numbers.
        extra = b.call(aten.where.ScalarOther, b.call(aten.lt.Scalar, a, 0), c, 0)
        high = b.call(aten.sub.Tensor, high, extra)
    return high


def _unsigned_mulhi(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    (x0, x1), (y0, y1) = (
        (b.call(aten.bitwise_and.Scalar, v, 2**32 - 1), _logical_right(b, v, 32)) for v in (x, y)
    )

    def times(p: Any, q: fx.Proxy) -> Any:
        return b.call(aten.mul.Tensor, p, q)

    def plus(p: Any, q: fx.Proxy) -> Any:
        return b.call(aten.add.Tensor, p, q)

    low = _logical_right(b, times(x0, y0), 32)
    middle = plus(times(x1, y0), low)
    part = plus(times(x0, y1), b.call(aten.bitwise_and.Scalar, middle, 2**32 - 1))
    return plus(times(x1, y1), plus(_logical_right(b, middle, 32), _logical_right(b, part, 32)))


def divided(b: Builder, x: fx.Proxy, y: fx.Proxy, dtype: DType) -> Any:
    """The quotient towards zero; all bits are set where the divisor is 0."""
    zero = b.call(aten.eq.Scalar, y, 0)
    safe = b.call(aten.masked_fill.Scalar, y, zero, 1)
    if is_wide_unsigned(dtype):
        quotient = _wide_quotient(b, x, safe)
    elif d.is_unsigned(dtype):
        quotient = b.call(aten.div.Tensor_mode, x, safe, rounding_mode="trunc")
    else:
        # The least number has no negative: its quotient by -1 is itself.
        minus = b.call(aten.eq.Scalar, y, -1)
        safe = b.call(aten.masked_fill.Scalar, safe, minus, 1)
        quotient = b.call(aten.div.Tensor_mode, x, safe, rounding_mode="trunc")
        quotient = b.call(aten.where.self, minus, b.call(aten.neg.default, quotient), quotient)
    top = _MASKS.get(dtype, 255 if dtype == d.uint8 else -1)
    return b.call(aten.masked_fill.Scalar, quotient, zero, top)


def remainder(b: Builder, x: fx.Proxy, y: fx.Proxy, dtype: DType) -> Any:
    """The remainder with the sign of ``x``; ``x`` itself where the divisor is 0."""
    zero = b.call(aten.eq.Scalar, y, 0)
    safe = b.call(aten.masked_fill.Scalar, y, zero, 1)
    if is_wide_unsigned(dtype):
        product = b.call(aten.mul.Tensor, _wide_quotient(b, x, safe), safe)
        rest = b.call(aten.sub.Tensor, x, product)
    else:
        if not d.is_unsigned(dtype):
            minus = b.call(aten.eq.Scalar, y, -1)
            safe = b.call(aten.masked_fill.Scalar, safe, minus, 1)
        rest = b.call(aten.fmod.Tensor, x, safe)
    return b.call(aten.where.self, zero, x, rest)


def _wide_quotient(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    """Quotients of 64 unsigned bits, by a signed division of halves that is one off at most."""
    half = b.call(
        aten.div.Tensor_mode, _logical_right(b, x, 1), _at_least_one(b, y), rounding_mode="trunc"
    )
    quotient = b.call(aten.mul.Scalar, half, 2)
    rest = b.call(aten.sub.Tensor, x, b.call(aten.mul.Tensor, quotient, y))
    more = b.call(aten.ge.Tensor, in_order(b, rest), in_order(b, y))
    quotient = b.call(aten.add.Tensor, quotient, b.convert(more, torch.int64))
    fits = b.convert(b.call(aten.ge.Tensor, in_order(b, x), in_order(b, y)), torch.int64)
    return b.call(aten.where.self, b.call(aten.lt.Scalar, y, 0), fits, quotient)


def _at_least_one(b: Builder, y: fx.Proxy) -> Any:
    return b.call(aten.masked_fill.Scalar, y, b.call(aten.le.Scalar, y, 0), 1)


# comparisons --------------------------------------------------------------------------------------


_TURNED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def compared(b: Builder, name: str, x: Operand, y: Operand, dtype: DType) -> Any:
    """Comparison ``eq``, ``ne``, ``lt``, ``le``, ``gt`` or ``ge``."""
    if is_wide_unsigned(dtype) and name not in ("eq", "ne"):
        x, y = (in_order(b, b.tensor_of(v, dtype)) for v in (x, y))
    if is_number(x):
        x, y, name = y, x, _TURNED.get(name, name)
    target = getattr(aten, name)
    return b.call(target.Scalar if is_number(y) else target.Tensor, x, y)


def is_number(x: object) -> TypeGuard[bool | int | float | complex]:
    """Whether an operand is a Python number."""
    return isinstance(x, bool | int | float | complex)


def _comparison(name: str) -> Any:
    def emit(b: Builder, x: Operand, y: Operand) -> Any:
        dtype = b.avals[0].dtype
        if b.is_key(0):
            same = compared(b, name, x, y, d.uint32)
            return b.call(aten.all.dim if name == "eq" else aten.any.dim, same, -1)
        return compared(b, name, x, y, dtype)

    return emit


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    rule(_name, numbers=True)(_comparison(_name))


def total_order(b: Builder, x: fx.Proxy, dtype: DType) -> Any:
    """Integers in the order of the elements: of floats by sign and size, NaNs outermost."""
    if is_wide_unsigned(dtype):
        return in_order(b, x)
    if not is_float(dtype):
        return b.convert(x, torch.uint8) if is_bool(dtype) else x
    bits = b.call(aten.view.dtype, b.call(aten.contiguous.default, x), BITS[dtype.itemsize])
    flipped = b.call(aten.bitwise_xor.Scalar, bits, 2 ** (8 * dtype.itemsize - 1) - 1)
    return b.call(aten.where.self, b.call(aten.lt.Scalar, bits, 0), flipped, bits)


def _total(name: str) -> Any:
    def emit(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
        dtype = b.avals[0].dtype
        keys = [total_order(b, v, dtype) for v in (x, y)]
        return b.call(getattr(aten, name).Tensor, *keys)

    return emit


for _name in ("eq", "lt", "le"):
    rule(f"{_name}_to")(_total(_name))
