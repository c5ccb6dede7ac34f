"""Similar matrices of simpler form: Hessenberg and tridiagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.calls import (
    char,
    info_of,
    lapack,
    nan_unless,
    on_cpu,
    succeeded,
)
from tracebridge.core.linalg.family import (
    Composed,
    check_dtype,
    check_square,
    jvp_by_parts,
    matrices,
    rounded,
)
from tracebridge.core.linalg.matrices import (
    columns_of,
    conj,
    diagonal,
    hermitian_of,
    lower_part,
    most,
    part,
    real,
    real_dtype,
    repeated,
    upper_part,
)
from tracebridge.core.linalg.reflectors import (
    apply_left,
    apply_right,
    column,
    positions,
    reflector,
    with_column,
    with_element,
)
from tracebridge.core.mlir.attrs import i32

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Hessenberg(Composed):
    """The Hessenberg matrix and below it the reflectors; their factors."""

    name = "hessenberg"
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (a,) = avals
        check_dtype("hessenberg", a)
        check_square("hessenberg", a)
        *batch, n = a.shape[:-1]
        return [a, a.update(shape=(*batch, most(n - 1, 0)))]

    def compose(self, *operands: Value, **params: Any) -> Any:
        return _reduced(operands[0])

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return jvp_by_parts(self.compose, primals, tangents, params)


hessenberg_p = Hessenberg()


def _reduced(a: Value) -> list[Any]:
    """``H^H A H`` for one reflector after the other."""
    *batch, n = a.aval.shape[:-1]
    count = most(n - 1, 0)
    taus = zeros_of(a.aval.update(shape=(*batch, count)))
    if n == 0:
        return [a, taus]

    def step(j: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        a, taus = state
        first = lax.add(j, full_of(j.aval, 1))
        x = column(a, j)
        v, tau, beta = reflector(x, first)
        changed = apply_right(apply_left(a, v, conj(tau)), v, tau)
        # Columns on the left hold reflectors already.
        changed = lax.select_n(lax.gt(columns_of(a.aval.shape), j), a, changed)
        place = positions(x.aval.shape)
        kept = lax.select_n(lax.gt(place, first), with_element(x, first, beta), v)
        return with_column(changed, j, kept), with_element(taus, j, tau)

    return list(repeated(count, step, (a, taus)))


def _hessenberg_cpu(ctx: LoweringContext, operand: IrValue) -> list[Any]:
    (a,) = ctx.avals_in
    if a.shape[-1] == 1:
        return [operand, ctx.splat(0, ctx.avals_out[1])]
    info = info_of(a)
    given = {"low": i32(1), "high": i32(a.shape[-1])}
    outs = [*ctx.avals_out, info]
    *found, status = lapack(ctx, "gehrd", [operand], [a], outs, given, aliases={0: 0})
    ok = succeeded(ctx, status, info)
    return [nan_unless(ctx, ok, x, aval) for x, aval in zip(found, ctx.avals_out, strict=True)]


on_cpu(hessenberg_p, _hessenberg_cpu)


def hessenberg(a: Operand) -> list[Any]:
    """Similar matrices whose elements below the first subdiagonal are zero.

    Args:
        a: matrices of shape ``(*batch, n, n)``.

    Returns:
        A list ``[h, taus]``: the Hessenberg matrix, and in place of its zeros the vectors of the
        reflectors, as in ``householder_product`` but one row lower; their factors, of shape
        ``(*batch, n - 1)``.

    Raises:
        UnsupportedDtypeError: ``a`` holds neither floats nor complex numbers.
        RankError, ShapeMismatchError: ``a`` is not of square matrices.

    >>> import tracebridge as tb
    >>> h, taus = tb.lax.linalg.hessenberg(tb.numpy.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> h.tolist(), taus.tolist()
    ([[1.0, 2.0], [3.0, 4.0]], [0.0])
    """
    (x,), dtype = matrices("hessenberg", a)
    check_square("hessenberg", x.aval)
    h, taus = hessenberg_p.bind(x)
    return [rounded(h, dtype), rounded(taus, dtype)]


@final
class Tridiagonal(Composed):
    """The tridiagonal matrix with the reflectors, its two diagonals, and the factors."""

    name = "tridiagonal"
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (a,) = avals
        check_dtype("tridiagonal", a)
        check_square("tridiagonal", a)
        *batch, n = a.shape[:-1]
        if type(n) is int and n == 0:
            msg = f"tridiagonal: got {a.str_short()}, expected at least one row"
            raise ShapeMismatchError(msg)
        dtype = real_dtype(a.dtype)
        off = a.update(shape=(*batch, n - 1))
        return [a, a.update(shape=(*batch, n), dtype=dtype), off.update(dtype=dtype), off]

    def compose(self, *operands: Value, **params: Any) -> Any:
        return _tridiagonal(operands[0], lower=params["lower"])

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return jvp_by_parts(self.compose, primals, tangents, params)


tridiagonal_p = Tridiagonal()


def _tridiagonal(a: Value, *, lower: bool) -> list[Any]:
    """The Hessenberg form of a Hermitian matrix; from below and from the right for upper ones."""
    if not lower:
        n = a.aval.ndim
        turned = lax.rev(a, (n - 2, n - 1))
        found, d, e, taus = _tridiagonal(turned, lower=True)
        back = [lax.rev(x, (n - 2,)) for x in (d, e, taus)]
        return [lax.rev(found, (n - 2, n - 1)), *back]
    n = a.aval.shape[-1]
    whole = hermitian_of(a, lower=True)
    found, taus = _reduced(whole)
    d = real(diagonal(found))
    e = real(diagonal(part(found, (1, n), (0, n - 1))))
    return [lax.add(lower_part(found), upper_part(a, 1)), d, e, taus]


def _tridiagonal_cpu(ctx: LoweringContext, operand: IrValue, *, lower: bool) -> list[Any]:
    (a,) = ctx.avals_in
    info = info_of(a)
    given = {"uplo": char("L" if lower else "U")}
    outs = [*ctx.avals_out, info]
    *found, status = lapack(ctx, "{sy|he}trd", [operand], [a], outs, given, aliases={0: 0})
    ok = succeeded(ctx, status, info)
    return [nan_unless(ctx, ok, x, aval) for x, aval in zip(found, ctx.avals_out, strict=True)]


on_cpu(tridiagonal_p, _tridiagonal_cpu)


def tridiagonal(a: Operand, *, lower: bool = True) -> tuple[Any, Any, Any, Any]:
    """Similar tridiagonal matrices of symmetric or Hermitian ones.

    Args:
        a: matrices of shape ``(*batch, n, n)``.
        lower: which triangle of ``a`` is read, and holds the result.

    Returns:
        ``(a, d, e, taus)``: the tridiagonal matrix with the vectors of the reflectors in place of
        its zeros; its real diagonals, of shapes ``(*batch, n)`` and ``(*batch, n - 1)``; the
        factors of the reflectors.

    Raises:
        UnsupportedDtypeError: ``a`` holds neither floats nor complex numbers.
        RankError, ShapeMismatchError: ``a`` is not of square matrices with rows.

    >>> import tracebridge as tb
    >>> _, d, e, _ = tb.lax.linalg.tridiagonal(tb.numpy.array([[1.0, 2.0], [2.0, 4.0]]))
    >>> d.tolist(), e.tolist()
    ([1.0, 4.0], [2.0])
    """
    (x,), dtype = matrices("tridiagonal", a)
    check_square("tridiagonal", x.aval)
    packed, d, e, taus = tridiagonal_p.bind(x, lower=bool(lower))
    return tuple([rounded(y, dtype) for y in (packed, d, e, taus)])
