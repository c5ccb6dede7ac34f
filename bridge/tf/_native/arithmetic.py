"""Arithmetic of two operands, comparisons and conversions."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_float, is_inexact, is_integer
from tracebridge.tf._native.builder import Builder, DType, Tensor, number, rule
from tracebridge.tf._native.integers import divided, negated, powered, remainder, total_order
from tracebridge.tf._xla_call_module import tf_dtype


@rule("add", spreads=True)
def _add(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return x + y


@rule("sub", spreads=True)
def _sub(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    if d.is_unsigned(b.aval.dtype):
        # TensorFlow's own simplifications turn 0 - y to an operation that it has for signed ones.
        return x + negated(y)
    return x - y


@rule("mul", spreads=True)
def _mul(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return x * y


@rule("div", spreads=True)
def _div(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return x / y if is_inexact(b.aval.dtype) else divided(x, y, b.aval.dtype)


@rule("rem", spreads=True)
def _rem(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    dtype = b.aval.dtype
    if is_integer(dtype):
        return remainder(x, y, dtype)
    if dtype.itemsize > 2:
        return tf.truncatemod(x, y)
    wide = tf.truncatemod(tf.cast(x, tf.float32), tf.cast(y, tf.float32))
    return tf.cast(wide, x.dtype)


@rule("pow")
def _pow(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    dtype = b.aval.dtype
    if is_integer(dtype):
        return powered(x, y, dtype, b.avals[1].dtype)
    if is_integer(b.avals[1].dtype):
        y = converted(y, b.avals[1].dtype, dtype)
    if dtype.itemsize == 2:
        return tf.cast(tf.pow(tf.cast(x, tf.float32), tf.cast(y, tf.float32)), x.dtype)
    return tf.pow(x, y)


@rule("atan2")
def _atan2(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    dtype = b.aval.dtype
    if is_complex(dtype):
        # -i log((y + i x) / sqrt(x^2 + y^2)), which is what XLA computes.
        top = y + x * number(x, 1j)
        return tf.math.log(top / tf.sqrt(x * x + y * y)) * number(x, -1j)
    if dtype.itemsize == 2:
        return tf.cast(tf.atan2(tf.cast(x, tf.float32), tf.cast(y, tf.float32)), x.dtype)
    return tf.atan2(x, y)


@rule("complex")
def _complex(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return tf.complex(x, y)


@rule("max", spreads=True)
def _max(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return larger(x, y, b.aval.dtype)


@rule("min", spreads=True)
def _min(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return smaller(x, y, b.aval.dtype)


def larger(x: Tensor, y: Tensor, dtype: DType) -> Tensor:
    """The larger elements; NaN where one is NaN."""
    if is_bool(dtype):
        return tf.logical_or(x, y)
    return tf.where(_before(y, x), x, y) if is_complex(dtype) else tf.maximum(x, y)


def smaller(x: Tensor, y: Tensor, dtype: DType) -> Tensor:
    """The smaller elements; NaN where one is NaN."""
    if is_bool(dtype):
        return tf.logical_and(x, y)
    return tf.where(_before(x, y), x, y) if is_complex(dtype) else tf.minimum(x, y)


def _before(x: Tensor, y: Tensor) -> Tensor:
    """Whether complex numbers are less: by their real parts first."""
    (rx, ix), (ry, iy) = ((tf.math.real(v), tf.math.imag(v)) for v in (x, y))
    return tf.where(tf.equal(rx, ry), ix < iy, rx < ry)


# comparisons --------------------------------------------------------------------------------------

_COMPARED = {
    "eq": tf.equal,
    "ne": tf.not_equal,
    "lt": tf.less,
    "le": tf.less_equal,
    "gt": tf.greater,
    "ge": tf.greater_equal,
}


def _comparison(name: str, target: Any) -> Any:
    def emit(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        if b.is_key(0):
            every = tf.reduce_all if name == "eq" else tf.reduce_any
            return every(target(x, y), axis=-1)
        if is_bool(b.avals[0].dtype) and name not in {"eq", "ne"}:
            x, y = tf.cast(x, tf.uint8), tf.cast(y, tf.uint8)
        return target(x, y)

    return emit


def _total(target: Any) -> Any:
    def emit(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        dtype = b.avals[0].dtype
        return target(total_order(x, dtype), total_order(y, dtype))

    return emit


for _name, _target in _COMPARED.items():
    rule(_name, spreads=True)(_comparison(_name, _target))
for _name in ("eq", "lt", "le"):
    rule(f"{_name}_to")(_total(_COMPARED[_name]))


# conversions --------------------------------------------------------------------------------------


@rule("convert_element_type")
def _convert(b: Builder, x: Tensor, new_dtype: DType, **_: object) -> Tensor:
    return converted(x, b.avals[0].dtype, new_dtype)


def converted(x: Tensor, old: DType, new: DType) -> Tensor:
    """The elements as XLA converts them: floats saturate, NaN becomes 0."""
    if old == new:
        return x
    if is_complex(old) and not is_complex(new):
        return converted(tf.math.real(x), d.real_of(old), new)
    if is_bool(new):
        return tf.not_equal(x, tf.zeros_like(x))
    if is_integer(new) and is_float(old):
        return _saturated(x, old, new)
    if is_complex(new) and not is_complex(old):
        part = tf.cast(x, tf_dtype(d.real_of(new)))
        return tf.complex(part, tf.zeros_like(part))
    return tf.cast(x, tf_dtype(new))


def _saturated(x: Tensor, old: DType, new: DType) -> Tensor:
    bits = new.itemsize * 8
    unsigned = d.is_unsigned(new)
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if old != d.float64:
        x = tf.cast(x, tf.float32)
    too_low = x <= tf.constant(float(low), x.dtype)
    too_high = x >= tf.constant(float(high + 1), x.dtype)
    outside = too_low | too_high | tf.math.is_nan(x)
    whole = tf.cast(tf.where(outside, tf.zeros_like(x), x), tf_dtype(new))
    whole = tf.where(too_low, tf.constant(low, whole.dtype), whole)
    return tf.where(too_high, tf.constant(high, whole.dtype), whole)


@rule("copy")
def _copy(b: Builder, x: Tensor) -> Tensor:
    return tf.identity(x)


@rule("bitcast_convert_type")
def _bitcast(b: Builder, x: Tensor, new_dtype: DType) -> Any:
    old = b.avals[0].dtype
    if old == new_dtype:
        return x
    if is_bool(old) or is_bool(new_dtype):
        return NotImplemented
    return tf.bitcast(x, tf_dtype(new_dtype))
