"""Quantiles: quantile, percentile, median."""

from __future__ import annotations

__all__ = ["median", "percentile", "quantile"]

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.aval import Shape
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.runtime.arrays.argument_types import Axis, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.compare import is_empty
from tracebridge.numpy._promote import (
    broadcast_to,
    check_no_out,
    hashable_axis,
    normalize_axes,
    promote_inexact,
)
from tracebridge.numpy.reductions import wide_of
from tracebridge.numpy.statistics import fit_weights

METHODS = (
    "linear",
    "lower",
    "higher",
    "midpoint",
    "nearest",
    "inverted_cdf",
    "averaged_inverted_cdf",
    "closest_observation",
    "interpolated_inverted_cdf",
    "hazen",
    "weibull",
    "median_unbiased",
    "normal_unbiased",
)


def _flat_last(x: Value, axes: tuple[int, ...]) -> Any:
    """``x`` with ``axes`` flattened into one last axis."""
    kept = [i for i in range(x.aval.ndim) if i not in axes]
    x = lax.transpose(x, (*kept, *axes)) if axes else x
    shape = tuple([x.aval.shape[i] for i in range(len(kept))])
    size: Any = 1
    for d in x.aval.shape[len(kept) :]:
        size = size * d
    return lax.reshape(x, (*shape, size))


def _position(q: Value, n: Value, method: str) -> tuple[Any, Any, Any]:
    """Two neighbours in the sorted row and the weight of the second, for quantiles ``q``.

    ``n`` is the number of elements that count, of the dtype of ``q``.
    """

    def const(value: float) -> Any:
        return full_of(q.aval.update(shape=()), value)

    last = lax.sub(n, const(1.0))
    one, zero, half = const(1.0), const(0.0), const(0.5)

    def rounded() -> Any:
        # Methods that jump must see n q as a number: without the maximum, which changes nothing,
        # the compiler subtracts from the product before it is rounded.
        return lax.max(lax.mul(n, q), zero)

    alphas = {"hazen": 0.5, "weibull": 0.0, "median_unbiased": 1 / 3, "normal_unbiased": 3 / 8}
    if method in alphas:
        alpha = alphas[method]
        # n q + alpha + q (1 - 2 alpha) - 1, the plotting position with alpha = beta
        where = lax.add(lax.mul(n, q), lax.add(lax.mul(q, 1.0 - 2 * alpha), alpha - 1.0))
    elif method == "interpolated_inverted_cdf":
        where = lax.sub(lax.mul(n, q), one)
    elif method in ("inverted_cdf", "averaged_inverted_cdf"):
        where = lax.sub(rounded(), one)
    elif method == "closest_observation":
        where = lax.sub(rounded(), const(1.5))
    else:
        where = lax.mul(q, last)
    below = lax.floor(where)
    gamma = lax.sub(where, below)
    if method == "inverted_cdf":
        gamma = lax.convert_dtype(lax.gt(gamma, zero), q.aval.dtype)
    elif method == "averaged_inverted_cdf":
        gamma = lax.select_n(
            lax.gt(gamma, zero), full_of(gamma.aval, 0.5), full_of(gamma.aval, 1.0)
        )
    elif method == "closest_observation":
        odd = lax.ne(lax.rem(below, const(2.0)), zero)
        exact = lax.bitwise_and(lax.eq(gamma, zero), odd)
        gamma = lax.select_n(exact, full_of(gamma.aval, 1.0), full_of(gamma.aval, 0.0))
    elif method in ("lower", "higher", "midpoint", "nearest"):
        return _discrete(where, method, zero, last, half)
    above = lax.add(below, one)
    return _between(below, zero, last), _between(above, zero, last), gamma


def _discrete(
    where: Value, method: str, zero: Value, last: Value, half: Value
) -> tuple[Any, Any, Any]:
    low, high = lax.floor(where), lax.ceil(where)
    if method == "lower":
        high = low
    elif method == "higher":
        low = high
    elif method == "nearest":
        low = high = lax.round(where, lax.RoundingMethod.TO_NEAREST_EVEN)
    low, high = _between(low, zero, last), _between(high, zero, last)
    return low, high, lax.broadcast_in_dim(half, where.aval.shape, ()) if where.aval.ndim else half


