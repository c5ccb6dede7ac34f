"""Operators that work on each element."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import torch

import tracebridge.core.lax as lax
import tracebridge.nn as nn
import tracebridge.numpy as tnp
import tracebridge.scipy.special as special
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import (
    DType,
    Operator,
    as_numpy_dtype,
    cast,
    common_dtype,
    is_array,
    promoted,
    wide,
)


def _unary(fun: Operator) -> Operator:
    """An operator that makes floats of integers."""
    return lambda x: fun(*promoted(x, floats=True))


def _exact(fun: Operator) -> Operator:
    """An operator that rounds floats and leaves integers as they are."""
    return lambda x: fun(x) if x.dtype.kind not in "biu" else x


def _binary(fun: Operator, *, floats: bool = False) -> Operator:
    return lambda x, y: fun(*promoted(x, y, floats=floats))


def _logical(fun: Operator) -> Operator:
    return lambda x, y: fun(_truth(x), _truth(y))


def _truth(x: Value) -> Any:
    return x if x.dtype == np.bool_ else x != 0


def _add(x: Value, y: Value, *, alpha: Any = 1) -> Any:
    x, y = promoted(x, y)
    return tnp.logical_or(x, y) if x.dtype == np.bool_ else x + _times(alpha, y)


def _sub(x: Value, y: Value, *, alpha: Any = 1) -> Any:
    x, y = promoted(x, y)
    return x - _times(alpha, y)


def _rsub(x: Value, y: Value, alpha: Any = 1) -> Any:
    return _sub(y, x, alpha=alpha)


def _times(alpha: Any, y: Value) -> Any:
    return y if isinstance(alpha, int) and alpha == 1 else cast(alpha, y.dtype) * y


def _div(x: Value, y: Value, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return tnp.true_divide(*promoted(x, y, floats=True))
    x, y = promoted(x, y)
    if rounding_mode == "floor":
        return tnp.floor_divide(x, y)
    x, y = tnp.broadcast_arrays(x, y)
    quotient = lax.div(x, y)
    return quotient if quotient.dtype.kind in "iu" else tnp.trunc(quotient)


def _fmod(x: Value, y: Value) -> Any:
    return lax.rem(*tnp.broadcast_arrays(*promoted(x, y)))


def _pow(x: Value, y: Value) -> Any:
    dtype = common_dtype(x, y)
    if is_array(y) or not isinstance(y, int | float):
        return tnp.power(cast(x, dtype), cast(y, dtype))
    x = cast(x, dtype)
    if y == int(y) if math.isfinite(y) else False:
        return lax.integer_pow(x, int(y))
    return tnp.sqrt(x) if y == 0.5 else tnp.power(x, cast(y, dtype))


def _clamp(x: Value, low: Any = None, high: Any = None) -> Any:
    dtype = common_dtype(x, low, high)
    x = cast(x, dtype)
    # Not by maximum and minimum: at a bound torch gives the whole derivative to ``x``.
    if low is not None:
        low = cast(low, dtype)
        x = tnp.where((x < low) | lax.ne(low, low), low, x)  # a bound that is NaN gives NaN
    if high is not None:
        high = cast(high, dtype)
        x = tnp.where((x > high) | lax.ne(high, high), high, x)
    return x


def _hardtanh(x: Value, low: Any = -1.0, high: Any = 1.0) -> Any:
    # Unlike those of clamp, the derivatives at the bounds are 0.
    low, high = cast(low, x.dtype), cast(high, x.dtype)
    return tnp.where(x <= low, low, tnp.where(x >= high, high, x))


def _hardsigmoid(x: Value) -> Any:
    exact = wide(x)
    low, half, high = [cast(v, exact.dtype) for v in (0, 0.5, 1)]
    y = tnp.where(exact <= -3, low, tnp.where(exact >= 3, high, exact / 6 + half))
    return cast(y, x.dtype)


def _hardswish(x: Value) -> Any:
    # Torch's derivative at -3 is 0 and at 3 it is 1: those of the pieces outside.
    exact = wide(x)
    inside = exact * (exact + 3) / 6
    y = tnp.where(exact <= -3, cast(0, exact.dtype), tnp.where(exact >= 3, exact, inside))
    return cast(y, x.dtype)


def _elu(x: Value, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Any:
    alpha, scale, inner = [cast(v, x.dtype) for v in (alpha, scale, input_scale)]
    safe = tnp.where(x > 0, cast(0, x.dtype), x)
    return tnp.where(x > 0, x * scale, tnp.expm1(safe * inner) * (alpha * scale))


def _leaky_relu(x: Value, slope: Any = 0.01) -> Any:
    return tnp.where(x > 0, x, x * cast(slope, x.dtype))


def _gelu(x: Value, *, approximate: str = "none") -> Any:
    exact = wide(x)
    if approximate == "tanh":
        return cast(nn.gelu(exact, approximate=True), x.dtype)
    # As torch has it. With erfc, which is right for large negative numbers too, it takes XLA three
    # times as long.
    half, root = cast(0.5, exact.dtype), cast(math.sqrt(0.5), exact.dtype)
    return cast(exact * half * (1 + lax.erf(exact * root)), x.dtype)


def _softplus(x: Value, beta: Any = 1, threshold: Any = 20) -> Any:
    beta = cast(beta, x.dtype)
    linear = x * beta > cast(threshold, x.dtype)
    safe = tnp.where(linear, cast(0, x.dtype), x)
    return tnp.where(linear, x, tnp.log1p(tnp.exp(safe * beta)) / beta)


def _round(x: Value, *, decimals: int = 0) -> Any:
    return x if x.dtype.kind in "biu" else tnp.round(x, decimals)


def _sign(x: Value) -> Any:
    if x.dtype.kind in "fV":  # that of what is no number is 0
        return tnp.where((x > 0) | (x < 0), tnp.sign(x), cast(0, x.dtype))
    return x if x.dtype == np.bool_ else tnp.sign(x)


def _abs(x: Value) -> Any:
    size = tnp.abs(x)
    return tnp.where(x == 0, cast(0, size.dtype), size)  # the derivative at 0 is 0


def _where(condition: Value, x: Value, y: Value) -> Any:
    return tnp.where(condition, *promoted(x, y))


def _masked_fill(x: Value, mask: Value, value: object) -> Any:
    return tnp.where(mask, cast(value, x.dtype), x)


def _to_copy(x: Value, *, dtype: torch.dtype | None = None, **_: object) -> Any:
    return x if dtype is None else _converted(x, as_numpy_dtype(dtype))


def _converted(x: Value, dtype: DType) -> Any:
    return _truth(x) if dtype == np.bool_ else cast(x, dtype)


def _addcmul(x: Value, a: Value, b: Value, *, value: Any = 1) -> Any:
    x, a, b = promoted(x, a, b)
    return x + _times(value, a * b)


def _addcdiv(x: Value, a: Value, b: Value, *, value: Any = 1) -> Any:
    x, a, b = promoted(x, a, b)
    return x + _times(value, a / b)


def _copysign(x: Value, y: Value) -> Any:
    return tnp.copysign(*tnp.broadcast_arrays(*promoted(x, y, floats=True)))


def _hypot(x: Value, y: Value) -> Any:
    x, y = promoted(x, y)
    big = lax.stop_gradient(tnp.maximum(tnp.abs(x), tnp.abs(y)))
    scale = tnp.where((big > 0) & tnp.isfinite(big), big, cast(1, big.dtype))
    x, y = x / scale, y / scale
    square = x * x + y * y
    # Torch's derivative at the origin is no number.
    size = tnp.sqrt(square) * scale
    return tnp.where(tnp.isinf(big), big, size)


def _shift(fun: Operator) -> Operator:
    return lambda x, y: fun(*promoted(x, y))


def _same(x: Value, **_: object) -> Any:
    return x


def _copy(x: Value, source: Value, non_blocking: bool = False) -> Any:
    return tnp.broadcast_to(_converted(source, x.dtype), x.shape)


_UNARY = {
    "acos": tnp.arccos,
    "acosh": tnp.arccosh,
    "asin": tnp.arcsin,
    "asinh": tnp.arcsinh,
    "atan": tnp.arctan,
    "atanh": tnp.arctanh,
    "cos": tnp.cos,
    "cosh": tnp.cosh,
    "digamma": special.digamma,
    "erf": lambda x: lax.erf(x),
    "erfc": lambda x: lax.erfc(x),
    "erfinv": lambda x: lax.erf_inv(x),
    "exp": tnp.exp,
    "exp2": tnp.exp2,
    "expm1": tnp.expm1,
    "lgamma": special.gammaln,
    "log": tnp.log,
    "log10": tnp.log10,
    "log1p": tnp.log1p,
    "log2": tnp.log2,
    "log_sigmoid": nn.log_sigmoid,
    "mish": nn.mish,
    "reciprocal": tnp.reciprocal,
    "rsqrt": lambda x: lax.rsqrt(x),
    "sigmoid": nn.sigmoid,
    "silu": nn.silu,
    "sin": tnp.sin,
    "sinh": tnp.sinh,
    "sqrt": tnp.sqrt,
    "tan": tnp.tan,
    "tanh": tnp.tanh,
}
_COMPARISONS = {
    "eq": tnp.equal,
    "ge": tnp.greater_equal,
    "gt": tnp.greater,
    "le": tnp.less_equal,
    "lt": tnp.less,
    "ne": tnp.not_equal,
}
_BITWISE = {
    "bitwise_and": tnp.bitwise_and,
    "bitwise_or": tnp.bitwise_or,
    "bitwise_xor": tnp.bitwise_xor,
}

ROWS: Final[dict[str, Operator]] = {
    **{f"{name}.default": _unary(fun) for name, fun in _UNARY.items()},
    **{f"{n}.{kind}": _binary(f) for n, f in _COMPARISONS.items() for kind in ("Tensor", "Scalar")},
    **{f"{n}.{kind}": _binary(f) for n, f in _BITWISE.items() for kind in ("Tensor", "Scalar")},
    "_to_copy.default": _to_copy,
    "abs.default": _abs,
    "add.Scalar": lambda x, y, alpha=1: _add(x, y, alpha=alpha),
    "add.Tensor": _add,
    "addcdiv.default": _addcdiv,
    "addcmul.default": _addcmul,
    "alias.default": _same,
    "atan2.default": _binary(tnp.arctan2, floats=True),
    "bitwise_not.default": tnp.bitwise_not,
    "ceil.default": _exact(tnp.ceil),
    "clamp.Tensor": _clamp,
    "clamp.default": _clamp,
    "clamp_max.default": lambda x, high: _clamp(x, None, high),
    "clamp_min.default": _clamp,
    "clone.default": _same,
    "contiguous.default": _same,
    "copy.default": _copy,
    "detach.default": lambda x: lax.stop_gradient(x),
    "div.Scalar": _div,
    "div.Scalar_mode": _div,
    "div.Tensor": _div,
    "div.Tensor_mode": _div,
    "elu.default": _elu,
    "floor.default": _exact(tnp.floor),
    "fmod.Scalar": _fmod,
    "fmod.Tensor": _fmod,
    "gelu.default": _gelu,
    "hardsigmoid.default": _hardsigmoid,
    "hardswish.default": _hardswish,
    "hardtanh.default": _hardtanh,
    "__lshift__.Scalar": _shift(tnp.left_shift),
    "__lshift__.Tensor": _shift(tnp.left_shift),
    "__rshift__.Scalar": _shift(tnp.right_shift),
    "__rshift__.Tensor": _shift(tnp.right_shift),
    "bitwise_left_shift.Tensor": _shift(tnp.left_shift),
    "bitwise_right_shift.Tensor": _shift(tnp.right_shift),
    "copysign.Scalar": _copysign,
    "copysign.Tensor": _copysign,
    "gcd.default": _binary(tnp.gcd),
    "hypot.default": _hypot,
    "nextafter.default": _binary(tnp.nextafter),
    "signbit.default": lambda x: tnp.signbit(x) if x.dtype.kind == "f" else x < 0,
    "isinf.default": tnp.isinf,
    "isnan.default": tnp.isnan,
    "leaky_relu.default": _leaky_relu,
    "lift_fresh_copy.default": _same,
    "logical_and.default": _logical(tnp.logical_and),
    "logical_not.default": lambda x: tnp.logical_not(_truth(x)),
    "logical_or.default": _logical(tnp.logical_or),
    "logical_xor.default": _logical(tnp.logical_xor),
    "masked_fill.Scalar": _masked_fill,
    "masked_fill.Tensor": _masked_fill,
    "maximum.default": _binary(tnp.maximum),
    "minimum.default": _binary(tnp.minimum),
    "mul.Scalar": _binary(tnp.multiply),
    "mul.Tensor": _binary(tnp.multiply),
    "neg.default": tnp.negative,
    "pow.Scalar": lambda x, y: tnp.power(*promoted(x, y)),
    "pow.Tensor_Scalar": _pow,
    "pow.Tensor_Tensor": _pow,
    "relu.default": nn.relu,
    "remainder.Scalar": _binary(tnp.remainder),
    "remainder.Scalar_Tensor": _binary(tnp.remainder),
    "remainder.Tensor": _binary(tnp.remainder),
    "round.decimals": _round,
    "round.default": _round,
    "rsub.Scalar": _rsub,
    "rsub.Tensor": lambda x, y, *, alpha=1: _rsub(x, y, alpha),
    "sign.default": _sign,
    "softplus.default": _softplus,
    "sub.Scalar": lambda x, y, alpha=1: _sub(x, y, alpha=alpha),
    "sub.Tensor": _sub,
    "trunc.default": _exact(tnp.trunc),
    "where.self": _where,
}
