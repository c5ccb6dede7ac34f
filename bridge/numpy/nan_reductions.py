"""Reductions that leave NaNs out: nansum, nanmean, nanmax, nanvar, nanmedian, ..."""

from __future__ import annotations

__all__ = [
    "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile",
    "nanstd", "nansum", "nanvar",
]  # fmt: skip

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact, real_of
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.runtime.arrays.argument_types import Axis, DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import one_program, remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import (
    broadcast_to,
    check_no_out,
    hashable_axis,
    normalize_axes,
)
from tracebridge.numpy._reduction import OptionalArrays
from tracebridge.numpy._staging import static_dtype
from tracebridge.numpy.quantiles import median_staged, quantiles
from tracebridge.numpy.reductions import (
    drop_axes,
    highest,
    keep_axes,
    lowest,
    mask_of,
    masked_mean,
    max,
    min,
    prod,
    sum,
    wide_of,
)
from tracebridge.numpy.variances import masked_spread, static_or_traced


def _fill(x: Value, value: Value) -> Any:
    """``x`` with ``value`` in the place of NaNs."""
    if not is_inexact(x.aval.dtype):
        return x
    return lax.select_n(lax.ne(x, x), x, full_of(x.aval, value))


_fill_staged = StagedFunction(_fill, "nan_fill", judges=False)


@one_program
def nansum(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Sum over axes, NaNs left out; arguments as of ``sum``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.nansum(tnp.array([1.0, tnp.nan, 2.0])))
    3.0
    """
    return sum(_fill_staged((a,), (0,)), axis, dtype, out, keepdims, initial, where)


@one_program
def nanprod(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Product over axes, NaNs left out; arguments as of ``prod``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.nanprod(tnp.array([2.0, tnp.nan, 3.0])))
    6.0
    """
    return prod(_fill_staged((a,), (1,)), axis, dtype, out, keepdims, initial, where)


def _restore_nan(a: Any, axis: Axis, keepdims: bool, reduced: Any, mask: Value | None) -> Any:
    """``reduced``, with NaN where nothing but NaNs of ``a`` was selected."""
    if not is_inexact(a.aval.dtype):
        return reduced
    axes = normalize_axes(axis, a.aval.ndim, "nanmax")
    is_nan = lax.ne(a, a)
    if mask is not None:
        unselected = lax.bitwise_not(broadcast_to(mask_of(mask, "nanmax"), a.aval.shape))
        is_nan = lax.bitwise_or(is_nan, unselected)
    nothing = keep_axes(lax.reduce_and(is_nan, axes), a, axes, keepdims)
    return lax.select_n(nothing, reduced, full_of(reduced.aval, np.nan))


_restore_staged = OptionalArrays(_restore_nan, "nanmax", 2)


def _nan_extreme(
    reduce: Any, fill: Any, a: Any, axis: Any, out: Any, keepdims: bool, initial: Any, where: Any
) -> Any:
    filled = fill((a,))
    reduced = reduce(filled, axis, out, keepdims, initial, where)
    if initial is not None:
        return reduced
    statics = (hashable_axis(axis, "nanmax"), bool(keepdims))
    return _restore_staged(a, (reduced, where), statics)


_fill_lowest = StagedFunction(
    lambda x: _fill(x, lowest(real_of(x.aval.dtype))), "nanmax", judges=False
)
_fill_highest = StagedFunction(
    lambda x: _fill(x, highest(real_of(x.aval.dtype))), "nanmin", judges=False
)


@one_program
def nanmax(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Largest number over axes, NaNs left out; NaN where there is none. Arguments as of ``max``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.nanmax(tnp.array([1.0, tnp.nan, 2.0])))
    2.0
    """
    return _nan_extreme(max, _fill_lowest, a, axis, out, keepdims, initial, where)


@one_program
def nanmin(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Smallest number over axes, NaNs left out; NaN where there is none. Arguments as of ``min``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.nanmin(tnp.array([1.0, tnp.nan, 2.0])))
    1.0
    """
    return _nan_extreme(min, _fill_highest, a, axis, out, keepdims, initial, where)


def _selected(x: Value, mask: Value | None) -> Any:
    """True for numbers that are not NaN and that the mask (or ``None``) selects."""
    number = lax.eq(x, x)
    if mask is None:
        return number
    return lax.bitwise_and(number, broadcast_to(mask_of(mask, "nanmean"), x.aval.shape))


