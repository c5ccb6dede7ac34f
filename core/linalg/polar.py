"""The polar decomposition by dynamically weighted Halley iterations, and its derivative.

Source: Nakatsukasa, Bai, Gygi (2010), SIAM J. Matrix Anal. Appl. 31(5): QDWH. Higham (2008),
Functions of Matrices, chapter 8: ``U^H dU`` is antihermitian and solves a Sylvester equation in the
other factor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.custom.custom_jvp import JvpCall, call_custom_jvp
from tracebridge.core.control.custom.symbolic_zeros import concrete_zeros
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.control.solve.custom_linear_solve import custom_linear_solve
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.eigh import eigh_p
from tracebridge.core.linalg.family import matrices, rounded
from tracebridge.core.linalg.matrices import (
    INT32,
    adjoint,
    along_columns,
    along_rows,
    as_dtype,
    columns_of,
    diagonal,
    eye,
    from_diagonal,
    joined,
    matmul,
    part,
    per_matrix,
    real_dtype,
    rows_of,
    scalar,
    swapped,
    symmetrized,
)
from tracebridge.core.linalg.qr import qr_p
from tracebridge.core.linalg.solving import solution
from tracebridge.core.tree.tree import flatten

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value


MAX_ITERATIONS = 10


def qdwh(
    x: Operand,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """The polar decomposition ``x = U H``: orthonormal columns of U, positive semidefinite H.

    Args:
        x: a matrix of shape ``(m, n)`` with ``m >= n``.
        is_hermitian: whether ``x`` is Hermitian; no effect on the result.
        max_iterations: at most so many iterations; 10 by default.
        eps: how near singular values come to 1; the precision of the dtype by default.
        dynamic_shape: ``(rows, columns)``: the part of ``x`` that counts, the rest is padding.

    Returns:
        ``(U, H, number of iterations, whether it converged)``. The factors can be differentiated in
        both modes where ``x`` has full rank; columns of zeros, such as padding, stay what they are.

    Raises:
        UnsupportedDtypeError: ``x`` holds neither floats nor complex numbers.
        ShapeMismatchError: ``x`` is no matrix, or has more columns than rows.

    >>> import tracebridge as tb
    >>> u, h, _, converged = tb.lax.linalg.qdwh(tb.numpy.array([[0.0, -2.0], [2.0, 0.0]]))
    >>> h.round(4).tolist(), bool(converged)
    ([[2.0, 0.0], [0.0, 2.0]], True)
    """
    (a,), dtype = matrices("qdwh", x)
    if a.aval.ndim != 2 or a.aval.shape[0] < a.aval.shape[1]:
        msg = f"qdwh: got {a.aval.str_short()}"
        raise ShapeMismatchError(msg, expected="a matrix with as many rows as columns, or more")
    if dynamic_shape is not None:
        rows, columns = dynamic_shape
        shape = a.aval.shape
        inside = lax.bitwise_and(lax.lt(rows_of(shape), rows), lax.lt(columns_of(shape), columns))
        a = lax.select_n(inside, zeros_of(a.aval), a)
    limit = MAX_ITERATIONS if max_iterations is None else int(max_iterations)
    u, count, converged = with_derivative("qdwh", a, lambda x: _iterated(x, limit, eps))
    h = symmetrized(matmul(adjoint(u), a))
    return rounded(u, dtype), rounded(h, dtype), count, converged


def with_derivative(name: str, a: Value, find: Callable[[Value], Sequence[Any]]) -> list[Any]:
    """``find(a)``: the unitary factor, which has its derivative, and further results without one.

    Args:
        name: what messages call it.
        a: a matrix with no more columns than rows.
        find: any computation of the unitary factor and of integers or truth values.
    """

    def run(x: object) -> list[Any]:
        return list(find(as_value(x)))

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        x, dx = as_value(primals[0]), as_value(tangents[0])
        u, *others = with_derivative(name, x, find)
        zeros = [concrete_zeros(o.aval.tangent) for o in others]
        return [u, *others], [_tangent(x, u, dx), *zeros]

    call = JvpCall(run, rule, flatten((a,))[1], name, name, False, find, None)
    return [as_value(o) for o in call_custom_jvp(call, [a])]


def _tangent(a: Value, u: Value, da: Value) -> Any:
    """That of the unitary factor. Singular values may be equal, not zero."""
    h = symmetrized(matmul(adjoint(u), a))
    # Columns of zeros have none in U either, and do not move.
    missing = lax.eq(diagonal(h), zeros_of(h.aval.update(shape=h.aval.shape[:-1])))
    h = lax.add(h, from_diagonal(lax.convert_dtype(missing, h.aval.dtype)))
    inner = matmul(adjoint(u), da)
    du = matmul(u, _same_sylvester(h, lax.sub(inner, adjoint(inner))))
    if a.aval.shape[-2] == a.aval.shape[-1]:
        return du
    # What leaves the space of the columns of U.
    moved = lax.sub(da, matmul(u, inner))
    return lax.add(du, adjoint(solution(h, adjoint(moved))))


def _same_sylvester(h: Value, right: Value) -> Any:
    """The solution of ``h X + X h = right`` for positive definite ``h``.

    Its derivatives are those of the equation, not of the eigenvectors, which may be any where
    eigenvalues are equal.
    """

    def solved(h: Value, right: Value) -> Any:
        v, s = _eigenvectors(lax.stop_gradient(h))
        turned = matmul(adjoint(v), matmul(right, v))
        shape = turned.aval.shape
        total = as_dtype(lax.add(along_rows(s, shape), along_columns(s, shape)), h.aval.dtype)
        return matmul(v, matmul(lax.div(turned, total), adjoint(v)))

    return custom_linear_solve(
        lambda x: lax.add(matmul(h, x), matmul(x, h)),
        right,
        lambda _, b: solved(h, b),
        lambda _, b: solved(swapped(h), b),
    )


def _eigenvectors(h: Value) -> Any:
    options = {"sort_eigenvalues": True, "subset_by_index": None, "algorithm": None}
    return eigh_p.bind(h, lower=True, **options)


def orthogonalized(r: Value) -> tuple[Any, Any]:
    """``r V`` with orthogonal columns, and V: eigenvectors of the Hermitian factor."""
    u, _, _ = _iterated(r, MAX_ITERATIONS, None)
    v, _ = _eigenvectors(symmetrized(matmul(adjoint(u), r)))
    return matmul(r, v), v


def _iterated(a: Value, limit: int, eps: float | None) -> tuple[Any, Any, Any]:
    *batch, m, n = a.aval.shape
    last = len(batch)
    kind = real_dtype(a.aval.dtype)
    precision = float(np.finfo(kind).eps) if eps is None else float(eps)
    unit = eye((*batch, n, n), a.aval.dtype)
    size = lax.abs(a)
    largest = [lax.reduce_max(lax.reduce_sum(size, (last + k,)), (last,)) for k in (0, 1)]
    bound = lax.sqrt(lax.mul(largest[0], largest[1]))
    bound = lax.select_n(lax.gt(bound, scalar(bound, 0)), full_of(bound.aval, 1), bound)
    start = lax.div(a, as_dtype(per_matrix(bound, a.aval.shape), a.aval.dtype))

    def step(state: Any) -> Any:
        u, _, low, count = state
        wa, wb, wc = _weights(low)
        root = lax.sqrt(wc)
        q, _ = qr_p.bind(
            joined([lax.mul(u, as_dtype(root, u.aval.dtype)), unit], -2),
            pivoting=False,
            full_matrices=False,
            use_magma=None,
        )
        product = matmul(part(q, (0, m), (0, n)), adjoint(part(q, (m, m + n), (0, n))))
        share = lax.div(wb, wc)
        outer = lax.div(lax.sub(wa, share), root)
        moved = lax.add(
            lax.mul(u, as_dtype(share, u.aval.dtype)),
            lax.mul(product, as_dtype(outer, u.aval.dtype)),
        )
        square = lax.mul(low, low)
        one = full_of(low.aval, 1)
        low = lax.div(
            lax.mul(low, lax.add(wa, lax.mul(wb, square))), lax.add(one, lax.mul(wc, square))
        )
        low = lax.min(low, one)
        change = lax.reduce_max(lax.abs(lax.sub(moved, u)), tuple(range(last + 2)))
        return moved, change, low, lax.add(count, full_of(count.aval, 1))

    def done(change: Value, low: Value) -> Any:
        near = lax.le(lax.sub(scalar(low, 1), low), scalar(low, 5 * precision))
        return lax.bitwise_and(near, lax.le(change, scalar(change, precision ** (1 / 3))))

    def goes_on(state: Any) -> Any:
        _, change, low, count = state
        unfinished = lax.bitwise_not(done(change, low))
        return lax.bitwise_and(unfinished, lax.lt(count, full_of(count.aval, limit)))

    # One bound for all matrices of a batch: more steps than a matrix needs leave it as it is.
    low = full_of(bound.aval.update(shape=()), float(np.finfo(kind).eps))
    first = (start, full_of(low.aval, 1), low, lax.convert_dtype(0, INT32))
    u, change, low, count = while_loop(goes_on, step, first)
    # One step of Newton and Schulz makes the columns orthogonal to the last digit.
    half = scalar(u, 0.5)
    u = lax.sub(lax.mul(u, scalar(u, 1.5)), lax.mul(matmul(u, matmul(adjoint(u), u)), half))
    return u, count, done(change, low)


def _weights(low: Value) -> tuple[Any, Any, Any]:
    """Those that map the smallest singular value, at least ``low``, as near to 1 as they can."""
    one = full_of(low.aval, 1)
    square = lax.mul(low, low)
    d = lax.cbrt(lax.div(lax.mul(scalar(low, 4), lax.sub(one, square)), lax.mul(square, square)))
    root = lax.sqrt(lax.add(one, d))
    inner = lax.div(
        lax.mul(scalar(low, 8), lax.sub(lax.add(one, one), square)), lax.mul(square, root)
    )
    second_root = lax.sqrt(
        lax.max(lax.sub(lax.add(scalar(low, 8), inner), lax.mul(scalar(low, 4), d)), one)
    )
    a = lax.add(root, lax.mul(second_root, scalar(low, 0.5)))
    less = lax.sub(a, one)
    b = lax.mul(lax.mul(less, less), scalar(low, 0.25))
    return a, b, lax.sub(lax.add(a, b), one)
