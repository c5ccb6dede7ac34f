"""Reductions over axes: sum, prod, max, min, any, all, mean, count_nonzero, ptp, ..."""

from __future__ import annotations

__all__ = [
    "all", "amax", "amin", "any", "count_nonzero", "max", "mean", "min", "prod", "ptp", "sum",
]  # fmt: skip

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_int, default_uint, to_inexact
from tracebridge.core.dtypes.dtypes import (
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    is_unsigned,
    real_of,
)
from tracebridge.core.dtypes.finfo import iinfo
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.ir.typeof import typeof
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.argument_types import Axis, DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import one_program, remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.compare import is_empty
from tracebridge.numpy._promote import (
    as_strong,
    broadcast_operands,
    broadcast_to,
    check_no_out,
    hashable_axis,
    normalize_axes,
)
from tracebridge.numpy._reduction import Reduction
from tracebridge.numpy.elementwise_logic import truth

_BOOL = np.dtype(np.bool_)


def keep_axes(result: Value, like: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """``result`` with the reduced axes put back as axes of size 1."""
    if not keepdims:
        return result
    shape = tuple([1 if i in axes else d for i, d in enumerate(like.aval.shape)])
    return lax.reshape(result, shape)


def drop_axes(kept: Value, axes: tuple[int, ...]) -> Any:
    """``kept`` without the axes of size 1 that a reduction kept."""
    return lax.reshape(kept, tuple([d for i, d in enumerate(kept.aval.shape) if i not in axes]))


def masked(x: Any, where: Any, fill: Any, name: str) -> Any:
    """``x`` where ``where`` is true, else the scalar ``fill``."""
    if where is None:
        return x
    where, x = broadcast_operands("reduction", mask_of(where, name), x)
    if not x.aval.ndim and where.aval.ndim:
        x = lax.broadcast_in_dim(x, where.aval.shape, ())
    filler = full_of(x.aval.strong, fill)
    return lax.select_n(where, filler, x)


def mask_of(where: Value, name: str) -> Any:
    """The mask ``where`` as it is.

    Raises:
        UnsupportedDtypeError: it is not boolean.
    """
    if not is_bool(where.aval.dtype):
        msg = f"{name}: where= is {where.aval.str_short()}, expected a boolean mask"
        raise UnsupportedDtypeError(msg, hint="write where=mask != 0")
    return where


def _with_initial(name: str, combine: Callable[..., Any], result: Value, initial: Any) -> Any:
    if initial is None:
        return result
    if initial.aval.ndim:
        msg = f"{name}: initial= is {initial.aval.str_short()}, expected one number"
        raise RankError(msg)
    dtype = result.aval.dtype
    if is_complex(initial.aval.dtype) and not is_complex(dtype):
        msg = f"{name}: initial= is complex, and the result is {np.dtype(dtype).name}"
        raise UnsupportedDtypeError(msg, hint="take its real part, or pass a complex dtype=")
    return combine(result, lax.convert_dtype(initial, dtype))


def _narrow(a: ArrayLike) -> Any:
    # Booleans are counted in any case.
    found = typeof(a).dtype
    return None if is_bool(found) else found


def sum_dtype(dtype: DType) -> Any:
    """The dtype in which NumPy sums: narrow integers and bools become the default integer."""
    if is_bool(dtype):
        return default_int()
    wide = default_uint() if is_unsigned(dtype) else default_int()
    if is_integer(dtype) and dtype.itemsize < wide.itemsize:
        return wide
    return dtype


def lowest(dtype: DType) -> Any:
    """The identity of max."""
    if is_bool(dtype):
        return False
    return iinfo(dtype).min if is_integer(dtype) else -np.inf


def highest(dtype: DType) -> Any:
    """The identity of min."""
    if is_bool(dtype):
        return True
    return iinfo(dtype).max if is_integer(dtype) else np.inf


def sum_of(
    x: Value,
    axis: Axis,
    dtype: DType | None,
    keepdims: bool,
    initial: Value | None,
    where: Value | None,
) -> Any:
    """The sum, as the staged function computes it."""
    axes = normalize_axes(axis, x.aval.ndim, "sum")
    kind = dtype or sum_dtype(x.aval.dtype)
    x = masked(
        as_strong(truth(x)) if is_bool(kind) else lax.convert_dtype(x, kind), where, 0, "sum"
    )
    # Booleans are added as in NumPy: 1 + 1 is true.
    total = lax.reduce_or(x, axes) if is_bool(kind) else lax.reduce_sum(x, axes)
    add = lax.bitwise_or if is_bool(kind) else lax.add
    return _with_initial("sum", add, keep_axes(total, x, axes, keepdims), initial)


def _prod(
    x: Value,
    axis: Axis,
    dtype: DType | None,
    keepdims: bool,
    initial: Value | None,
    where: Value | None,
) -> Any:
    axes = normalize_axes(axis, x.aval.ndim, "prod")
    kind = dtype or sum_dtype(x.aval.dtype)
    x = masked(
        as_strong(truth(x)) if is_bool(kind) else lax.convert_dtype(x, kind), where, 1, "prod"
    )
    product = lax.reduce_and(x, axes) if is_bool(kind) else lax.reduce_prod(x, axes)
    multiply = lax.bitwise_and if is_bool(kind) else lax.mul
    return _with_initial("prod", multiply, keep_axes(product, x, axes, keepdims), initial)


def _extreme(
    name: str, reduce: Callable[..., Any], combine: Callable[..., Any], fill: Callable[[Any], Any]
) -> Callable[..., Any]:
    def run(
        x: Value,
        axis: Axis,
        dtype: DType | None,
        keepdims: bool,
        initial: Value | None,
        where: Value | None,
    ) -> Any:
        del dtype
        axes = normalize_axes(axis, x.aval.ndim, name)
        if initial is None and builtins.any([is_empty(x.aval.shape[a]) for a in axes]):
            msg = f"{name}: zero-size reduction has no identity; got {x.aval.str_short()}"
            raise ArgumentValueError(msg)
        if where is not None and initial is None:
            msg = f"{name}: where= needs initial=, the value of an empty selection"
            raise ArgumentValueError(msg)
        x = lax.convert_dtype(x, x.aval.dtype)  # reductions are strongly typed
        x = masked(x, where, fill(x.aval.dtype), name)
        return _with_initial(name, combine, keep_axes(reduce(x, axes), x, axes, keepdims), initial)

    return run


def _logical_reduction(name: str, reduce: Callable[..., Any], fill: bool) -> Callable[..., Any]:
    combine = lax.bitwise_and if fill else lax.bitwise_or

    def run(
        x: Value,
        axis: Axis,
        dtype: DType | None,
        keepdims: bool,
        initial: Value | None,
        where: Value | None,
    ) -> Any:
        del dtype
        axes = normalize_axes(axis, x.aval.ndim, name)
        x = masked(as_strong(truth(x)), where, fill, name)
        initial = None if initial is None else truth(initial)
        return _with_initial(name, combine, keep_axes(reduce(x, axes), x, axes, keepdims), initial)

    return run


def mean_of(
    x: Value,
    axis: Axis,
    dtype: DType | None,
    keepdims: bool,
    initial: Value | None,
    where: Value | None,
) -> Value:
    """The mean, as the staged function computes it."""
    del initial
    axes = normalize_axes(axis, x.aval.ndim, "mean")
    kind = dtype or (x.aval.dtype if is_inexact(x.aval.dtype) else to_inexact(x.aval.dtype))
    wide = wide_of(kind)
    if where is not None:
        x = lax.convert_dtype(x, wide if is_inexact(kind) else wide_of(to_inexact(kind)))
        mean, _ = masked_mean(x, broadcast_to(mask_of(where, "mean"), x.aval.shape), axes)
        return lax.convert_dtype(mean if keepdims else drop_axes(mean, axes), kind)
    total = sum_of(x, axes, wide, keepdims, None, None)
    count = full_of(total.aval.update(shape=()), count_of(x, axes))
    return lax.convert_dtype(lax.div(total, count), kind)


def wide_of(dtype: Any) -> Any:
    """The dtype to take means in: half precision overflows in sums long before the mean does."""
    return np.dtype(np.float32) if is_float(dtype) and dtype.itemsize < 4 else dtype


def masked_mean(x: Value, on: Value, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """The mean of the elements that ``on`` selects, NaN without any, and their number.

    The reduced axes are kept. What is not selected has derivative 0, in slices without any
    selected element too: the guards stand before the division.
    """
    # Counted in integers: ones added in floats stop at 2**24.
    count = keep_axes(lax.reduce_sum(lax.convert_dtype(on, default_int()), axes), x, axes, True)
    count = lax.convert_dtype(count, real_of(x.aval.dtype))
    empty = lax.eq(count, 0.0)
    total = lax.reduce_sum(lax.select_n(on, zeros_of(x.aval), x), axes)
    divisor = lax.select_n(empty, count, full_of(count.aval, 1))
    mean = lax.div(keep_axes(total, x, axes, True), lax.convert_dtype(divisor, x.aval.dtype))
    return lax.select_n(empty, mean, full_of(mean.aval, np.nan)), count


def count_of(x: Value, axes: tuple[int, ...]) -> Any:
    """The number of elements that a reduction over ``axes`` combines."""
    n: Any = 1
    for a in axes:
        n = n * x.aval.shape[a]
    return n


_sum_staged = Reduction("sum", sum_of)
_prod_staged = Reduction("prod", _prod)
_max_staged = Reduction(
    "max", _extreme("max", lambda x, a: lax.reduce_max(x, a), lambda x, y: lax.max(x, y), lowest)
)
_min_staged = Reduction(
    "min", _extreme("min", lambda x, a: lax.reduce_min(x, a), lambda x, y: lax.min(x, y), highest)
)
_all_staged = Reduction("all", _logical_reduction("all", lambda x, a: lax.reduce_and(x, a), True))
_any_staged = Reduction("any", _logical_reduction("any", lambda x, a: lax.reduce_or(x, a), False))
_mean_staged = Reduction("mean", mean_of)


def sum(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Sum over axes.

    Args:
        a: array.
        axis: axis or axes in ``[-ndim, ndim)``; ``None`` for all.
        dtype: dtype of the sum (default: that of ``a``; narrow integers become int32).
        out: not supported.
        keepdims: keep reduced axes with size 1.
        initial: value to start from.
        where: boolean mask, broadcast against ``a``.
        promote_integers: whether narrow integers are summed in the default integer.

    >>> import tracebridge.numpy as tnp
    >>> tnp.sum(tnp.ones((2, 3)), axis=0).tolist()
    [2.0, 2.0, 2.0]
    """
    try:
        if dtype is None and not promote_integers:
            dtype = _narrow(a)
        return _sum_staged(a, axis, dtype, out, keepdims, initial, where)
    except Exception as error:
        hide_internal_frames(error)
        raise


def prod(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Product over axes; arguments as of ``sum``.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.prod(tnp.array([2, 3, 4])))
    24
    """
    try:
        if dtype is None and not promote_integers:
            dtype = _narrow(a)
        return _prod_staged(a, axis, dtype, out, keepdims, initial, where)
    except Exception as error:
        hide_internal_frames(error)
        raise


def max(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Largest element over axes; NaN if there is one. Arguments as of ``sum``.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.max(tnp.array([2, 7, 4])))
    7
    """
    try:
        return _max_staged(a, axis, None, out, keepdims, initial, where)
    except Exception as error:
        hide_internal_frames(error)
        raise


def min(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Smallest element over axes; NaN if there is one. Arguments as of ``sum``.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.min(tnp.array([2, 7, 4])))
    2
    """
    try:
        return _min_staged(a, axis, None, out, keepdims, initial, where)
    except Exception as error:
        hide_internal_frames(error)
        raise


amax = max
amin = min


def all(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Whether all elements over axes are true.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.all(tnp.array([True, False])))
    False
    """
    try:
        return _all_staged(a, axis, None, out, keepdims, None, where)
    except Exception as error:
        hide_internal_frames(error)
        raise


def any(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Whether any element over axes is true.

    >>> import tracebridge.numpy as tnp
    >>> bool(tnp.any(tnp.array([True, False])))
    True
    """
    try:
        return _any_staged(a, axis, None, out, keepdims, None, where)
    except Exception as error:
        hide_internal_frames(error)
        raise


def truth_reduction(every: bool) -> Callable[..., Any]:
    """``all`` or ``any`` with an ``initial`` value, for the method ``reduce`` of functions."""
    staged = _all_staged if every else _any_staged

    def reduce(
        a: Value,
        axis: int | None = None,
        *,
        keepdims: bool = False,
        initial: Value | None = None,
        where: Value | None = None,
    ) -> Any:
        return staged(a, axis, None, None, keepdims, initial, where)

    return reduce


def mean(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Arithmetic mean over axes; integers become floats. Arguments as of ``sum``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.mean(tnp.array([1.0, 2.0, 6.0])))
    3.0
    """
    try:
        return _mean_staged(a, axis, dtype, out, keepdims, None, where)
    except Exception as error:
        hide_internal_frames(error)
        raise


def _count_nonzero(x: Value, axis: int, keepdims: bool) -> Any:
    return sum_of(truth(x), axis, default_int(), keepdims, None, None)


_count_staged = StagedFunction(_count_nonzero, "count_nonzero")


@remembered
def count_nonzero(a: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """Number of elements that are not zero, over axes.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.count_nonzero(tnp.array([0, 3, 4])))
    2
    """
    return _count_staged((a,), (hashable_axis(axis, "count_nonzero"), bool(keepdims)))


@one_program
def ptp(a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array:
    """Largest minus smallest element over axes.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.ptp(tnp.array([2, 7, 4])))
    5
    """
    check_no_out("ptp", out)
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)
