"""Counting: bincount, histogram and kin, digitize."""

from __future__ import annotations

__all__ = ["bincount", "digitize", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]

from collections.abc import Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_int, to_inexact
from tracebridge.core.dtypes.dtypes import is_bool, is_integer
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    IntegerRangeError,
    index_of,
    size_of,
)
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.sharding_constraint import split_result
from tracebridge.core.runtime.arrays.argument_types import ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.compare import at_least, is_empty
from tracebridge.numpy._promote import broadcast_operands, promote_dtypes, promote_inexact
from tracebridge.numpy._ranges import integer_limits, side_of
from tracebridge.numpy._staging import concrete, shape_of, value_of
from tracebridge.numpy.conversion import asarray
from tracebridge.numpy.searching import search_halving, take_rows

_INT32 = np.dtype(np.int32)


def count_into(places: Value, weights: Value, size: int) -> Any:
    """Sums of ``weights`` by place; places out of bounds are left out."""
    start = zeros_of(weights.aval.strong.update(shape=(size,)))
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    columns = lax.reshape(places, (places.aval.size, 1))
    values = lax.convert_dtype(lax.reshape(weights, (weights.aval.size,)), start.aval.dtype)
    mode = lax.GatherScatterMode.FILL_OR_DROP
    return lax.scatter_add(start, columns, values, numbers, mode=mode)


def _bincount(*args: Any) -> Any:
    x, *weights, size = args
    if is_bool(x.aval.dtype):
        x = lax.convert_dtype(x, _INT32)
    zero = zeros_of(x.aval.update(shape=()))
    places = lax.max(x, zero)
    if is_empty(size):
        dtype = weights[0].aval.dtype if weights else default_int()
        return zeros_of(x.aval.strong.update(shape=(0,), dtype=dtype))
    if not weights:
        counts = count_into(places, full_of(x.aval.strong.update(dtype=_INT32), 1), size)
        return lax.convert_dtype(counts, default_int())
    if weights[0].aval.shape != x.aval.shape:
        msg = f"bincount: weights {weights[0].aval.str_short()} for {x.aval.str_short()}"
        raise ShapeMismatchError(msg)
    return count_into(places, weights[0], size)


_bincount_staged = StagedFunction(_bincount, "bincount", judges=False)


