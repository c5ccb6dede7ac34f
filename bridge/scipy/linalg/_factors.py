"""Factors of matrices: Cholesky, LU and QR."""

from __future__ import annotations

from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import real_of
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.ir.value import Value
from tracebridge.core.linalg.cholesky import cholesky_p
from tracebridge.core.linalg.family import check_square, matrices, rounded
from tracebridge.core.linalg.lu import lu_p
from tracebridge.core.linalg.matrices import (
    adjoint,
    eye,
    least,
    lower_part,
    matmul,
    part,
    real,
    take_columns,
    upper_part,
)
from tracebridge.core.linalg.qr import qr_p
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import promote_inexact
from tracebridge.scipy._nested import of_lists


def one(name: str, a: Value, *, square: bool = True) -> tuple[Any, Any]:
    """Matrices in a dtype that there are routines for, and the dtype of results."""
    (a,) = promote_inexact(a)
    (x,), dtype = matrices(name, a)
    if square:
        check_square(name, x.aval)
    return x, dtype


def _cholesky(a: Value, lower: bool) -> Any:
    x, dtype = one("cholesky", a)
    # As SciPy does, of the triangle that the factor lies in.
    factor = cholesky_p.bind(x if lower else adjoint(x))
    return rounded(factor if lower else adjoint(factor), dtype)


def _lu(a: Value, permute_l: bool) -> Any:
    x, dtype = one("lu", a, square=False)
    factors, _, order = lu_p.bind(x)
    m, n = x.aval.shape[-2:]
    k = least(m, n)
    low = part(factors, (0, m), (0, k))
    low = lax.add(lower_part(low, -1), eye(low.aval.shape, low.aval.dtype))
    up = rounded(upper_part(part(factors, (0, k), (0, n))), dtype)
    exchanged = take_columns(eye((*x.aval.shape[:-2], m, m), x.aval.dtype), order)
    if permute_l:
        return [rounded(matmul(exchanged, low), dtype), up]
    # Permutations are real, those of complex matrices too.
    return [rounded(real(exchanged), real_of(dtype)), rounded(low, dtype), up]


def _lu_factor(a: Value) -> Any:
    x, dtype = one("lu_factor", a, square=False)
    factors, pivots, _ = lu_p.bind(x)
    return [rounded(factors, dtype), pivots]


def _qr(a: Value, mode: str, pivoting: bool) -> Any:
    x, dtype = one("qr", a, square=False)
    q, r, *order = qr_p.bind(x, pivoting=pivoting, full_matrices=mode != "economic", use_magma=None)
    r = rounded(r, dtype)
    return [r, *order] if mode == "r" else [rounded(q, dtype), r, *order]


_cholesky_staged = of_lists(StagedFunction(_cholesky, "cholesky"))
_lu_staged = of_lists(StagedFunction(_lu, "lu"))
_lu_factor_staged = of_lists(StagedFunction(_lu_factor, "lu_factor"))
_qr_staged = of_lists(StagedFunction(_qr, "qr"))


@remembered
def cholesky(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array:
    """Cholesky factors: upper triangular matrices with ``U^H U = a``, or lower ones.

    Args:
        a: Hermitian positive definite matrices of shape ``(..., n, n)``, of which one triangle is
            read: the upper one, or the lower one if the factor is lower; integers become floats.
        lower: whether L with ``L L^H = a`` is wanted.
        overwrite_a: no effect.
        check_finite: no effect.

    Returns:
        Array of the shape of ``a``; NaN where a matrix is not positive definite.

    Raises:
        ShapeMismatchError: the matrices are not square.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.cholesky(tb.numpy.array([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 1.0], [0.0, 1.0]]
    """
    del overwrite_a, check_finite
    return _cholesky_staged((a,), (bool(lower),))


@remembered
def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """LU factors with row exchanges: ``a = P L U``.

    Args:
        a: matrices of shape ``(..., m, n)``; integers become floats.
        permute_l: whether the product P L is wanted in place of P and L.
        overwrite_a: no effect.
        check_finite: no effect.

    Returns:
        ``(P, L, U)`` of shapes ``(..., m, m)``, ``(..., m, k)`` and ``(..., k, n)``, k being
        ``min(m, n)``, or ``(P L, U)``.

    Raises:
        RankError: ``a`` has fewer than 2 axes.

    >>> import tracebridge as tb
    >>> p, l, u = tb.scipy.linalg.lu(tb.numpy.array([[1.0, 2.0], [2.0, 2.0]]))
    >>> l.tolist(), u.tolist()
    ([[1.0, 0.0], [0.5, 1.0]], [[2.0, 2.0], [0.0, 1.0]])
    """
    del overwrite_a, check_finite
    return tuple(_lu_staged((a,), (bool(permute_l),)))


@remembered
def lu_factor(
    a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array]:
    """LU factors for ``lu_solve``.

    Args:
        a: matrices of shape ``(..., m, n)``; integers become floats.
        overwrite_a: no effect.
        check_finite: no effect.

    Returns:
        ``(lu, pivots)``: U with its diagonal and L below it in one array; int32 of shape
        ``(..., min(m, n))``: row ``i`` was exchanged with row ``pivots[i]``.

    Raises:
        RankError: ``a`` has fewer than 2 axes.

    >>> import tracebridge as tb
    >>> factors, pivots = tb.scipy.linalg.lu_factor(tb.numpy.array([[1.0, 2.0], [2.0, 2.0]]))
    >>> factors.tolist(), pivots.tolist()
    ([[2.0, 2.0], [0.5, 1.0]], [1, 1])
    """
    del overwrite_a, check_finite
    factors, pivots = _lu_factor_staged((a,))
    return factors, pivots


@remembered
def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: object = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array, ...]:
    """QR factors: ``a = Q R`` with orthonormal columns of Q and upper triangular R.

    Args:
        a: matrices of shape ``(..., m, n)``; integers become floats.
        overwrite_a: no effect.
        lwork: no effect.
        mode: ``"full"`` for a square Q, ``"economic"`` for one of ``min(m, n)`` columns, ``"r"``
            for R of the full form alone.
        pivoting: whether columns are exchanged, so that the diagonal of R decreases.
        check_finite: no effect.

    Returns:
        ``(Q, R)`` or ``(R,)``; with ``pivoting`` the order of the columns behind it.

    Raises:
        ArgumentValueError: another ``mode``.
        RankError: ``a`` has fewer than 2 axes.

    >>> import tracebridge as tb
    >>> q, r = tb.scipy.linalg.qr(tb.numpy.array([[3.0], [4.0]]), mode="economic")
    >>> r.round(4).tolist()
    [[-5.0]]
    """
    del overwrite_a, lwork, check_finite
    if mode not in ("full", "economic", "r"):
        msg = f"qr: mode={mode!r}"
        raise ArgumentValueError(msg, expected="'full', 'economic' or 'r'")
    return tuple(_qr_staged((a,), (mode, bool(pivoting))))
