"""Systems of equations, inverses and determinants."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge._api.derivatives.jvp import jvp
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.errors.user_warnings import warn_user
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.determinants import det_p, diagonal_of_factors, parity
from tracebridge.core.linalg.family import check_square, matrices, rounded
from tracebridge.core.linalg.lu import lu_p
from tracebridge.core.linalg.matrices import (
    adjoint,
    as_dtype,
    eye_of,
    matmul,
    real_dtype,
    swapped,
)
from tracebridge.core.linalg.solving import solution
from tracebridge.core.linalg.svd import svd
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import as_strong, broadcast_shape, broadcast_to, promote_inexact
from tracebridge.numpy._staging import value_of


class SlogdetResult(NamedTuple):
    """Sign (or phase) and logarithm of the absolute value of determinants."""

    sign: Array
    logabsdet: Array


def square(name: str, a: Any) -> tuple[Any, Any]:
    """Square matrices in a dtype that there are routines for, and the dtype of results."""
    (a,) = promote_inexact(a)
    (x,), dtype = matrices(name, a)
    check_square(name, x.aval)
    return x, dtype


def _one_vector_each(a: Any, b: Any) -> bool:
    """Whether there may be one vector for each matrix."""
    return 1 < b.aval.ndim == a.aval.ndim - 1 and a.aval.shape[-1] == b.aval.shape[-1]


def system(name: str, a: Any, b: Any, *, vectors: bool = False) -> tuple[Any, Any, Any, bool]:
    """Matrices, right-hand sides as matrices, the dtype of results, whether it was a vector.

    With ``vectors`` what may be one vector for each matrix is taken for that, with a warning.
    """
    a, b = promote_inexact(a, b)
    is_vector = b.aval.ndim == 1
    if vectors and _one_vector_each(a, b):
        warn_user(
            f"{name}: {b.aval.str_short()} is taken for one vector for each matrix of "
            f"{a.aval.str_short()}. This will change; give columns, b[..., None], and take the "
            "last axis off the result",
            FutureWarning,
        )
        is_vector = True
    if is_vector:
        b = lax.expand_dims(b, (b.aval.ndim,))
    check_square(name, a.aval)
    if b.aval.ndim < 2:
        msg = f"{name}: the right-hand side is {b.aval.str_short()}, expected at least 1 axis"
        raise RankError(msg)
    if a.aval.shape[-1] != b.aval.shape[-2]:
        msg = f"{name}: the matrix is {a.aval.str_short()}, the other {b.aval.str_short()}"
        columns = "give each matrix its vector as a column, b[..., None]"
        hint = columns if _one_vector_each(a, b) else ""
        raise ShapeMismatchError(msg, expected=f"{a.aval.shape[-1]} rows", hint=hint)
    batch = broadcast_shape(name, [a.aval.shape[:-2], b.aval.shape[:-2]])
    a = broadcast_to(a, (*batch, *a.aval.shape[-2:]))
    b = broadcast_to(b, (*batch, *b.aval.shape[-2:]))
    (a, b), dtype = matrices(name, a, b, ranks=(2, 2))
    return a, b, dtype, is_vector


def finished(x: Any, dtype: Any, is_vector: bool) -> Any:
    """Solutions of a ``system`` in the dtype and the shape of its right-hand sides."""
    x = rounded(x, dtype)
    return lax.squeeze(x, (x.aval.ndim - 1,)) if is_vector else x


def _solve(a: Any, b: Any) -> Any:
    a, b, dtype, is_vector = system("solve", a, b)
    return finished(solution(a, b), dtype, is_vector)


def _inv(a: Any) -> Any:
    x, dtype = square("inv", a)
    return rounded(solution(x, eye_of(x)), dtype)


def _det(a: Any) -> Any:
    x, dtype = square("det", a)
    return rounded(det_p.bind(x), dtype)


def _slogdet(a: Any) -> list[Any]:
    x, dtype = square("slogdet", a)
    if x.aval.shape[-1] == 2:
        return [rounded(v, dtype) for v in _slogdet_of_two(x)]
    sign, log = _sign_and_log(x)
    return [rounded(sign, dtype), as_strong(rounded(log, dtype))]


@custom_jvp
def _sign_and_log(x: Any) -> tuple[Any, Any]:
    """Signs and logarithms of determinants, from the pivots of LU factors."""
    factors, pivots, _ = lu_p.bind(x)
    d = diagonal_of_factors(factors)
    axis = (d.aval.ndim - 1,)
    phases, logs = _phase_and_log(d)
    sign = lax.reduce_prod(phases, axis)
    sign = lax.mul(sign, lax.convert_dtype(parity(pivots), sign.aval.dtype))
    return sign, lax.reduce_sum(logs, axis)


@_sign_and_log.defjvp
def _sign_and_log_jvp(primals: Any, tangents: Any) -> Any:
    """The trace of the inverse times the change.

    The inverse is all that is in memory beside the factors, and derivatives of these are not taken.
    """
    (x,), (dx,) = primals, tangents
    sign, log = _sign_and_log(x)
    n = x.aval.ndim
    products = lax.mul(swapped(solution(x, eye_of(x))), dx)
    change = lax.reduce_sum(products, (n - 2, n - 1))
    if not is_complex(change.aval.dtype):
        return (sign, log), (zeros_of(sign.aval), change)
    turn = lax.complex(zeros_of(log.aval), lax.imag(change))
    return (sign, log), (lax.mul(sign, turn), lax.real(change))


def _phase_and_log(d: Any) -> tuple[Any, Any]:
    """Signs, or numbers of absolute value 1, and logarithms of absolute values."""
    size = lax.abs(d)
    # Where an element is 0, so is the sign.
    zero = lax.eq(size, zeros_of(size.aval))
    safe = lax.select_n(zero, size, full_of(size.aval, 1))
    if is_complex(d.aval.dtype):
        phases = lax.div(d, lax.convert_dtype(safe, d.aval.dtype))
    else:
        phases = lax.sign(d)
    return phases, lax.log(size)


def _slogdet_of_two(x: Any) -> tuple[Any, Any]:
    """By the two pivots, written out: a program of few loops, and derivatives without a solve."""
    (a, b), (c, d) = [[x[..., i, j] for j in range(2)] for i in range(2)]
    turned = lax.gt(lax.abs(c), lax.abs(a))
    a, b, c, d = [lax.select_n(turned, *pair) for pair in ((a, c), (b, d), (c, a), (d, b))]
    zero = lax.eq(a, zeros_of(a.aval))
    share = lax.div(c, lax.select_n(zero, a, full_of(a.aval, 1)))
    second = lax.sub(d, lax.mul(share, b))
    (sign, log), (other, rest) = [_phase_and_log(v) for v in (a, second)]
    sign = lax.mul(sign, other)
    return lax.select_n(turned, sign, lax.neg(sign)), lax.add(log, rest)


def _pinv(a: Any, rtol: Any, hermitian: bool) -> Any:
    del hermitian  # singular vectors are those of eigenvalues, up to signs
    (a,) = promote_inexact(a)
    (x,), dtype = matrices("pinv", as_strong(a))
    bound = as_dtype(tnp.asarray(rtol), real_dtype(x.aval.dtype))
    return rounded(_pseudo_inverse(x, bound), dtype)


@custom_jvp
def _pseudo_inverse(x: Any, bound: Any) -> Any:
    """By singular values above ``bound`` times the largest."""
    u, s, vh = svd(x, full_matrices=False)
    if s.aval.shape[-1] == 0:
        *batch, m, n = x.aval.shape
        return zeros_of(x.aval.update(shape=(*batch, n, m)))
    largest = lax.slice_in_dim(s, 0, 1, axis=s.aval.ndim - 1)
    bound = tnp.expand_dims(bound, -1) if bound.ndim else bound
    small = s <= tnp.maximum(bound * largest, 0)
    inverse = tnp.where(small, 0, 1 / tnp.where(small, 1, s))
    scaled = adjoint(vh) * as_dtype(tnp.expand_dims(inverse, -2), x.aval.dtype)
    return matmul(scaled, adjoint(u))


@_pseudo_inverse.defjvp
def _pseudo_inverse_jvp(primals: Any, tangents: Any) -> Any:
    """For a constant rank (Golub and Pereyra 1973); singular values may be equal."""
    x, bound = primals
    p = _pseudo_inverse(x, bound)
    dx = tangents[0]
    back = adjoint(dx)
    moved = -matmul(p, matmul(dx, p))
    first = matmul(p, adjoint(p))
    moved = moved + matmul(first, back - matmul(matmul(back, x), p))
    last = matmul(adjoint(p), p)
    return p, moved + matmul(back - matmul(p, matmul(x, back)), last)


@custom_jvp
def _least_squares(x: Any, y: Any, bound: Any) -> tuple[Any, Any]:
    """The solution by singular values above ``bound`` times the largest, and these."""
    u, s, vh = svd(x, full_matrices=False)
    keep = s > bound * s[0]
    inverse = as_dtype(tnp.where(keep, 1 / tnp.where(keep, s, 1), 0), x.aval.dtype)
    return adjoint(vh) @ (inverse[:, None] * (adjoint(u) @ y)), s


@_least_squares.defjvp
def _least_squares_jvp(primals: Any, tangents: Any) -> Any:
    """For a constant rank, likewise."""
    x, y, bound = primals
    dx, dy, _ = tangents
    solution, _ = _least_squares(x, y, bound)
    p = _pseudo_inverse(x, bound)
    s, ds = jvp(lambda x: svd(x, compute_uv=False), (x,), (dx,))
    missed, back = y - x @ solution, adjoint(dx)
    moved = p @ (dy - dx @ solution + adjoint(p) @ (back @ missed))
    turned = back @ (adjoint(p) @ solution)
    return (solution, s), (moved + turned - p @ (x @ turned), ds)


def _lstsq(a: Any, b: Any, rcond: float | None, numpy_resid: bool) -> list[Any]:
    a, b = [as_strong(v) for v in promote_inexact(a, b)]
    is_vector = b.aval.ndim == 1
    if is_vector:
        b = lax.expand_dims(b, (1,))
    if a.aval.ndim != 2 or b.aval.ndim != 2 or a.aval.shape[0] != b.aval.shape[0]:
        msg = f"lstsq: got {a.aval.str_short()} and {b.aval.str_short()}"
        raise ShapeMismatchError(msg, expected="a matrix (m, n), and (m,) or (m, k)")
    (x, y), dtype = matrices("lstsq", a, b, ranks=(2, 2))
    m, n = x.aval.shape
    kind = real_dtype(x.aval.dtype)
    eps = float(np.finfo(kind).eps)
    least = eps * max(m, n) if rcond is None or rcond < 0 else max(rcond, eps)
    if 0 in x.aval.shape:
        solution, rank = tnp.zeros((n, y.aval.shape[1]), x.aval.dtype), tnp.zeros((), int)
        s, left = tnp.zeros((0,), kind), tnp.sum(tnp.abs(y) ** 2, 0)
    else:
        bound = as_dtype(tnp.asarray(least), kind)
        solution, s = _least_squares(x, y, bound)
        rank = tnp.sum(s > bound * s[0], dtype=int)
        left = tnp.sum(tnp.abs(y - x @ solution) ** 2, 0)
    if numpy_resid and m <= n:
        left = tnp.zeros((0,), kind)
    elif m <= n:
        left = as_dtype(tnp.asarray(left), kind)
    if is_vector:
        solution = solution[:, 0]
    return [rounded(v, dtype) for v in (tnp.asarray(solution), tnp.asarray(left))] + [
        rank,
        rounded(s, dtype),
    ]


_solve_staged = StagedFunction(_solve, "solve")
_inv_staged = StagedFunction(_inv, "inv")
_det_staged = StagedFunction(_det, "det")
_slogdet_staged = StagedFunction(_slogdet, "slogdet")
_pinv_staged = StagedFunction(_pinv, "pinv")
_lstsq_staged = StagedFunction(_lstsq, "lstsq")


@remembered
def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """The solution of ``a @ x = b``.

    Args:
        a: matrices of shape ``(..., n, n)``.
        b: one vector of shape ``(n,)``, or matrices of shape ``(..., n, k)``.

    Returns:
        Array of the shape of ``b``, leading axes broadcast with those of ``a``. Infinities or NaN
        where a matrix is singular.

    Raises:
        ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.solve(tnp.array([[2.0, 0.0], [0.0, 4.0]]), tnp.array([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    return _solve_staged((a, b))


@remembered
def inv(a: ArrayLike) -> Array:
    """The inverse matrices.

    Args:
        a: matrices of shape ``(..., n, n)``; integers become floats.

    Returns:
        Array of the shape of ``a``. Infinities or NaN where a matrix is singular.

    Raises:
        ShapeMismatchError: the matrices are not square.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.inv(tnp.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return _inv_staged((a,))


@remembered
def det(a: ArrayLike) -> Array:
    """Determinants; their derivatives are right for singular matrices too.

    Args:
        a: matrices of shape ``(..., n, n)``; integers become floats.

    Returns:
        Array of shape ``(...)``.

    Raises:
        ShapeMismatchError: the matrices are not square.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.linalg.det(tnp.array([[2.0, 0.0], [0.0, 4.0]])))
    8.0
    """
    return _det_staged((a,))


@remembered
def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """Signs and logarithms of determinants, which may be too large or too small themselves.

    Args:
        a: matrices of shape ``(..., n, n)``; integers become floats.
        method: ``"lu"``, ``"qr"`` or None; LU factors are used in any case.

    Returns:
        ``(sign, logabsdet)`` of shape ``(...)``: for complex matrices the sign is a number of
        absolute value 1. Singular matrices have 0 and ``-inf``.

    Raises:
        ArgumentValueError: another ``method``.
        ShapeMismatchError: the matrices are not square.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.linalg.slogdet(tnp.eye(3) * -1.0).sign)
    -1.0
    """
    if method not in (None, "lu", "qr"):
        msg = f"slogdet: method={method!r}"
        raise ArgumentValueError(msg, expected="'lu', 'qr' or None")
    return SlogdetResult(*_slogdet_staged((a,)))


def pinv(
    a: ArrayLike,
    rtol: ArrayLike | None = None,
    hermitian: bool = False,
    *,
    rcond: ArrayLike | None = None,
) -> Array:
    """Pseudo-inverses (Moore and Penrose).

    Args:
        a: matrices of shape ``(..., m, n)``; integers become floats.
        rtol: singular values up to this times the largest count as 0; 10 times ``max(m, n)``
            roundings by default.
        hermitian: whether the matrices are Hermitian; no effect on the result.
        rcond: another name of ``rtol``.

    Returns:
        Array of shape ``(..., n, m)``.

    Raises:
        ArgumentValueError: both ``rtol`` and ``rcond``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.pinv(tnp.array([[2.0, 0.0], [0.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    if rtol is not None and rcond is not None:
        raise ArgumentValueError(call="pinv", got="both rtol and rcond", expected="one of them")
    bound = rtol if rcond is None else rcond
    if bound is None:
        (value,) = promote_inexact(value_of(a))
        bound = 10.0 * max(value.aval.shape[-2:]) * float(tnp.finfo(value.aval.dtype).eps)
    return _pinv_staged((a, bound), (bool(hermitian),))


@remembered
def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Solutions of least squares of ``a @ x = b``, of the smallest norm among these.

    Args:
        a: a matrix of shape ``(m, n)``; integers become floats.
        b: a vector of shape ``(m,)`` or a matrix of shape ``(m, k)``.
        rcond: singular values up to this times the largest count as 0; ``max(m, n)`` roundings by
            default.
        numpy_resid: whether residuals are left out as NumPy does, where m <= n. (NumPy leaves
            them out for matrices of lower rank too, which would change the shape by value.)

    Returns:
        ``(x, sums of squares of residuals, rank, singular values)``.

    Raises:
        ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge.numpy as tnp
    >>> x, *_ = tnp.linalg.lstsq(tnp.array([[2.0], [0.0]]), tnp.array([4.0, 1.0]))
    >>> x.round(4).tolist()
    [2.0]
    """
    bound = None if rcond is None else float(rcond)
    x, residuals, rank, s = _lstsq_staged((a, b), (bound, bool(numpy_resid)))
    return x, residuals, rank, s


def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """The inverse with respect to ``tensordot(..., ind)``.

    Args:
        a: array whose first ``ind`` sizes have the product of the others.
        ind: how many of the axes count as rows.

    Raises:
        ArgumentValueError: ``ind`` is not positive.
        ShapeMismatchError: the products of sizes differ.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.tensorinv(tnp.ones((1, 1, 1)), ind=1).shape
    (1, 1, 1)
    """
    value = tnp.asarray(a)
    count = operator.index(ind)
    if count <= 0:
        msg = f"tensorinv: ind={ind}, expected a positive number of axes"
        raise ArgumentValueError(msg)
    row_shape, column_shape = value.shape[:count], value.shape[count:]
    size = math.prod(row_shape)
    if size != math.prod(column_shape):
        msg = f"tensorinv: got shape {value.shape}, ind={ind}"
        raise ShapeMismatchError(msg, expected="the same product of sizes before and behind")
    return tnp.reshape(inv(tnp.reshape(value, (size, size))), (*column_shape, *row_shape))


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """The solution of ``tensordot(a, x, x.ndim) = b``.

    Args:
        a: array of shape ``(*b.shape, *x.shape)``.
        b: the right-hand side.
        axes: axes of ``a`` that are moved behind the others first.

    Raises:
        ShapeMismatchError: the sizes do not fit.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.tensorsolve(2 * tnp.eye(2), tnp.ones(2)).tolist()
    [0.5, 0.5]
    """
    left, right = tnp.asarray(a), tnp.asarray(b)
    if axes is not None:
        moved = [operator.index(i) % left.ndim for i in axes]
        kept = [i for i in range(left.ndim) if i not in moved]
        left = tnp.transpose(left, (*kept, *moved))
    shape = left.shape[right.ndim :]
    if math.prod(shape) != right.size or left.shape[: right.ndim] != right.shape:
        msg = f"tensorsolve: got shapes {left.shape} and {right.shape}"
        raise ShapeMismatchError(msg, expected="a of shape (*b.shape, *x.shape) with as many x")
    flat = tnp.reshape(left, (right.size, math.prod(shape)))
    return tnp.reshape(solve(flat, tnp.ravel(right)), shape)
