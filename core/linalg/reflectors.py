"""Householder reflectors ``H = I - tau v v^H``, as LAPACK stores them, by operations of ``lax``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.reduce.sort import take_along_axis
from tracebridge.core.linalg.matrices import (
    INT32,
    along_columns,
    along_rows,
    as_dtype,
    columns_of,
    conj,
    is_empty,
    least,
    matmul,
    per_matrix,
    real_dtype,
    repeated,
    rows_of,
    scalar,
    size_value,
    take_columns,
)

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import Shape
    from tracebridge.core.ir.values import Value


def positions(shape: Shape) -> Any:
    """The number of its place along the last axis, for each element."""
    size = shape[-1]
    return columns_of(shape) if len(shape) > 1 else lax.iota(INT32, size)


def element(x: Value, at: Any) -> Any:
    """The element of each vector at position ``at``."""
    return lax.dynamic_index_in_dim(x, at, x.aval.ndim - 1, keepdims=False)


def column(a: Value, at: Any) -> Any:
    """The columns of number ``at``."""
    return lax.dynamic_index_in_dim(a, at, a.aval.ndim - 1, keepdims=False)


def with_column(a: Value, at: Any, values: Value) -> Any:
    """``a`` with other elements in the column of number ``at``."""
    shape = a.aval.shape
    return lax.select_n(lax.eq(columns_of(shape), at), a, along_rows(values, shape))


def with_element(x: Value, at: Any, value: Value) -> Any:
    """Vectors with ``value`` at position ``at``."""
    shape = x.aval.shape
    return lax.select_n(lax.eq(positions(shape), at), x, per_matrix(value, shape))


def masked(x: Value, keep: Value) -> Any:
    """``x`` where ``keep``, else zero."""
    return lax.select_n(keep, zeros_of(x.aval), x)


def absolute_squares(x: Value) -> Any:
    """The squares of absolute values, which have derivatives at zero."""
    if not is_complex(x.aval.dtype):
        return lax.mul(x, x)
    re, im = lax.real(x), lax.imag(x)
    return lax.add(lax.mul(re, re), lax.mul(im, im))


def reflector(x: Value, first: Any) -> tuple[Any, Any, Any]:
    """What makes vectors zero behind position ``first``: ``(v, tau, beta)``, ``H^H x = beta e``.

    ``v`` is 1 there and zero before; ``beta`` is real, of the sign that avoids cancellation.
    """
    shape, dtype = x.aval.shape, x.aval.dtype
    place = positions(shape)
    n = len(shape) - 1
    behind = lax.gt(place, first)
    size = lax.reduce_max(masked(lax.abs(x), lax.ge(place, first)), (n,))
    size = lax.stop_gradient(size)
    unit = lax.select_n(lax.gt(size, scalar(size, 0)), full_of(size.aval, 1), size)
    scaled = lax.div(x, as_dtype(per_matrix(unit, shape), dtype))
    alpha = element(scaled, first)
    tail = masked(scaled, behind)
    tail_square = lax.reduce_sum(absolute_squares(tail), (n,))
    total = lax.add(absolute_squares(alpha), tail_square)
    trivial = lax.eq(tail_square, scalar(tail_square, 0))
    head = alpha
    if is_complex(dtype):
        head = lax.real(alpha)
        trivial = lax.bitwise_and(trivial, lax.eq(lax.imag(alpha), scalar(tail_square, 0)))
    ones = full_of(total.aval, 1)
    length = lax.sqrt(lax.select_n(trivial, total, ones))
    beta = lax.select_n(lax.ge(head, scalar(head, 0)), length, lax.neg(length))
    wide_beta = as_dtype(beta, dtype)
    tau = lax.div(lax.sub(wide_beta, alpha), wide_beta)
    tau = lax.select_n(trivial, tau, zeros_of(tau.aval))
    divisor = lax.sub(alpha, wide_beta)
    divisor = lax.select_n(trivial, divisor, full_of(divisor.aval, 1))
    v = lax.div(tail, per_matrix(divisor, shape))
    v = with_element(v, first, full_of(alpha.aval, 1))
    beta = lax.select_n(trivial, beta, head)
    return v, tau, as_dtype(lax.mul(beta, as_dtype(unit, real_dtype(dtype))), dtype)


def conj_if(x: Value, *, conjugate: bool) -> Any:
    """``x``, or its conjugate."""
    return conj(x) if conjugate else x


def apply_left(a: Value, v: Value, tau: Value) -> Any:
    """``(I - tau v v^H) a``."""
    shape = a.aval.shape
    row = lax.reshape(conj(v), (*shape[:-2], 1, shape[-2]))
    product = lax.squeeze(matmul(row, a), (len(shape) - 2,))
    scaled = lax.mul(product, per_matrix(tau, product.aval.shape))
    return lax.sub(a, lax.mul(along_rows(v, shape), along_columns(scaled, shape)))


def apply_right(a: Value, v: Value, tau: Value) -> Any:
    """``a (I - tau v v^H)``."""
    shape = a.aval.shape
    product = lax.squeeze(matmul(a, lax.expand_dims(v, (-1,))), (len(shape) - 1,))
    scaled = lax.mul(product, per_matrix(tau, product.aval.shape))
    return lax.sub(a, lax.mul(along_rows(scaled, shape), along_columns(conj(v), shape)))


def stored(a: Value, at: Any, shift: int = 0) -> Any:
    """The vector ``v`` that column ``at`` keeps below row ``at + shift``."""
    x = column(a, at)
    first = lax.add(at, full_of(at.aval, shift)) if shift else at
    v = masked(x, lax.gt(positions(x.aval.shape), first))
    return with_element(v, first, full_of(x.aval.update(shape=x.aval.shape[:-1]), 1))


def triangularized(a: Value, *, pivoting: bool) -> list[Any]:
    """R and below it the reflectors, their factors, and with ``pivoting`` the order of columns."""
    *batch, m, n = a.aval.shape
    k = least(m, n)
    taus = zeros_of(a.aval.update(shape=(*batch, k)))
    columns = lax.broadcasted_iota(INT32, (*batch, n), len(batch))

    def step(j: Any, state: Any) -> Any:
        a, taus, order = state
        if pivoting:
            swap = _longest_first(a, j, columns)
            a, order = take_columns(a, swap), take_along_axis(order, swap, len(batch))
        x = column(a, j)
        v, tau, beta = reflector(x, j)
        changed = apply_left(a, v, conj(tau))
        place = positions(x.aval.shape)
        kept = lax.select_n(lax.gt(place, j), with_element(x, j, beta), v)
        changed = lax.select_n(lax.gt(columns_of(a.aval.shape), j), a, changed)
        return with_column(changed, j, kept), with_element(taus, j, tau), order

    # Without elements there are no reflectors, and the columns stay where they are.
    state = (a, taus, columns)
    a, taus, order = state if is_empty(a.aval) else repeated(k, step, state)
    return [a, taus, order] if pivoting else [a, taus]


def _longest_first(a: Value, j: Any, columns: Value) -> Any:
    """The positions with ``j`` and that of the longest remaining column exchanged."""
    shape = a.aval.shape
    rest = masked(a, lax.ge(rows_of(shape), j))
    size = lax.reduce_max(lax.abs(rest), (len(shape) - 2, len(shape) - 1))
    unit = lax.select_n(lax.gt(size, scalar(size, 0)), full_of(size.aval, 1), size)
    scaled = lax.div(rest, as_dtype(per_matrix(unit, shape), a.aval.dtype))
    lengths = lax.reduce_sum(absolute_squares(scaled), (len(shape) - 2,))
    lengths = lax.select_n(lax.ge(columns, j), full_of(lengths.aval, -1), lengths)
    best = per_matrix(lax.argmax(lengths, len(shape) - 2, INT32), columns.aval.shape)
    here = lax.broadcast_in_dim(j, columns.aval.shape, ())
    swap = lax.select_n(lax.eq(columns, here), columns, best)
    return lax.select_n(lax.eq(columns, best), swap, here)


def multiplied(
    a: Value, taus: Value, c: Value, *, left: bool, transpose: bool, shift: int = 0
) -> Any:
    """``Q c``, ``Q^H c``, ``c Q`` or ``c Q^H``, where Q is the product of the reflectors of ``a``.

    ``shift``: how far below the diagonal they begin.
    """
    k = taus.aval.shape[-1]
    if k == 0:
        return c

    def step(i: Any, c: Any) -> Any:
        j = i if left == transpose else lax.sub(size_value(k - 1), i)
        v, tau = stored(a, j, shift), element(taus, j)
        tau = conj_if(tau, conjugate=transpose)
        return apply_left(c, v, tau) if left else apply_right(c, v, tau)

    return repeated(k, step, c)
