"""Schur forms ``A = Q T Q^H`` of general matrices, and how they turn when the matrices change.

With the antihermitian ``X = Q^H dQ`` and ``M = Q^H dA Q``, dT is ``M - X T + T X``. That it is zero
below its blocks determines X there, column by column from the left: a triangular system for each,
and column by column from the right for the transposed equation. The blocks are single elements, and
for pairs of complex eigenvalues of real matrices two rows, in a basis of whose eigenvectors the
matrix is triangular too. There X inside of a block is a rotation, and keeps the two elements of the
diagonal equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.solve.custom_linear_solve import custom_linear_solve
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.blocks import (
    beside,
    differences,
    eigenvectors_of_blocks,
    in_basis,
    moved_down,
    placed,
)
from tracebridge.core.linalg.calls import char, info_of, lapack, nan_unless, on_cpu, succeeded
from tracebridge.core.linalg.family import Composed, check_dtype, check_square, matrices, rounded
from tracebridge.core.linalg.matrices import (
    INT32,
    adjoint,
    along_columns,
    along_rows,
    columns_of,
    conj,
    diagonal,
    eye_of,
    is_empty,
    matmul,
    per_matrix,
    repeated,
    rows_of,
    scalar,
    swapped,
    upper_part,
)
from tracebridge.core.linalg.qr_iterations import schur_by_sweeps
from tracebridge.core.linalg.reflectors import column, element, masked, with_column
from tracebridge.core.linalg.triangular import triangular_solve

ROUNDINGS = 4
"""So many for each row may hide that a block is a multiple of a rotation."""

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Schur(Composed):
    """T, then with ``compute_schur_vectors`` Q."""

    name = "schur"
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (a,) = avals
        check_dtype("schur", a)
        check_square("schur", a)
        return [a, a] if params["compute_schur_vectors"] else [a]

    def compose(self, *operands: Value, **params: Any) -> Any:
        (a,) = operands
        vectors = params["compute_schur_vectors"]
        if is_empty(a.aval):
            return [zeros_of(a.aval)] * (2 if vectors else 1)
        return schur_by_sweeps(a, vectors=vectors)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        n_out = 2 if params["compute_schur_vectors"] else 1
        t, q = self.bind(*primals, compute_schur_vectors=True)
        changes = [zeros_of(x.aval) for x in (t, q)]
        if not is_empty(t.aval):
            changes = _tangents(t, q, tangents[0])
        return [t, q][:n_out], changes[:n_out]


schur_p = Schur()


# derivatives -------------------------------------------------------------------------------------


def _tangents(t: Value, q: Value, change: Value) -> list[Any]:
    """Those of both results; see the text of the module."""
    kept = _solvable(t)
    inner = matmul(adjoint(q), matmul(change, q))
    turn = lower_turn(t, kept, inner)
    moved = lax.sub(inner, _commutator(turn, t))
    turn = lax.sub(turn, adjoint(turn))
    if not is_complex(t.aval.dtype):
        turn = lax.add(turn, _turn_in_blocks(t, moved))
    dt = masked(lax.sub(inner, _commutator(turn, t)), lax.bitwise_not(kept))
    return [dt, matmul(q, turn)]


def _commutator(x: Value, t: Value) -> Any:
    return lax.sub(matmul(x, t), matmul(t, x))


def _solvable(t: Value) -> Any:
    """Where the turn is determined: below the blocks, between eigenvalues that differ."""
    shape = t.aval.shape
    values = [diagonal(t)]
    first = rows_of(shape)
    first_of_column = columns_of(shape)
    if not is_complex(t.aval.dtype):
        right, below = beside(t)
        size = lax.mul(lax.sqrt(lax.abs(right)), lax.sqrt(lax.abs(below)))
        values.append(lax.add(size, moved_down(size)))
        second = lax.convert_dtype(moved_down(lax.ne(below, zeros_of(below.aval))), INT32)
        first = lax.sub(first, along_rows(second, shape))
        first_of_column = lax.sub(first_of_column, along_columns(second, shape))
    kept = lax.gt(first, first_of_column)
    differ = [lax.ne(along_rows(v, shape), along_columns(v, shape)) for v in values]
    for other in differ[1:]:
        differ[0] = lax.bitwise_or(differ[0], other)
    return lax.bitwise_and(kept, differ[0])


def lower_turn(t: Value, kept: Value, inner: Value) -> Any:
    """X where it is determined: it solves ``X T - T X = M`` there, and is zero elsewhere.

    Derivatives solve again, so that they need neither the basis nor the loop.
    """
    fixed = lax.stop_gradient(t)
    basis, form = None, fixed
    if not is_complex(t.aval.dtype):
        below = beside(fixed)[1]
        basis = eigenvectors_of_blocks(fixed, lax.eq(below, zeros_of(below.aval)))
        form = upper_part(in_basis(fixed, basis))

    def solved(right: Value, *, transposed: bool) -> Any:
        right = masked(right, kept)
        if basis is None:
            return _by_columns(form, kept, right, transposed=transposed)
        unitary = conj(basis) if transposed else basis
        found = _by_columns(form, kept, in_basis(right, unitary), transposed=transposed)
        return lax.real(in_basis(found, adjoint(unitary)))

    return custom_linear_solve(
        lambda x: masked(_commutator(masked(x, kept), t), kept),
        masked(inner, kept),
        lambda _, y: solved(y, transposed=False),
        lambda _, y: solved(y, transposed=True),
    )


def _by_columns(t: Value, kept: Value, right: Value, *, transposed: bool) -> Any:
    """X for a triangular T, one column after the other; with ``transposed`` from the last one.

    The transposed equation is ``X T^T - T^T X = M``.
    """
    n = t.aval.shape[-1]
    unit, other = eye_of(t), swapped(t) if transposed else t

    def step(i: Any, x: Any) -> Any:
        j = lax.sub(full_of(i.aval, n - 1), i) if transposed else i
        rows = column(kept, j)
        factors = column(other, j)
        known = lax.squeeze(matmul(x, lax.expand_dims(factors, (-1,))), (x.aval.ndim - 1,))
        rest = masked(lax.sub(column(right, j), known), rows)
        shape = t.aval.shape
        inside = lax.bitwise_and(along_rows(rows, shape), along_columns(rows, shape))
        system = lax.sub(lax.mul(unit, per_matrix(element(factors, j), shape)), t)
        system = lax.select_n(inside, unit, system)
        found = triangular_solve(
            system, lax.expand_dims(rest, (-1,)), left_side=True, transpose_a=transposed
        )
        return with_column(x, j, lax.squeeze(found, (x.aval.ndim - 1,)))

    return repeated(n, step, zeros_of(right.aval))


def _turn_in_blocks(t: Value, moved: Value) -> Any:
    """The rotations inside of blocks that keep their two elements of the diagonal equal.

    None where a block is, but for rounding, a multiple of a rotation, which commutes with them.
    """
    shape = t.aval.shape
    right, below = beside(t)
    total, size = lax.add(right, below), lax.add(lax.abs(right), lax.abs(below))
    bound = ROUNDINGS * shape[-1] * float(np.finfo(t.aval.dtype).eps)
    none = lax.le(lax.abs(total), lax.mul(size, scalar(size, bound)))
    none = lax.bitwise_or(none, lax.eq(below, zeros_of(below.aval)))
    safe = lax.select_n(none, total, full_of(total.aval, 1))
    angle = lax.mul(lax.div(differences(diagonal(moved)), safe), scalar(safe, 0.5))
    angle = masked(angle, lax.bitwise_not(none))
    return lax.sub(placed(angle, shape, below=True), placed(angle, shape, below=False))


# libraries ---------------------------------------------------------------------------------------


def _schur_cpu(ctx: LoweringContext, operand: IrValue, **params: Any) -> list[Any]:
    (a,) = ctx.avals_in
    info = info_of(a)
    values = [a.update(shape=a.shape[:-1])] * (1 if is_complex(a.dtype) else 2)
    given = {"mode": char("V" if params["compute_schur_vectors"] else "N"), "sort": char("N")}
    outs = [a, a, *values, info, info]
    form, vectors, *_, status = lapack(ctx, "gees", [operand], [a], outs, given, aliases={0: 0})
    ok = succeeded(ctx, status, info)
    return [nan_unless(ctx, ok, x, a) for x in (form, vectors)][: len(ctx.avals_out)]


on_cpu(schur_p, _schur_cpu)


def schur(
    x: Operand,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> Any:
    """Schur form: ``x = Q T Q^H`` with unitary Q.

    Args:
        x: matrices of shape ``(*batch, n, n)``.
        compute_schur_vectors: whether Q is wanted.
        sort_eig_vals: only False: eigenvalues are not sorted.
        select_callable: no effect.

    Returns:
        ``[T, Q]`` or ``[T]``, of the shape and dtype of ``x``. T is upper triangular; for real
        matrices it has blocks of two rows on the diagonal for pairs of complex eigenvalues.

    Derivatives: Q is unique up to signs, which do not move, and for complex matrices up to phases:
    derivatives are those of the Q whose columns do not turn in the plane of their phase, where
    ``diag(Q^H dQ)`` is zero. What does not depend on the phases has its derivative. Where two
    eigenvalues are equal it is not determined how their vectors turn into each other, nor is a
    rotation inside of a block that is a multiple of one; derivatives leave it out. They are finite
    there, and right for products of the factors such as ``Q T T Q^H`` and for sums over equal
    eigenvalues, but T may get a tangent below its diagonal.

    Raises:
        UnsupportedDtypeError: ``x`` holds neither floats nor complex numbers.
        RankError, ShapeMismatchError: ``x`` is not of square matrices.
        UnsupportedArgumentError: ``sort_eig_vals`` is True.

    >>> import tracebridge as tb
    >>> t, q = tb.lax.linalg.schur(tb.numpy.array([[1.0, 2.0], [0.0, 3.0]]))
    >>> t.tolist()
    [[1.0, 2.0], [0.0, 3.0]]
    """
    if sort_eig_vals:
        msg = "schur: sort_eig_vals=True is not available"
        raise UnsupportedArgumentError(msg, expected="False")
    (a,), dtype = matrices("schur", x)
    check_square("schur", a.aval)
    found = schur_p.bind(a, compute_schur_vectors=bool(compute_schur_vectors))
    return [rounded(x, dtype) for x in found]
