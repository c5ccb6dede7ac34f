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
from tracebridge.core.runtime.calls.remembered import one_program
from tracebridge.nn._smooth import (
    gated,
    gelu_of_complex,
    gelu_of_floats,
    gelu_slope,
    mish_of_floats,
    mish_slope,
    normal_share,
    real_gelu_by_erfc,
    silu_of_floats,
    silu_slope,
    smooth,
    soft_sign_slope,
    squareplus_of_floats,
    with_slope,
)
from tracebridge.numpy._promote import as_strong, promote_inexact, widened


def _inexact(x: Any) -> Any:
    """As an array of a floating or complex dtype."""
    x = tnp.asarray(x)
    return x if tnp.issubdtype(x.dtype, tnp.inexact) else x.astype(to_inexact(x.dtype))


def _rounded_once(formula: Callable[..., Any], *xs: ArrayLike) -> Any:
    """``formula`` of floats of one dtype; those of 16 bits are rounded at its end only."""
    return widened(formula)(*promote_inexact(*[tnp.asarray(x) for x in xs]))


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
    return _positive(x) if tnp.issubdtype(x.dtype, tnp.inexact) else tnp.maximum(x, 0)


@custom_jvp
def _positive(x: Any) -> Any:
    return tnp.maximum(x, 0)


@_positive.defjvp
def _positive_jvp(primals: Any, tangents: Any) -> Any:
    # From the result, which layers behind need for themselves: the argument need not be kept.
    y = _positive(*primals)
    return y, tnp.where(y > 0, tangents[0], 0)


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
    return widened(squareplus_of_floats)(values, b)


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


def _sparse_plus(x: Any) -> Any:
    inner = tnp.where((x <= -1) | (x >= 1), 0, x)  # finite where it is not chosen
    return tnp.where(x <= -1.0, 0.0, tnp.where(x >= 1.0, x, (inner + 1.0) ** 2 / 4))


@jit
def sparse_plus(x: ArrayLike) -> Array:
    """0 up to -1, ``x`` from 1 on, ``(x + 1)**2 / 4`` between.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> tb.nn.sparse_plus(tb.numpy.array([-2.0, 0.0, 3.0])).tolist()
    [0.0, 0.25, 3.0]
    """
    return widened(_sparse_plus)(tnp.asarray(x))


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


def _soft_sign(x: Any) -> Any:
    return x / (tnp.abs(x) + 1)


_any_soft_sign = smooth(with_slope(_soft_sign, soft_sign_slope), _soft_sign)


@jit
def soft_sign(x: ArrayLike) -> Array:
    """``x / (abs(x) + 1)``.

    Args:
        x: array.

    >>> import tracebridge as tb
    >>> float(tb.nn.soft_sign(-1.0))
    -0.5
    """
    return _any_soft_sign(x)


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


_any_silu = smooth(with_slope(silu_of_floats, silu_slope), lambda x: x * sigmoid(x))


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


_any_mish = smooth(with_slope(mish_of_floats, mish_slope), lambda x: x * tnp.tanh(softplus(x)))


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


def _elu(x: Any, alpha: Any) -> Any:
    below = tnp.where(x > 0, 0.0, x)
    return tnp.where(x > 0, x, alpha * tnp.expm1(below))


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
    return _rounded_once(_elu, x, alpha)


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
    return _rounded_once(
        lambda x, alpha: tnp.maximum(x, 0.0) + alpha * tnp.expm1(tnp.minimum(x, 0.0) / alpha),
        x,
        alpha,
    )


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
    # With a number beside them, as the alpha of elu, the result of integers is weakly typed.
    return _rounded_once(lambda x, _: _SELU_SCALE * _elu(x, _SELU_ALPHA), x, _SELU_ALPHA)


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


_any_gelu = smooth(with_slope(gelu_of_floats, gelu_slope), gelu_of_complex)


@jit
def _gelu_by_tanh(x: Any) -> Any:
    return as_strong(_any_gelu(x))


_any_gelu_by_erfc = smooth(real_gelu_by_erfc, lambda x: x * normal_share(x))


@jit
def _gelu_by_erfc(x: Any) -> Any:
    return as_strong(_any_gelu_by_erfc(x))


@one_program
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
    return widened(lambda v: relu6(v + 3.0) / 6.0)(tnp.asarray(x))


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
    return widened(lambda v: gated(v, hard_sigmoid, 4.0))(x)


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
    return widened(_log1mexp)(x)
