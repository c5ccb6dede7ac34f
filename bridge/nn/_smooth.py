"""Smooth activation functions of floats, with their digits far below 0 too, and their slopes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge.numpy._promote import promote_inexact, widened
from tracebridge.scipy._special.formulas import bell, ndtr


def gated(x: Any, gate: Callable[[Any], Any], limit: float = 800.0) -> Any:
    """``x * gate(x)`` of a gate that is 1 above the limit and 0 below minus the limit.

    So the slope is 1 or 0 where that of the product is an infinity times 0.
    """
    near = tnp.clip(x, -limit, limit)
    return tnp.where(x >= limit, x, near * gate(near))


def smooth(real: Callable[[Any], Any], other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``real`` of floats, in float32 where they have 16 bits, and ``other`` of complex numbers."""

    def run(x: Any) -> Any:
        (x,) = promote_inexact(tnp.asarray(x))
        if tnp.issubdtype(x.dtype, tnp.complexfloating):
            return other(x)
        return widened(real)(x)

    return run


def _bounded(x: Any, limit: float) -> Any:
    return lax.max(lax.min(x, limit), -limit)


def with_slope(function: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Any:
    """A function of one array with its derivative."""
    wrapped = custom_jvp(function)

    def jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return wrapped(x), t * slope(x)

    wrapped.defjvp(jvp)
    return wrapped


def _squareplus_parts(x: Any, b: Any) -> tuple[Any, Any, Any]:
    """The size, the bounded one and the root."""
    # A square overflows where b does not count any more.
    limit = float(tnp.finfo(x.dtype).max) ** 0.5 / 4
    size = tnp.abs(x)
    near = tnp.minimum(size, limit)
    return size, near, tnp.sqrt(tnp.square(near) + b)


@custom_jvp
def squareplus_of_floats(x: Any, b: Any) -> Any:
    """``(x + sqrt(x**2 + b)) / 2``."""
    size, near, root = _squareplus_parts(x, b)
    mean = tnp.where(near < size, size, 0.5 * (near + root))
    # Far below 0 the two terms cancel: their sum is b over their difference.
    far = (x < 0) & (near > 0.25 * root) & (mean > 0)
    beside = tnp.where(x < 0, 0.5 * (root - near), mean)
    return tnp.where(far, 0.25 * b, beside) / tnp.where(far, mean, 1)


@squareplus_of_floats.defjvp
def _squareplus_jvp(primals: Any, tangents: Any) -> Any:
    (x, b), (t, t_b) = primals, tangents
    size, near, root = _squareplus_parts(x, b)
    total = near + root
    far = (x < 0) & (near > 0.5 * root) & (total > 0)
    share = near / tnp.where(root > 0, root, 1)
    beside = tnp.where(x < 0, 0.5 - 0.5 * share, 0.5 + 0.5 * share)
    slope = tnp.where(far, b, beside) / tnp.where(far, 2 * total * root, 1)
    return squareplus_of_floats(x, b), t * slope + t_b * (0.25 / tnp.maximum(size, root))


# Far below 0 the sigmoid is smaller than any float where its product with x is not. There it is
# taken from so much above, and the decay in between is left to x.
_ABOVE = 8.0
_DECAY = math.exp(-_ABOVE)


def _decay_parts(x: Any) -> tuple[Any, Any, Any]:
    """Where exponentials are taken from above, the bounded argument, and the one for them.

    Below the bound a product with the exponential is less than any normal float, and the inverse
    of the exponential is one: derivatives of quotients need it.
    """
    least = math.log(float(tnp.finfo(x.dtype).tiny))
    near = lax.max(lax.min(x, 800.0), least - _ABOVE)
    far = near < 0.75 * least
    return far, near, tnp.where(far, near + _ABOVE, near)


def _factor(x: Any, far: Any, near: Any) -> Any:
    """``x`` as a factor of a share that is taken from above where ``far`` holds."""
    inside = tnp.where(far, near * _DECAY, near)
    return tnp.where(x > near, x, tnp.where(x < near, -0.0, inside))


def silu_of_floats(x: Any) -> Any:
    """``x * sigmoid(x)``."""
    far, near, shifted = _decay_parts(x)
    # One quotient: a product with the sigmoid would be rounded once more.
    return _factor(x, far, near) / (1.0 + tnp.exp(-shifted))


def silu_slope(x: Any) -> Any:
    """The derivative of `silu_of_floats`."""
    far, near, shifted = _decay_parts(x)
    decay = tnp.exp(-shifted)
    share = 1.0 / (1.0 + decay)
    # Not 1 - share, of which far above 0 nothing is left.
    return share * tnp.where(far, (1.0 + near) * _DECAY, 1.0 + near * (decay * share))


def soft_sign_slope(x: Any) -> Any:
    """The derivative of ``x / (abs(x) + 1)``: that of the quotient is a difference."""
    share = 1.0 / (tnp.abs(x) + 1.0)
    return share * share


def _mish_parts(x: Any) -> tuple[Any, Any, Any, Any, Any]:
    """``far`` and ``near`` as above, a power, and two numbers.

    ``tanh(softplus(x))`` is the quotient of the numbers, in powers of ``exp(x)``.
    """
    # From here on it is 1 in all digits. Derivatives of it have powers of the exponential.
    end = 12.0 if tnp.finfo(x.dtype).bits == 32 else 22.0
    far, near, shifted = _decay_parts(x)
    power = tnp.exp(lax.min(shifted, end))
    numerator = power * power + 2.0 * power
    return far, near, power, numerator, numerator + 2.0


def mish_of_floats(x: Any) -> Any:
    """``x * tanh(softplus(x))``."""
    far, near, _, numerator, denominator = _mish_parts(x)
    return _factor(x, far, near) * (numerator / denominator)


def mish_slope(x: Any) -> Any:
    """The derivative of `mish_of_floats`: 1 less the square of tanh, without the difference."""
    far, near, power, numerator, denominator = _mish_parts(x)
    inverse = 1.0 / denominator
    rise = (4.0 * near * (power * inverse)) * ((1.0 + power) * inverse)
    slope = numerator * inverse + rise
    return tnp.where(far, slope * _DECAY, slope)


_GELU = (math.sqrt(8.0 / math.pi), 0.044715 * math.sqrt(8.0 / math.pi))


def _gelu_share(near: Any) -> Any:
    # (1 + tanh(y / 2)) / 2, without its cancellation far below 0.
    return lax.logistic(near * (_GELU[0] + _GELU[1] * tnp.square(near)))


def gelu_of_floats(x: Any) -> Any:
    """The form of GELU with tanh."""
    near = _bounded(x, 30.0)
    return tnp.where(x > near, x, near) * _gelu_share(near)


def gelu_slope(x: Any) -> Any:
    """The derivative of `gelu_of_floats`."""
    near = _bounded(x, 30.0)
    share = _gelu_share(near)
    rate = near * (_GELU[0] + 3.0 * _GELU[1] * tnp.square(near))
    return share * (1.0 + (1.0 - share) * rate)


def gelu_of_complex(x: Any) -> Any:
    """The form of GELU with tanh, of complex numbers."""
    return x * (0.5 * (1.0 + tnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x**3)))))


