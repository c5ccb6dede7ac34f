"""QR factors by Householder reflectors, and products with the reflectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.shape.axes import surely_less
from tracebridge.core.linalg.calls import as_boolean, ffi_call, lapack, on_cpu, on_gpu
from tracebridge.core.linalg.family import (
    Composed,
    check_dtype,
    jvp_by_parts,
    matrices,
    rounded,
)
from tracebridge.core.linalg.lu import lu_p
from tracebridge.core.linalg.matrices import (
    INT32,
    adjoint,
    as_dtype,
    conj,
    eye,
    eye_of,
    is_empty,
    joined,
    least,
    lower_part,
    matmul,
    padded,
    part,
    per_matrix,
    real,
    take_columns,
    upper_part,
)
from tracebridge.core.linalg.reflectors import multiplied, triangularized
from tracebridge.core.linalg.solving import lu_solution
from tracebridge.core.linalg.triangular import triangular_solve

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


# reflectors --------------------------------------------------------------------------------------


@final
class Geqrf(Composed):
    """R and below it the reflectors; their factors. With ``pivoting``: the order of columns."""

    name = "geqrf"
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (a,) = avals
        check_dtype("geqrf", a)
        *batch, m, n = a.shape
        taus = a.update(shape=(*batch, least(m, n)))
        if not params["pivoting"]:
            return [a, taus]
        return [a, taus, a.update(shape=(*batch, n), dtype=INT32, weak_type=False)]

    def compose(self, *operands: Any, **params: Any) -> Any:
        return triangularized(operands[0], pivoting=params["pivoting"])

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return jvp_by_parts(self.compose, primals, tangents, params)


geqrf_p = Geqrf()


def _geqrf_cpu(ctx: LoweringContext, operand: IrValue, *, pivoting: bool) -> list[Any]:
    (a,) = ctx.avals_in
    if not pivoting:
        return lapack(ctx, "geqrf", [operand], [a], ctx.avals_out, aliases={0: 0})
    _, taus, order = ctx.avals_out
    free = ctx.splat(0, order)  # no column has to come first
    r, order_value, factors = lapack(
        ctx, "geqp3", [operand, free], [a, order], [a, order, taus], aliases={0: 0, 1: 1}
    )
    zero_based = ctx.op1("stablehlo.subtract", [order_value, ctx.splat(1, order)], order)
    return [r, factors, zero_based]


def _geqrf_gpu(ctx: LoweringContext, operand: IrValue, *, pivoting: bool) -> Any:
    if pivoting:
        return geqrf_p.lower(ctx, operand, pivoting=True)
    target = "cusolver_geqrf_ffi"
    return ffi_call(ctx, target, [operand], ctx.avals_in, ctx.avals_out, aliases={0: 0})


on_cpu(geqrf_p, _geqrf_cpu)
on_gpu(geqrf_p, _geqrf_gpu)


@final
class HouseholderProduct(Composed):
    """The first columns of the product of reflectors."""

    name = "householder_product"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        a, taus = avals
        check_dtype("householder_product", *avals)
        m, n = a.shape[-2:]
        if surely_less(m, n):
            msg = f"householder_product: got {a.str_short()}, which has more columns than rows"
            raise ShapeMismatchError(msg, expected="as many rows as columns, or more")
        if taus.ndim != a.ndim - 1 or surely_less(n, taus.shape[-1]):
            msg = f"householder_product: the matrix is {a.str_short()}, factors {taus.str_short()}"
            raise ShapeMismatchError(msg, expected="at most as many factors as columns")
        return a

    def compose(self, *operands: Any, **params: Any) -> Any:
        a, taus = operands
        return multiplied(a, taus, eye_of(a), left=True, transpose=False)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        (out,), (change,) = jvp_by_parts(self.compose, primals, tangents, params)
        return out, change


householder_product_p = HouseholderProduct()


def _product_cpu(ctx: LoweringContext, *operands: IrValue) -> Any:
    name = "{or|un}gqr"
    return lapack(ctx, name, operands, ctx.avals_in, ctx.avals_out, aliases={0: 0})[0]


def _product_gpu(ctx: LoweringContext, *operands: IrValue) -> Any:
    target = "cusolver_orgqr_ffi"
    return ffi_call(ctx, target, operands, ctx.avals_in, ctx.avals_out, aliases={0: 0})[0]


on_cpu(householder_product_p, _product_cpu)
on_gpu(householder_product_p, _product_gpu)


def householder_product(a: Operand, taus: Operand) -> Any:
    """The product of Householder reflectors ``I - tau v v^H``: its first columns.

    Args:
        a: matrices of shape ``(*batch, m, n)`` with ``m >= n``, whose columns hold the vectors
            below the diagonal, where they are 1.
        taus: array of shape ``(*batch, k)`` with ``k <= n``: the factors.

    Returns:
        Array of the shape and dtype of ``a`` with orthonormal columns.

    Raises:
        UnsupportedDtypeError: an argument holds neither floats nor complex numbers.
        DtypeMismatchError: the dtypes differ.
        RankError, ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge as tb
    >>> a, taus = tb.numpy.zeros((2, 2)), tb.numpy.array([2.0])
    >>> tb.lax.linalg.householder_product(a, taus).tolist()
    [[-1.0, 0.0], [0.0, 1.0]]
    """
    (x, factors), dtype = matrices("householder_product", a, taus, ranks=(2, 1))
    return rounded(householder_product_p.bind(x, factors), dtype)


@final
class Ormqr(Composed):
    """``Q c``, or with the adjoint, or from the right; Q is a product of reflectors."""

    name = "ormqr"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        a, taus, c = avals
        check_dtype("ormqr", *avals)
        size = c.shape[-2 if params["left"] else -1]
        if c.ndim != a.ndim or size != a.shape[-2]:
            side = "rows" if params["left"] else "columns"
            msg = f"ormqr: the reflectors are {a.str_short()}, the matrix is {c.str_short()}"
            raise ShapeMismatchError(msg, expected=f"a matrix with {a.shape[-2]} {side}")
        if taus.ndim != a.ndim - 1 or surely_less(a.shape[-1], taus.shape[-1]):
            msg = f"ormqr: the reflectors are {a.str_short()}, factors {taus.str_short()}"
            raise ShapeMismatchError(msg, expected="at most as many factors as columns")
        return c

    def compose(self, *operands: Any, **params: Any) -> Any:
        return multiplied(*operands, **params)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """Linear in the matrix, whose tangent goes the same way."""
        a, taus, _ = primals
        da, dtaus, dc = tangents
        out = self.bind(*primals, **params)
        change = None if dc is None else self.bind(a, taus, dc, **params)
        if da is not None or dtaus is not None:
            _, (other,) = jvp_by_parts(self.compose, primals, (da, dtaus, None), params)
            if other is not None:  # as where there are no reflectors
                change = other if change is None else lax.add(change, other)
        return out, change

    def transpose(self, ct: Any, *args: Value, **params: Any) -> Sequence[Any]:
        """The transposed of Q is the conjugate of its adjoint."""
        a, taus, _ = args
        params = {**params, "transpose": not params["transpose"]}
        return [None, None, conj(self.bind(a, taus, conj(ct), **params))]


ormqr_p = Ormqr()


def _ormqr_cpu(ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
    a, taus, c = ctx.avals_in
    # The routine has one reflector for each column.
    if a.shape[-1] != taus.shape[-1]:
        return ormqr_p.lower(ctx, *operands, **params)
    given = {name: as_boolean(params[name]) for name in ("left", "transpose")}
    name = "{or|un}mqr"
    return lapack(ctx, name, operands, [a, taus, c], [c], given, aliases={2: 0})[0]


def _ormqr_gpu(ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
    given = {name: as_boolean(params[name]) for name in ("left", "transpose")}
    target = "cusolver_ormqr_ffi"
    return ffi_call(ctx, target, operands, ctx.avals_in, ctx.avals_out, given, aliases={2: 0})[0]


on_cpu(ormqr_p, _ormqr_cpu)
on_gpu(ormqr_p, _ormqr_gpu)


def ormqr(
    a: Operand, taus: Operand, c: Operand, *, left: bool = True, transpose: bool = False
) -> Any:
    """Products with Q, the product of Householder reflectors, without making Q.

    Args:
        a: matrices of shape ``(*batch, m, k)`` that hold the reflectors, as in
            ``householder_product``.
        taus: array of shape ``(*batch, k)``: their factors.
        c: matrices of shape ``(*batch, m, n)``, without ``left`` of shape ``(*batch, n, m)``.
        left: whether the result is ``Q c``; otherwise ``c Q``.
        transpose: whether the adjoint of Q takes the place of Q.

    Returns:
        Array of the shape and dtype of ``c``.

    Raises:
        UnsupportedDtypeError: an argument holds neither floats nor complex numbers.
        DtypeMismatchError: the dtypes differ.
        RankError, ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge as tb
    >>> a, taus = tb.numpy.zeros((2, 1)), tb.numpy.array([2.0])
    >>> tb.lax.linalg.ormqr(a, taus, tb.numpy.ones((2, 1))).tolist()
    [[-1.0], [1.0]]
    """
    values, dtype = matrices("ormqr", a, taus, c, ranks=(2, 1, 2))
    return rounded(ormqr_p.bind(*values, left=bool(left), transpose=bool(transpose)), dtype)


# factors -----------------------------------------------------------------------------------------


@final
class Qr(Composed):
    """Q, R and with ``pivoting`` the order of columns; made of ``geqrf``, ``householder_product``.

    ``use_magma`` names a library of GPUs that is not used.
    """

    name = "qr"
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (a,) = avals
        check_dtype("qr", a)
        if a.ndim < 2:
            msg = f"qr: got {a.str_short()}, expected at least 2 axes"
            raise RankError(msg)
        *batch, m, n = a.shape
        k = m if params["full_matrices"] else least(m, n)
        outs = [a.update(shape=(*batch, m, k)), a.update(shape=(*batch, k, n))]
        if params["pivoting"]:
            outs.append(a.update(shape=(*batch, n), dtype=INT32, weak_type=False))
        return outs

    def compose(self, *operands: Any, **params: Any) -> Any:
        return _factors(operands[0], **params)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        (x,), (dx,) = primals, tangents
        q, r, *order = self.bind(x, **params)
        m, n = x.aval.shape[-2:]
        if order:
            x, dx = take_columns(x, order[0]), take_columns(dx, order[0])
        k = least(m, n)
        thin_q, square = part(q, (0, m), (0, k)), part(r, (0, k), (0, k))
        dq, dr = _thin_tangents(thin_q, square, part(dx, (0, m), (0, k)))
        if k != n:
            right, d_rest = part(x, (0, m), (k, n)), part(dx, (0, m), (k, n))
            other = lax.add(matmul(adjoint(dq), right), matmul(adjoint(q), d_rest))
            dr = joined([dr, other], -1)
        if q.aval.shape[-1] != k:
            dq = joined([dq, _complement_tangent(q, dq, k)], -1)
            dr = padded(dr, m, n)
        return [q, r, *order], [dq, dr, *[None] * len(order)]


qr_p = Qr()


def _factors(a: Value, *, pivoting: bool, full_matrices: bool, use_magma: bool | None) -> list[Any]:
    del use_magma
    *batch, m, n = a.aval.shape
    k = least(m, n)
    size = m if full_matrices else k
    if is_empty(a.aval):
        q = eye((*batch, m, size), a.aval.dtype)
        order = [lax.broadcasted_iota(INT32, (*batch, n), len(batch))] if pivoting else []
        return [q, zeros_of(a.aval.update(shape=(*batch, size, n))), *order]
    found, taus, *order = geqrf_p.bind(a, pivoting=pivoting)
    kept = padded(part(found, (0, m), (0, k)), m, size)
    q = householder_product_p.bind(kept, taus)
    return [q, upper_part(part(found, (0, size), (0, n))), *order]


def _thin_tangents(q: Value, r: Value, dx: Value) -> tuple[Any, Any]:
    """Those of Q and R for matrices with no more columns than rows.

    Q^H dQ is antihermitian and dR R^-1 upper triangular with a real diagonal, as that of R is.
    """
    change = triangular_solve(r, dx)
    inner = matmul(adjoint(q), change)
    low = lower_part(inner, -1)
    turn = lax.sub(low, adjoint(low))
    if is_complex(q.aval.dtype):
        phase = lax.sub(inner, as_dtype(real(inner), q.aval.dtype))
        turn = lax.add(turn, lax.mul(eye_of(inner), phase))
    rest = lax.sub(inner, turn)
    return lax.sub(change, matmul(q, rest)), upper_part(matmul(rest, r))


def _complement_tangent(q: Value, dq: Value, k: Any) -> Any:
    """The tangent of the columns of Q behind the first ``k``, which reflectors determine.

    Q is ``I - V T V^H`` with V lower triangular, hence ``V T = (I - Q_1) V_1^-H``: the rest of Q
    follows from its first columns (arXiv 2409.13374). Where those hold no such reflectors, it is
    the smallest change that leaves Q unitary.
    """
    m = q.aval.shape[-2]
    q_first, q_rest = part(q, (0, m), (0, k)), part(q, (0, m), (k, m))
    top, below = part(q, (0, k), (0, k)), part(q, (k, m), (0, k))
    d_top, d_below = part(dq, (0, k), (0, k)), part(dq, (k, m), (0, k))
    lu, _, order = lu_p.bind(lax.sub(top, eye_of(top)))
    z_adjoint = lu_solution(lu, order, adjoint(below), 2)
    z = adjoint(z_adjoint)
    turn = adjoint(lax.sub(d_below, matmul(z, d_top)))
    exact = lax.sub(matmul(dq, z_adjoint), matmul(lax.add(q_first, matmul(q_rest, z)), turn))
    smallest = lax.neg(matmul(q_first, matmul(adjoint(dq), q_rest)))
    axes = (exact.aval.ndim - 2, exact.aval.ndim - 1)
    sizes = lax.reduce_sum(lax.abs(z), axes)
    usable = per_matrix(lax.is_finite(sizes), exact.aval.shape)
    return lax.select_n(usable, smallest, exact)


def qr(
    x: Operand,
    *,
    pivoting: bool = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> Any:
    """QR factors: ``x = Q R`` with orthonormal columns of Q and upper triangular R.

    Args:
        x: matrices of shape ``(*batch, m, n)``.
        pivoting: whether columns are exchanged, so that the diagonal of R decreases:
            ``x[..., order] = Q R``.
        full_matrices: whether Q is square.
        use_magma: no effect; MAGMA is not used.

    Returns:
        ``(Q, R)``, or with ``pivoting`` ``(Q, R, order)``: arrays of shapes ``(*batch, m, k)``
        and ``(*batch, k, n)``, where k is m with ``full_matrices``, else ``min(m, n)``, and int32
        of shape ``(*batch, n)``.

    Raises:
        UnsupportedDtypeError: ``x`` holds neither floats nor complex numbers.
        RankError: ``x`` has fewer than 2 axes.

    >>> import tracebridge as tb
    >>> q, r = tb.lax.linalg.qr(tb.numpy.array([[3.0], [4.0]]), full_matrices=False)
    >>> r.round(4).tolist()
    [[-5.0]]
    """
    (a,), dtype = matrices("qr", x)
    q, r, *order = qr_p.bind(
        a, pivoting=bool(pivoting), full_matrices=bool(full_matrices), use_magma=use_magma
    )
    return (rounded(q, dtype), rounded(r, dtype), *order)
