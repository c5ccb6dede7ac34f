"""Activation functions, elementwise but for ``glu``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge._api.programs.jit import jit
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.numpy._promote import as_strong, promote_inexact
from tracebridge.scipy._special.formulas import bell, ndtr
from tracebridge.scipy._special.series import widened


def _inexact(x: Any) -> Any:
    """As an array of a floating or complex dtype."""
    x = tnp.asarray(x)
    return x if tnp.issubdtype(x.dtype, tnp.inexact) else x.astype(to_inexact(x.dtype))


def _gated(x: Any, gate: Callable[[Any], Any], limit: float = 800.0) -> Any:
    """``x * gate(x)`` of a gate that is 1 above the limit and 0 below minus the limit.

    So the slope is 1 or 0 where that of the product is an infinity times 0.
    """
    near = tnp.clip(x, -limit, limit)
    return tnp.where(x >= limit, x, near * gate(near))


def _smooth(real: Callable[[Any], Any], other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``real`` of floats, in float32 where they have 16 bits, and ``other`` of complex numbers."""

    def run(x: Any) -> Any:
        (x,) = promote_inexact(tnp.asarray(x))
        if tnp.issubdtype(x.dtype, tnp.complexfloating):
            return other(x)
        return widened(real)(x)

    return run


def _bounded(x: Any, limit: float) -> Any:
    return lax.max(lax.min(x, limit), -limit)


