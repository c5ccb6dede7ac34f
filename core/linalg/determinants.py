"""Determinants, whose derivatives exist for singular matrices too, and adjugates."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.branches.switch import cond
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.calls import on_cpu
from tracebridge.core.linalg.family import Composed, check_dtype, check_square
from tracebridge.core.linalg.lanes import (
    MOST_LU,
    determinant_of,
    from_lanes,
    in_lanes,
    to_lanes,
)
from tracebridge.core.linalg.lu import lu_p
from tracebridge.core.linalg.matrices import (
    INT32,
    adjoint,
    along_columns,
    along_rows,
    as_dtype,
    diagonal,
    eye_of,
    from_diagonal,
    is_empty,
    matmul,
    per_matrix,
    scale_columns,
    swapped,
)
from tracebridge.core.linalg.solving import lu_solution
from tracebridge.core.linalg.svd import svd_p
from tracebridge.core.mlir.types import is_static

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value


@final
class Det(Composed):
    """The determinant, from the LU factors."""

    name = "det"

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        (a,) = avals
        check_dtype("det", a)
        check_square("det", a)
        return a.update(shape=a.shape[:-2])

    def compose(self, *operands: Any, **params: Any) -> Any:
        factors, pivots, _ = lu_p.bind(*operands)
        product = _product(diagonal_of_factors(factors))
        return lax.mul(product, as_dtype(parity(pivots), product.aval.dtype))

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """The trace of the adjugate times the change."""
        (a,), (da,) = primals, tangents
        products = lax.mul(swapped(adjugate_p.bind(a)), da)
        n = a.aval.ndim
        return self.bind(a), lax.reduce_sum(products, (n - 2, n - 1))


det_p = Det()


def _det_cpu(ctx: LoweringContext, operand: IrValue) -> Any:
    if in_lanes(MOST_LU, *ctx.avals_in, least=0):
        return ctx.lower_fun(determinant_of, operand)[0]
    return det_p.lower(ctx, operand)


on_cpu(det_p, _det_cpu)


def diagonal_of_factors(factors: Value) -> Any:
    """The main diagonals of LU factors, of shape ``(*batch, n)``.

    Of square matrices that a routine has left by columns every (n + 1)th element in memory.
    """
    *batch, n, _ = factors.aval.shape
    if not is_static(factors.aval):
        return diagonal(factors)
    flat = lax.reshape(swapped(factors), (*batch, n * n))
    return lax.slice_in_dim(flat, 0, n * n, n + 1, len(batch))


def _product(d: Value) -> Any:
    """Of the last axis; by logarithms where a product on the way overflows or vanishes."""
    axes = (d.aval.ndim - 1,)
    product = lax.reduce_prod(d, axes)
    size = lax.exp(lax.reduce_sum(lax.log(lax.abs(d)), axes))
    by_logs = lax.mul(as_dtype(size, d.aval.dtype), lax.reduce_prod(lax.sign(d), axes))
    magnitude = lax.abs(product)
    kept = lax.bitwise_and(lax.gt(magnitude, 0.0), lax.lt(magnitude, math.inf))
    return lax.select_n(kept, by_logs, product)


def parity(pivots: Value) -> Any:
    """-1 for an odd number of exchanges, int32."""
    axis = pivots.aval.ndim - 1
    place = lax.broadcasted_iota(INT32, pivots.aval.shape, axis)
    moved = lax.convert_dtype(lax.ne(pivots, place), INT32)
    odd = lax.bitwise_and(lax.reduce_sum(moved, (axis,)), full_of(_one(pivots), 1))
    return lax.sub(full_of(odd.aval, 1), lax.mul(odd, full_of(odd.aval, 2)))


def _one(pivots: Value) -> ShapedArray:
    return pivots.aval.update(shape=pivots.aval.shape[:-1], weak_type=False)


@final
class Adjugate(Composed):
    """The inverse times the determinant, a polynomial of the elements."""

    name = "adjugate"

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        (a,) = avals
        check_dtype("adjugate", a)
        check_square("adjugate", a)
        return a

    def compose(self, *operands: Any, **params: Any) -> Any:
        if has_few_minors(operands[0]):
            return _by_minors(operands[0], operands[0])
        if is_empty(operands[0].aval):
            return _by_singular_values(operands[0])
        return _by_factors(operands[0])

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """Minors of a diagonal matrix that changes by B: products without two of its elements."""
        (a,), (da,) = primals, tangents
        if has_few_minors(a):
            changes = [_by_minors(da, a)]
            if a.aval.shape[-1] == 3:
                changes.append(_by_minors(a, da))
            elif a.aval.shape[-1] < 2:
                changes = [zeros_of(da.aval)]
            return self.bind(a), functools.reduce(lax.add, changes)
        u, s, vh, unit = _parts(primals[0])
        v = adjoint(vh)
        change = matmul(adjoint(u), matmul(tangents[0], v))
        products = as_dtype(_rest_of_pairs(s), change.aval.dtype)
        d = diagonal(change)
        n = change.aval.ndim
        sums = lax.mul(products, along_columns(d, change.aval.shape))
        inner = from_diagonal(lax.reduce_sum(sums, (n - 1,)))
        inner = lax.sub(inner, lax.mul(products, change))
        moved = lax.mul(matmul(v, matmul(inner, adjoint(u))), unit)
        return self.bind(*primals), moved


adjugate_p = Adjugate()


def _by_factors(a: Value) -> Any:
    """From LU factors where all matrices have an inverse, by singular values otherwise.

    Both factors of the product come from the same factors of the matrix, so they are those of the
    same matrix nearby: what a small pivot loses in one is made good in the other.
    """
    factors, pivots, permutation = lu_p.bind(a)
    pivot = diagonal_of_factors(factors)
    size = lax.abs(pivot)
    axis = (size.aval.ndim - 1,)
    least, most = lax.reduce_min(size, axis), lax.reduce_max(size, axis)
    share = float(np.finfo(most.aval.dtype).eps) ** 2
    regular = lax.gt(least, lax.mul(most, full_of(most.aval, share)))
    return cond(
        lax.reduce_and(regular, tuple(range(regular.aval.ndim))),
        lambda: _scaled_inverse(factors, pivots, permutation, pivot),
        lambda: _by_singular_values(a),
    )


def _scaled_inverse(factors: Value, pivots: Value, permutation: Value, pivot: Value) -> Any:
    """The determinant without a factor of the pivots' common size, times the inverse with it.

    Minors have one factor less than the determinant: they may be there where it overflows.
    """
    dtype, common = pivot.aval.dtype, as_dtype(_common_size(pivot), pivot.aval.dtype)
    is_first = lax.eq(lax.broadcasted_iota(INT32, pivot.aval.shape, pivot.aval.ndim - 1), 0)
    less = lax.div(pivot, per_matrix(common, pivot.aval.shape))
    minor = lax.mul(_product(lax.select_n(is_first, pivot, less)), as_dtype(parity(pivots), dtype))
    unit = lax.mul(eye_of(factors), per_matrix(common, factors.aval.shape))
    return lax.mul(per_matrix(minor, factors.aval.shape), lu_solution(factors, permutation, unit))


def _common_size(pivot: Value) -> Any:
    """The power of two next to the geometric mean of the sizes of each matrix's pivots."""
    logs = lax.log(lax.abs(pivot))
    axes = (logs.aval.ndim - 1,)
    count = lax.reduce_sum(full_of(logs.aval, math.log(2)), axes)
    return lax.exp2(lax.round(lax.div(lax.reduce_sum(logs, axes), count)))


