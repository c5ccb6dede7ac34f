"""Singular values and singular vectors."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.calls import (
    as_boolean,
    char,
    ffi_call,
    info_of,
    lapack,
    nan_unless,
    on_cpu,
    on_gpu,
    succeeded,
)
from tracebridge.core.linalg.family import Composed, check_dtype, matrices, rounded
from tracebridge.core.linalg.jacobi import svd_by_rotations
from tracebridge.core.linalg.matrices import (
    adjoint,
    along_columns,
    along_rows,
    as_dtype,
    diagonal,
    eye,
    is_empty,
    joined,
    least,
    matmul,
    nan_unless_finite,
    part,
    real,
    real_dtype,
    scalar,
    scale_columns,
)
from tracebridge.core.linalg.polar import orthogonalized
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@public_path("tracebridge.lax.linalg")
class SvdAlgorithm(enum.Enum):
    """How ``svd`` computes; ``DEFAULT`` leaves the choice to the platform."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


@final
class Svd(Composed):
    """Singular values, then with ``compute_uv`` U and V^H."""

    name = "svd"
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (a,) = avals
        check_dtype("svd", a)
        if a.ndim < 2:
            msg = f"svd: got {a.str_short()}, expected at least 2 axes"
            raise RankError(msg)
        *batch, m, n = a.shape
        k = least(m, n)
        if params["subset_by_index"] is not None:
            start, stop = params["subset_by_index"]
            k = stop - start
        s = a.update(shape=(*batch, k), dtype=real_dtype(a.dtype))
        if not params["compute_uv"]:
            return [s]
        full = params["full_matrices"]
        u = a.update(shape=(*batch, m, m if full else k))
        return [s, u, a.update(shape=(*batch, n if full else k, n))]

    def compose(self, *operands: Value, **params: Any) -> Any:
        (a,) = operands
        full, subset = params["full_matrices"], params["subset_by_index"]
        if is_empty(a.aval):
            return _of_nothing(a, params)
        by_polar = params["algorithm"] is SvdAlgorithm.POLAR
        u, s, vh = svd_by_rotations(
            a, full_matrices=full, orthogonalized=orthogonalized if by_polar else None
        )
        outs = [s, u, vh] if params["compute_uv"] else [s]
        return _subset(outs, subset)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """Ds is the diagonal of U^H dA V; U and V turn by the rest of it.

        As for ``eigh``, vectors of equal singular values are not turned into each other, nor those
        of the value 0 into the vectors that complete U or V.
        """
        subset, n_out = params["subset_by_index"], 3 if params["compute_uv"] else 1
        full = params["full_matrices"] and params["compute_uv"]
        given = {**params, "compute_uv": True, "subset_by_index": None, "full_matrices": full}
        s, u, vt = self.bind(*primals, **given)
        changes = _tangents(s, u, vt, tangents[0])
        return _subset([s, u, vt][:n_out], subset), _subset(changes[:n_out], subset)


svd_p = Svd()


def _of_nothing(a: Value, params: dict[str, Any]) -> list[Any]:
    """No singular values, and unit matrices."""
    avals = svd_p.abstract_eval(a.aval, **params)
    return [zeros_of(avals[0]), *[eye(o.shape, o.dtype) for o in avals[1:]]]


def _subset(outs: Sequence[Any], subset: tuple[int, int] | None) -> list[Any]:
    """Some of the singular values, with their vectors."""
    if subset is None:
        return list(outs)
    start, stop = subset
    s, *vectors = outs
    found = [lax.slice_in_dim(s, start, stop, axis=s.aval.ndim - 1)]
    if vectors:
        u, vh = vectors
        found.append(part(u, (0, u.aval.shape[-2]), (start, stop)))
        found.append(part(vh, (start, stop), (0, vh.aval.shape[-1])))
    return found