def _between(x: Value, low: Any, high: Any) -> Any:
    return lax.max(lax.min(x, high), low)


def quantile_of(
    x: Value, q: Value, axes: tuple[int, ...], method: str, keepdims: bool, skip_nan: bool
) -> Any:
    """Quantiles ``q`` (of any shape, whose axes come first) over ``axes``."""
    ndim, shape = x.aval.ndim, x.aval.shape
    rows = _flat_last(x, axes)
    last = rows.aval.ndim - 1
    # Places in a row are calculated in 32 bits at least: 16 bits cannot count them.
    wide = wide_of(x.aval.dtype)
    q = lax.convert_dtype(q, wide)
    if is_empty(rows.aval.shape[last]):
        out = (*q.aval.shape, *rows.aval.shape[:-1])
        return _kept(full_of(x.aval.update(shape=out), np.nan), q, shape, axes, keepdims, ndim)
    is_nan = lax.ne(rows, rows)
    rows = lax.sort(rows, last)
    kept = rows.aval.shape[:-1]
    if skip_nan:
        numbers = lax.convert_dtype(lax.bitwise_not(is_nan), np.dtype(np.int32))
        counts = lax.convert_dtype(lax.reduce_sum(numbers, (last,)), wide)
    else:
        # A NaN anywhere makes the whole row NaN; NaNs are sorted to the end.
        rows = _spoiled(rows, is_nan)
        size = full_of(q.aval.update(shape=()), rows.aval.shape[last])
        counts = lax.broadcast_in_dim(size, kept, ()) if kept else size
    out_shape = (*q.aval.shape, *kept)
    wide_q = lax.broadcast_in_dim(q, out_shape, tuple(range(q.aval.ndim)))
    first = q.aval.ndim
    wide_n = lax.broadcast_in_dim(counts, out_shape, tuple(range(first, first + len(kept))))
    low, high, weight = _position(wide_q, wide_n, method)
    below, above = (lax.convert_dtype(_pick(rows, p, first), wide) for p in (low, high))
    if method in ("lower", "higher", "nearest"):
        result = below
    else:
        result = _interpolated(below, above, weight)
    result = lax.select_n(lax.eq(wide_q, wide_q), full_of(result.aval, np.nan), result)
    if skip_nan:
        empty = lax.eq(wide_n, zeros_of(wide_n.aval.update(shape=())))
        result = lax.select_n(empty, result, full_of(result.aval, np.nan))
    return _kept(lax.convert_dtype(result, x.aval.dtype), q, shape, axes, keepdims, ndim)


def _spoiled(rows: Value, is_nan: Value) -> Any:
    """``rows``, all NaN where one element is. A factor: the derivatives are NaN as well."""
    last = rows.aval.ndim - 1
    any_nan = lax.reduce_or(is_nan, (last,))
    one = full_of(rows.aval.update(shape=any_nan.aval.shape, weak_type=False), 1)
    factor = lax.select_n(any_nan, one, full_of(one.aval, np.nan))
    return lax.mul(rows, lax.broadcast_in_dim(factor, rows.aval.shape, tuple(range(last))))


def _interpolated(below: Value, above: Value, weight: Value) -> Any:
    """``weight`` of the way from ``below`` to ``above``; beside infinities without inf - inf.

    Elements that tie have the derivatives of their places, as all others.
    """
    gap = lax.sub(above, below)
    finite = lax.lt(lax.abs(gap), np.inf)
    inside = lax.add(below, lax.mul(lax.select_n(finite, zeros_of(gap.aval), gap), weight))
    weight = lax.stop_gradient(weight)
    mixed = lax.add(lax.mul(below, lax.sub(1.0, weight)), lax.mul(above, weight))
    mixed = lax.select_n(lax.eq(weight, 0.0), mixed, below)
    mixed = lax.select_n(lax.eq(weight, 1.0), mixed, above)
    return lax.select_n(finite, mixed, inside)


