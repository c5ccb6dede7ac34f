"""LU factors with row exchanges."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.reduce.sort import take_along_axis
from tracebridge.core.lax.shape.axes import surely_less
from tracebridge.core.linalg.calls import (
    ffi_call,
    info_of,
    lapack,
    on_cpu,
    on_gpu,
)
from tracebridge.core.linalg.family import Composed, check_dtype, matrices, rounded
from tracebridge.core.linalg.lanes import MOST_LU, from_lanes, in_lanes, lu_of, to_lanes
from tracebridge.core.linalg.matrices import (
    INT32,
    along_columns,
    along_rows,
    columns_of,
    eye_of,
    joined,
    least,
    lower_part,
    matmul,
    padded,
    part,
    per_matrix,
    repeated,
    rows_of,
    scalar,
    size_value,
    take_rows,
    upper_part,
)
from tracebridge.core.linalg.triangular import triangular_solve

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value

_BLOCK = 64


@final
class Lu(Composed):
    """Both factors in one matrix, the row exchanges one after the other, and their permutation."""

    name = "lu"
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> list[ShapedArray]:
        (a,) = avals
        check_dtype("lu", a)
        if a.ndim < 2:
            msg = f"lu: got {a.str_short()}, expected at least 2 axes"
            raise RankError(msg)
        *batch, m, n = a.shape
        pivots = a.update(shape=(*batch, least(m, n)), dtype=INT32, weak_type=False)
        return [a, pivots, pivots.update(shape=(*batch, m))]

    def compose(self, *operands: Value, **params: Any) -> Any:
        (a,) = operands
        # How many panels there are must be known.
        known = all([type(d) is int for d in a.aval.shape[-2:]])
        return _blocked(a) if known else list(_panel(a))

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """With L^-1 P dA U^-1 = M: dL = L low(M), dU = up(M) U, the diagonal belongs to U."""
        lu, pivots, permutation = self.bind(*primals)
        *_, m, n = lu.aval.shape
        k = least(m, n)
        change = take_rows(tangents[0], permutation)
        # Square factors: unit matrices stand where a factor is not square.
        unit_rows = lax.gt(columns_of((*lu.aval.shape[:-1], m)), _last(k))
        low = lower_part(padded(part(lu, (0, m), (0, k)), m, m), -1)
        low = lax.add(lax.select_n(unit_rows, low, zeros_of(low.aval)), eye_of(low))
        up = upper_part(padded(part(lu, (0, k), (0, n)), n, n))
        unit = lax.bitwise_and(
            lax.eq(rows_of(up.aval.shape), columns_of(up.aval.shape)),
            lax.gt(rows_of(up.aval.shape), _last(k)),
        )
        up = lax.select_n(unit, up, full_of(up.aval, 1))
        left = triangular_solve(low, change, left_side=True, lower=True, unit_diagonal=True)
        middle = triangular_solve(up, left)
        d_low = matmul(low, lower_part(middle, -1))
        d_up = matmul(upper_part(middle), up)
        return [lu, pivots, permutation], [lax.add(d_low, d_up), None, None]


lu_p = Lu()


def _last(k: Value) -> Any:
    return lax.sub(size_value(k), size_value(1))


def _blocked(a: Value) -> list[Any]:
    """Panels of columns one after the other; what is right of them is updated by products."""
    *batch, m, n = a.aval.shape
    k = least(m, n)
    order = lax.broadcasted_iota(INT32, (*batch, m), len(batch))
    pivots: list[Any] = []
    for start in range(0, k, _BLOCK):
        stop = min(start + _BLOCK, k)
        panel, swaps, moved = _panel(part(a, (start, m), (start, stop)))
        pivots.append(lax.add(swaps, size_value(start)))
        head = part(a, (0, start), (0, n))
        below = take_rows(part(a, (start, m), (0, n)), moved)
        tail = part(below, (0, m - start), (stop, n))
        if start:
            last = lax.slice_in_dim(order, start, m, axis=len(batch))
            last = take_along_axis(last, moved, len(batch))
            first = lax.slice_in_dim(order, 0, start, axis=len(batch))
            order = joined([first, last], -1)
        else:
            order = take_along_axis(order, moved, len(batch))
        if stop < n:
            width = stop - start
            top = triangular_solve(
                part(panel, (0, width), (0, width)),
                part(tail, (0, width), (0, n - stop)),
                left_side=True,
                lower=True,
                unit_diagonal=True,
            )
            corner = part(tail, (width, m - start), (0, n - stop))
            product = matmul(part(panel, (width, m - start), (0, width)), top)
            tail = joined([top, lax.sub(corner, product)], -2)
        left = part(below, (0, m - start), (0, start))
        a = joined([head, joined([left, panel, tail], -1)], -2)
    all_pivots = joined(pivots, -1) if pivots else lax.full((*batch, 0), 0, INT32)
    return [a, all_pivots, order]


def _panel(a: Value) -> tuple[Any, Any, Any]:
    """The factors of a narrow matrix, column by column; exchanges, and their permutation."""
    *batch, m, n = a.aval.shape
    n_batch = len(batch)
    rows = lax.broadcasted_iota(INT32, (*batch, m), n_batch)
    columns = columns_of(a.aval.shape)

    def step(j: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        a, pivots, order = state
        column = lax.dynamic_index_in_dim(a, j, n_batch + 1, keepdims=False)
        size = _size(column)
        none = full_of(size.aval, -1.0)
        # A NaN is the pivot, so that it spreads over the rest.
        best = lax.argmax(lax.select_n(lax.ge(rows, j), none, size), n_batch, INT32)
        pivots = _with_element(pivots, best, j)
        swap = _exchanged(rows, j, per_matrix(best, rows.aval.shape))
        a, order = take_rows(a, swap), take_along_axis(order, swap, n_batch)
        row = lax.dynamic_index_in_dim(a, j, n_batch, keepdims=False)
        pivot = lax.dynamic_index_in_dim(row, j, n_batch, keepdims=False)
        column = lax.dynamic_index_in_dim(a, j, n_batch + 1, keepdims=False)
        zero = lax.eq(pivot, scalar(pivot, 0))
        divisor = lax.select_n(zero, pivot, full_of(pivot.aval, 1))
        scaled = lax.div(column, per_matrix(divisor, column.aval.shape))
        below = lax.gt(rows, j)
        factor = lax.select_n(below, zeros_of(scaled.aval), scaled)
        product = lax.mul(along_rows(factor, a.aval.shape), along_columns(row, a.aval.shape))
        a = lax.select_n(lax.gt(columns, j), a, lax.sub(a, product))
        column = lax.select_n(below, column, scaled)
        a = lax.select_n(lax.eq(columns, j), a, along_rows(column, a.aval.shape))
        return a, pivots, order

    pivots = lax.full((*batch, least(m, n)), 0, INT32)
    return repeated(least(m, n), step, (a, pivots, rows))


def _size(x: Value) -> Any:
    """By which pivots are chosen: LAPACK's |re| + |im|."""
    if x.aval.dtype.kind != "c":
        return lax.abs(x)
    return lax.add(lax.abs(lax.real(x)), lax.abs(lax.imag(x)))


