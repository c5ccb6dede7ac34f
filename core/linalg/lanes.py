"""Factors of many matrices of few columns, for the CPU: one matrix in each lane of a vector.

A call of LAPACK for a matrix of 3 columns takes most of its time around the arithmetic. Here the
batch is the last axis, ``(rows, columns, batch)``, and the steps of a factorization are written
out, so that XLA makes a few vectorised loops over all matrices of them. Pivots, and what happens
to zeros and to numbers that are none, are those of LAPACK.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.matrices import INT32, conj, real
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.values import Value

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_ENDLESS = 1e150
MOST_LU = 3
MOST_CHOLESKY = 3
MOST_TRIANGULAR = 6
MOST_COMPLEX = 3
"""The most rows and columns, measured: XLA computes rows anew for each one that needs them, which
is soon slower than LAPACK, and takes longer to compile."""


# LAPACK takes fewer matrices as fast, and compiles in half the time; not if they have two columns.
FEW_MATRICES = 8


def in_lanes(most: int, *avals: ShapedArray, least: int = FEW_MATRICES) -> bool:
    """Whether the functions below suit such matrices, of at most ``most`` rows and columns.

    Not so for fewer than ``least`` matrices of more than 2 columns, and where the option
    ``platform_rules`` is off.
    """
    if not option("platform_rules"):
        return False
    if is_complex(avals[0].dtype):
        most = min(most, MOST_COMPLEX)
    if not all([is_static(a) and max(a.shape[-2:]) <= most for a in avals]):
        return False
    *batch, _, n = avals[0].shape
    return n <= 2 or math.prod(batch) >= least


# layout ------------------------------------------------------------------------------------------


def to_lanes(a: Value) -> Any:
    """``(*batch, m, n)`` as ``(m, n, size of the batch)``."""
    *batch, m, n = a.aval.shape
    return lax.transpose(lax.reshape(a, (math.prod(batch), m, n)), (1, 2, 0))


def numbers_to_lanes(v: Value) -> Any:
    """``(*batch, n)`` as ``(n, size of the batch)``."""
    *batch, n = v.aval.shape
    return lax.transpose(lax.reshape(v, (math.prod(batch), n)), (1, 0))


def from_lanes(x: Value, batch: Sequence[int]) -> Any:
    """``(m, n, size)`` as ``(*batch, m, n)``; ``(n, size)`` as ``(*batch, n)``."""
    *shape, _ = x.aval.shape
    order = (len(shape), *range(len(shape)))
    return lax.reshape(lax.transpose(x, order), (*batch, *shape))


def _at(x: Value, k: int, axis: int = 0) -> Any:
    """The entry ``k`` of an axis, which goes."""
    return lax.index_in_dim(x, k, axis, keepdims=False)


def _entries(x: Value) -> list[Any]:
    return [_at(x, i) for i in range(x.aval.shape[0])]


def _stacked(xs: Sequence[Value]) -> Any:
    """Arrays as the entries of a new first axis."""
    return lax.concatenate([lax.expand_dims(x, (0,)) for x in xs], 0)


def _across(x: Value, like: Value) -> Any:
    """``(size,)`` repeated to the shape of ``like``, whose last axis it is."""
    n = like.aval.ndim
    return x if x.aval.ndim == n else lax.broadcast_in_dim(x, like.aval.shape, (n - 1,))


def _where(condition: Any, yes: Any, no: Any) -> Any:
    return lax.select_n(_across(condition, yes), no, yes)


def _exchanged(flag: Value, x: Value, y: Value) -> tuple[Any, Any]:
    """``(y, x)`` where ``flag``, else ``(x, y)``."""
    return _where(flag, y, x), _where(flag, x, y)


def _is(number: Value, k: int) -> Any:
    return lax.eq(number, full_of(number.aval, k))


def _divided(x: Value, divisor: Value) -> Any:
    """``x / divisor``; for rows of complex numbers, whose division is slow, by the reciprocal."""
    if not is_complex(divisor.aval.dtype) or x.aval.size == divisor.aval.size:
        return lax.div(x, _across(divisor, x))
    return lax.mul(x, _across(lax.div(full_of(divisor.aval, 1), divisor), x))


# LU ----------------------------------------------------------------------------------------------


def _size(x: Value) -> Any:
    """By which pivots are chosen: LAPACK's |re| + |im|. A number that is none comes first."""
    size = _magnitude(x)
    return _where(lax.eq(size, size), size, full_of(size.aval, float("inf")))


