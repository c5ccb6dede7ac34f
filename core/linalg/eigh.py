"""Eigenvalues and eigenvectors of symmetric and Hermitian matrices."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.errors.argument_errors import ArgumentValueError, UnsupportedArgumentError
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.calls import (
    as_boolean,
    byte,
    char,
    ffi_call,
    info_of,
    lapack,
    nan_unless,
    on_cpu,
    on_gpu,
    succeeded,
)
from tracebridge.core.linalg.family import (
    Composed,
    check_dtype,
    check_square,
    inexact,
    matrices,
    rounded,
)
from tracebridge.core.linalg.jacobi import eigh_by_rotations
from tracebridge.core.linalg.matrices import (
    adjoint,
    along_columns,
    along_rows,
    as_dtype,
    diagonal,
    hermitian_of,
    is_empty,
    matmul,
    part,
    real,
    real_dtype,
    symmetrized,
)
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@public_path("tracebridge.lax.linalg")
class EighImplementation(enum.Enum):
    """How ``eigh`` computes: ``QR`` (the default with a library), ``JACOBI``, ``QDWH``."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


@final
class Eigh(Composed):
    """Eigenvectors and eigenvalues, in ascending order; one triangle is read."""

    name = "eigh"
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (a,) = avals
        check_dtype("eigh", a)
        check_square("eigh", a)
        *batch, n = a.shape[:-1]
        subset = params["subset_by_index"]
        count = n if subset is None else subset[1] - subset[0]
        vectors = a.update(shape=(*batch, n, count))
        values = a.update(shape=(*batch, count), dtype=real_dtype(a.dtype))
        return [vectors, values]

    def compose(self, *operands: Value, **params: Any) -> Any:
        (a,) = operands
        if is_empty(a.aval):
            outs = self.abstract_eval(a.aval, **params)
            return [zeros_of(o) for o in outs]
        v, w = eigh_by_rotations(hermitian_of(a, lower=params["lower"]))
        return _subset(v, w, params["subset_by_index"])

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """Dw is the diagonal of V^H dA V; V turns by its other elements over differences of w.

        Vectors of equal eigenvalues are not turned into each other: what depends on the space
        that they span, not on the choice of vectors, has its derivative. The docstring of ``eigh``
        says what has not.
        """
        subset = params["subset_by_index"]
        v, w = self.bind(*primals, **{**params, "subset_by_index": None})
        change = hermitian_of(tangents[0], lower=params["lower"])
        inner = matmul(adjoint(v), matmul(change, v))
        shape = inner.aval.shape
        difference = lax.sub(along_columns(w, shape), along_rows(w, shape))
        equal = lax.eq(difference, zeros_of(difference.aval))
        safe = lax.select_n(equal, difference, full_of(difference.aval, 1))
        turn = lax.div(inner, as_dtype(safe, inner.aval.dtype))
        turn = lax.select_n(equal, turn, zeros_of(turn.aval))
        dv, dw = matmul(v, turn), real(diagonal(inner))
        return _subset(v, w, subset), _subset(dv, dw, subset)


eigh_p = Eigh()


def _subset(v: Value, w: Value, subset: tuple[int, int] | None) -> list[Any]:
    if subset is None:
        return [v, w]
    start, stop = subset
    return [
        part(v, (0, v.aval.shape[-2]), (start, stop)),
        lax.slice_in_dim(w, start, stop, axis=w.aval.ndim - 1),
    ]


def _by_library(call: Any) -> Any:
    """A lowering rule: the whole decomposition by ``call``, NaN on failure, then the subset."""

    def lower(ctx: LoweringContext, operand: IrValue, **params: Any) -> list[Any]:
        if params["algorithm"] is EighImplementation.JACOBI and ctx.platform == "cpu":
            return eigh_p.lower(ctx, operand, **params)
        (a,) = ctx.avals_in
        values = a.update(shape=a.shape[:-1], dtype=real_dtype(a.dtype))
        info = info_of(a)
        v, w, status = call(ctx, operand, [a, values, info], params)
        ok = succeeded(ctx, status, info)
        v, w = nan_unless(ctx, ok, v, a), nan_unless(ctx, ok, w, values)
        subset = params["subset_by_index"]
        if subset is None:
            return [v, w]
        return ctx.lower_fun(_subset, v, w, avals_in=[a, values], subset=subset)

    return lower


