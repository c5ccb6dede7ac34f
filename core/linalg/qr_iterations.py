"""Schur forms by shifted QR iterations, by operations of ``lax``.

Each sweep chases a bulge down the diagonal by reflectors of a few rows (Francis 1961): of three
rows with two shifts at once for real matrices, of two rows with one shift for complex ones.
Source: Golub, Van Loan (2013), Matrix Computations, algorithms 7.5.1 and 7.5.2; the shifts for
iterations that make no progress, and the form of blocks of two rows, are those of LAPACK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.loops.fori import fori_loop
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.batch_util import to_front
from tracebridge.core.linalg.hessenberg import hessenberg_p
from tracebridge.core.linalg.matrices import (
    INT32,
    all_finite,
    as_dtype,
    diagonal,
    eye_of,
    lower_part,
    most,
    nan_unless_finite,
    padded,
    part,
    per_matrix,
    real_dtype,
    repeated,
    scalar,
    size_value,
    unit_scaled,
    upper_part,
)
from tracebridge.core.linalg.reflectors import apply_left, apply_right, multiplied, reflector

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracebridge.core.ir.values import Value

SWEEPS_PER_ROW = 30
"""As many as LAPACK allows."""
_STUCK = 10


def for_each_matrix(fun: Callable[..., list[Any]], *xs: Value, ranks: tuple[int, ...]) -> list[Any]:
    """Results of ``fun`` for each of a batch of matrices or vectors, of ``ranks``."""
    if xs[0].aval.ndim == ranks[0]:
        return fun(*xs)
    size = xs[0].aval.shape[0]

    def inner(*rest: Any) -> list[Any]:
        return for_each_matrix(fun, *rest, ranks=ranks)

    outs, dims = batch_flat(inner, xs, [0] * len(xs), size)
    return [to_front(o, d, size) for o, d in zip(outs, dims, strict=True)]


def schur_by_sweeps(a: Value, *, vectors: bool) -> list[Any]:
    """``[T, Q]`` or ``[T]``: for real matrices with blocks of two rows for complex eigenvalues."""
    shape = a.aval.shape
    n = shape[-1]
    if type(n) is not int:
        # Of a symbolic size: with two rows of zeros it is known to be large enough for a sweep.
        forms = _schur(padded(a, n + 2, n + 2), vectors=vectors)
        return [part(x, (0, n), (0, n)) for x in forms]
    return _schur(a, vectors=vectors)


def _schur(a: Value, *, vectors: bool) -> list[Any]:
    shape = a.aval.shape
    finite = per_matrix(all_finite(a), shape)
    scaled, unit = unit_scaled(lax.select_n(finite, zeros_of(a.aval), a))
    h, taus = hessenberg_p.bind(scaled)
    start = [upper_part(h, -1)]
    if vectors:
        start.append(
            multiplied(lower_part(h, -2), taus, eye_of(a), left=True, transpose=False, shift=1)
            if shape[-1] > 1
            else eye_of(a)
        )
    form, *q = for_each_matrix(_of_hessenberg, *start, ranks=(2,) * len(start))
    form = lax.mul(form, as_dtype(per_matrix(unit, shape), form.aval.dtype))
    return [nan_unless_finite(x, a) for x in (form, *q)]


def _of_hessenberg(h: Value, *q: Value) -> list[Any]:
    """One Schur form, NaN if it takes too many sweeps."""
    n = h.aval.shape[-1]
    width = 2 if is_complex(h.aval.dtype) else 3
    if n < width:
        return _finished(h, q, width)
    # Windows of the last rows reach over the end.
    size = n + width - 1
    start = [_cleaned(padded(h, size, size)), *[padded(x, n, size) for x in q]]
    lo, hi = _active(start[0], width)
    zero = _index(0)
    rows = size_value(most(n, 10))
    limit = lax.mul(rows, _index(SWEEPS_PER_ROW))

    def goes_on(state: Any) -> Any:
        _, lo, hi, _, count = state
        return lax.bitwise_and(lax.lt(lo, hi), lax.lt(count, limit))

    def sweep(state: Any) -> Any:
        xs, lo, hi, stuck, count = state
        first = _first_column(xs[0], lo, hi, stuck, width)

        def step(k: Any, xs: Any) -> Any:
            return _chased(xs, first, k, lo, hi, width)

        h, *q = fori_loop(lo, hi, step, xs)
        h = _cleaned(upper_part(h, -1))
        new_lo, new_hi = _active(h, width)
        one = _index(1)
        stuck = lax.select_n(lax.eq(new_hi, hi), zero, lax.add(stuck, one))
        return [h, *q], new_lo, new_hi, stuck, lax.add(count, one)

    xs, lo, hi, _, _ = while_loop(goes_on, sweep, (start, lo, hi, zero, zero))
    form, *vectors = [part(x, (0, n), (0, n)) for x in xs]
    failed = lax.lt(lo, hi)
    return [
        lax.select_n(per_matrix(failed, x.aval.shape), x, full_of(x.aval, float("nan")))
        for x in _finished(form, tuple(vectors), width)
    ]


def _index(k: int) -> Any:
    return full_of(ShapedArray((), INT32), k)


def _place(n: int) -> Any:
    return lax.broadcasted_iota(INT32, (n,), 0)


def _at(h: Value, i: Any, j: Any) -> Any:
    """One element; ``i`` and ``j`` may be ``(index, offset)``."""
    where = [lax.add(k[0], _index(k[1])) if type(k) is tuple else k for k in (i, j)]
    return lax.reshape(lax.dynamic_slice(h, where, (1, 1)), ())


def _below(h: Value) -> Any:
    """The elements below the diagonal, zero at the last position."""
    n = h.aval.shape[-1]
    moved = lax.pad(part(h, (1, n), (0, n)), scalar(h, 0), [(0, 1, 0), (0, 0, 0)])
    return diagonal(moved)


def _cleaned(h: Value) -> Any:
    """Elements below the diagonal that rounding hides become zero."""
    kind = np.finfo(real_dtype(h.aval.dtype))
    size = lax.abs(diagonal(h))
    config = [(-1, 1, 0)]
    near = lax.add(size, lax.pad(size, scalar(size, 0), config))
    near = lax.select_n(lax.eq(near, zeros_of(near.aval)), near, full_of(near.aval, 1))
    tiny = scalar(near, float(kind.tiny) / float(kind.eps))
    tiny = lax.mul(tiny, as_dtype(size_value(h.aval.shape[-1]), near.aval.dtype))
    bound = lax.max(lax.mul(near, scalar(near, float(kind.eps))), _spread(tiny, near))
    small = lax.le(lax.abs(_below(h)), bound)
    shape = h.aval.shape
    rows, columns = [lax.broadcasted_iota(INT32, shape, k) for k in (0, 1)]
    here = lax.eq(rows, lax.add(columns, full_of(columns.aval, 1)))
    hidden = lax.bitwise_and(here, lax.broadcast_in_dim(small, shape, (1,)))
    return lax.select_n(hidden, h, zeros_of(h.aval))


def _active(h: Value, width: int) -> tuple[Any, Any]:
    """First and last row of the last block of ``width`` rows or more; equal if there is none."""
    linked = lax.ne(_below(h), zeros_of(h.aval.update(shape=h.aval.shape[:-1])))
    place = _place(h.aval.shape[-1])
    none = full_of(place.aval, 0)
    ends = linked
    for _ in range(width - 2):
        after = lax.pad(ends, full_of(ends.aval.update(shape=()), False), [(-1, 1, 0)])
        ends = lax.bitwise_and(linked, after)
    last = lax.add(place, full_of(place.aval, width - 1))
    hi = lax.reduce_max(lax.select_n(ends, none, last), (0,))
    gap = lax.bitwise_and(lax.bitwise_not(linked), lax.lt(place, _spread(hi, place)))
    after_gap = lax.add(place, full_of(place.aval, 1))
    return lax.reduce_max(lax.select_n(gap, none, after_gap), (0,)), hi


def _spread(k: Value, like: Value) -> Any:
    return lax.broadcast_in_dim(k, like.aval.shape, ())


def _first_column(h: Value, lo: Any, hi: Any, stuck: Any, width: int) -> Any:
    """What the first reflector of a sweep turns into the first axis."""
    up = (hi, -1)
    a, b, c, d = [_at(h, i, j) for i, j in ((up, up), (up, hi), (hi, up), (hi, hi))]
    corner = _at(h, lo, lo)
    is_stuck = lax.bitwise_and(
        lax.gt(stuck, _index(0)), lax.eq(lax.rem(stuck, _index(_STUCK)), _index(0))
    )
    if width == 2:
        size = as_dtype(lax.mul(lax.abs(c), scalar(lax.abs(c), 0.75)), d.aval.dtype)
        shift = lax.select_n(is_stuck, _wilkinson(a, b, c, d), lax.add(d, size))
        return lax.concatenate([_row(lax.sub(corner, shift)), _row(_at(h, (lo, 1), lo))], 0)
    size = lax.add(lax.abs(c), lax.abs(_at(h, up, (hi, -2))))
    other = lax.mul(size, scalar(size, 0.75))
    a = lax.select_n(is_stuck, a, lax.add(d, other))
    product = lax.select_n(
        is_stuck, lax.mul(b, c), lax.mul(lax.mul(size, size), scalar(a, -0.4375))
    )
    d = lax.select_n(is_stuck, d, a)
    next_one, beside, under = _at(h, (lo, 1), (lo, 1)), _at(h, lo, (lo, 1)), _at(h, (lo, 1), lo)
    first = lax.sub(lax.mul(lax.sub(corner, a), lax.sub(corner, d)), product)
    return lax.concatenate(
        [
            _row(lax.add(lax.div(first, under), beside)),
            _row(lax.sub(lax.sub(lax.add(corner, next_one), a), d)),
            _row(_at(h, (lo, 2), (lo, 1))),
        ],
        0,
    )


def _row(x: Value) -> Any:
    return lax.reshape(x, (1,))


def _wilkinson(a: Value, b: Value, c: Value, d: Value) -> Any:
    """The eigenvalue of ``[[a, b], [c, d]]`` that is nearer to ``d``."""
    product = lax.mul(b, c)
    half = lax.mul(lax.sub(a, d), scalar(a, 0.5))
    root = lax.sqrt(lax.add(lax.mul(half, half), product))
    plus, minus = lax.add(half, root), lax.sub(half, root)
    larger = lax.select_n(lax.gt(lax.abs(plus), lax.abs(minus)), minus, plus)
    none = lax.eq(larger, scalar(larger, 0))
    share = lax.div(product, lax.select_n(none, larger, scalar(larger, 1)))
    return lax.sub(d, lax.select_n(none, share, scalar(share, 0)))


def _chased(xs: Any, first: Value, k: Value, lo: Any, hi: Any, width: int) -> list[Any]:
    """The bulge one row further down."""
    h, *q = xs
    n, size = q[0].aval.shape[0] if q else h.aval.shape[0] - width + 1, h.aval.shape[0]
    before = lax.max(lax.sub(k, _index(1)), _index(0))
    x = lax.reshape(lax.dynamic_slice(h, (k, before), (width, 1)), (width,))
    x = lax.select_n(lax.eq(k, lo), x, first)
    place = lax.add(_place(width), _spread(k, _place(width)))
    x = lax.select_n(lax.gt(place, _spread(hi, place)), x, zeros_of(x.aval))
    v, tau, _ = reflector(x, _index(0))
    zero = _index(0)
    rows = lax.dynamic_slice(h, (k, zero), (width, size))
    h = lax.dynamic_update_slice(h, apply_left(rows, v, _conj(tau)), (k, zero))
    updated: list[Any] = []
    for y, height in ((h, size), *[(y, n) for y in q]):
        columns = lax.dynamic_slice(y, (zero, k), (height, width))
        updated.append(lax.dynamic_update_slice(y, apply_right(columns, v, tau), (zero, k)))
    return updated


def _conj(x: Value) -> Any:
    return lax.conj(x) if is_complex(x.aval.dtype) else x


# blocks of two rows ------------------------------------------------------------------------------


def _finished(h: Value, q: tuple[Value, ...], width: int) -> list[Any]:
    """Blocks of two rows in their usual form; complex forms have none."""
    n = h.aval.shape[-1]
    if width == 2 or n < 2:
        return [h, *q]
    return repeated(n - 1, _split, [h, *q])


def _split(k: Value, xs: Any) -> list[Any]:
    """Block ``k``: triangular, or with equal elements on the diagonal and opposite signs beside."""
    h, *q = xs
    zero, after = _index(0), (k, 1)
    a, b, c, d = [_at(h, i, j) for i, j in ((k, k), (k, after), (after, k), (after, after))]
    cosine, sine, is_real = _rotation(a, b, c, d)
    rows = lax.dynamic_slice(h, (k, zero), (2, h.aval.shape[1]))
    h = lax.dynamic_update_slice(h, _turned(rows, cosine, sine, 0), (k, zero))
    updated: list[Any] = []
    for y in (h, *q):
        columns = lax.dynamic_slice(y, (zero, k), (y.aval.shape[0], 2))
        turned = _turned(columns, cosine, sine, 1)
        updated.append(lax.dynamic_update_slice(y, turned, (zero, k)))
    h, *q = updated
    a, b, c, d = [_at(h, i, j) for i, j in ((k, k), (k, after), (after, k), (after, after))]
    mean = lax.mul(lax.add(a, d), scalar(a, 0.5))
    a, d = [lax.select_n(is_real, mean, x) for x in (a, d)]
    c = lax.select_n(is_real, c, scalar(c, 0))
    block = lax.reshape(lax.concatenate([_row(x) for x in (a, b, c, d)], 0), (2, 2))
    return [lax.dynamic_update_slice(h, block, (k, k)), *q]


def _turned(x: Value, cosine: Value, sine: Value, axis: int) -> Any:
    first, second = [lax.slice_in_dim(x, i, i + 1, axis=axis) for i in (0, 1)]
    c, s = [lax.broadcast_in_dim(y, first.aval.shape, ()) for y in (cosine, sine)]
    return lax.concatenate(
        [
            lax.add(lax.mul(c, first), lax.mul(s, second)),
            lax.sub(lax.mul(c, second), lax.mul(s, first)),
        ],
        axis,
    )


def _rotation(a: Value, b: Value, c: Value, d: Value) -> tuple[Any, Any, Any]:
    """Cosine and sine, and whether the eigenvalues are real."""
    one, zero = scalar(a, 1), scalar(a, 0)
    half = lax.mul(lax.sub(a, d), scalar(a, 0.5))
    most, least = lax.max(lax.abs(b), lax.abs(c)), lax.min(lax.abs(b), lax.abs(c))
    least = lax.mul(least, lax.mul(lax.sign(b), lax.sign(c)))
    scale = lax.max(lax.abs(half), most)
    scale = lax.select_n(lax.eq(scale, zero), scale, one)
    z = lax.add(lax.mul(lax.div(half, scale), half), lax.mul(lax.div(most, scale), least))
    is_real = lax.bitwise_or(lax.ge(z, zero), lax.eq(c, zero))
    root = lax.mul(lax.sqrt(scale), lax.sqrt(lax.max(z, zero)))
    z = lax.add(half, lax.select_n(lax.lt(half, zero), root, lax.neg(root)))
    length = _length(c, z)
    none = lax.bitwise_or(lax.eq(length, zero), lax.eq(c, zero))
    safe = lax.select_n(none, length, one)
    real_cosine = lax.select_n(none, lax.div(z, safe), one)
    real_sine = lax.select_n(none, lax.div(c, safe), zero)
    total = lax.add(b, c)
    length = _length(total, lax.sub(a, d))
    safe = lax.select_n(lax.eq(length, zero), length, one)
    cosine = lax.sqrt(lax.mul(lax.add(one, lax.div(lax.abs(total), safe)), scalar(a, 0.5)))
    cosine = lax.select_n(lax.eq(length, zero), cosine, one)
    sign = lax.select_n(lax.lt(total, zero), one, lax.neg(one))
    sine = lax.neg(lax.mul(lax.div(half, lax.mul(safe, cosine)), sign))
    return (
        lax.select_n(is_real, cosine, real_cosine),
        lax.select_n(is_real, sine, real_sine),
        is_real,
    )


def _length(x: Value, y: Value) -> Any:
    """``sqrt(x^2 + y^2)`` without overflow."""
    most = lax.max(lax.abs(x), lax.abs(y))
    safe = lax.select_n(lax.eq(most, scalar(most, 0)), most, scalar(most, 1))
    x, y = lax.div(x, safe), lax.div(y, safe)
    return lax.mul(safe, lax.sqrt(lax.add(lax.mul(x, x), lax.mul(y, y))))