def _by_singular_values(a: Value) -> Any:
    u, s, vh, unit = _parts(a)
    inner = scale_columns(adjoint(vh), _rest(s))
    return lax.mul(matmul(inner, adjoint(u)), unit)


def has_few_minors(a: Value) -> bool:
    """Whether the matrices have at most three columns: their minors take a product or two."""
    n = a.aval.shape[-1]
    return type(n) is int and 1 <= n <= 3 and not is_empty(a.aval) and is_static(a.aval)


def _by_minors(x: Value, y: Value) -> Any:
    """The adjugate if both are one matrix, otherwise the form that is linear in each.

    Of matrices with two columns, of which minors are single elements, those of ``x`` alone.
    """
    *batch, n, _ = x.aval.shape
    first, second = [_elements(to_lanes(v)) for v in (x, y)]
    out: list[Any] = []
    for i, j in itertools.product(range(n), repeat=2):
        if n == 1:
            out.append(full_of(first[0][0].aval, 1))
        elif n == 2:
            minor = first[1 - j][1 - i]
            out.append(lax.neg(minor) if i != j else minor)
        else:
            # In this cyclic order minors have no signs.
            (r, s), (k, m) = [((q + 1) % 3, (q + 2) % 3) for q in (j, i)]
            left = lax.mul(first[r][k], second[s][m])
            out.append(lax.sub(left, lax.mul(first[r][m], second[s][k])))
    shape = (n, n, out[0].aval.shape[0])
    joined = lax.concatenate([lax.expand_dims(v, (0,)) for v in out], 0)
    return from_lanes(lax.reshape(joined, shape), batch)


