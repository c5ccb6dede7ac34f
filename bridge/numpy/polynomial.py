"""Polynomials as vectors of coefficients, highest power first; convolution."""

from __future__ import annotations

__all__ = [
    "convolve", "correlate", "polyadd", "polyder", "polydiv", "polyint", "polymul",
    "polysub", "polyval",
]  # fmt: skip

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.dtypes.canonicalize import default_int
from tracebridge.core.dtypes.dtypes import is_bool, is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.contract.precision import PrecisionLike
from tracebridge.core.runtime.arrays.argument_types import DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import (
    as_strong,
    broadcast_operands,
    promote_dtypes,
    promote_inexact,
    promote_numeric,
    widened,
)
from tracebridge.numpy._staging import concrete, static_dtype, value_of
from tracebridge.numpy.editing import trim_zeros

_INT32 = np.dtype(np.int32)
_MAX_UNROLLED = 32  # coefficients, taps or sums that are written out; more are a loop


def _vector(name: str, x: Value) -> Any:
    """Coefficients; a number is a polynomial of degree 0."""
    if x.aval.ndim > 1:
        msg = f"{name}: coefficients must be vectors, got {x.aval.str_short()}"
        raise RankError(msg)
    return lax.reshape(x, (x.aval.size,))


def _polyval(p: Value, x: Value) -> Any:
    p, x = [as_strong(v) for v in promote_dtypes(p, x)]
    if p.aval.ndim < 1:
        msg = f"polyval: the coefficients need at least one axis, got {p.aval.str_short()}"
        raise RankError(msg)
    degree = p.aval.shape[0]
    rows = [lax.index_in_dim(p, i, 0, keepdims=False) for i in range(min(degree, _MAX_UNROLLED))]
    shape = broadcast_operands("polyval", x, *(rows[:1] or [x]))[0].aval
    total = zeros_of(shape)
    truth = is_bool(p.aval.dtype)
    times, plus = (lax.bitwise_and, lax.bitwise_or) if truth else (lax.mul, lax.add)

    def horner(total: Value, row: Value) -> tuple[Any, None]:
        total = times(*broadcast_operands("polyval", total, x))
        return plus(*broadcast_operands("polyval", total, row)), None

    if degree > _MAX_UNROLLED:
        return as_strong(scan(horner, total, p, unroll=_MAX_UNROLLED // 2)[0])
    for i, row in enumerate(rows):
        total = horner(total, row)[0] if i else plus(*broadcast_operands("polyval", total, row))
    return as_strong(total)


_polyval_staged = StagedFunction(_polyval, "polyval")


@remembered
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """The values of a polynomial.

    Args:
        p: coefficients along axis 0, highest power first; further axes broadcast against ``x``.
        x: where to evaluate.
        unroll: accepted; Horner's rule is always written out.

    >>> import tracebridge.numpy as tnp
    >>> tnp.polyval(tnp.array([1.0, 0.0, -2.0]), tnp.array([0.0, 3.0])).tolist()
    [-2.0, 7.0]
    """
    del unroll
    return _polyval_staged((p, x))


def _aligned(name: str, a: Value, b: Value) -> list[Any]:
    """Two polynomials with equally many coefficients; with further axes, as many side by side."""
    a, b = promote_numeric(a, b)
    if a.aval.ndim != b.aval.ndim or a.aval.ndim < 2:
        a, b = _vector(name, a), _vector(name, b)
    n = max(a.aval.shape[0], b.aval.shape[0])
    zero = zeros_of(a.aval.update(shape=()))
    others = [(0, 0, 0)] * (a.aval.ndim - 1)
    rows = [lax.pad(v, zero, [(n - v.aval.shape[0], 0, 0), *others]) for v in (a, b)]
    return list(broadcast_operands(name, *rows))


_polyadd_staged = StagedFunction(lambda a, b: lax.add(*_aligned("polyadd", a, b)), "polyadd")
_polysub_staged = StagedFunction(lambda a, b: lax.sub(*_aligned("polysub", a, b)), "polysub")


@remembered
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The sum of two polynomials.

    >>> import tracebridge.numpy as tnp
    >>> tnp.polyadd(tnp.array([1, 2]), tnp.array([3, 0, 0])).tolist()
    [3, 1, 2]
    """
    return _polyadd_staged((a1, a2))


@remembered
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The difference of two polynomials.

    >>> import tracebridge.numpy as tnp
    >>> tnp.polysub(tnp.array([1, 2]), tnp.array([3, 0, 0])).tolist()
    [-3, 1, 2]
    """
    return _polysub_staged((a1, a2))


# convolution -------------------------------------------------------------------------------------


def _convolution(a: Value, v: Value, start: int, size: int) -> Any:
    """``size`` of the sums ``out[k] = sum(a[i] * v[k - i])``, from ``start`` on.

    Shifted copies of the longer one, times the taps; or a sum of products for each of few results.
    """
    n, m = a.aval.shape[0], v.aval.shape[0]
    if n < m:
        a, v, n, m = v, a, m, n
    zero = zeros_of(a.aval.update(shape=()))
    # Negative where there are elements that no result reads.
    padded = lax.pad(a, zero, [(m - 1 - start, start + size - n, 0)])
    if type(size) is int and size < min(m, _MAX_UNROLLED):
        taps = lax.rev(v, (0,))
        sums = [
            lax.reduce_sum(lax.mul(lax.slice_in_dim(padded, k, k + m), taps), (0,))
            for k in range(size)
        ]
        return lax.concatenate([lax.reshape(x, (1,)) for x in sums], 0)
    if m <= _MAX_UNROLLED:
        total = None
        for i in range(m):
            tap = lax.reshape(lax.slice_in_dim(v, i, i + 1), ())
            part = lax.mul(lax.slice_in_dim(padded, m - 1 - i, m - 1 - i + size), tap)
            total = part if total is None else lax.add(total, part)
        return total

    def add_tap(total: Value, tap: tuple[Value, Value]) -> tuple[Any, None]:
        weight, first = tap
        return lax.add(total, lax.mul(lax.dynamic_slice(padded, (first,), (size,)), weight)), None

    starts = lax.rev(lax.iota(np.dtype(np.int32), m), (0,))
    out, _ = scan(add_tap, zeros_of(a.aval.update(shape=(size,))), (v, starts), unroll=8)
    return out


def _convolve(a: Any, v: Any, mode: str, name: str, preferred: DType | None) -> Any:
    a, v = promote_inexact(a, v)
    if preferred is not None:
        a, v = lax.convert_dtype(a, preferred), lax.convert_dtype(v, preferred)
    for x in (a, v):
        if x.aval.ndim != 1 or x.aval.shape[0] == 0:
            msg = f"{name}: needs vectors that are not empty, got {x.aval.str_short()}"
            raise RankError(msg)
    n, m = a.aval.shape[0], v.aval.shape[0]
    if name == "correlate":
        v = lax.rev(lax.conj(v) if is_complex(v.aval.dtype) else v, (0,))
    start, size = 0, n + m - 1
    if mode == "same":
        start, size = (min(n, m) - 1) // 2, max(n, m)
        if name == "correlate" and n < m and min(n, m) % 2 == 0:
            # NumPy exchanges the arguments and reverses the result.
            start = min(n, m) // 2
    elif mode == "valid":
        start, size = min(n, m) - 1, max(n, m) - min(n, m) + 1
    return widened(lambda a, v: _convolution(a, v, start, size))(a, v)


_convolve_staged = StagedFunction(_convolve, "convolve")


def _check_mode(name: str, mode: str) -> None:
    if mode not in ("full", "same", "valid"):
        msg = f"{name}: mode={mode!r}, expected 'full', 'same' or 'valid'"
        raise ArgumentValueError(msg)


@remembered
def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The convolution of two vectors; integers become floats.

    Args:
        a: vector.
        v: vector.
        mode: ``"full"`` for all overlaps, ``"same"`` for as many as the longer vector has
            elements, ``"valid"`` for complete overlaps.
        precision: accepted; products are not rounded to fewer bits here.
        preferred_element_type: dtype of the sums and of the result.

    >>> import tracebridge.numpy as tnp
    >>> tnp.convolve(tnp.array([1.0, 2.0]), tnp.array([1.0, 1.0, 1.0])).tolist()
    [1.0, 3.0, 3.0, 2.0]
    """
    _check_mode("convolve", mode)
    preferred = static_dtype("convolve", preferred_element_type)
    return _convolve_staged((a, v), (mode, "convolve", preferred))


@remembered
def correlate(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "valid",
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The cross-correlation of two vectors: sums of ``a[n + k] * conj(v[n])``.

    Arguments as of ``convolve``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.correlate(tnp.array([1.0, 2.0, 3.0]), tnp.array([0.0, 1.0])).tolist()
    [2.0, 3.0]
    """
    _check_mode("correlate", mode)
    preferred = static_dtype("correlate", preferred_element_type)
    return _convolve_staged((a, v), (mode, "correlate", preferred))


def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """The product of two polynomials; integers become floats.

    Args:
        a1: coefficients.
        a2: coefficients.
        trim_leading_zeros: leave out leading zeros of the factors, which must be concrete then.

    Raises:
        RankError: the coefficients have more than one axis.

    >>> import tracebridge.numpy as tnp
    >>> tnp.polymul(tnp.array([1, 1]), tnp.array([1, -1])).tolist()
    [1.0, 0.0, -1.0]
    """
    factors = [_vector("polymul", value_of(a)) for a in (a1, a2)]
    if trim_leading_zeros:
        factors = [trim_zeros(f, "f") for f in factors]
    empty = value_of(np.zeros(1, np.float32))
    first, second = [f if f.size else empty for f in factors]
    return convolve(first, second)


def _polydiv(u: Value, v: Value) -> list[Any]:
    u, v = (_vector("polydiv", x) for x in promote_inexact(u, v))
    m, n = u.aval.shape[0] - 1, v.aval.shape[0] - 1
    steps = max(m - n + 1, 1)
    lead = lax.index_in_dim(v, 0, 0, keepdims=False)
    quotient: list[Any] = []
    for k in range(m - n + 1):
        d = lax.div(lax.index_in_dim(u, k, 0, keepdims=False), lead)
        quotient.append(lax.reshape(d, (1,)))
        shifted = lax.pad(v, zeros_of(v.aval.update(shape=())), [(k, m - n - k, 0)])
        u = lax.sub(u, lax.mul(d, shifted))
    if not quotient:
        quotient = [zeros_of(u.aval.update(shape=(steps,)))]
    return [as_strong(lax.concatenate(quotient, 0) if len(quotient) > 1 else quotient[0]), u]


_polydiv_staged = StagedFunction(_polydiv, "polydiv")


def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """Quotient and remainder of two polynomials; the remainder has as many coefficients as ``u``.

    Args:
        u: coefficients of the dividend.
        v: coefficients of the divisor, the first not zero.
        trim_leading_zeros: leave out leading coefficients of the remainder that are zero or nearly
            so, but for the last one; it must be concrete then.

    >>> import tracebridge.numpy as tnp
    >>> q, r = tnp.polydiv(tnp.array([1.0, 0.0, -1.0]), tnp.array([1.0, 1.0]))
    >>> q.tolist(), r.tolist()
    ([1.0, -1.0], [0.0, 0.0, 0.0])
    """
    quotient, rest = _polydiv_staged((u, v))
    if not trim_leading_zeros:
        return quotient, rest
    host = concrete(rest, "The number of leading zeros decides the size of the result")
    large = np.flatnonzero(~(np.abs(host) <= np.sqrt(np.finfo(host.dtype).eps)))
    return quotient, rest[min(large[0] if large.size else host.size, host.size - 1) :]


# derivatives and integrals -----------------------------------------------------------------------


def _polyder(p: Value, m: int) -> Any:
    (p,) = promote_inexact(p)
    p = _vector("polyder", p)
    size = p.aval.shape[0]
    if m == 0:
        return p
    if size <= m:
        return zeros_of(p.aval.update(shape=(0,)))
    powers = np.arange(size - 1, m - 1, -1, dtype=np.float64)
    factors = np.ones(size - m)
    for k in range(m):
        factors *= powers - k
    kept = lax.slice_in_dim(p, 0, size - m)
    return lax.mul(kept, lax.convert_dtype(value_of(factors), kept.aval.dtype))


_polyder_staged = StagedFunction(_polyder, "polyder")


def _order(name: str, m: ArrayLike) -> int:
    count = index_of(m, name, "m")
    if count < 0:
        msg = f"{name}: the order must not be negative, got {count}"
        raise ArgumentValueError(msg)
    return count


@remembered
def polyder(p: ArrayLike, m: int = 1) -> Array:
    """The ``m``-th derivative of a polynomial.

    >>> import tracebridge.numpy as tnp
    >>> tnp.polyder(tnp.array([1.0, 2.0, 3.0])).tolist()
    [2.0, 2.0]
    """
    return _polyder_staged((p,), (_order("polyder", m),))


def _polyint(p: Value, *constants_and_order: Value) -> Any:
    *constants, m = constants_and_order
    p, *constants = promote_dtypes(p, *constants)
    if is_bool(p.aval.dtype):
        p, *constants = [lax.convert_dtype(v, default_int()) for v in (p, *constants)]
    p, *constants = promote_inexact(p, *constants)
    k = constants[0] if constants else zeros_of(p.aval.update(shape=()))
    p, k = _vector("polyint", p), _vector("polyint", k)
    if k.aval.shape[0] == 1:
        k = lax.broadcast_in_dim(lax.reshape(k, ()), (m,), ())
    if k.aval.shape[0] != m:
        msg = f"polyint: got {k.aval.shape[0]} constants for {m} integrations"
        raise ShapeMismatchError(msg)
    coefficients = lax.concatenate([p, k], 0)
    size = coefficients.aval.shape[0]
    # What the coefficient of each power is divided by in the end.
    divisors = np.ones(size)
    for i in range(size):
        power = size - 1 - i
        for j in range(min(m, power)):
            divisors[i] *= power - j
    return lax.div(coefficients, lax.convert_dtype(value_of(divisors), coefficients.aval.dtype))


_polyint_staged = StagedFunction(_polyint, "polyint")


@remembered
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Array:
    """The ``m``-th integral of a polynomial.

    Args:
        p: coefficients.
        m: how often to integrate.
        k: constants of integration, the first one first (default 0).

    >>> import tracebridge.numpy as tnp
    >>> tnp.polyint(tnp.array([2.0, 2.0]), k=3.0).tolist()
    [1.0, 2.0, 3.0]
    """
    count = _order("polyint", m)
    return _polyint_staged((p,) if k is None else (p, k), (count,))
