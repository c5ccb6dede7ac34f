"""Functions with arguments that are no arrays, and reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.runtime.arrays.argument_types import Axis
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy import _exp_sums
from tracebridge.numpy._promote import hashable_axis, normalize_axes, promote_inexact, strongly
from tracebridge.numpy._staging import value_of
from tracebridge.scipy._nested import nested
from tracebridge.scipy._special import formulas, gamma_formulas, zeta_formulas
from tracebridge.scipy._special.elementwise import floats, with_slopes

_log_ndtr_staged = floats("log_ndtr", strongly(formulas.log_ndtr))
_zeta_staged = floats("zeta", zeta_formulas.zeta, full=True)
_riemann_staged = floats("zeta", zeta_formulas.riemann, full=True)
_comb_staged = floats("comb", formulas.comb, full=True)


def _factorial(n: Array) -> Any:
    # Of what is not chosen the derivative would be that of a pole.
    n_ = tnp.where(n < 0, 0, n)
    # n + 1 would be rounded.
    small = n_ < 1
    value = gamma_formulas.gamma(tnp.where(small, n_ + 1, n_)) * tnp.where(small, 1, n_)
    result = tnp.where(n < 0, 0, value)
    return lax.convert_dtype(result, result.aval.dtype, n.aval.weak_type)


_factorial_staged = floats("factorial", _factorial)


def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """Logarithm of ``ndtr``, accurate in both tails.

    Args:
        x: numbers; integers become floats.
        series_order: accepted and not needed: one fraction serves the whole tail.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.log_ndtr(-20.0))
    -203.917...
    """
    del series_order
    return _log_ndtr_staged((nested(x),))


def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """Hurwitz zeta function, that of Riemann without ``q``.

    Args:
        x: exponent; with ``q`` above 1. Differentiable where ``q`` is positive.
        q: shift; ``None`` means 1. Differentiable.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.zeta(2.0))
    1.644...
    """
    return _riemann_staged((x,)) if q is None else _zeta_staged((x, q))


def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """``n!`` as floats; 0 below 0.

    Args:
        n: numbers, which need not be whole.
        exact: only ``False``: integers of any size are no array.

    Raises:
        ArgumentValueError: ``exact`` is true.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.factorial(5))
    120.0
    """
    if exact:
        raise ArgumentValueError(
            call="factorial",
            where="argument exact",
            got="True",
            expected="False",
            hint="use math.factorial",
        )
    return _factorial_staged((n,))


def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """Number of ways to choose ``k`` of ``N`` things; 0 where there is none.

    Args:
        N: how many things there are.
        k: how many are chosen.
        repetition: whether a thing may be chosen again.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.comb(5, 2))
    10.0
    """
    if repetition:
        total = tnp.add(N, tnp.subtract(k, 1))
        return _comb_staged((total, k))
    return _comb_staged((N, k))


def _multigammaln(a: Array, d: int) -> Any:
    (a,) = promote_inexact(a)
    total = 0.25 * d * (d - 1) * math.log(math.pi) * tnp.ones_like(a)
    for i in range(d):
        total = total + formulas.gammaln(a - 0.5 * i)
    return total


_multigammaln_staged = StagedFunction(strongly(_multigammaln), "multigammaln")


def multigammaln(a: ArrayLike, d: Array | float) -> Array:
    """Logarithm of the gamma function of ``d`` dimensions.

    Args:
        a: numbers above ``(d - 1) / 2``.
        d: number of dimensions, a known whole number.

    Raises:
        ArgumentTypeError: ``d`` is no whole number.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.multigammaln(3.0, 2))
    1.550...
    """
    whole = isinstance(d, float) and d.is_integer()
    return _multigammaln_staged((a,), (int(d) if whole else index_of(d, "multigammaln", "d"),))


def bernoulli(n: Array) -> Array:
    """The Bernoulli numbers 0 to ``n``; that of 1 is -1/2.

    Args:
        n: a known integer, not negative.

    Raises:
        ArgumentTypeError: ``n`` is no integer.
        ArgumentValueError: it is negative.

    >>> import tracebridge as tb
    >>> tb.scipy.special.bernoulli(2).tolist()
    [1.0, -0.5, 0.1666...]
    """
    count = index_of(n, "bernoulli", "n")
    if count < 0:
        raise ArgumentValueError(
            call="bernoulli", where="argument n", got=str(count), expected="at least 0"
        )
    numbers = [1.0, -0.5, *[0.0] * (count - 1)][: count + 1]
    # Even ones by the tangent numbers, which are whole: B(2n) = 2n T(n) / (4**n - 16**n), (-1)**n.
    exact = _tangent_numbers(min(count, _LAST_BERNOULLI) // 2)
    for half in range(1, count // 2 + 1):
        size = math.inf
        if half <= len(exact):
            size = 2 * half * exact[half - 1] / (16**half - 4**half)
        numbers[2 * half] = size if half % 2 else -size
    return tnp.asarray(np.array(numbers))


# Those after it are infinite.
_LAST_BERNOULLI = 258


def _tangent_numbers(count: int) -> list[int]:
    """The first coefficients of the odd powers of tan(x), times their factorials.

    Source: Brent, Harvey (2013), Fast computation of Bernoulli, tangent and secant numbers.
    """
    numbers = [math.factorial(k) for k in range(count)]
    for k in range(1, count):
        for j in range(k, count):
            numbers[j] = (j - k) * numbers[j - 1] + (j - k + 2) * numbers[j]
    return numbers


def _logsumexp(
    a: Array, *more: Any, axis: Array, keepdims: bool, signed: bool, has_b: bool, has_where: bool
) -> Any:
    values = promote_inexact(a, *more[:1]) if has_b else promote_inexact(a)
    a = values[0]
    log, sign = a, None
    if has_b:
        b = values[1]
        log = a + tnp.log(tnp.where(b == 0, 1, tnp.abs(b)))
        log = tnp.where(b == 0, -math.inf, log)
        sign = tnp.sign(b)
    if has_where:
        log = tnp.where(more[-1], log, -math.inf)
        sign = None if sign is None else tnp.where(more[-1], sign, 0)
    axes = normalize_axes(axis, log.aval.ndim, "logsumexp")
    most = tnp.max(lax.stop_gradient(log), axis=axes, keepdims=True, initial=-math.inf)
    if sign is None:
        # Nothing between difference, exponential and sum: XLA's library does them at once.
        parts, shift = _raised(log, most), _finite(most)
    else:
        # Where all are -inf there is nothing to scale by; where one is inf, only such ones count.
        shift = tnp.where(tnp.isnan(most) | (most == -math.inf), 0, most)
        parts = sign * tnp.exp(_below(log, shift))
    total = tnp.sum(parts, axis=axes, keepdims=True)
    none = total == 0
    size = tnp.where(none, 1, tnp.abs(total))
    if sign is None:
        tops = tnp.sum(log == math.inf, axis=axes, keepdims=True, dtype=log.aval.dtype)
        out = _log_of_sum(size, most, tops) + shift
    else:
        out = tnp.log(size) + shift
    out = tnp.where(none, tnp.where(most == math.inf, math.nan, -math.inf), out)
    result_sign = tnp.sign(total)
    if not signed and has_b:
        out = tnp.where(result_sign < 0, math.nan, out)
    if not keepdims:
        out, result_sign = (tnp.squeeze(v, axis=axes) for v in (out, result_sign))
    return [out, result_sign] if signed else out


def _finite(most: Array) -> Any:
    return tnp.where(tnp.isfinite(most), most, 0)


# Exponentials, less the largest one, and the logarithm of their sum. Where that is infinite,
# infinite numbers share the slope.
_raised = with_slopes(
    lambda x, most: tnp.exp(x - _finite(most)),
    lambda ans, x, most: tnp.where(most == math.inf, tnp.astype(x == math.inf, ans.dtype), ans),
    None,
)
_log_of_sum = with_slopes(
    lambda total, most, tops: tnp.log(total),
    lambda _, total, most, tops: 1 / tnp.where(most == math.inf, tops, total),
    None,
    None,
)
# The difference, with the slope 1 everywhere: infinities less themselves are 0.
_below = with_slopes(
    lambda x, top: tnp.where(x == top, 0, x - top), lambda _, x, top: tnp.ones_like(x), None
)


def _logsumexp_of(*args: Any) -> Any:
    *values, axis, keepdims, signed, has_b, has_where = args
    return _logsumexp(
        *values, axis=axis, keepdims=keepdims, signed=signed, has_b=has_b, has_where=has_where
    )


_logsumexp_staged = StagedFunction(_logsumexp_of, "logsumexp")


def logsumexp(
    a: ArrayLike,
    axis: Axis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any:
    """Logarithm of the sum of exponentials, without overflow.

    Gradients are finite: entries of minus infinity get 0, and so does an axis of nothing else.

    Args:
        a: array; integers become floats.
        axis: axes to reduce; ``None`` reduces all.
        b: factors of the exponentials, broadcastable to ``a``.
        keepdims: whether reduced axes stay, with size 1.
        return_sign: whether the sign of the sum is returned too; without it the logarithm of a
            negative sum is NaN. Of complex sums the sign is the phase.
        where: which entries take part, broadcastable to ``a``.

    Returns:
        The logarithms, or a pair of the logarithms of the sizes and the signs.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.logsumexp(tb.numpy.array([1000.0, 1000.0])))
    1000.693...
    """
    if any(is_complex(value_of(v).aval.dtype) for v in (a, b) if v is not None):
        return _exp_sums.logsumexp(a, axis, b, keepdims, return_sign, where)
    values = [a] + ([] if b is None else [b]) + ([] if where is None else [where])
    statics = hashable_axis(axis, "logsumexp"), bool(keepdims), bool(return_sign)
    out = _logsumexp_staged(values, (*statics, b is not None, where is not None))
    return tuple(out) if return_sign else out


def _softmax(x: Array, axis: Array, logs: bool) -> Any:
    (x,) = promote_inexact(x)
    axes = normalize_axes(axis, x.aval.ndim, "log_softmax" if logs else "softmax")
    most = tnp.max(lax.stop_gradient(x), axis=axes, keepdims=True, initial=-math.inf)
    shifted = x - most
    parts = tnp.exp(shifted)
    total = tnp.sum(parts, axis=axes, keepdims=True)
    return shifted - tnp.log(total) if logs else parts / total


_softmax_staged = StagedFunction(_softmax, "softmax")


def softmax(x: ArrayLike, /, *, axis: Axis = None) -> Array:
    """Exponentials, scaled so that their sum along the axes is 1.

    Args:
        x: array; integers become floats.
        axis: axes of the sum; ``None`` means all.

    >>> import tracebridge as tb
    >>> tb.scipy.special.softmax(tb.numpy.zeros(2)).tolist()
    [0.5, 0.5]
    """
    return _softmax_staged((x,), (hashable_axis(axis, "softmax"), False))


def log_softmax(x: ArrayLike, /, *, axis: Axis = None) -> Array:
    """Logarithm of ``softmax``, without underflow.

    Args:
        x: array; integers become floats.
        axis: axes of the sum; ``None`` means all.

    >>> import tracebridge as tb
    >>> tb.scipy.special.log_softmax(tb.numpy.zeros(2)).tolist()
    [-0.693..., -0.693...]
    """
    return _softmax_staged((x,), (hashable_axis(axis, "log_softmax"), True))
