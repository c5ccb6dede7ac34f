"""Solutions of systems of equations from factors that are there already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.control.solve.custom_linear_solve import custom_linear_solve
from tracebridge.core.linalg.cholesky import cholesky_p
from tracebridge.core.linalg.lu import lu_p
from tracebridge.core.linalg.matrices import conj, matmul, take_rows
from tracebridge.core.linalg.triangular import triangular_solve

if TYPE_CHECKING:
    from tracebridge.core.ir.values import Value


def lu_solution(factors: Value, permutation: Value, b: Value, transposed: int = 0) -> Any:
    """The solution X of ``op(A) X = b`` from the LU factors of A.

    Args:
        factors: the first result of ``lu``, square matrices.
        permutation: its third result.
        b: matrices of shape ``(*batch, n, k)``.
        transposed: 0 for A itself, 1 for its transposed, 2 for its adjoint.
    """
    if not transposed:
        moved = take_rows(b, permutation)
        y = triangular_solve(factors, moved, left_side=True, lower=True, unit_diagonal=True)
        return triangular_solve(factors, y, left_side=True)
    how = {"left_side": True, "transpose_a": True, "conjugate_a": transposed == 2}
    y = triangular_solve(factors, b, **how)
    x = triangular_solve(factors, y, lower=True, unit_diagonal=True, **how)
    return take_rows(x, inverse_permutation(permutation))


def inverse_permutation(permutation: Value) -> Any:
    """Where each row goes."""
    axis = permutation.aval.ndim - 1
    place = lax.broadcasted_iota(permutation.aval.dtype, permutation.aval.shape, axis)
    return lax.sort_key_val(permutation, place, axis)[1]


def solution(a: Value, b: Value) -> Any:
    """The solution X of ``a X = b`` by LU factors; derivatives solve again with the same ones.

    Args:
        a: square matrices of shape ``(*batch, n, n)``.
        b: matrices of shape ``(*batch, n, k)``.
    """
    factors, _, permutation = lu_p.bind(lax.stop_gradient(a))
    return custom_linear_solve(
        lambda x: matmul(a, x),
        b,
        lambda _, y: lu_solution(factors, permutation, y),
        lambda _, y: lu_solution(factors, permutation, y, 1),
    )


def cholesky_solution(factor: Value, b: Value, *, lower: bool) -> Any:
    """The solution X of ``A X = b`` from ``A = L L^H``, or without ``lower`` ``A = R^H R``."""
    how = {"left_side": True, "lower": lower}
    back = {**how, "transpose_a": True, "conjugate_a": True}
    first, second = (how, back) if lower else (back, how)
    return triangular_solve(factor, triangular_solve(factor, b, **first), **second)


def positive_solution(a: Value, b: Value) -> Any:
    """As ``solution``, of positive definite matrices by their Cholesky factors."""
    factor = cholesky_p.bind(lax.stop_gradient(a))
    return custom_linear_solve(
        lambda x: matmul(a, x),
        b,
        lambda _, y: cholesky_solution(factor, y, lower=True),
        # The transposed of a Hermitian matrix is its conjugate.
        lambda _, y: conj(cholesky_solution(factor, conj(y), lower=True)),
    )