def _with_element(x: Value, value: Value, at: Any) -> Any:
    """``x`` with ``value`` at position ``at`` of its last axis."""
    n = x.aval.ndim
    here = lax.eq(lax.broadcasted_iota(INT32, x.aval.shape, n - 1), at)
    return lax.select_n(here, x, per_matrix(value, x.aval.shape))


def _exchanged(rows: Value, i: Any, j: Value) -> Any:
    """The positions ``rows`` with ``i`` and ``j`` exchanged."""
    first = lax.broadcast_in_dim(i, rows.aval.shape, ())
    out = lax.select_n(lax.eq(rows, first), rows, j)
    return lax.select_n(lax.eq(rows, j), out, first)


# libraries ---------------------------------------------------------------------------------------


def _finish(ctx: LoweringContext, lu: Any, pivots: Any, _: Any) -> list[Any]:
    """Pivots are counted from 0, and there is a permutation.

    The status is not asked for: a zero pivot is no failure, U has a zero there, and the others are
    arguments that are none, as a negative size. NaN would be written over factors in a second copy.
    """
    _, pivot_aval, permutation = ctx.avals_out
    pivots = ctx.op1("stablehlo.subtract", [pivots, ctx.splat(1, pivot_aval)], pivot_aval)
    size = permutation.shape[-1]
    (order,) = ctx.lower_fun(lambda p: _permutation(p, size), pivots, avals_in=[pivot_aval])
    return [lu, pivots, order]


def _lower_cpu(ctx: LoweringContext, operand: IrValue) -> list[Any]:
    (a,) = ctx.avals_in
    if a.shape[-1] == a.shape[-2] and in_lanes(MOST_LU, a):
        return ctx.lower_fun(_in_lanes, operand)
    outs = [a, ctx.avals_out[1], info_of(a)]
    return _finish(ctx, *lapack(ctx, "getrf", [operand], [a], outs, aliases={0: 0}))


def _in_lanes(a: Value) -> list[Any]:
    return [from_lanes(x, a.aval.shape[:-2]) for x in lu_of(to_lanes(a))]


def _lower_gpu(ctx: LoweringContext, operand: IrValue) -> list[Any]:
    (a,) = ctx.avals_in
    outs = [a, ctx.avals_out[1], info_of(a)]
    target = "cusolver_getrf_ffi"
    return _finish(ctx, *ffi_call(ctx, target, [operand], [a], outs, aliases={0: 0}))


