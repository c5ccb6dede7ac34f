"""Cholesky factors of positive definite matrices, and their change when a product is added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.linalg.calls import char, info_of, lapack, nan_unless, on_cpu, succeeded
from tracebridge.core.linalg.family import (
    Composed,
    OfMatrices,
    check_dtype,
    check_square,
    inexact,
    matrices,
    rounded,
)
from tracebridge.core.linalg.lanes import (
    MOST_CHOLESKY,
    cholesky_of,
    from_lanes,
    in_lanes,
    to_lanes,
)
from tracebridge.core.linalg.matrices import (
    adjoint,
    eye_of,
    hermitian_of,
    is_empty,
    lower_part,
    matmul,
    per_matrix,
    repeated,
    scalar,
    swapped,
    symmetrized,
    upper_part,
)
from tracebridge.core.linalg.triangular import triangular_solve
from tracebridge.core.mlir.attrs import boolean

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Cholesky(OfMatrices):
    """The lower triangle is read; the factor is lower triangular, or NaN."""

    name = "cholesky"

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        (a,) = avals
        check_dtype("cholesky", a)
        check_square("cholesky", a)
        return a

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        if is_empty(*ctx.avals_in):
            return operands[0]
        out = ctx.op1("stablehlo.cholesky", operands, ctx.aval_out, {"lower": boolean(True)})
        return ctx.lower_fun(lower_part, out, avals_in=[ctx.aval_out])[0]

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """With L^-1 dA L^-H = M: dL = L phi(M), the lower half of M with half its diagonal."""
        factor = self.bind(*primals)
        change = hermitian_of(tangents[0], lower=True)
        left = triangular_solve(factor, change, left_side=True, lower=True)
        middle = triangular_solve(factor, left, lower=True, transpose_a=True, conjugate_a=True)
        return factor, matmul(factor, half_lower(middle))


cholesky_p = Cholesky()


def half_lower(x: Value) -> Any:
    """The lower triangle, with half of the diagonal."""
    low = lower_part(x)
    return lax.sub(low, lax.mul(lax.mul(low, eye_of(x)), scalar(x, 0.5)))


def _lower_cpu(ctx: LoweringContext, operand: IrValue) -> Any:
    """Seen by columns, the matrix is transposed, and so is the upper factor that is asked for."""
    (a,) = ctx.avals_in
    if in_lanes(MOST_CHOLESKY, a):
        return ctx.lower_fun(_in_lanes, operand)[0]
    info = info_of(a)
    given = {"uplo": char("U")}
    factor, status = lapack(
        ctx, "potrf", [operand], [a], [a, info], given, aliases={0: 0}, by_rows=True
    )
    checked = nan_unless(ctx, succeeded(ctx, status, info), factor, a)
    return ctx.lower_fun(lower_part, checked, avals_in=[a])[0]


def _in_lanes(a: Value) -> Any:
    return from_lanes(cholesky_of(to_lanes(a)), a.aval.shape[:-2])


on_cpu(cholesky_p, _lower_cpu)


def cholesky(x: Operand, *, symmetrize_input: bool = True) -> Any:
    """Cholesky factors: lower triangular matrices with ``L L^H = x``.

    Args:
        x: symmetric or Hermitian positive definite matrices of shape ``(*batch, n, n)``.
        symmetrize_input: whether the mean of ``x`` and its adjoint is factored; if not, the
            lower triangle alone is read.

    Returns:
        Array of the shape and dtype of ``x``; the lower triangle of a matrix that is not
        positive definite is NaN.

    Raises:
        UnsupportedDtypeError: ``x`` holds neither floats nor complex numbers.
        RankError: ``x`` has fewer than 2 axes.
        ShapeMismatchError: the matrices are not square.

    >>> import tracebridge as tb
    >>> tb.lax.linalg.cholesky(tb.numpy.array([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    (a,), dtype = matrices("cholesky", inexact("cholesky", x))
    check_square("cholesky", a.aval)
    return rounded(cholesky_p.bind(symmetrized(a) if symmetrize_input else a), dtype)


@final
class CholeskyUpdate(Composed):
    """Upper factors R and vectors w; the factor of R^T R + w w^T."""

    name = "cholesky_update"

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        r, w = avals
        check_dtype("cholesky_update", *avals)
        if is_complex(r.dtype):
            msg = f"cholesky_update works on real numbers, got {r.str_short()}"
            raise UnsupportedDtypeError(msg)
        check_square("cholesky_update", r)
        if w.shape != r.shape[:-1]:
            msg = f"cholesky_update: the factor is {r.str_short()}, the vector {w.str_short()}"
            raise ShapeMismatchError(msg, expected=f"a vector of shape {r.shape[:-1]}")
        return r

    def compose(self, *operands: Any, **params: Any) -> Any:
        r, w = operands
        return _updated(r, w)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """As for ``cholesky``, of the sum whose factor it is."""
        (r, w), (dr, dw) = primals, tangents
        out = self.bind(r, w)
        change: Any = None
        upper = None if dr is None else upper_part(dr)
        for x, dx in ((upper_part(r), upper), (_as_row(w), None if dw is None else _as_row(dw))):
            if dx is not None:
                half = matmul(swapped(x), dx)
                both = lax.add(half, swapped(half))
                change = both if change is None else lax.add(change, both)
        right = triangular_solve(out, change)
        middle = triangular_solve(out, right, left_side=True, transpose_a=True)
        return out, matmul(adjoint(half_lower(middle)), out)


cholesky_update_p = CholeskyUpdate()


def _as_row(w: Value) -> Any:
    *batch, n = w.aval.shape
    return lax.reshape(w, (*batch, 1, n))


def _updated(r: Value, w: Value) -> Any:
    """One rotation per row makes the row of ``w`` zero (LINPACK's dchud)."""
    if is_empty(r.aval):
        return r
    shape = r.aval.shape
    n = len(shape)

    def step(k: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        r, w = state
        row = lax.dynamic_index_in_dim(r, k, n - 2, keepdims=False)
        pivot = lax.dynamic_index_in_dim(row, k, n - 2, keepdims=False)
        other = lax.dynamic_index_in_dim(w, k, n - 2, keepdims=False)
        # Scaled, so that squares neither overflow nor vanish.
        size = lax.add(lax.abs(pivot), lax.abs(other))
        safe = lax.select_n(lax.eq(size, scalar(size, 0)), size, full_of(size.aval, 1))
        a, b = lax.div(pivot, safe), lax.div(other, safe)
        norm = lax.sqrt(lax.add(lax.mul(a, a), lax.mul(b, b)))
        none = lax.eq(norm, scalar(norm, 0))
        length = lax.select_n(none, norm, full_of(norm.aval, 1))
        c = lax.select_n(none, lax.div(a, length), full_of(norm.aval, 1))
        s = lax.div(b, length)
        c, s = [per_matrix(v, row.aval.shape) for v in (c, s)]
        new = lax.add(lax.mul(c, row), lax.mul(s, w))
        w = lax.sub(lax.mul(c, w), lax.mul(s, row))
        start = [0] * n
        start[n - 2] = k
        return lax.dynamic_update_slice(r, lax.expand_dims(new, (n - 2,)), start), w

    return upper_part(repeated(shape[-1], step, (upper_part(r), w))[0])


def cholesky_update(r_matrix: Operand, w_vector: Operand) -> Any:
    """The upper Cholesky factor of ``R^T R + w w^T``, from ``R`` and ``w``.

    Args:
        r_matrix: real upper triangular matrices of shape ``(*batch, n, n)``.
        w_vector: vectors of shape ``(*batch, n)``.

    Returns:
        Upper triangular matrices of the shape and dtype of ``r_matrix``. It takes of the order of
        n**2 operations, a factorization n**3.

    Raises:
        UnsupportedDtypeError: an argument holds no real floats.
        DtypeMismatchError: the dtypes differ.
        RankError, ShapeMismatchError: the shapes are others.

    >>> import tracebridge as tb
    >>> r, w = tb.numpy.array([[3.0]]), tb.numpy.array([4.0])
    >>> tb.lax.linalg.cholesky_update(r, w).tolist()
    [[5.0]]
    """
    (r, w), dtype = matrices("cholesky_update", r_matrix, w_vector, ranks=(2, 1))
    return rounded(cholesky_update_p.bind(r, w), dtype)
