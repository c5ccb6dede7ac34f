"""Eigenvalues and singular values by Jacobi's rotations, by operations of ``lax``.

Half as many rotations as there are columns are done at once, each on two columns that no other one
touches; a round-robin tournament brings each pair together once per sweep (Brent and Luk 1985).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.matrices import (
    INT32,
    adjoint,
    along_columns,
    as_dtype,
    columns_of,
    conj,
    diagonal,
    eye,
    from_diagonal,
    joined,
    least,
    matmul,
    most,
    nan_unless_finite,
    padded,
    part,
    per_matrix,
    real,
    real_dtype,
    repeated,
    scalar,
    scale_columns,
    size_value,
    take_columns,
    unit_scaled,
)
from tracebridge.core.linalg.qr import qr_p
from tracebridge.core.linalg.reflectors import absolute_squares
from tracebridge.core.symbolic.compare import definitely_equal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.values import Value

MAX_SWEEPS = 30


def eigh_by_rotations(a: Value) -> tuple[Any, Any]:
    """Eigenvectors and ascending eigenvalues of Hermitian matrices, which are given whole."""
    *_, n = a.aval.shape
    scaled, unit = unit_scaled(a)
    half = (n + 1) // 2
    size = 2 * half
    w = padded(scaled, size, size)
    v = eye(w.aval.shape, w.aval.dtype)

    def one_round(_: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        w, v = state
        d = real(diagonal(w))
        first, second = _halves(d, half, d.aval.ndim - 1)
        c, s, phase = _rotation(first, second, diagonal(part(w, (0, half), (half, size))))
        w, v = [_next_pairs(_turned_columns(x, c, s, phase, half), half) for x in (w, v)]
        # The same columns of the adjoint: what was done to the rows.
        w = adjoint(_next_pairs(_turned_columns(adjoint(w), c, s, phase, half), half))
        return w, v

    def sweep(state: Any) -> Any:
        w, v, count = state
        w, v = repeated(most(size - 1, 1), one_round, (w, v))
        return w, v, lax.add(count, full_of(count.aval, 1))

    def goes_on(state: Any) -> Any:
        w, _, count = state
        squares = absolute_squares(w)
        axes = (w.aval.ndim - 2, w.aval.ndim - 1)
        total = lax.reduce_sum(squares, axes)
        off_diagonal = lax.reduce_sum(
            absolute_squares(lax.sub(w, from_diagonal(diagonal(w)))), axes
        )
        bound = lax.mul(total, scalar(total, _epsilon(w) ** 2))
        some = lax.reduce_or(lax.gt(off_diagonal, bound), tuple(range(off_diagonal.aval.ndim)))
        return lax.bitwise_and(some, lax.lt(count, full_of(count.aval, MAX_SWEEPS)))

    w, v, _ = while_loop(goes_on, sweep, (w, v, lax.convert_dtype(0, INT32)))
    values = real(diagonal(part(w, (0, n), (0, n))))
    vectors = part(v, (0, n), (0, n))
    values = lax.mul(values, per_matrix(unit, values.aval.shape))
    values, order = _sorted(values, descending=False)
    return nan_unless_finite(take_columns(vectors, order), a), nan_unless_finite(values, a)


def svd_by_rotations(
    a: Value,
    *,
    full_matrices: bool,
    orthogonalized: Callable[[Value], tuple[Any, Any]] | None = None,
) -> tuple[Any, Any, Any]:
    """``(u, s, v^H)``: one-sided rotations make the columns of R, of QR, orthogonal.

    Or what else does: ``orthogonalized`` gives ``r V`` and V.
    """
    m, n = a.aval.shape[-2:]
    k = least(m, n)
    if not (definitely_equal(k, m) or definitely_equal(k, n)):
        return _svd_of_any_shape(a, full_matrices, orthogonalized)
    if m < n:
        u, s, vh = svd_by_rotations(
            adjoint(a), full_matrices=full_matrices, orthogonalized=orthogonalized
        )
        return adjoint(vh), s, adjoint(u)
    scaled, unit = unit_scaled(a)
    q, r = qr_p.bind(scaled, pivoting=False, full_matrices=full_matrices, use_magma=None)
    r = part(r, (0, n), (0, n))
    x, v = (orthogonalized or _orthogonalized)(r)
    lengths = lax.sqrt(lax.reduce_sum(absolute_squares(x), (x.aval.ndim - 2,)))
    s, order = _sorted(lengths, descending=True)
    x, v = take_columns(x, order), take_columns(v, order)
    # Columns of x are orthogonal, but those of singular values 0 say nothing: QR completes them.
    inner, triangle = qr_p.bind(x, pivoting=False, full_matrices=False, use_magma=None)
    d = diagonal(triangle)
    size = as_dtype(lax.abs(d), d.aval.dtype)
    none = lax.eq(size, scalar(size, 0))
    ones = full_of(d.aval, 1)
    phase = lax.select_n(none, lax.div(d, lax.select_n(none, size, ones)), ones)
    inner = scale_columns(inner, phase)
    u = matmul(part(q, (0, m), (0, n)), inner)
    u = _with_rest(u, q)
    s = lax.mul(s, per_matrix(unit, s.aval.shape))
    return nan_unless_finite(u, a), nan_unless_finite(s, a), nan_unless_finite(adjoint(v), a)


def _svd_of_any_shape(
    a: Value, full_matrices: bool, orthogonalized: Callable[[Value], tuple[Any, Any]] | None
) -> tuple[Any, Any, Any]:
    """The same where the sizes are symbolic and either may be the smaller one.

    ``a = q r`` and ``r^H = p t``, where t is square whichever that is.
    """
    qr = {"pivoting": False, "full_matrices": full_matrices, "use_magma": None}
    k = least(*a.aval.shape[-2:])
    q, r = qr_p.bind(a, **qr)
    p, t = qr_p.bind(adjoint(part(r, (0, k), (0, r.aval.shape[-1]))), **qr)
    u, s, vh = svd_by_rotations(
        adjoint(part(t, (0, k), (0, k))), full_matrices=False, orthogonalized=orthogonalized
    )
    left, right = [
        _with_rest(matmul(part(basis, (0, basis.aval.shape[-2]), (0, k)), inner), basis)
        for basis, inner in ((q, u), (p, adjoint(vh)))
    ]
    return left, s, adjoint(right)


def _with_rest(vectors: Value, basis: Value) -> Any:
    """Vectors for the first columns of a basis, then its other columns."""
    n, size = vectors.aval.shape[-1], basis.aval.shape[-1]
    if definitely_equal(n, size):
        return vectors
    return joined([vectors, part(basis, (0, basis.aval.shape[-2]), (n, size))], -1)


def _orthogonalized(r: Value) -> tuple[Any, Any]:
    """``r V`` with orthogonal columns, and V."""
    n = r.aval.shape[-1]
    half = (n + 1) // 2
    size = 2 * half
    x = padded(r, n, size)
    v = eye((*r.aval.shape[:-2], size, size), r.aval.dtype)

    def one_round(_: Any, state: Any) -> Any:
        x, v, worst = state
        first, second = _halves(x, half, x.aval.ndim - 1)
        down = (x.aval.ndim - 2,)
        p, q = [lax.reduce_sum(absolute_squares(y), down) for y in (first, second)]
        g = lax.reduce_sum(lax.mul(conj(first), second), down)
        scale = lax.sqrt(lax.mul(p, q))
        small = lax.eq(scale, scalar(scale, 0))
        cosine = lax.div(lax.abs(g), lax.select_n(small, scale, full_of(scale.aval, 1)))
        cosine = lax.select_n(small, cosine, zeros_of(cosine.aval))
        worst = lax.max(worst, lax.reduce_max(cosine, tuple(range(cosine.aval.ndim))))
        c, s, phase = _rotation(p, q, g)
        x, v = [_next_pairs(_turned_columns(y, c, s, phase, half), half) for y in (x, v)]
        return x, v, worst

    def sweep(state: Any) -> Any:
        x, v, _, count = state
        x, v, worst = repeated(most(size - 1, 1), one_round, (x, v, zero))
        return x, v, worst, lax.add(count, full_of(count.aval, 1))

    def goes_on(state: Any) -> Any:
        _, _, worst, count = state
        root = lax.sqrt(as_dtype(size_value(n), worst.aval.dtype))
        some = lax.gt(worst, lax.mul(root, scalar(worst, _epsilon(r))))
        return lax.bitwise_and(some, lax.lt(count, full_of(count.aval, MAX_SWEEPS)))

    zero = full_of(r.aval.update(shape=(), dtype=real_dtype(r.aval.dtype)), 0)
    start = (x, v, full_of(zero.aval, 1), lax.convert_dtype(0, INT32))
    x, v, _, _ = while_loop(goes_on, sweep, start)
    return part(x, (0, n), (0, n)), part(v, (0, n), (0, n))


def _rotation(p: Value, q: Value, g: Value) -> tuple[Any, Any, Any]:
    """What makes ``[[p, g], [conj(g), q]]`` diagonal: cosine, sine and the phase of ``g``."""
    size = lax.abs(g)
    none = lax.eq(size, scalar(size, 0))
    ones = full_of(size.aval, 1)
    divisor = lax.select_n(none, size, ones)
    tau = lax.div(lax.sub(q, p), lax.mul(divisor, scalar(size, 2)))
    root = lax.sqrt(lax.add(lax.mul(tau, tau), scalar(tau, 1)))
    t = lax.div(ones, lax.add(lax.abs(tau), root))
    t = lax.select_n(lax.ge(tau, scalar(tau, 0)), lax.neg(t), t)
    t = lax.select_n(none, t, zeros_of(t.aval))
    c = lax.rsqrt(lax.add(lax.mul(t, t), scalar(t, 1)))
    wide = as_dtype(divisor, g.aval.dtype)
    phase = lax.select_n(none, lax.div(g, wide), full_of(g.aval, 1))
    return as_dtype(c, g.aval.dtype), as_dtype(lax.mul(t, c), g.aval.dtype), phase


def _halves(x: Value, half: int, axis: int) -> tuple[Any, Any]:
    return (
        lax.slice_in_dim(x, 0, half, axis=axis),
        lax.slice_in_dim(x, half, 2 * half, axis=axis),
    )


def _turned_columns(x: Value, c: Value, s: Value, phase: Value, half: int) -> Any:
    first, second = _halves(x, half, x.aval.ndim - 1)
    shape = first.aval.shape
    cc, sp, sq = [along_columns(y, shape) for y in (c, lax.mul(s, phase), lax.mul(s, conj(phase)))]
    new_first = lax.sub(lax.mul(cc, first), lax.mul(sq, second))
    return joined([new_first, lax.add(lax.mul(sp, first), lax.mul(cc, second))], -1)


def _next_pairs(x: Value, half: int) -> Any:
    """The columns for the next round: the first stays, the others go round the table."""
    if type(half) is not int:
        return take_columns(x, _order_of_next_pairs(x.aval, half))
    if half < 2:
        return x
    axis = x.aval.ndim - 1

    def cut(start: int, stop: int) -> Any:
        return lax.slice_in_dim(x, start, stop, axis=axis)

    parts = [cut(0, 1), cut(half, half + 1), cut(1, half - 1)]
    return joined([*parts, cut(half + 1, 2 * half), cut(half - 1, half)], -1)


def _order_of_next_pairs(aval: ShapedArray, half: Any) -> Any:
    """As numbers of columns, for a symbolic number of them."""
    place = columns_of((*aval.shape[:-2], aval.shape[-1]))
    half, last = [
        lax.broadcast_in_dim(size_value(d), place.aval.shape, ())
        for d in (half, aval.shape[-1] - 1)
    ]
    one = full_of(place.aval, 1)
    order = lax.select_n(lax.lt(place, half), lax.add(place, one), lax.sub(place, one))
    order = lax.select_n(lax.eq(place, last), order, lax.sub(half, one))
    order = lax.select_n(lax.eq(place, one), order, half)
    return lax.select_n(lax.eq(place, zeros_of(place.aval)), order, place)


def _sorted(values: Value, *, descending: bool) -> tuple[Any, Any]:
    """Values in order, and their positions."""
    axis = values.aval.ndim - 1
    place = lax.broadcasted_iota(INT32, values.aval.shape, axis)
    key = lax.neg(values) if descending else values
    key, order = lax.sort_key_val(key, place, axis)
    return lax.neg(key) if descending else key, order


def _epsilon(a: Value) -> float:
    return float(np.finfo(real_dtype(a.aval.dtype)).eps)