def _divisor(pivot: Value) -> Any:
    """The pivot; 1 for a zero, below which all elements are zeros too."""
    return _where(_is(pivot, 0), full_of(pivot.aval, 1), pivot)


def lu_of(a: Value) -> tuple[Any, Any, Any]:
    """Both factors in one, row exchanges and the permutation, of square matrices in lanes."""
    rows = _entries(a)
    n = len(rows)
    columns = lax.broadcasted_iota(INT32, rows[0].aval.shape, 0)
    count = a.aval.update(shape=a.aval.shape[2:], dtype=INT32, weak_type=False)
    order: list[Any] = [full_of(count, i) for i in range(n)]
    pivots: list[Any] = []
    for k in range(n):
        best, pivot = _size(_at(rows[k], k)), full_of(count, k)
        for i in range(k + 1, n):
            size = _size(_at(rows[i], k))
            larger = lax.gt(size, best)
            best = _where(larger, size, best)
            pivot = _where(larger, full_of(count, i), pivot)
        pivots.append(pivot)
        for i in range(k + 1, n):
            chosen = _is(pivot, i)
            order[k], order[i] = _exchanged(chosen, order[k], order[i])
            rows[k], rows[i] = _exchanged(chosen, rows[k], rows[i])
        divisor = _divisor(_at(rows[k], k))
        number = full_of(columns.aval, k)
        behind, here = lax.gt(columns, number), lax.eq(columns, number)
        for i in range(k + 1, n):
            factor = _across(_divided(_at(rows[i], k), divisor), columns)
            kept = _where(here, factor, rows[i])
            rows[i] = _where(behind, lax.sub(rows[i], lax.mul(factor, rows[k])), kept)
    return _stacked(rows), _stacked(pivots), _stacked(order)


def determinant_of(a: Value) -> Any:
    """Determinants of matrices ``(*batch, n, n)``, which stay as they are; n is at most 3.

    XLA gives programs that have more operations than bytes two threads, which costs twice the time
    of such a short loop: there may be 40 of matrices of float32 with three columns, and 80 of
    float64.
    """
    axis = a.aval.ndim - 2
    n = a.aval.shape[axis]
    rows = [[_at(_at(a, i, axis), j, axis) for j in range(n)] for i in range(n)]
    if n == 1:
        return rows[0][0]
    if n == 3 and a.aval.dtype == _F32:
        return lax.convert_dtype(_by_cofactors(rows), _F32)
    odd = _pivoted(rows)
    pivot = lax.select_n(odd, rows[0][0], lax.neg(rows[0][0]))
    left = _eliminated(rows)
    if n == 2:
        return lax.mul(pivot, left[0][0])
    odd = _pivoted(left)
    second = lax.select_n(odd, left[0][0], lax.neg(left[0][0]))
    return _product_of_three(pivot, second, _eliminated(left)[0][0])


def _by_cofactors(rows: list[list[Any]]) -> Any:
    """The determinant of three columns of float32 in float64, where no product overflows.

    A number in the place of infinity makes a product infinite in float32, but not one with 0 none.
    """
    wide = [
        [lax.clamp(-_ENDLESS, lax.convert_dtype(x, _F64), _ENDLESS) for x in row] for row in rows
    ]
    (a, b, c), (d, e, f), (g, h, i) = wide
    minors = [
        lax.sub(lax.mul(p, q), lax.mul(r, s))
        for p, q, r, s in ((e, i, f, h), (f, g, d, i), (d, h, e, g))
    ]
    first, second, third = [lax.mul(x, m) for x, m in zip((a, b, c), minors, strict=True)]
    return lax.add(lax.add(first, second), third)


def _product_of_three(x: Value, y: Value, z: Value) -> Any:
    """``x y z``, in an order in which nothing overflows or vanishes but the result.

    A large ``x`` is first multiplied by the smaller one of the others, a small one by the larger.
    """
    is_large = lax.ge(_magnitude(x), full_of(_magnitude(x).aval, 1))
    turned = lax.ne(is_large, lax.lt(_magnitude(y), _magnitude(z)))
    first, last = lax.select_n(turned, y, z), lax.select_n(turned, z, y)
    return lax.mul(lax.mul(x, first), last)


def _pivoted(rows: list[list[Any]]) -> Any:
    """Exchange rows until the largest element of the first column is in the first row.

    Returns whether the number of exchanges is odd. A number that is none makes the determinant
    none, whether it is taken as the pivot or not.
    """
    odd: Any = None
    for i in range(1, len(rows)):
        larger = lax.gt(_magnitude(rows[i][0]), _magnitude(rows[0][0]))
        pairs = list(zip(rows[0], rows[i], strict=True))
        rows[0] = [lax.select_n(larger, x, y) for x, y in pairs]
        rows[i] = [lax.select_n(larger, y, x) for x, y in pairs]
        odd = larger if odd is None else lax.ne(odd, larger)
    return odd