def _with_slope(function: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Any:
    """A function of one array with its derivative."""
    wrapped = custom_jvp(function)

    def jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return wrapped(x), t * slope(x)

    wrapped.defjvp(jvp)
    return wrapped


@jit
def identity(x: ArrayLike) -> Array:
    """The argument as an array.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> float(tb.nn.identity(2.0))
    2.0
    """
    return tnp.asarray(x)


@jit
def relu(x: ArrayLike) -> Array:
    """``max(x, 0)``; the derivative at 0 is 0.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> tb.nn.relu(tb.numpy.array([-1.0, 0.0, 2.0])).tolist()
    [0.0, 0.0, 2.0]
    """
    x = tnp.asarray(x)
    return tnp.where(x > 0, x, lax.stop_gradient(tnp.maximum(x, 0)))


@jit
def relu6(x: ArrayLike) -> Array:
    """``min(max(x, 0), 6)``; the derivative at 0 and 6 is 0.

    Args:
        x: array; integers become floats.

    >>> import tracebridge as tb
    >>> tb.nn.relu6(tb.numpy.array([-1.0, 2.0, 8.0])).tolist()
    [0.0, 2.0, 6.0]
    """
    x = tnp.asarray(x)
    inside = (x > 0) & (x < 6)
    return tnp.where(inside, x, lax.stop_gradient(tnp.minimum(tnp.maximum(x, 0), 6.0)))


def _squareplus_parts(x: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    """Whether it is below 0, the size, the root and the sum of both."""
    # A square overflows where b does not count any more.
    limit = float(tnp.finfo(x.dtype).max) ** 0.5 / 4
    below = x < 0
    size = tnp.where(below, -x, x)
    near = tnp.minimum(size, limit)
    root = tnp.sqrt(tnp.square(near) + b)
    return below, size, root, near + root


@custom_jvp
def _squareplus(x: Any, b: Any) -> Any:
    below, size, root, total = _squareplus_parts(x, b)
    # Below 0 the two terms cancel: their sum is b over their difference.
    total = size + tnp.maximum(size, root)
    below = below & (total > 0)
    return tnp.where(below, b, total) / tnp.where(below, 2 * total, 2)


@_squareplus.defjvp
def _squareplus_jvp(primals: Any, tangents: Any) -> Any:
    (x, b), (t, t_b) = primals, tangents
    below, size, root, total = _squareplus_parts(x, b)
    below = below & (total > 0)
    slope = tnp.where(below, b, total) / (tnp.where(below, 2 * total, 2) * root)
    return _squareplus(x, b), t * slope + t_b * (0.25 / tnp.maximum(size, root))


@jit
def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """``(x + sqrt(x**2 + b)) / 2``.

    Args:
        x: array.
        b: how smooth the corner at 0 is.

    >>> import tracebridge as tb
    >>> float(tb.nn.squareplus(0.0))
    1.0
    """
    values, b = promote_inexact(tnp.asarray(x), tnp.asarray(b))
    if tnp.issubdtype(values.dtype, tnp.complexfloating):
        return (values + tnp.sqrt(tnp.square(values) + b)) / 2
    return _squareplus(values, b)


@jit
def softplus(x: ArrayLike) -> Array:
    """``log(1 + exp(x))``.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> float(tb.nn.softplus(100.0))
    100.0
    """
    # A float would make weak results of integers that decide about dtypes.
    return tnp.logaddexp(x, 0)


@jit
def sparse_plus(x: ArrayLike) -> Array:
    """0 up to -1, ``x`` from 1 on, ``(x + 1)**2 / 4`` between.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> tb.nn.sparse_plus(tb.numpy.array([-2.0, 0.0, 3.0])).tolist()
    [0.0, 0.25, 3.0]
    """
    x = tnp.asarray(x)
    inner = tnp.where((x <= -1) | (x >= 1), 0, x)  # finite where it is not chosen
    return tnp.where(x <= -1.0, 0.0, tnp.where(x >= 1.0, x, (inner + 1.0) ** 2 / 4))


@jit
def sparse_sigmoid(x: ArrayLike) -> Array:
    """``(x + 1) / 2``, between 0 and 1.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> tb.nn.sparse_sigmoid(tb.numpy.array([-2.0, 0.0, 3.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return 0.5 * tnp.clip(tnp.asarray(x) + 1.0, 0.0, 2.0)


@jit
def soft_sign(x: ArrayLike) -> Array:
    """``x / (abs(x) + 1)``.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> float(tb.nn.soft_sign(-1.0))
    -0.5
    """
    x = tnp.asarray(x)
    return x / (tnp.abs(x) + 1)


@jit
def sigmoid(x: ArrayLike) -> Array:
    """``1 / (1 + exp(-x))``.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> float(tb.nn.sigmoid(0.0))
    0.5
    """
    return lax.logistic(_inexact(x))


# Far below 0 the sigmoid is smaller than any float where its product with x is not. There it is
# taken from so much above, and the decay in between is left to x.
_ABOVE = 8.0
_DECAY = math.exp(-_ABOVE)


def _silu_parts(x: Any) -> tuple[Any, Any, Any]:
    """Where the sigmoid is taken from above, the bounded argument and the sigmoid."""
    near = _bounded(x, 800.0)
    far = near < 0.75 * math.log(float(tnp.finfo(x.dtype).tiny))
    return far, near, lax.logistic(tnp.where(far, near + _ABOVE, near))


def _silu(x: Any) -> Any:
    far, near, share = _silu_parts(x)
    return tnp.where(far, near * _DECAY, tnp.where(x > near, x, near)) * share


def _silu_slope(x: Any) -> Any:
    far, near, share = _silu_parts(x)
    return share * tnp.where(far, (1.0 + near) * _DECAY, 1.0 + near * (1.0 - share))


_any_silu = _smooth(_with_slope(_silu, _silu_slope), lambda x: x * sigmoid(x))


@jit
def silu(x: ArrayLike) -> Array:
    """``x * sigmoid(x)``.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> float(tb.nn.silu(0.0))
    0.0
    """
    return _any_silu(x)


swish = silu


def _mish(x: Any) -> Any:
    near = tnp.clip(x, -800.0, 30.0)
    # tanh(log(1 + p)) with p = exp(x); the root of p is not too small where x * p counts.
    root = tnp.exp(near * 0.5)
    power = root * root
    more = power + 2.0
    return tnp.where(x >= 30.0, x, (near * root) * (root * more / (power * more + 2.0)))


_any_mish = _smooth(_mish, lambda x: x * tnp.tanh(softplus(x)))


@jit
def mish(x: ArrayLike) -> Array:
    """``x * tanh(softplus(x))``.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> float(tb.nn.mish(0.0))
    0.0
    """
    return _any_mish(x)


@jit
def log_sigmoid(x: ArrayLike) -> Array:
    """``log(sigmoid(x))`` without underflow.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> float(tb.nn.log_sigmoid(-1000.0))
    -1000.0
    """
    return -softplus(-tnp.asarray(x))


@jit
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """``x`` above 0, ``alpha * (exp(x) - 1)`` below.

    Args:
        x: array.
        alpha: what it tends to, negated, far below 0.

    >>> import tracebridge as tb
    >>> float(tb.nn.elu(-1000.0))
    -1.0
    """
    x = tnp.asarray(x)
    below = tnp.where(x > 0, 0.0, x)
    return tnp.where(x > 0, x, alpha * tnp.expm1(below))


@jit
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 1e-2) -> Array:
    """``x`` from 0 on, ``negative_slope * x`` below.

    Args:
        x: array.
        negative_slope: the slope below 0.

    >>> import tracebridge as tb
    >>> tb.nn.leaky_relu(tb.numpy.array([-2.0, 3.0]), 0.5).tolist()
    [-1.0, 3.0]
    """
    x = tnp.asarray(x)
    return tnp.where(x >= 0, x, negative_slope * x)


@jit
def hard_tanh(x: ArrayLike) -> Array:
    """``x`` between -1 and 1, the nearer of them outside.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> tb.nn.hard_tanh(tb.numpy.array([-2.0, 0.5, 3.0])).tolist()
    [-1.0, 0.5, 1.0]
    """
    x = tnp.asarray(x)
    return tnp.where(x > 1, 1, tnp.where(x < -1, -1, x))


@jit
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """``x`` above 0, ``alpha * (exp(x / alpha) - 1)`` below.

    Args:
        x: array.
        alpha: what it tends to, negated, far below 0.

    >>> import tracebridge as tb
    >>> float(tb.nn.celu(-1000.0, 2.0))
    -2.0
    """
    return tnp.maximum(x, 0.0) + alpha * tnp.expm1(tnp.minimum(x, 0.0) / alpha)


_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@jit
def selu(x: ArrayLike) -> Array:
    """``elu`` with the slope and the limit that keep mean 0 and variance 1.

    Args:
        x: array.

    Source: Klambauer, Unterthiner, Mayr, Hochreiter (2017), NIPS.

    >>> import tracebridge as tb
    >>> round(float(tb.nn.selu(1.0)), 4)
    1.0507
    """
    return _SELU_SCALE * elu(x, _SELU_ALPHA)


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """``x`` times the probability that a normal number is smaller.

    Args:
        x: array.
        approximate: by a function of ``tanh``; else by the error function.

    Source: Hendrycks, Gimpel (2016), arXiv 1606.08415.

    >>> import tracebridge as tb
    >>> round(float(tb.nn.gelu(1.0, approximate=False)), 4)
    0.8413
    """
    return _gelu_by_tanh(x) if approximate else _gelu_by_erfc(x)


_GELU = (math.sqrt(8.0 / math.pi), 0.044715 * math.sqrt(8.0 / math.pi))


def _gelu_share(near: Any) -> Any:
    # (1 + tanh(y / 2)) / 2, without its cancellation far below 0.
    return lax.logistic(near * (_GELU[0] + _GELU[1] * tnp.square(near)))


def _gelu(x: Any) -> Any:
    near = _bounded(x, 30.0)
    return tnp.where(x > near, x, near) * _gelu_share(near)


def _gelu_slope(x: Any) -> Any:
    near = _bounded(x, 30.0)
    share = _gelu_share(near)
    rate = near * (_GELU[0] + 3.0 * _GELU[1] * tnp.square(near))
    return share * (1.0 + (1.0 - share) * rate)


def _gelu_of_complex(x: Any) -> Any:
    return x * (0.5 * (1.0 + tnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x**3)))))


_any_gelu = _smooth(_with_slope(_gelu, _gelu_slope), _gelu_of_complex)


@jit
def _gelu_by_tanh(x: Any) -> Any:
    return as_strong(_any_gelu(x))


def _normal_share(x: Any) -> Any:
    return 0.5 * lax.erfc(x * -math.sqrt(0.5))


def _gelu_wide(x: Any) -> Any:
    near = _bounded(x, 60.0)
    return tnp.where(x > near, x, near) * ndtr(near)


def _gelu_wide_slope(x: Any) -> Any:
    near = _bounded(x, 60.0)
    return ndtr(near) + near * bell(near)


_gelu_of_64_bits = _with_slope(_gelu_wide, _gelu_wide_slope)


def _real_gelu_by_erfc(x: Any) -> Any:
    # The rounding of x / sqrt(2), of which little is left in float32.
    is_wide = tnp.finfo(x.dtype).bits > 32
    return _gelu_of_64_bits(x) if is_wide else _gated(x, _normal_share)


_any_gelu_by_erfc = _smooth(_real_gelu_by_erfc, lambda x: x * _normal_share(x))


@jit
def _gelu_by_erfc(x: Any) -> Any:
    return as_strong(_any_gelu_by_erfc(x))


def glu(x: ArrayLike, axis: int = -1) -> Array:
    """The first half along an axis times the sigmoid of the second.

    Args:
        x: array with an even size along ``axis``.
        axis: the axis.

    Raises:
        ShapeMismatchError: the size is odd.

    >>> import tracebridge as tb
    >>> tb.nn.glu(tb.numpy.array([4.0, 0.0])).tolist()
    [2.0]
    """
    x = tnp.asarray(x)
    if x.shape[axis] % 2:
        msg = f"glu: axis {axis} of shape {x.shape} has an odd size"
        raise ShapeMismatchError(msg, expected="an even size, which is halved")
    first, second = tnp.split(x, 2, axis)
    return first * sigmoid(second)


@jit
def hard_sigmoid(x: ArrayLike) -> Array:
    """``relu6(x + 3) / 6``.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> float(tb.nn.hard_sigmoid(0.0))
    0.5
    """
    return relu6(tnp.asarray(x) + 3.0) / 6.0


@jit
def hard_silu(x: ArrayLike) -> Array:
    """``x * hard_sigmoid(x)``.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> float(tb.nn.hard_silu(3.0))
    3.0
    """
    x = tnp.asarray(x) * 1.0
    if tnp.issubdtype(x.dtype, tnp.complexfloating):
        return x * hard_sigmoid(x)
    return _gated(x, hard_sigmoid, 4.0)


hard_swish = hard_silu


@custom_jvp
def _log1mexp(x: Any) -> Any:
    return tnp.where(x < math.log(2.0), tnp.log(-tnp.expm1(-x)), tnp.log1p(-tnp.exp(-x)))


@_log1mexp.defjvp
def _log1mexp_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    # The slope is 1 / expm1(x), whose own derivative would be a quotient of infinities.
    return _log1mexp(x), t * (tnp.exp(-x) / -tnp.expm1(-x))


@jit
def log1mexp(x: ArrayLike) -> Array:
    """``log(1 - exp(-x))`` without cancellation, for ``x`` above 0.

    Args:
        x: array.

    Source: Mächler (2012), "Accurately computing log(1 - exp(-abs(a)))", package Rmpfr.

    >>> import tracebridge as tb
    >>> round(float(tb.nn.log1mexp(1.0)), 4)
    -0.4587
    """
    (x,) = promote_inexact(tnp.asarray(x))
    return _log1mexp(x)