on_cpu(lu_p, _lower_cpu)
on_gpu(lu_p, _lower_gpu, loses_nan=True)


def lu(x: Operand) -> list[Any]:
    """LU factors with row exchanges: ``x[permutation] = L U``.

    Args:
        x: matrices of shape ``(*batch, m, n)``.

    Returns:
        A list ``[lu, pivots, permutation]``. ``lu`` has the shape and dtype of ``x``: U with its
        diagonal, and below it L, whose diagonal of ones is not stored. ``pivots``, int32 of shape
        ``(*batch, min(m, n))``: row ``i`` was exchanged with row ``pivots[i]``, in order.
        ``permutation``, int32 of shape ``(*batch, m)``, is what all the exchanges make.

    Raises:
        UnsupportedDtypeError: ``x`` holds neither floats nor complex numbers.
        RankError: ``x`` has fewer than 2 axes.

    >>> import tracebridge as tb
    >>> factors, pivots, order = tb.lax.linalg.lu(tb.numpy.array([[1.0, 2.0], [2.0, 2.0]]))
    >>> factors.tolist(), pivots.tolist(), order.tolist()
    ([[2.0, 2.0], [0.5, 1.0]], [1, 1], [1, 0])
    """
    (a,), dtype = matrices("lu", x)
    factors, pivots, permutation = lu_p.bind(a)
    return [rounded(factors, dtype), pivots, permutation]


@final
class LuPivotsToPermutation(Composed):
    """Row exchanges, one after the other, as one permutation of ``permutation_size`` rows."""

    name = "lu_pivots_to_permutation"
    makes_nan = False

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (pivots,) = avals
        size = params["permutation_size"]
        if pivots.dtype != INT32:
            msg = f"lu_pivots_to_permutation works on int32, got {pivots.str_short()}"
            raise UnsupportedDtypeError(msg)
        if not pivots.ndim:
            msg = "lu_pivots_to_permutation: got a scalar, expected at least 1 axis"
            raise RankError(msg)
        if surely_less(size, pivots.shape[-1]):
            msg = f"lu_pivots_to_permutation: {pivots.shape[-1]} exchanges of {size} rows"
            raise ShapeMismatchError(msg, expected="at most as many exchanges as rows")
        return pivots.update(shape=(*pivots.shape[:-1], size), weak_type=False)

    def compose(self, *operands: Value, **params: Any) -> Any:
        (pivots,) = operands
        return _permutation(pivots, params["permutation_size"])


lu_pivots_to_permutation_p = LuPivotsToPermutation()


def _permutation(pivots: Any, size: Any) -> Any:
    *batch, k = pivots.aval.shape
    axis = len(batch)
    order = lax.broadcasted_iota(INT32, (*batch, size), axis)
    if k == 0 or (type(size) is int and size == 0):
        return order
    rows = order

    def step(i: Any, order: Any) -> Any:
        other = lax.dynamic_index_in_dim(pivots, i, axis, keepdims=True)
        here = lax.broadcast_in_dim(i, other.aval.shape, ())
        at_i = lax.dynamic_index_in_dim(order, i, axis, keepdims=True)
        at_j = take_along_axis(order, other, axis)
        out = lax.select_n(lax.eq(rows, _wide(here, rows)), order, _wide(at_j, rows))
        return lax.select_n(lax.eq(rows, _wide(other, rows)), out, _wide(at_i, rows))

    return repeated(k, step, order)


def _wide(x: Value, like: Value) -> Any:
    n = x.aval.ndim
    return lax.broadcast_in_dim(x, like.aval.shape, tuple(range(n)))


def lu_pivots_to_permutation(pivots: Operand, permutation_size: int) -> Any:
    """The permutation that row exchanges make, one after the other.

    Args:
        pivots: int32 array of shape ``(*batch, k)``: row ``i`` is exchanged with ``pivots[i]``.
        permutation_size: how many rows there are, at least k.

    Returns:
        An int32 array of shape ``(*batch, permutation_size)``.

    Raises:
        UnsupportedDtypeError: ``pivots`` is not of int32.
        RankError: ``pivots`` is a scalar.
        ShapeMismatchError: there are more exchanges than rows.

    >>> import tracebridge as tb
    >>> pivots = tb.numpy.array([2, 2], "int32")
    >>> tb.lax.linalg.lu_pivots_to_permutation(pivots, 3).tolist()
    [2, 0, 1]
    """
    value = as_value(pivots, "lu_pivots_to_permutation")
    if type(permutation_size) is int:
        permutation_size = operator.index(permutation_size)
    return lu_pivots_to_permutation_p.bind(value, permutation_size=permutation_size)