def _eliminated(rows: list[list[Any]]) -> list[list[Any]]:
    """What the first row leaves of the others, without the first column."""
    pivot, *top = rows[0]
    divisor = _divisor(pivot)
    left: list[list[Any]] = []
    for first, *rest in rows[1:]:
        # A quotient: equal rows leave nothing, while the product with an inverse may be rounded.
        factor = lax.div(first, divisor)
        left.append([lax.sub(x, lax.mul(factor, u)) for x, u in zip(rest, top, strict=True)])
    return left


def _magnitude(x: Value) -> Any:
    return (
        lax.add(lax.abs(lax.real(x)), lax.abs(lax.imag(x)))
        if is_complex(x.aval.dtype)
        else lax.abs(x)
    )


# triangles ---------------------------------------------------------------------------------------


def triangle_solution(
    a: Value, b: Value, *, lower: bool, unit: bool, order: Value | None = None
) -> Any:
    """X with ``A X = b[order]`` for triangles A, in lanes; the other triangle is not read.

    Args:
        a: array of shape ``(n, n, size)``.
        b: array of shape ``(n, c, size)``.
        lower: which triangle of ``a`` it is.
        unit: whether its diagonal is ones.
        order: of the rows of ``b``, an array of shape ``(n, size)``.
    """
    rows, right = _entries(a), _entries(b)
    n = len(rows)
    if order is not None:
        right = [_chosen([_is(number, i) for i in range(n)], right) for number in _entries(order)]
    solved: dict[int, Any] = {}
    for i in range(n) if lower else range(n - 1, -1, -1):
        row = right[i]
        for j, known in solved.items():
            row = lax.sub(row, lax.mul(_across(_at(rows[i], j), row), known))
        solved[i] = row if unit else _divided(row, _at(rows[i], i))
    return _stacked([solved[i] for i in range(n)])


def _chosen(flags: Sequence[Value], values: Sequence[Value]) -> Any:
    """The value whose flag is set; there is one in each lane."""
    out = values[0]
    for flag, value in zip(flags[1:], values[1:], strict=True):
        out = _where(flag, value, out)
    return out


def put_back(x: Value, order: Value) -> Any:
    """Rows ``(n, c, size)`` moved so that row ``k`` comes to ``order[k]``."""
    rows, places = _entries(x), _entries(order)
    return _stacked([_chosen([_is(p, i) for p in places], rows) for i in range(len(rows))])


# Cholesky ----------------------------------------------------------------------------------------


def cholesky_of(a: Value) -> Any:
    """Lower factors, of matrices in lanes whose lower triangle is read.

    Where a pivot is not positive, the lower triangle is NaN.
    """
    rows = [_entries(row) for row in _entries(a)]
    n = len(rows)
    good: list[Any] = []
    for k in range(n):
        pivot = real(rows[k][k])
        good.append(lax.gt(pivot, zeros_of(pivot.aval)))
        root = lax.sqrt(pivot)
        rows[k][k] = _by_real(full_of(rows[k][k].aval, 1), root, lax.mul)
        for i in range(k + 1, n):
            rows[i][k] = _by_real(rows[i][k], root, lax.div)
        for i in range(k + 1, n):
            for j in range(k + 1, i + 1):
                rows[i][j] = lax.sub(rows[i][j], lax.mul(rows[i][k], conj(rows[j][k])))
    all_good = good[0]
    for flag in good[1:]:
        all_good = lax.bitwise_and(all_good, flag)
    nan = full_of(
        a.aval.update(shape=a.aval.shape[2:]),
        complex("nan+nanj") if is_complex(a.aval.dtype) else math.nan,
    )
    zero = zeros_of(nan.aval)
    out: list[Any] = []
    for i in range(n):
        out += [_where(all_good, v, nan) for v in rows[i][: i + 1]] + [zero] * (n - 1 - i)
    return lax.reshape(_stacked(out), a.aval.shape)


def _by_real(x: Value, y: Value, operation: Callable[..., Any]) -> Any:
    """The product with real ``y``, or the quotient."""
    if not is_complex(x.aval.dtype):
        return operation(x, y)
    return lax.complex(operation(lax.real(x), y), operation(lax.imag(x), y))