def _tangents(s: Value, u: Value, vh: Value, change: Value) -> list[Any]:
    """Those of the three results, which may be reduced or full."""
    k = s.aval.shape[-1]
    m, n = change.aval.shape[-2:]
    thin_u, thin_vh = part(u, (0, m), (0, k)), part(vh, (0, k), (0, n))
    inner = matmul(adjoint(thin_u), matmul(change, adjoint(thin_vh)))
    ds = real(diagonal(inner))
    shape, dtype = inner.aval.shape, inner.aval.dtype
    across, down = along_columns(s, shape), along_rows(s, shape)
    # The Hermitian half turns U and V alike, the other half against each other; the latter is
    # determined where singular values are equal too, and holds the phases.
    half = scalar(inner, 0.5)
    turned = adjoint(inner)
    alike, against = [lax.mul(f(inner, turned), half) for f in (lax.add, lax.sub)]
    alike = lax.mul(alike, as_dtype(_inverse(lax.sub(across, down)), dtype))
    against = lax.mul(against, as_dtype(_inverse(lax.add(across, down)), dtype))
    turn_u, turn_v = lax.add(alike, against), lax.sub(alike, against)
    reciprocal = _inverse(s)
    du, dv = matmul(thin_u, turn_u), matmul(adjoint(thin_vh), turn_v)
    if m != k:
        moved = scale_columns(matmul(change, adjoint(thin_vh)), reciprocal)
        du = lax.add(du, lax.sub(moved, matmul(thin_u, matmul(adjoint(thin_u), moved))))
    if n != k:
        moved = scale_columns(matmul(adjoint(change), thin_u), reciprocal)
        dv = lax.add(dv, lax.sub(moved, matmul(adjoint(thin_vh), matmul(thin_vh, moved))))
    du = _completed(u, du, k)
    dv = _completed(adjoint(vh), dv, k)
    return [ds, du, adjoint(dv)]


def _completed(u: Value, du: Value, k: Value) -> Any:
    """The tangent of unitary matrices whose first ``k`` columns change by ``du``: the smallest."""
    m, size = u.aval.shape[-2:]
    if size == k:
        return du
    first, rest = part(u, (0, m), (0, k)), part(u, (0, m), (k, size))
    other = lax.neg(matmul(first, matmul(adjoint(du), rest)))
    return joined([du, other], -1)


def _inverse(x: Value) -> Any:
    """1 over x; 0 over 0 is 0."""
    zero = lax.eq(x, zeros_of(x.aval))
    ones = full_of(x.aval, 1)
    return lax.select_n(zero, lax.div(ones, lax.select_n(zero, x, ones)), zeros_of(x.aval))


# libraries ---------------------------------------------------------------------------------------


_WITHOUT_LIBRARY = (SvdAlgorithm.JACOBI, SvdAlgorithm.POLAR)


def _whole_avals(ctx: LoweringContext, params: dict[str, Any]) -> list[Any]:
    """Those of s, U and V^H without a subset, whether they are wanted or not."""
    (a,) = ctx.avals_in
    given = {**params, "compute_uv": True, "subset_by_index": None}
    return svd_p.abstract_eval(a, **given)


def _lower_cpu(ctx: LoweringContext, operand: IrValue, **params: Any) -> list[Any]:
    algorithm = params["algorithm"]
    if algorithm in _WITHOUT_LIBRARY:
        return svd_p.lower(ctx, operand, **params)
    (a,) = ctx.avals_in
    outs = _whole_avals(ctx, params)
    routine = "gesvd" if algorithm is SvdAlgorithm.QR else "gesdd"
    mode = "N" if not params["compute_uv"] else "A" if params["full_matrices"] else "S"
    # LAPACK refuses NaN, and does not return from infinities.
    (operand,) = ctx.lower_fun(lambda x: [nan_unless_finite(x, x)], operand, avals_in=[a])
    _, *factors, status = lapack(
        ctx,
        routine,
        [operand],
        [a],
        [a, *outs, info_of(a)],
        {"mode": char(mode)},
        aliases={0: 0},
    )
    return _finish(ctx, factors, outs, status, params)