def bincount(
    x: ArrayLike,
    weights: ArrayLike | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """How often each of the integers 0, 1, 2, ... occurs.

    Args:
        x: vector of integers; negative ones count as 0.
        weights: what each occurrence counts (default 1).
        minlength: least size of the result, where ``length`` is not given.
        length: size of the result, needed while tracing; larger integers are left out.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ConcretizationTypeError: ``x`` is traced and ``length`` is not given.
        UnsupportedDtypeError: ``x`` does not hold integers.
        RankError: ``x`` is no vector.

    >>> import tracebridge.numpy as tnp
    >>> tnp.bincount(tnp.array([0, 2, 2])).tolist()
    [1, 0, 2]
    """
    if out_sharding is not None:
        return split_result(
            "bincount", out_sharding, bincount, x, weights, minlength, length=length
        )
    value = value_of(x)
    if not (is_integer(value.aval.dtype) or is_bool(value.aval.dtype)):
        msg = f"bincount: x must hold integers, got {value.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    if value.aval.ndim != 1:
        msg = f"bincount: x must be a vector, got {value.aval.str_short()}"
        raise RankError(msg)
    if length is None:
        host = concrete(value, "Its largest element decides the size of the result", "pass length=")
        largest = int(host.max()) if host.size else -1
        size = max(index_of(minlength, "bincount", "minlength"), largest + 1)
    else:
        size = at_least(size_of(length, "bincount", "length"), 0)
    xs = (value,) if weights is None else (value, weights)
    return _bincount_staged(xs, (size,))


# edges -------------------------------------------------------------------------------------------


def _limits(a: Value) -> tuple[Any, Any]:
    if a.aval.size == 0:
        return zeros_of(a.aval.update(shape=())), full_of(a.aval.update(shape=()), 1)
    axes = tuple(range(a.aval.ndim))
    return lax.reduce_min(a, axes), lax.reduce_max(a, axes)


def _uniform_edges(low: Any, high: Any, bins: int) -> Any:
    """``bins + 1`` evenly spaced edges; a range of length zero is widened by one."""
    same = lax.eq(low, high)
    half = full_of(low.aval, 0.5)
    low = lax.select_n(same, low, lax.sub(low, half))
    high = lax.select_n(same, high, lax.add(high, half))
    steps = lax.iota_of(low.aval.dtype, (bins + 1,), 0)
    fraction = lax.div(steps, full_of(steps.aval.update(shape=()), bins))
    rest = lax.sub(full_of(fraction.aval, 1), fraction)
    edges = lax.add(lax.mul(low, rest), lax.mul(high, fraction))
    # The last one exactly: the largest element must not fall out by rounding.
    is_last = lax.eq(lax.iota(_INT32, bins + 1), bins)
    return lax.select_n(is_last, edges, lax.broadcast_in_dim(high, edges.aval.shape, ()))


def _edges(*args: Any) -> Any:
    a, *bounds, bins, has_weights = args
    weights = [bounds.pop()] if has_weights else []
    dtype = promote_inexact(a, *weights)[0].aval.dtype
    a, *bounds = promote_inexact(lax.convert_dtype(a, dtype), *bounds)
    if len(bounds) == 1:
        bounds = [lax.index_in_dim(bounds[0], i, 0, keepdims=False) for i in range(2)]
    low, high = bounds or _limits(a)
    return lax.convert_dtype(_uniform_edges(low, high, bins), dtype)


def _like_elements(bins: Value, *elements: Value) -> Any:
    return lax.convert_dtype(bins, promote_inexact(*elements)[0].aval.dtype)


_edges_like = StagedFunction(_like_elements, "histogram_bin_edges", judges=False)
_edges_staged = StagedFunction(_edges, "histogram_bin_edges", judges=False)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """The edges of the bins of ``histogram``.

    Args:
        a: array.
        bins: how many bins of equal width, or the edges.
        range: lower and upper limit (default: the least and the largest element).
        weights: their dtype takes part in that of the edges.

    Raises:
        ArgumentTypeError: ``bins`` is a name of a rule.
        ArgumentValueError: ``bins`` is less than 1.

    >>> import tracebridge.numpy as tnp
    >>> tnp.histogram_bin_edges(tnp.array([0.0, 1.0, 4.0]), bins=2).tolist()
    [0.0, 2.0, 4.0]
    """
    if isinstance(bins, str):
        msg = f"histogram: bins={bins!r}, expected a number of bins or the edges"
        raise ArgumentTypeError(msg)
    more = () if weights is None else (weights,)
    if len(shape_of(bins)) == 1:
        return _edges_like((asarray(bins), a, *more))
    count = index_of(bins, "histogram_bin_edges", "bins")
    if count < 1:
        msg = f"histogram: bins={count}, expected at least one bin"
        raise ArgumentValueError(msg)
    bounds: Sequence[Any] = () if range is None else range
    if range is not None and not isinstance(range, list | tuple):
        bounds = (range,)
    return _edges_staged((a, *bounds, *more), (count, bool(more)))


# counting into bins ------------------------------------------------------------------------------


def _uniform_places(a: Value, edges: Value) -> Any:
    """The bin of each element by its distance from the first edge, corrected by the edges."""
    bins = edges.aval.shape[0] - 1
    first = lax.index_in_dim(edges, 0, 0, keepdims=False)
    last = lax.index_in_dim(edges, bins, 0, keepdims=False)
    scale = lax.div(full_of(first.aval, bins), lax.sub(last, first))
    guess = lax.convert_dtype(lax.floor(lax.mul(lax.sub(a, first), scale)), _INT32)
    guess = lax.max(lax.min(guess, bins - 1), 0)
    below = lax.lt(a, take_rows(edges, guess))
    guess = lax.sub(guess, lax.convert_dtype(below, _INT32))
    above = lax.ge(a, take_rows(edges, lax.add(guess, 1)))
    guess = lax.add(guess, lax.convert_dtype(above, _INT32))
    return lax.min(guess, bins - 1)


def _searched_places(a: Value, edges: Value) -> Any:
    bins = edges.aval.shape[0] - 1
    return lax.min(lax.sub(search_halving(edges, a, "right"), 1), bins - 1)


def _places(a: Value, edges: Value, uniform: bool) -> Any:
    """The bin of each element; the last bin has both of its edges; others lie out of bounds."""
    bins = edges.aval.shape[0] - 1
    places = (_uniform_places if uniform else _searched_places)(a, edges)
    first = lax.index_in_dim(edges, 0, 0, keepdims=False)
    last = lax.index_in_dim(edges, bins, 0, keepdims=False)
    # NaN compares as outside.
    inside = lax.bitwise_and(lax.ge(a, first), lax.le(a, last))
    return lax.select_n(inside, full_of(places.aval, 2**30), places)


def _histogram(*args: Any) -> Any:
    a, edges, *weights, uniform, density = args
    if weights and weights[0].aval.shape != a.aval.shape:
        msg = f"histogram: weights {weights[0].aval.str_short()} for {a.aval.str_short()}"
        raise ShapeMismatchError(msg)
    if weights:
        _, w = promote_inexact(a, weights[0])
    else:
        w = full_of(a.aval.strong.update(dtype=to_inexact(a.aval.dtype)), 1)
    # Edges may have more digits than the elements, and decide with them.
    a, edges = promote_inexact(a, edges)
    a = lax.reshape(a, (a.aval.size,))
    bins = edges.aval.shape[0] - 1
    counts = count_into(_places(a, edges, uniform), w, bins)
    if not density:
        return counts
    widths = lax.sub(lax.slice_in_dim(edges, 1, bins + 1), lax.slice_in_dim(edges, 0, bins))
    widths = lax.convert_dtype(widths, counts.aval.dtype)
    return lax.div(lax.div(counts, widths), lax.reduce_sum(counts, (0,)))


_histogram_staged = StagedFunction(_histogram, "histogram", judges=False)


def histogram(
    a: ArrayLike,
    bins: ArrayLike = 10,
    range: Any = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array]:
    """How many elements lie in each bin.

    Args:
        a: array, flattened.
        bins: how many bins of equal width, or their edges in increasing order. Bins include
            their lower edge, the last one both.
        range: lower and upper limit (default: the least and the largest element).
        weights: what each element counts.
        density: divide so that the integral is one.

    Returns:
        Counts (floats) and edges.

    >>> import tracebridge.numpy as tnp
    >>> counts, edges = tnp.histogram(tnp.array([0.0, 1.0, 3.0, 4.0]), bins=2)
    >>> counts.tolist(), edges.tolist()
    ([2.0, 2.0], [0.0, 2.0, 4.0])
    """
    edges = histogram_bin_edges(a, bins, range, weights)
    uniform = not shape_of(bins)
    given = edges if uniform else asarray(bins)
    xs = (a, given) if weights is None else (a, given, weights)
    return _histogram_staged(xs, (uniform, bool(density))), edges


def _histogramdd(*args: Any) -> Any:
    *xs, n, uniform, density, has_weights = args
    columns, edges = xs[:n], xs[n : 2 * n]
    sizes = [e.aval.shape[0] - 1 for e in edges]
    flat: Any = None
    for column, e, even, size in zip(columns, edges, uniform, sizes, strict=True):
        a, e = promote_inexact(column, e)  # noqa: PLW2901 (the same edges, converted)
        place = _places(lax.reshape(a, (a.aval.size,)), e, even)
        if flat is None:
            flat = place
        else:
            outside = lax.bitwise_or(lax.ge(flat, 2**30), lax.ge(place, 2**30))
            flat = lax.add(lax.mul(flat, size), place)
            flat = lax.select_n(outside, flat, full_of(flat.aval, 2**30))
    total = 1
    for size in sizes:
        total *= size
    if has_weights:
        weights = promote_inexact(columns[0], xs[-1])[1]
    else:
        weights = full_of(flat.aval.update(dtype=default_int()), 1)
    counts = lax.reshape(count_into(flat, weights, total), tuple(sizes))
    if not density:
        return counts
    counts, *edges = promote_inexact(counts, *edges)
    axes = tuple(range(len(sizes)))
    result = lax.div(counts, lax.reduce_sum(counts, axes))
    for axis, (e, size) in enumerate(zip(edges, sizes, strict=True)):
        widths = lax.sub(lax.slice_in_dim(e, 1, size + 1), lax.slice_in_dim(e, 0, size))
        widths = lax.convert_dtype(widths, result.aval.dtype)
        result = lax.div(result, lax.broadcast_in_dim(widths, result.aval.shape, (axis,)))
    return result


_histogramdd_staged = StagedFunction(_histogramdd, "histogramdd", judges=False)


def histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    weights: Any = None,
    density: bool | None = None,
) -> tuple[Array, list[Array]]:
    """How many points lie in each cell of a grid.

    Args:
        sample: points as rows, or a sequence of coordinate vectors.
        bins: how many bins along each axis, or one number or vector of edges for each axis.
        range: a pair of limits, or ``None``, for each axis.
        weights: what each point counts.
        density: divide so that the integral is one.

    Returns:
        Counts and a list of edges.

    Raises:
        RankError: the points are no matrix.
        ArgumentValueError: there are not as many bins or ranges as columns.

    >>> import tracebridge.numpy as tnp
    >>> counts, edges = tnp.histogramdd(tnp.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]), bins=2)
    >>> counts.tolist()
    [[1, 0], [1, 1]]
    """
    if isinstance(sample, list | tuple):
        columns = [asarray(c) for c in sample]
    else:
        table = value_of(sample)
        if table.aval.ndim != 2:
            msg = f"histogramdd: points must be rows of a matrix, got {table.aval.str_short()}"
            raise RankError(msg)
        columns = [table[:, i] for i in np.arange(table.aval.shape[1]).tolist()]
    n = len(columns)
    each = list(bins) if isinstance(bins, list | tuple) else None
    if each is None:
        each = [bins] * n if not shape_of(bins) else list(np.asarray(bins))
    limits = [None] * n if range is None else list(range)
    if len(each) != n or len(limits) != n:
        msg = f"histogramdd: got {len(each)} bins and {len(limits)} ranges for {n} axes"
        raise ArgumentValueError(msg)
    edges = [
        histogram_bin_edges(c, b, r, weights) for c, b, r in zip(columns, each, limits, strict=True)
    ]
    uniform = tuple([not shape_of(b) for b in each])
    xs = [*columns, *edges, *(() if weights is None else (weights,))]
    statics = (n, uniform, bool(density), weights is not None)
    return _histogramdd_staged(xs, statics), edges


def histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    weights: Any = None,
    density: bool | None = None,
) -> tuple[Array, Array, Array]:
    """How many points of a plane lie in each cell of a grid.

    Args:
        x: first coordinates.
        y: second coordinates.
        bins: a number or edges for both axes, or a pair of them.
        range: limits ``[[xmin, xmax], [ymin, ymax]]``.
        weights: what each point counts.
        density: divide so that the integral is one.

    Returns:
        Counts, edges along ``x``, edges along ``y``.

    >>> import tracebridge.numpy as tnp
    >>> counts, _, _ = tnp.histogram2d(tnp.array([0.0, 1.0]), tnp.array([0.0, 1.0]), bins=2)
    >>> counts.tolist()
    [[1, 0], [0, 1]]
    """
    each = bins
    if not isinstance(bins, list | tuple) or len(bins) not in (1, 2):
        each = [bins, bins]
    elif len(bins) == 1:
        each = [bins[0], bins[0]]
    points = promote_dtypes(asarray(x), asarray(y))
    counts, (first, second) = histogramdd(points, list(each), range, weights, density)
    return counts, first, second


def _digitize(x: Value, bins: Value, right: bool) -> Any:
    if bins.aval.ndim != 1:
        msg = f"digitize: bins must be a vector, got {bins.aval.str_short()}"
        raise RankError(msg)
    n = bins.aval.shape[0]
    if n == 0:
        return zeros_of(x.aval.strong.update(dtype=_INT32))
    x, bins = promote_dtypes(x, bins)
    x, bins = (lax.convert_dtype(v, v.aval.dtype) for v in (x, bins))
    side = "left" if right else "right"
    rising = search_halving(bins, x, side)
    falling = lax.sub(n, search_halving(lax.rev(bins, (0,)), x, side))
    ends = [lax.index_in_dim(bins, i, 0, keepdims=False) for i in (0, n - 1)]
    is_rising, rising, falling = broadcast_operands("digitize", lax.le(*ends), rising, falling)
    return lax.convert_dtype(lax.select_n(is_rising, falling, rising), _INT32)


_digitize_staged = StagedFunction(_digitize, "digitize")


def digitize(
    x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: str | None = None
) -> Array:
    """The number of the bin of each element; 0 lies before the first edge.

    Args:
        x: array.
        bins: edges in increasing or decreasing order.
        right: whether bins include their upper instead of their lower edge.
        method: accepted for ``searchsorted``'s sake.

    Returns:
        int32 of the shape of ``x``, as from ``searchsorted``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.digitize(tnp.array([0.5, 1.0, 7.0]), tnp.array([1.0, 2.0])).tolist()
    [0, 1, 2]
    """
    del method
    try:
        return _digitize_staged((x, bins), (bool(right),))
    except IntegerRangeError:
        limits = integer_limits((x, bins))
        beyond = side_of(x, limits)
        if limits is None or not beyond:
            raise
    # The nearest number of the dtype, on the far side of edges that equal it.
    nearest = limits[1] if beyond > 0 else limits[0]
    return _digitize_staged((nearest, bins), (beyond < 0,))