def _kept(
    result: Value, q: Value, shape: Shape, axes: tuple[int, ...], keepdims: bool, ndim: int
) -> Any:
    if not keepdims:
        return result
    sizes = [1 if i in axes else shape[i] for i in range(ndim)]
    return lax.reshape(result, (*q.aval.shape, *sizes))


def _pick(rows: Value, places: Value, first: int) -> Any:
    """``rows[..., places[q, ...]]``: one place in each row for each quantile."""
    kept = rows.aval.ndim - 1
    if rows.aval.size == 0:
        return zeros_of(rows.aval.update(shape=places.aval.shape))
    places = lax.convert_dtype(places, np.dtype(np.int32))
    order = (*range(first, first + kept), *range(first))
    places = lax.transpose(places, order)
    batch = tuple(range(kept))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(kept,),
        start_index_map=(kept,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    columns = lax.reshape(places, (*places.aval.shape, 1))
    picked = lax.gather(rows, columns, numbers, (1,) * (kept + 1), mode="promise_in_bounds")
    total = kept + first
    return lax.transpose(picked, (*range(kept, total), *range(kept)))


def _weighted_quantile(
    x: Value,
    q: Value,
    w: Value,
    axes: tuple[int, ...],
    axis: int | None,
    keepdims: bool,
    skip_nan: bool,
) -> Any:
    """Quantiles of weighted elements, by the inverse of their distribution function."""
    ndim, shape = x.aval.ndim, x.aval.shape
    w = broadcast_to(fit_weights(x, w, axes, axis), shape)
    rows, weights = _flat_last(x, axes), _flat_last(w, axes)
    last = rows.aval.ndim - 1
    is_nan = lax.ne(rows, rows)
    if skip_nan:
        weights = lax.select_n(is_nan, weights, zeros_of(weights.aval))
    else:
        rows = _spoiled(rows, is_nan)
    rows, weights = lax.sort_key_val(rows, weights, last)
    mass = lax.cumsum(weights, last)
    size = rows.aval.shape[last]
    total = lax.slice_in_dim(mass, size - 1, size, axis=last)
    kept = rows.aval.shape[:-1]
    out_shape = (*q.aval.shape, *kept)
    first = q.aval.ndim
    wide_q = lax.broadcast_in_dim(q, (*out_shape, size), tuple(range(first)))
    dims = tuple(range(first, first + len(kept) + 1))
    wide_mass = lax.broadcast_in_dim(mass, (*out_shape, size), dims)
    wide_total = lax.broadcast_in_dim(total, (*out_shape, 1), dims)
    target = lax.mul(wide_q, broadcast_to(wide_total, wide_q.aval.shape))
    below = lax.convert_dtype(lax.lt(wide_mass, target), np.dtype(np.int32))
    places = lax.reduce_sum(below, (below.aval.ndim - 1,))
    places = lax.min(places, size - 1)
    # Elements without weight are never chosen: at q = 0 the first with weight.
    weightless = lax.convert_dtype(
        lax.eq(mass, zeros_of(mass.aval.update(shape=()))), np.dtype(np.int32)
    )
    start = lax.reduce_sum(weightless, (last,))
    places = lax.max(places, lax.broadcast_in_dim(start, out_shape, dims[:-1]))
    result = _pick(rows, lax.min(places, size - 1), first)
    known = lax.broadcast_in_dim(lax.eq(q, q), out_shape, tuple(range(first)))
    result = lax.select_n(known, full_of(result.aval, np.nan), result)
    return _kept(result, q, shape, axes, keepdims, ndim)


def _quantile(*args: Any) -> Any:
    x, q, *rest = args
    *weights, name, axis, method, keepdims, scale, skip_nan = rest
    if is_complex(x.aval.dtype):
        msg = f"{name}: complex numbers have no quantiles, got {x.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    (x,) = promote_inexact(x)
    # Elements decide the dtype, and strongly; positions need the digits of probabilities too.
    dtype = x.aval.dtype
    x, q, *weights = promote_inexact(lax.convert_dtype(x, dtype), q, *weights)
    if scale:
        q = _of_hundred(q)
    axes = normalize_axes(axis, x.aval.ndim, name)
    if weights:
        return _weighted_quantile(x, q, weights[0], axes, axis, keepdims, skip_nan)
    return lax.convert_dtype(quantile_of(x, q, axes, method, keepdims, skip_nan), dtype)


def _of_hundred(q: Value) -> Any:
    """``q / 100``, rounded as such: by a constant the compiler would multiply by its inverse."""
    hundred = lax.add(lax.stop_gradient(lax.min(lax.abs(q), zeros_of(q.aval))), 100.0)
    return lax.div(q, hundred)


_quantile_staged = StagedFunction(_quantile, "quantile", judges=False)


def quantiles(
    name: str,
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis,
    method: str,
    keepdims: bool,
    weights: ArrayLike | None,
    *,
    percent: bool,
    skip_nan: bool,
) -> Any:
    """What the four public functions have in common."""
    if method not in METHODS:
        msg = f"{name}: method={method!r}, expected one of {', '.join(map(repr, METHODS))}"
        raise ArgumentValueError(msg)
    if weights is not None and method != "inverted_cdf":
        msg = f"{name}: weights need method='inverted_cdf', got {method!r}"
        raise ArgumentValueError(msg)
    xs = (a, q) if weights is None else (a, q, weights)
    statics = (name, hashable_axis(axis, name), method, bool(keepdims), percent, skip_nan)
    return _quantile_staged(xs, statics)


def quantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """Quantiles over axes.

    Args:
        a: real array; a NaN makes the result NaN.
        q: probabilities in [0, 1], of any shape, whose axes come first in the result.
        axis: axis or axes; ``None`` for all.
        out: not supported.
        overwrite_input: ignored: arrays are immutable.
        method: how to choose between neighbours; the names of NumPy.
        keepdims: keep reduced axes with size 1.
        weights: numbers of the shape of ``a`` or of the reduced axes, for
            ``method="inverted_cdf"``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.quantile(tnp.arange(5.0), tnp.array([0.25, 0.5])).tolist()
    [1.0, 2.0]
    """
    check_no_out("quantile", out)
    del overwrite_input
    return quantiles(
        "quantile", a, q, axis, method, keepdims, weights, percent=False, skip_nan=False
    )


def percentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Percentiles over axes: ``quantile`` with ``q`` from 0 to 100.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.percentile(tnp.arange(5.0), 25))
    1.0
    """
    check_no_out("percentile", out)
    del overwrite_input
    percentiles = quantiles(
        "percentile", a, q, axis, method, keepdims, weights, percent=True, skip_nan=False
    )
    if out_sharding is None:
        return percentiles
    return constrained_result("percentile", percentiles, out_sharding)


def median_of(x: Value, axes: tuple[int, ...], keepdims: bool, skip_nan: bool = False) -> Any:
    """The median of floats over ``axes`` (while staging)."""
    half = full_of(x.aval.update(shape=()), 0.5)
    return quantile_of(x, half, axes, "midpoint" if not skip_nan else "linear", keepdims, skip_nan)


def _median(x: Value, name: str, axis: Axis, keepdims: bool, skip_nan: bool) -> Any:
    if is_complex(x.aval.dtype):
        msg = f"{name}: complex numbers have no median, got {x.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    (x,) = promote_inexact(x)
    x = lax.convert_dtype(x, x.aval.dtype)  # reductions are strongly typed
    return median_of(x, normalize_axes(axis, x.aval.ndim, name), keepdims, skip_nan)


median_staged = StagedFunction(_median, "median", judges=False)


def median(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """The median over axes; a NaN makes it NaN. Arguments as of ``quantile``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.median(tnp.array([5.0, 1.0, 2.0, 3.0])))
    2.5
    """
    check_no_out("median", out)
    del overwrite_input
    return median_staged((a,), ("median", hashable_axis(axis, "median"), bool(keepdims), False))
