"""Solutions of systems of equations from factors that are there already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.control.solve.custom_linear_solve import custom_linear_solve
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.linalg.calls import on_cpu
from tracebridge.core.linalg.cholesky import cholesky_p
from tracebridge.core.linalg.family import Composed, check_dtype, check_square, jvp_by_parts
from tracebridge.core.linalg.lanes import (
    MOST_LU,
    from_lanes,
    in_lanes,
    numbers_to_lanes,
    put_back,
    to_lanes,
    triangle_solution,
)
from tracebridge.core.linalg.lu import lu_p
from tracebridge.core.linalg.matrices import conj, matmul, take_rows
from tracebridge.core.linalg.triangular import triangular_solve

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.values import Value


@final
class LuSolve(Composed):
    """The solution X of ``op(A) X = b`` from LU factors of A; linear in b.

    ``transposed``: 0 for A itself, 1 for its transposed, 2 for its adjoint.
    """

    name = "lu_solve"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        factors, order, b = avals
        check_dtype("lu_solve", factors, b)
        check_square("lu_solve", factors)
        if order.shape != factors.shape[:-1] or b.shape[:-1] != order.shape:
            msg = f"lu_solve: the factors are {factors.str_short()}, b is {b.str_short()}"
            raise ShapeMismatchError(msg, expected=f"shape {(*order.shape, 'k')}")
        return b if factors.weak_type else b.strong

    def compose(self, *operands: Value, **params: Any) -> Any:
        factors, order, b = operands
        return _by_triangles(factors, order, b, params["transposed"])

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        """Linear in b, whose tangent goes the same way."""
        factors, order, _ = primals
        d_factors, _, db = tangents
        out = self.bind(*primals, **params)
        change = None if db is None else self.bind(factors, order, db, **params)
        if d_factors is not None:
            _, (other,) = jvp_by_parts(self.compose, primals, (d_factors, None, None), params)
            if other is not None:  # as where there are no elements
                change = other if change is None else lax.add(change, other)
        return out, change

    def transpose(self, ct: Any, *args: Value, **params: Any) -> Sequence[Any]:
        """The transposed of the adjoint is the conjugate."""
        factors, order, _ = args
        how = params["transposed"]
        if how == 2:
            return [None, None, conj(self.bind(factors, order, conj(ct), transposed=0))]
        return [None, None, self.bind(factors, order, ct, transposed=1 - how)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """Right-hand sides of one matrix are further columns."""
        factors, order, b = args
        d = dims[2]
        if dims[0] is not None or dims[1] is not None or d is None:
            return super().batch(ctx, args, dims, **params)
        n = b.aval.ndim
        moved = move_batch_axis(b, d, n - 1)
        *shape, columns, size = moved.aval.shape
        x = self.bind(factors, order, lax.reshape(moved, (*shape, columns * size)), **params)
        return lax.reshape(x, moved.aval.shape), n - 1


lu_solve_p = LuSolve()


def _lower_cpu(ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
    factors, _, b = ctx.avals_in
    if in_lanes(MOST_LU, factors, b):
        return ctx.lower_fun(_in_lanes, *operands, **params)[0]
    return lu_solve_p.lower(ctx, *operands, **params)


on_cpu(lu_solve_p, _lower_cpu)


def _in_lanes(factors: Value, permutation: Value, b: Value, transposed: int) -> Any:
    x, y = to_lanes(conj(factors) if transposed == 2 else factors), to_lanes(b)
    order = numbers_to_lanes(permutation)
    if not transposed:
        y = triangle_solution(x, y, lower=True, unit=True, order=order)
        out = triangle_solution(x, y, lower=False, unit=False)
    else:
        x = lax.transpose(x, (1, 0, 2))
        y = triangle_solution(x, y, lower=True, unit=False)
        out = put_back(triangle_solution(x, y, lower=False, unit=True), order)
    return from_lanes(out, b.aval.shape[:-2])


def lu_solution(factors: Value, permutation: Value, b: Value, transposed: int = 0) -> Any:
    """The solution X of ``op(A) X = b`` from the LU factors of A.

    Args:
        factors: the first result of ``lu``, square matrices.
        permutation: its third result.
        b: matrices of shape ``(*batch, n, k)``.
        transposed: 0 for A itself, 1 for its transposed, 2 for its adjoint.
    """
    return lu_solve_p.bind(factors, permutation, b, transposed=transposed)


def _by_triangles(factors: Value, permutation: Value, b: Value, transposed: int) -> Any:
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
