"""Products of groups of rows, each with a matrix of its own.

Operands stand in one order of axes, so that each primitive is the derivative of the other:

* ``P`` prefixes, each with group sizes of its own, that share ``Q`` sets of matrices: prefix ``p``
  has set ``p // (P / Q)``;
* ``R`` rows, cut into ``G`` groups; rows after the last group belong to none;
* ``B`` products in step.

A loop takes tiles of rows of one group, so that a product costs what its rows cost, not ``G``
times as much, and no matrix is copied for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.dtypes.dtypes import float32, int32, is_bool, is_float
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.batch_util import move_batch_axis, to_front
from tracebridge.core.lax.contract.dot import dot_general_p
from tracebridge.core.products.bilinear import Bilinear

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import BatchContext
    from tracebridge.core.ir.value import Value

# A tile of fewer rows leaves the matrix library with nothing to do.
_LEAST_TILE = 16
# Where the number of rows is not known.
_TILE = 128


class _Ragged(Bilinear):
    """``lhs``, ``rhs`` and sizes ``i32[P, G]``; ``sets`` is Q, ``dtype`` that of the result."""

    factors = 0, 1


@final
class RaggedRows(_Ragged):
    """``[P, R, B, Y, K]`` times ``[G, Q, B, K, N]``, the matrix of the group of each row.

    The result has the shape ``[P, R, B, Y, N]``; rows of no group are 0.
    """

    name = "ragged_rows"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        x, y, _ = avals
        return result_aval((x, y), (*x.shape[:4], y.shape[4]), params["dtype"], weak_type=False)

    def compose(self, *operands: Value, **params: Any) -> Any:
        x, y, sizes = operands
        p, r, b, inner, _ = x.aval.shape
        n = y.aval.shape[4]
        dtype = params["dtype"]
        rows = _Rows(x, sizes, inner)
        x = rows.padded(x)
        out = zeros_of(x.aval.strong.update((p, rows.total, b, inner, n), dtype))

        def tile(out: Any, place: _Place) -> Any:
            left = place.rows_of(x)
            right = _at(y, (place.group, _set_of(place.prefix, p, params["sets"])))
            # Rows of shape [T, B, Y, K], and matrices of shape [B, K, N].
            product = _dot(left, right, ((3,), (1,)), ((1,), (0,)), params, dtype)
            product = lax.transpose(product, (1, 0, 2, 3))
            before = place.rows_of(out)
            product = lax.select_n(place.inside(product.aval.shape), before, product)
            return place.with_rows(out, product)

        out = rows.loop(tile, out)
        return lax.slice_in_dim(out, 0, r, axis=1) if rows.total is not r else out

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, y, sizes = args
        if is_linear_input(x):
            back = {**params, "dtype": x.aval.dtype}
            return [self.bind(ct, _swapped(y), sizes, **back), None, None]
        back = {**params, "dtype": y.aval.dtype}
        return [None, ragged_sums_p.bind(x, ct, sizes, **back), None]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """More prefixes where the sizes differ, else more products, rows or columns."""
        (x, y, sizes), (d, e, f), size = args, dims, ctx.size
        p, r, b, inner, _ = _without(x, d)
        n = _without(y, e)[4]
        if f is not None:
            sets = size * params["sets"]
            x, sizes = _joined(to_front(x, d, size), 0), _joined(to_front(sizes, f, size), 0)
            y = _joined(move_batch_axis(to_front(y, e, size), 0, 1), 1)
            out = self.bind(x, y, sizes, **{**params, "sets": sets})
            return lax.reshape(out, (size, p, r, b, inner, n)), 0
        if d is not None and e is not None:
            x, y = _joined(move_batch_axis(x, d, 2), 2), _joined(move_batch_axis(y, e, 2), 2)
            out = self.bind(x, y, sizes, **params)
            return lax.reshape(out, (p, r, size, b, inner, n)), 2
        if d is not None:
            out = self.bind(_joined(move_batch_axis(x, d, 3), 3), y, sizes, **params)
            return lax.reshape(out, (p, r, b, size, inner, n)), 3
        assert e is not None  # one operand is batched
        out = self.bind(x, _joined(move_batch_axis(y, e, 4), 4), sizes, **params)
        return lax.reshape(out, (p, r, b, inner, size, n)), 4


@final
class RaggedSums(_Ragged):
    """``[P, R, B, C, M]`` and ``[P, R, B, C, N]``, summed over C and the rows of each group.

    The result has the shape ``[G, Q, B, M, N]``; prefixes with the same set add up.
    """

    name = "ragged_sums"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        x, y, sizes = avals
        groups = sizes.shape[1]
        shape = (groups, params["sets"], x.shape[2], x.shape[4], y.shape[4])
        return result_aval((x, y), shape, params["dtype"], weak_type=False)

    def compose(self, *operands: Value, **params: Any) -> Any:
        x, y, sizes = operands
        p, _, b, inner, m = x.aval.shape
        n, groups = y.aval.shape[4], sizes.aval.shape[1]
        dtype = params["dtype"]
        # Sums over many tiles keep what a narrow dtype would lose.
        wide = float32 if is_float(dtype) and dtype.itemsize < 4 else dtype
        wide = int32 if is_bool(dtype) else wide
        rows = _Rows(x, sizes, inner)
        x, y = rows.padded(x), rows.padded(y)
        out = zeros_of(x.aval.strong.update((groups, params["sets"], b, m, n), wide))

        def tile(out: Any, place: _Place) -> Any:
            left, right = [place.rows_of(v) for v in (x, y)]
            # Both: a NaN of another group times 0 is NaN.
            left, right = [
                lax.select_n(place.inside(v.aval.shape), zeros_of(v.aval), v) for v in (left, right)
            ]
            product = _dot(left, right, ((0, 2), (0, 2)), ((1,), (1,)), params, wide)
            where = (place.group, _set_of(place.prefix, p, params["sets"]))
            return _with(out, where, lax.add(_at(out, where), product))

        return lax.convert_dtype(rows.loop(tile, out), dtype)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, y, sizes = args
        if is_linear_input(x):
            back = {**params, "dtype": x.aval.dtype}
            return [ragged_rows_p.bind(y, _swapped(ct), sizes, **back), None, None]
        back = {**params, "dtype": y.aval.dtype}
        return [None, ragged_rows_p.bind(x, ct, sizes, **back), None]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """More prefixes where the sizes differ, else more products, or sizes of them."""
        (x, y, sizes), (d, e, f), size = args, dims, ctx.size
        _, _, b, _, m = _without(x, d)
        n, groups, sets = _without(y, e)[4], _without(sizes, f)[1], params["sets"]
        if f is not None:
            x, y = [_joined(to_front(v, w, size), 0) for v, w in ((x, d), (y, e))]
            sizes = _joined(to_front(sizes, f, size), 0)
            out = self.bind(x, y, sizes, **{**params, "sets": size * sets})
            return lax.reshape(out, (groups, size, sets, b, m, n)), 1
        if d is not None and e is not None:
            x, y = _joined(move_batch_axis(x, d, 2), 2), _joined(move_batch_axis(y, e, 2), 2)
            out = self.bind(x, y, sizes, **params)
            return lax.reshape(out, (groups, sets, size, b, m, n)), 2
        if d is not None:
            out = self.bind(_joined(move_batch_axis(x, d, 4), 4), y, sizes, **params)
            return lax.reshape(out, (groups, sets, b, size, m, n)), 3
        assert e is not None  # one operand is batched
        out = self.bind(x, _joined(move_batch_axis(y, e, 4), 4), sizes, **params)
        return lax.reshape(out, (groups, sets, b, m, size, n)), 4


ragged_rows_p = RaggedRows()
ragged_sums_p = RaggedSums()


# tiles -------------------------------------------------------------------------------------------


class _Place:
    """A tile: its prefix and group, the rows that are read, and which of them count."""

    __slots__ = ("end", "first", "group", "prefix", "size", "start")

    def __init__(self, prefix: Any, group: Any, start: Any, end: Any, rows: _Rows) -> None:
        self.prefix, self.group, self.start, self.end = prefix, group, start, end
        self.size = rows.tile
        # The last tile of an array reaches back.
        self.first = lax.min(start, _int(rows.total - rows.tile))

    def rows_of(self, x: Value) -> Any:
        """The rows of ``[P, R, ...]``, as ``[T, ...]``."""
        sizes = (1, self.size, *x.aval.shape[2:])
        found = lax.dynamic_slice(x, self._starts(x), sizes)
        return lax.reshape(found, sizes[1:])

    def with_rows(self, x: Value, rows: Value) -> Any:
        """``[P, R, ...]`` with other rows in this place."""
        rows = lax.reshape(rows, (1, *rows.aval.shape))
        return lax.dynamic_update_slice(x, rows, self._starts(x))

    def inside(self, shape: tuple[Any, ...]) -> Any:
        """Which elements of ``[T, ...]`` are of rows of the group."""
        i = lax.add(lax.iota(int32, self.size), _spread(self.first, self.size))
        start, end = [_spread(v, self.size) for v in (self.start, self.end)]
        return lax.broadcast_in_dim(lax.bitwise_and(lax.ge(i, start), lax.lt(i, end)), shape, (0,))

    def _starts(self, x: Value) -> list[Any]:
        return [self.prefix, self.first, *[_int(0)] * (x.aval.ndim - 2)]


class _Rows:
    """How the rows of an operand ``[P, R, B, Y, K]`` are cut into tiles."""

    def __init__(self, x: Value, sizes: Value, inner: Any) -> None:
        self.sizes = sizes
        p, r = x.aval.shape[:2]
        self.prefixes, self.groups = p, sizes.aval.shape[1]
        self.rows = self.total = r
        if isinstance(r, int):
            most = max(1, self.groups if isinstance(self.groups, int) else 1)
            least = _LEAST_TILE // max(1, inner) if isinstance(inner, int) else 1
            wanted = max(least, -(-r // (2 * most)), 1)
            self.tile = max(1, min(r, -(-wanted // 8) * 8))
        else:
            # One more tile, so that there is room for one.
            self.tile, self.total = _TILE, r + _TILE

    def padded(self, x: Value) -> Any:
        """``x``, with as many more rows as there have to be."""
        if self.total is self.rows:
            return x
        edges = [(0, 0, 0)] * x.aval.ndim
        edges[1] = (0, self.tile, 0)
        return lax.pad(x, zeros_of(x.aval.update(shape=())), edges)

    def loop(self, tile: Callable[[Any, _Place], Any], out: Any) -> Any:
        """``tile`` for the tiles of each group of each prefix."""
        if 0 in (self.prefixes, self.groups, self.rows, *out.aval.shape):
            return out
        ends = lax.cumsum(self.sizes, axis=1)
        starts = lax.sub(ends, self.sizes)
        count = _int(self.prefixes * self.groups)

        def group(state: tuple[Any, Any]) -> tuple[Any, Any]:
            i, out = state
            prefix, which = lax.div(i, _int(self.groups)), lax.rem(i, _int(self.groups))
            start, end = [_at(v, (prefix, which)) for v in (starts, ends)]
            start = lax.max(start, _int(0))
            end = lax.min(end, _int(self.rows))

            def step(state: tuple[Any, Any]) -> tuple[Any, Any]:
                row, out = state
                place = _Place(prefix, which, row, end, self)
                return lax.add(row, _int(self.tile)), tile(out, place)

            _, out = while_loop(lambda s: lax.lt(s[0], end), step, (start, out))
            return lax.add(i, _int(1)), out

        return while_loop(lambda s: lax.lt(s[0], count), group, (_int(0), out))[1]


# helpers -----------------------------------------------------------------------------------------

_SCALAR = ShapedArray((), int32)


def _int(n: Any) -> Any:
    if isinstance(n, int):
        return full_of(_SCALAR, n)
    return lax.convert_dtype(as_value(n), int32)


def _spread(x: Value, n: int) -> Any:
    return lax.broadcast_in_dim(x, (n,), ())


def _set_of(prefix: Value, prefixes: Any, sets: Any) -> Any:
    """The set of matrices of a prefix."""
    if isinstance(prefixes, int) and isinstance(sets, int):
        return lax.div(prefix, _int(prefixes // sets))
    return lax.div(lax.mul(prefix, _int(sets)), _int(prefixes))


def _at(x: Value, leading: Sequence[Any]) -> Any:
    """The element of ``x`` at indices of its first axes."""
    rest = x.aval.shape[len(leading) :]
    starts = [*leading, *[_int(0)] * len(rest)]
    return lax.reshape(lax.dynamic_slice(x, starts, (*[1] * len(leading), *rest)), rest)


def _with(x: Value, leading: Sequence[Any], value: Value) -> Any:
    """``x`` with another element there."""
    rest = value.aval.shape
    value = lax.reshape(value, (*[1] * len(leading), *rest))
    return lax.dynamic_update_slice(x, value, [*leading, *[_int(0)] * len(rest)])


def _dot(
    x: Value, y: Value, contracting: Any, batch: Any, params: Any, dtype: np.dtype[Any]
) -> Any:
    return dot_general_p.bind(
        x,
        y,
        dimension_numbers=(contracting, batch),
        precision=params["precision"],
        preferred_element_type=dtype,
    )


def _swapped(y: Value) -> Any:
    """The transposed matrices."""
    return lax.transpose(y, (0, 1, 2, 4, 3))


def _without(x: Value, d: int | None) -> tuple[Any, ...]:
    """The shape of an operand without its batch axis."""
    shape = x.aval.shape
    return shape if d is None else (*shape[:d], *shape[d + 1 :])


def _joined(x: Value, axis: int) -> Any:
    """Two neighbouring axes as one."""
    shape = x.aval.shape
    merged = shape[axis] * shape[axis + 1]
    return lax.reshape(x, (*shape[:axis], merged, *shape[axis + 2 :]))