def normal_share(x: Any) -> Any:
    """The share of a normal distribution below ``x``, a complex number."""
    return 0.5 * lax.erfc(x * -math.sqrt(0.5))


def _gelu_wide(x: Any) -> Any:
    near = _bounded(x, 60.0)
    return tnp.where(x > near, x, near) * ndtr(near)


def _gelu_wide_slope(x: Any) -> Any:
    near = _bounded(x, 60.0)
    return ndtr(near) + near * bell(near)


_gelu_of_64_bits = with_slope(_gelu_wide, _gelu_wide_slope)


def _gelu_narrow(x: Any) -> Any:
    near = lax.max(x, -30.0)  # minus infinity times a share of 0 would be NaN
    return near * lax.ndtr(near)


def _gelu_narrow_slope(x: Any) -> Any:
    near = _bounded(x, 30.0)
    density = tnp.exp(-0.5 * tnp.square(near)) * (1.0 / math.sqrt(2.0 * math.pi))
    return lax.ndtr(near) + near * density


# Without the digits of a square, of which little is left in float32.
_gelu_of_32_bits = with_slope(_gelu_narrow, _gelu_narrow_slope)


def real_gelu_by_erfc(x: Any) -> Any:
    """The exact GELU."""
    is_wide = tnp.finfo(x.dtype).bits > 32
    return _gelu_of_64_bits(x) if is_wide else _gelu_of_32_bits(x)