def _nanmean(x: Value, axis: Axis, dtype: DType | None, keepdims: bool, mask: Value | None) -> Any:
    axes = normalize_axes(axis, x.aval.ndim, "nanmean")
    kind = dtype or (x.aval.dtype if is_inexact(x.aval.dtype) else to_inexact(x.aval.dtype))
    on = _selected(x, mask)
    work = kind if is_inexact(kind) else to_inexact(kind)
    mean, _ = masked_mean(lax.convert_dtype(x, wide_of(work)), on, axes)
    return lax.convert_dtype(mean if keepdims else drop_axes(mean, axes), kind)


_nanmean_staged = OptionalArrays(_nanmean, "nanmean", 1)


@remembered
def nanmean(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Mean over axes, NaNs left out; NaN where there are only NaNs. Arguments as of ``mean``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.nanmean(tnp.array([1.0, tnp.nan, 2.0])))
    1.5
    """
    check_no_out("nanmean", out)
    statics = (hashable_axis(axis, "nanmean"), static_dtype("nanmean", dtype), bool(keepdims))
    return _nanmean_staged(a, (where,), statics)


def _nanvar(
    x: Value,
    axis: Axis,
    dtype: DType | None,
    ddof: Any,
    keepdims: bool,
    root: bool,
    mask: Value | None,
    mean: Value | None,
    less: Value | None,
) -> Any:
    ddof = ddof if less is None else less
    axes = normalize_axes(axis, x.aval.ndim, "nanvar")
    source = x.aval.dtype
    kind = dtype or source
    kind = kind if is_inexact(kind) else to_inexact(kind)
    on = _selected(x, mask)
    x = lax.convert_dtype(
        x, wide_of(kind) if is_complex(kind) or not is_complex(source) else source
    )
    result = masked_spread(x, on, axes, ddof, root, mean)
    result = lax.convert_dtype(result, kind if dtype is not None else real_of(kind))
    return result if keepdims else drop_axes(result, axes)


_nanvar_staged = OptionalArrays(_nanvar, "nanvar", 3, exact=True)


def _variance(
    name: str,
    a: ArrayLike,
    axis: Axis,
    dtype: DTypeLike | None,
    ddof: Any,
    keepdims: bool,
    where: ArrayLike | None,
    mean: ArrayLike | None,
) -> Any:
    ddof, less = static_or_traced(name, ddof)
    statics = (
        hashable_axis(axis, name),
        static_dtype(name, dtype),
        ddof,
        bool(keepdims),
        name == "nanstd",
    )
    return _nanvar_staged(a, (where, mean, less), statics)


@remembered
def nanvar(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Variance over axes, NaNs left out; ``mean`` is used if given (with reduced axes kept).

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.nanvar(tnp.array([1.0, tnp.nan, 3.0])))
    1.0
    """
    check_no_out("nanvar", out)
    return _variance("nanvar", a, axis, dtype, ddof, keepdims, where, mean)


@remembered
def nanstd(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Standard deviation over axes, NaNs left out: the square root of ``nanvar``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.nanstd(tnp.array([1.0, tnp.nan, 3.0])))
    1.0
    """
    check_no_out("nanstd", out)
    return _variance("nanstd", a, axis, dtype, ddof, keepdims, where, mean)


def nanmedian(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """The median over axes, NaNs left out; NaN where there are only NaNs.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.nanmedian(tnp.array([5.0, tnp.nan, 2.0, 3.0])))
    3.0
    """
    check_no_out("nanmedian", out)
    del overwrite_input
    return median_staged(
        (a,), ("nanmedian", hashable_axis(axis, "nanmedian"), bool(keepdims), True)
    )


def nanquantile(
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
    """Quantiles over axes, NaNs left out; arguments as of ``quantile``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.nanquantile(tnp.array([5.0, tnp.nan, 2.0, 3.0]), 0.5))
    3.0
    """
    check_no_out("nanquantile", out)
    del overwrite_input
    return quantiles(
        "nanquantile", a, q, axis, method, keepdims, weights, percent=False, skip_nan=True
    )


def nanpercentile(
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
    """Percentiles over axes, NaNs left out; arguments as of ``percentile``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.nanpercentile(tnp.array([5.0, tnp.nan, 2.0, 3.0]), 50))
    3.0
    """
    check_no_out("nanpercentile", out)
    del overwrite_input
    return quantiles(
        "nanpercentile", a, q, axis, method, keepdims, weights, percent=True, skip_nan=True
    )