def _finish(
    ctx: LoweringContext,
    factors: Sequence[Any],
    avals: Sequence[Any],
    status: Any,
    params: dict[str, Any],
) -> list[Any]:
    ok = succeeded(ctx, status, info_of(ctx.avals_in[0]))
    n_out = 3 if params["compute_uv"] else 1
    kept = list(zip(factors, avals, strict=True))[:n_out]
    results = [nan_unless(ctx, ok, x, aval) for x, aval in kept]
    subset = params["subset_by_index"]
    if subset is None:
        return results
    return ctx.lower_fun(
        lambda *xs: _subset(xs, subset), *results, avals_in=[aval for _, aval in kept]
    )


def _lower_gpu(ctx: LoweringContext, operand: IrValue, **params: Any) -> list[Any]:
    """Gesvd takes matrices with no more columns than rows; others are read by rows, transposed."""
    (a,) = ctx.avals_in
    m, n = a.shape[-2:]
    if params["algorithm"] in _WITHOUT_LIBRARY or not (type(m) is int and type(n) is int):
        return svd_p.lower(ctx, operand, **params)
    outs = _whole_avals(ctx, params)
    s, u, vh = outs
    turned = m < n
    attributes = {
        "full_matrices": as_boolean(params["full_matrices"]),
        "compute_uv": as_boolean(params["compute_uv"]),
        "transposed": as_boolean(turned),
    }
    _, values, first, second, status = ffi_call(
        ctx,
        "cusolver_gesvd_ffi",
        [operand],
        [a],
        [a, s, vh, u, info_of(a)] if turned else [a, s, u, vh, info_of(a)],
        attributes,
        aliases={0: 0},
        by_rows=turned,
    )
    factors = [values, second, first] if turned else [values, first, second]
    return _finish(ctx, factors, outs, status, params)


on_cpu(svd_p, _lower_cpu)
on_gpu(svd_p, _lower_gpu, loses_nan=True)


def svd(
    x: Operand,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """Singular value decomposition: ``x = U diag(s) V^H``.

    Args:
        x: matrices of shape ``(*batch, m, n)``.
        full_matrices: whether U and V are square.
        compute_uv: whether singular vectors are wanted.
        subset_by_index: ``(start, stop)``: which of the descending singular values are wanted.
        algorithm: see ``SvdAlgorithm``; ``POLAR`` takes eigenvectors of a polar factor.

    Returns:
        ``(U, s, V^H)``, or ``s`` alone: real descending singular values of shape ``(*batch, k)``,
        k being ``min(m, n)``, and arrays of shapes ``(*batch, m, k)`` and ``(*batch, k, n)``, with
        ``full_matrices`` ``(*batch, m, m)`` and ``(*batch, n, n)``. NaN where it failed.

    Derivatives where singular values are equal are as those of ``eigh`` for equal eigenvalues:
    finite, right for functions of spaces and sums of singular values, and not right where a
    function of ``s`` stands between ``U`` and ``V^H``.

    Raises:
        UnsupportedDtypeError: ``x`` holds neither floats nor complex numbers.
        RankError: ``x`` has fewer than 2 axes.
        ArgumentValueError: the subset is no range of singular values, or asked for together with
            full matrices.

    >>> import tracebridge as tb
    >>> tb.lax.linalg.svd(tb.numpy.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False).tolist()
    [4.0, 3.0]
    """
    (a,), dtype = matrices("svd", x)
    k = least(*a.aval.shape[-2:])
    subset = None
    if subset_by_index is not None and tuple(subset_by_index) != (0, k):
        start, stop = subset_by_index
        subset = (int(start), int(stop))
        if not 0 <= subset[0] <= subset[1] <= k:
            msg = f"svd: subset_by_index={subset_by_index} of {k} singular values"
            raise ArgumentValueError(msg, expected="0 <= start <= stop <= min(m, n)")
        if full_matrices and compute_uv:
            msg = "svd: subset_by_index together with full_matrices=True"
            raise ArgumentValueError(msg, hint="pass full_matrices=False")
    outs = svd_p.bind(
        a,
        full_matrices=bool(full_matrices) and subset is None,
        compute_uv=bool(compute_uv),
        subset_by_index=subset,
        algorithm=algorithm,
    )
    s, *vectors = [rounded(o, dtype) for o in outs]
    return (vectors[0], s, vectors[1]) if vectors else s