def _call_cpu(ctx: LoweringContext, a: IrValue, outs: list[Any], params: dict[str, Any]) -> Any:
    given = {"mode": char("V"), "uplo": char("L" if params["lower"] else "U")}
    return lapack(ctx, "{sy|he}evd", [a], ctx.avals_in, outs, given, aliases={0: 0})


def _call_gpu(ctx: LoweringContext, a: IrValue, outs: list[Any], params: dict[str, Any]) -> Any:
    wanted = params["algorithm"]
    number = 0 if wanted is None else 2 if wanted is EighImplementation.JACOBI else 1
    given = {"lower": as_boolean(params["lower"]), "algorithm": byte(number)}
    target = "cusolver_syevd_ffi"
    return ffi_call(ctx, target, [a], ctx.avals_in, outs, given, aliases={0: 0})


on_cpu(eigh_p, _by_library(_call_cpu))
on_gpu(eigh_p, _by_library(_call_gpu), loses_nan=True)


def eigh(
    x: Operand,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Any, Any]:
    """Eigenvectors and eigenvalues of symmetric or Hermitian matrices.

    Args:
        x: matrices of shape ``(*batch, n, n)``.
        lower: which triangle is read without ``symmetrize_input``.
        symmetrize_input: whether the mean of ``x`` and its adjoint is decomposed.
        sort_eigenvalues: whether the order matters; eigenvalues ascend in any case.
        subset_by_index: ``(start, stop)``: which of the ascending eigenvalues are wanted.
        implementation: the algorithm, see ``EighImplementation``; there is no ``QDWH``.

    Returns:
        ``(v, w)``: eigenvectors, the columns of arrays of shape ``(*batch, n, k)``, and real
        eigenvalues of shape ``(*batch, k)``. NaN where it failed.

    Derivatives where eigenvalues are equal: the vectors of one eigenvalue can be chosen in many
    ways, and derivatives leave out how these turn into each other. First derivatives are right for
    functions of the spaces (projections, ``v[:, :k] @ v[:, :k].T`` with a gap after ``k``) and for
    sums over equal eigenvalues. They are finite, but not right, for matrix functions such as
    ``(v * f(w)) @ v.T``, where the part inside of such a space is missing: no derivative of ``v``
    and ``w`` can carry it, and elsewhere it is NaN for all of these. The same holds for second
    derivatives of sums over eigenvalues. Differentiate matrix functions as such
    (``scipy.linalg.expm``, ``sqrtm``, powers).

    Raises:
        UnsupportedDtypeError: ``x`` holds neither floats nor complex numbers.
        RankError, ShapeMismatchError: ``x`` is not of square matrices.
        ArgumentValueError: the subset is no range of eigenvalues.
        UnsupportedArgumentError: ``implementation`` is ``QDWH``.

    >>> import tracebridge as tb
    >>> v, w = tb.lax.linalg.eigh(tb.numpy.array([[2.0, 0.0], [0.0, 1.0]]))
    >>> w.tolist()
    [1.0, 2.0]
    """
    (a,), dtype = matrices("eigh", inexact("eigh", x))
    check_square("eigh", a.aval)
    n = a.aval.shape[-1]
    subset = None
    if subset_by_index is not None and tuple(subset_by_index) != (0, n):
        start, stop = subset_by_index
        subset = (int(start), int(stop))
        if not 0 <= subset[0] <= subset[1] <= n:
            msg = f"eigh: subset_by_index={subset_by_index} of {n} eigenvalues"
            raise ArgumentValueError(msg, expected="0 <= start <= stop <= n")
    if implementation is EighImplementation.QDWH:
        msg = (
            "eigh: implementation=QDWH is not available: it divides a matrix into parts whose "
            "sizes depend on its numbers, and programs have fixed shapes"
        )
        raise UnsupportedArgumentError(msg, hint="use QR, JACOBI or None")
    v, w = eigh_p.bind(
        symmetrized(a) if symmetrize_input else a,
        lower=bool(lower),
        sort_eigenvalues=bool(sort_eigenvalues),
        subset_by_index=subset,
        algorithm=implementation,
    )
    return rounded(v, dtype), rounded(w, dtype)