def _elements(x: Value) -> list[list[Any]]:
    """``[i][j]`` of matrices in lanes."""
    n = x.aval.shape[0]
    rows = [lax.index_in_dim(x, i, 0, keepdims=False) for i in range(n)]
    return [[lax.index_in_dim(row, j, 0, keepdims=False) for j in range(n)] for row in rows]


def _parts(a: Value) -> tuple[Any, Any, Any, Any]:
    """U, s and V^H, and the product of the determinants of U and V^H, for each element."""
    s, u, vh = svd_p.bind(
        a, full_matrices=False, compute_uv=True, subset_by_index=None, algorithm=None
    )
    unit = lax.mul(det_p.bind(u), det_p.bind(vh))
    return u, s, vh, per_matrix(unit, a.aval.shape)


def _nonzero(s: Value) -> tuple[Any, Any, Any, Any]:
    """Which are zero, how many, the product of the others, and ``s`` with ones for zeros."""
    zero = lax.eq(s, zeros_of(s.aval))
    axis = (s.aval.ndim - 1,)
    safe = lax.select_n(zero, s, full_of(s.aval, 1))
    flags = lax.convert_dtype(zero, INT32)
    return flags, lax.reduce_sum(flags, axis), lax.reduce_prod(safe, axis), safe


def _rest(s: Value) -> Any:
    """For each, the product of all the others."""
    flags, count, product, safe = _nonzero(s)
    shape = s.aval.shape
    others = lax.sub(per_matrix(count, shape), flags)
    out = lax.div(per_matrix(product, shape), safe)
    return lax.select_n(lax.gt(others, zeros_of(others.aval)), out, zeros_of(out.aval))


def _rest_of_pairs(s: Value) -> Any:
    """For each two, the product of all the others; zero on the diagonal."""
    flags, count, product, safe = _nonzero(s)
    shape = (*s.aval.shape, s.aval.shape[-1])
    both = lax.add(along_rows(flags, shape), along_columns(flags, shape))
    others = lax.sub(per_matrix(count, shape), both)
    out = lax.div(per_matrix(product, shape), along_rows(safe, shape))
    out = lax.div(out, along_columns(safe, shape))
    rows = lax.broadcasted_iota(INT32, shape, len(shape) - 2)
    columns = lax.broadcasted_iota(INT32, shape, len(shape) - 1)
    none = lax.bitwise_or(lax.gt(others, zeros_of(others.aval)), lax.eq(rows, columns))
    return lax.select_n(none, out, zeros_of(out.aval))
