"""Systems of equations with a triangular matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core._jaxlib import mlir
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.linalg.calls import char, lapack, lies_by_columns, on_cpu
from tracebridge.core.linalg.family import (
    OfMatrices,
    check_dtype,
    check_square,
    matrices,
    rounded,
)
from tracebridge.core.linalg.lanes import (
    MOST_TRIANGULAR,
    from_lanes,
    in_lanes,
    to_lanes,
    triangle_solution,
)
from tracebridge.core.linalg.matrices import conj, is_empty, lower_part, matmul, swapped, upper_part
from tracebridge.core.mlir.attrs import boolean

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class TriangularSolve(OfMatrices):
    """``op(A) X = B`` with ``left_side``, else ``X op(A) = B``; linear in B."""

    name = "triangular_solve"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        a, b = avals
        check_dtype("triangular_solve", a, b)
        check_square("triangular_solve", a)
        inner = b.shape[-2 if params["left_side"] else -1]
        if a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != inner:
            side = "rows" if params["left_side"] else "columns"
            msg = f"triangular_solve: the matrix is {a.str_short()}, the other {b.str_short()}"
            raise ShapeMismatchError(
                msg, expected=f"the same leading axes and {a.shape[-1]} {side}"
            )
        return b if a.weak_type else b.strong

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        a, b = operands
        if is_empty(*ctx.avals_in):
            return b
        transpose = "NO_TRANSPOSE"
        if params["transpose_a"]:
            transpose = "ADJOINT" if params["conjugate_a"] else "TRANSPOSE"
        elif params["conjugate_a"]:
            (a,) = ctx.lower_fun(lax.conj, a, avals_in=[ctx.avals_in[0]])
        given = {name: boolean(params[name]) for name in ("left_side", "lower", "unit_diagonal")}
        given["transpose_a"] = mlir.stablehlo.TransposeAttr.get(transpose)
        return ctx.op1("stablehlo.triangular_solve", [a, b], ctx.aval_out, given)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """A dX = dB - dA X, and likewise from the right."""
        (a, b), (da, db) = primals, tangents
        x = self.bind(a, b, **params)
        right = db
        if da is not None:
            off = 1 if params["unit_diagonal"] else 0
            da = lower_part(da, -off) if params["lower"] else upper_part(da, off)
            da = swapped(da) if params["transpose_a"] else da
            da = conj(da) if params["conjugate_a"] else da
            moved = matmul(da, x) if params["left_side"] else matmul(x, da)
            right = lax.neg(moved) if db is None else lax.sub(db, moved)
        return x, self.bind(a, right, **params)

    def transpose(self, ct: Any, *args: Value, **params: Any) -> Sequence[Any]:
        swapped_params = {**params, "transpose_a": not params["transpose_a"]}
        return [None, self.bind(args[0], ct, **swapped_params)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """Right-hand sides of one matrix are further columns (or rows)."""
        (a, b), (a_dim, b_dim) = args, dims
        if a_dim is not None or b_dim is None:
            return super().batch(ctx, args, dims, **params)
        n = b.aval.ndim
        if params["left_side"]:
            moved = move_batch_axis(b, b_dim, n - 1)
            shape = moved.aval.shape
            flat = (*shape[:-2], shape[-2] * shape[-1])
        else:
            moved = move_batch_axis(b, b_dim, n - 2)
            shape = moved.aval.shape
            flat = (*shape[:-3], shape[-3] * shape[-2], shape[-1])
        x = self.bind(a, lax.reshape(moved, flat), **params)
        return lax.reshape(x, shape), n - 1 if params["left_side"] else n - 2


triangular_solve_p = TriangularSolve()


def _lower_cpu(ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
    """Seen by columns, all matrices are transposed: the sides and the triangles change places."""
    a, b = operands
    a_aval, b_aval = ctx.avals_in
    if in_lanes(MOST_TRIANGULAR, a_aval, b_aval):
        return ctx.lower_fun(_in_lanes, a, b, **params)[0]
    (a, trans, lower) = _as_lapack_reads(ctx, a, params)
    attributes = {
        "side": char("R" if params["left_side"] else "L"),
        "uplo": char("L" if lower else "U"),
        "trans_x": char(trans),
        "diag": char("U" if params["unit_diagonal"] else "N"),
    }
    # The other sides too: rows of the transposed are columns here.
    n = b_aval.ndim
    turned = b_aval.update(shape=(*b_aval.shape[:-2], b_aval.shape[-1], b_aval.shape[-2]))
    order = (*range(n - 2), n - 1, n - 2)
    (x,) = lapack(
        ctx,
        "trsm",
        [a, ctx.transpose(b, turned, order)],
        [a_aval, turned],
        [turned],
        attributes,
        aliases={1: 0},
    )
    return ctx.transpose(x, b_aval, order)


def _as_lapack_reads(ctx: LoweringContext, a: IrValue, params: Params) -> tuple[Any, str, bool]:
    """The matrices as an operand by columns, what is done to them, whether the lower part is read.

    The systems are those of the transposed matrices. Matrices lie by rows, and are read as their
    transposes then; only factors of LAPACK lie by columns, and would be copied.
    """
    transposed, conjugated = params["transpose_a"], params["conjugate_a"]
    (aval, _) = ctx.avals_in
    by_columns = lies_by_columns(a)
    if conjugated and transposed == by_columns:
        (a,) = ctx.lower_fun(lax.conj, a, avals_in=[aval])
        conjugated = False
    how = "N" if transposed == by_columns else "C" if conjugated else "T"
    if by_columns:
        return a, how, params["lower"]
    n = aval.ndim
    return ctx.transpose(a, aval, (*range(n - 2), n - 1, n - 2)), how, not params["lower"]


def _in_lanes(a: Value, b: Value, **params: Any) -> Any:
    """``X op(A) = B`` is a system of the transposed matrices."""
    x, y = to_lanes(conj(a) if params["conjugate_a"] else a), to_lanes(b)
    left, lower = params["left_side"], params["lower"]
    if params["transpose_a"] == left:
        x, lower = lax.transpose(x, (1, 0, 2)), not lower
    y = y if left else lax.transpose(y, (1, 0, 2))
    out = triangle_solution(x, y, lower=lower, unit=params["unit_diagonal"])
    return from_lanes(out if left else lax.transpose(out, (1, 0, 2)), b.aval.shape[:-2])


on_cpu(triangular_solve_p, _lower_cpu)


def triangular_solve(
    a: Operand,
    b: Operand,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """The solutions of ``op(A) X = B``, or of ``X op(A) = B``, for triangular ``A``.

    Args:
        a: matrices of shape ``(*batch, m, m)``.
        b: matrices of shape ``(*batch, m, k)`` with ``left_side``, else ``(*batch, k, m)``; or
            vectors of shape ``(*batch, m)``.
        left_side: whether the matrix stands left of the solution.
        lower: which triangle of ``a`` is read: the lower one, or the upper one.
        transpose_a: whether ``op`` transposes.
        conjugate_a: whether ``op`` conjugates.
        unit_diagonal: whether the diagonal is taken for ones, and not read.

    Returns:
        Array of the shape and dtype of ``b``. Zeros on the diagonal give infinities or NaN.

    Raises:
        UnsupportedDtypeError: an argument holds neither floats nor complex numbers.
        DtypeMismatchError: the dtypes differ.
        RankError, ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge as tb
    >>> a, b = tb.numpy.array([[2.0, 0.0], [1.0, 1.0]]), tb.numpy.array([4.0, 3.0])
    >>> tb.lax.linalg.triangular_solve(a, b, left_side=True, lower=True).tolist()
    [2.0, 1.0]
    """
    right = as_value(b, "triangular_solve")
    is_vector = right.aval.ndim == as_value(a, "triangular_solve").aval.ndim - 1
    if is_vector:
        right = lax.expand_dims(right, (-1 if left_side else -2,))
    (matrix, right), dtype = matrices("triangular_solve", a, right, ranks=(2, 2))
    out = triangular_solve_p.bind(
        matrix,
        right,
        left_side=bool(left_side),
        lower=bool(lower),
        transpose_a=bool(transpose_a),
        conjugate_a=bool(conjugate_a) and is_complex(matrix.aval.dtype),
        unit_diagonal=bool(unit_diagonal),
    )
    if is_vector:
        out = lax.squeeze(out, (out.aval.ndim - (1 if left_side else 2),))
    return rounded(out, dtype)
