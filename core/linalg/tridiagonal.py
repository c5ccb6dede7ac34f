"""Systems of equations with a tridiagonal matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core._jaxlib.ffi import register_lapack_targets
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.linalg.calls import (
    ffi_call,
    info_of,
    lapack,
    nan_unless,
    on_cpu,
    succeeded,
)
from tracebridge.core.linalg.family import Composed, check_dtype, matrices, rounded
from tracebridge.core.linalg.matrices import (
    along_rows,
    is_empty,
    per_matrix,
    real_dtype,
    scalar,
)

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class TridiagonalSolve(Composed):
    """The lower, the main and the upper diagonal, and right-hand sides; linear in these."""

    name = "tridiagonal_solve"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        dl, d, du, b = avals
        check_dtype("tridiagonal_solve", *avals)
        if dl.shape != d.shape or du.shape != d.shape or b.shape[:-1] != d.shape:
            got = ", ".join([a.str_short() for a in avals])
            msg = f"tridiagonal_solve: got {got}"
            raise ShapeMismatchError(
                msg, expected="three diagonals (*batch, m) and right-hand sides (*batch, m, n)"
            )
        return b if all([a.weak_type for a in (dl, d, du)]) else b.strong

    def compose(self, *operands: Value, **params: Any) -> Any:
        return _solution(*operands, perturb=params["perturb_singular"])

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """A dx = db - dA x."""
        dl, d, du, _ = primals
        x = self.bind(*primals, **params)
        right = tangents[3]
        for change, shift in zip(tangents[:3], (1, 0, -1), strict=True):
            if change is not None:
                moved = lax.mul(along_rows(change, x.aval.shape), _shifted(x, shift))
                right = lax.neg(moved) if right is None else lax.sub(right, moved)
        return x, self.bind(dl, d, du, right, **params)

    def transpose(self, ct: Any, *args: Value, **params: Any) -> Sequence[Any]:
        dl, d, du, _ = args
        lower, upper = [lax.expand_dims(y, (-1,)) for y in (du, dl)]
        lower, upper = _shifted(lower, 1), _shifted(upper, -1)
        lower, upper = [lax.squeeze(y, (y.aval.ndim - 1,)) for y in (lower, upper)]
        return [None, None, None, self.bind(lower, d, upper, ct, **params)]


tridiagonal_solve_p = TridiagonalSolve()


def _shifted(x: Value, by: int) -> Any:
    """Rows moved down by one, or up; zero where none comes from."""
    if not by:
        return x
    config = [(0, 0, 0)] * (x.aval.ndim - 2)
    return lax.pad(x, scalar(x, 0), [*config, (by, -by, 0), (0, 0, 0)])


def _solution(dl: Value, d: Value, du: Value, b: Value, *, perturb: bool) -> Any:
    """Elimination with exchanges of neighbouring rows, which fill a second upper diagonal."""
    if is_empty(b.aval):
        return b
    n = b.aval.ndim - 2
    lower, main, upper, rhs = [move_batch_axis(x, n, 0) for x in (dl, d, du, b)]
    size = lax.reduce_max(lax.abs(d), (n,))
    for other in (dl, du):
        size = lax.max(size, lax.reduce_max(lax.abs(other), (n,)))
    least = lax.mul(size, scalar(size, float(np.finfo(real_dtype(d.aval.dtype)).eps)))

    def usable(p: Value) -> Any:
        small = lax.le(lax.abs(p), least)
        bound = lax.convert_dtype(least, p.aval.dtype)
        return lax.select_n(small, p, bound) if perturb else p

    def eliminate(state: Any, row: Any) -> Any:
        p, q, y = state
        low, diagonal, up, right = row
        swap = lax.gt(_size(low), _size(p))
        swap_rows = per_matrix(swap, y.aval.shape)
        top = usable(lax.select_n(swap, p, low))
        factor = lax.div(lax.select_n(swap, low, p), top)
        second, third = lax.select_n(swap, q, diagonal), lax.select_n(swap, zero, up)
        value = lax.select_n(swap_rows, y, right)
        next_p = lax.sub(lax.select_n(swap, diagonal, q), lax.mul(factor, second))
        next_q = lax.sub(lax.select_n(swap, up, zero), lax.mul(factor, third))
        wide = per_matrix(factor, y.aval.shape)
        next_y = lax.sub(lax.select_n(swap_rows, right, y), lax.mul(wide, value))
        return (next_p, next_q, next_y), (top, second, third, value)

    def substitute(state: Any, row: Any) -> Any:
        x1, x2 = state
        p, q, r, y = row
        p, q, r = [per_matrix(v, y.aval.shape) for v in (p, q, r)]
        x = lax.div(lax.sub(lax.sub(y, lax.mul(q, x1)), lax.mul(r, x2)), p)
        return (x, x1), x

    first = [lax.index_in_dim(x, 0, keepdims=False) for x in (main, upper, rhs)]
    zero = zeros_of(first[0].aval)
    later_rows = [lax.slice_in_dim(x, 1, x.aval.shape[0]) for x in (lower, main, upper, rhs)]
    (p, _, y), rows = scan(eliminate, tuple(first), tuple(later_rows))
    last = [usable(p), zero, zero, y]
    whole = [
        lax.concatenate([x, lax.expand_dims(end, (0,))], 0)
        for x, end in zip(rows, last, strict=True)
    ]
    none = zeros_of(y.aval)
    _, x = scan(substitute, (none, none), tuple(whole), reverse=True)
    out = move_batch_axis(x, 0, n)
    singular = lax.reduce_or(lax.eq(whole[0], zeros_of(whole[0].aval)), (0,))
    nan = full_of(out.aval, float("nan"))
    return lax.select_n(per_matrix(singular, out.aval.shape), out, nan)


def _size(x: Value) -> Any:
    if not is_complex(x.aval.dtype):
        return lax.abs(x)
    return lax.add(lax.abs(lax.real(x)), lax.abs(lax.imag(x)))


def _lower_cpu(ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
    b = ctx.avals_in[3]
    if params["perturb_singular"]:
        register_lapack_targets()
        target = "tridiagonal_solve_perturbed_ffi"
        return ffi_call(ctx, target, operands, ctx.avals_in, [b])[0]
    # The routine has diagonals of their true length.
    info = info_of(b)
    aliases = {0: 0, 1: 1, 2: 2, 3: 3}
    outs = [*ctx.avals_in, info]
    found = lapack(ctx, "gtsv", operands, ctx.avals_in, outs, aliases=aliases)
    return nan_unless(ctx, succeeded(ctx, found[4], info), found[3], b)


on_cpu(tridiagonal_solve_p, _lower_cpu)


def tridiagonal_solve(
    dl: Operand, d: Operand, du: Operand, b: Operand, *, perturb_singular: bool = False
) -> Any:
    """The solutions of systems of equations with tridiagonal matrices.

    Args:
        dl: array of shape ``(*batch, m)``: ``dl[i]`` stands in row ``i``, left of the diagonal;
            the first element means nothing.
        d: likewise: the diagonal.
        du: likewise: right of the diagonal; the last element means nothing.
        b: right-hand sides of shape ``(*batch, m, n)``.
        perturb_singular: whether pivots that are too small are replaced, so that the result is
            finite.

    Returns:
        Array of the shape and dtype of ``b``; NaN where the matrix is singular.

    Raises:
        UnsupportedDtypeError: an argument holds neither floats nor complex numbers.
        DtypeMismatchError: the dtypes differ.
        RankError, ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge as tb
    >>> zero, two = tb.numpy.zeros(2), tb.numpy.full(2, 2.0)
    >>> tb.lax.linalg.tridiagonal_solve(zero, two, zero, tb.numpy.ones((2, 1))).tolist()
    [[0.5], [0.5]]
    """
    values, dtype = matrices("tridiagonal_solve", dl, d, du, b, ranks=(1, 1, 1, 2))
    return rounded(tridiagonal_solve_p.bind(*values, perturb_singular=perturb_singular), dtype)
