"""Running sums and products."""

from __future__ import annotations

__all__ = [
    "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "nancumprod", "nancumsum",
]  # fmt: skip

from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_int
from tracebridge.core.dtypes.dtypes import is_bool, is_inexact
from tracebridge.core.errors.argument_errors import index_of
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.argument_types import DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction, unary_with_statics
from tracebridge.numpy._promote import (
    check_no_out,
    normalize_axis,
)
from tracebridge.numpy._staging import static_dtype, value_of
from tracebridge.numpy.reductions import sum_dtype

_FILL = {"cumsum": 0, "cumprod": 1}


def _cumulative(
    x: Value, name: str, op: str, axis: int | None, dtype: DType | None, skip_nan: bool
) -> Any:
    """A running reduction in ``dtype``; bools count as the default integer."""
    if axis is None or not x.aval.shape:
        # An array without axes counts as one of a single element, as in NumPy.
        x, axis = lax.reshape(x, (x.aval.size,)), axis or 0
    axis = normalize_axis(axis, x.aval.ndim, name)
    if skip_nan and is_inexact(x.aval.dtype):
        x = lax.select_n(lax.ne(x, x), x, full_of(x.aval, _FILL[op]))
    if dtype is None and is_bool(x.aval.dtype):
        dtype = default_int()
    x = _to_dtype(x, dtype)
    # Sums of bools are sums of zeros and ones, of which the truth is asked.
    wide = lax.convert_dtype(x, default_int()) if is_bool(x.aval.dtype) else x
    run = lax.cumsum if op == "cumsum" else lax.cumprod
    return lax.convert_dtype(run(wide, axis), x.aval.dtype)


def _to_dtype(x: Value, dtype: DType | None) -> Any:
    if dtype is None:
        return x
    if is_bool(dtype):
        return lax.ne(x, zeros_of(x.aval.update(shape=())))
    return lax.convert_dtype(x, dtype)


_cumulative_staged = StagedFunction(_cumulative, "cumulative")
_cumulative_call = unary_with_statics(_cumulative_staged)


def _axis(axis: int | None) -> int | None:
    return None if axis is None else index_of(axis, "", "axis")


@remembered
def cumsum(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Running sums along an axis.

    Args:
        a: array.
        axis: axis in ``[-ndim, ndim)``; ``None`` flattens first.
        dtype: dtype of the result (default: that of ``a``; the default integer for bools).
        out: not supported.

    >>> import tracebridge.numpy as tnp
    >>> tnp.cumsum(tnp.array([1, 2, 3])).tolist()
    [1, 3, 6]
    """
    check_no_out("cumsum", out)
    statics = ("cumsum", "cumsum", _axis(axis), static_dtype("cumsum", dtype), False)
    return _cumulative_call(a, statics)


@remembered
def cumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Running products along an axis; arguments as of ``cumsum``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.cumprod(tnp.array([2, 3, 4])).tolist()
    [2, 6, 24]
    """
    check_no_out("cumprod", out)
    statics = ("cumprod", "cumprod", _axis(axis), static_dtype("cumprod", dtype), False)
    return _cumulative_call(a, statics)


def nancumsum(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Running sums along an axis; NaNs count as zeros.

    >>> import tracebridge.numpy as tnp
    >>> tnp.nancumsum(tnp.array([1.0, tnp.nan, 3.0])).tolist()
    [1.0, 1.0, 4.0]
    """
    check_no_out("nancumsum", out)
    statics = ("nancumsum", "cumsum", _axis(axis), static_dtype("nancumsum", dtype), True)
    return _cumulative_call(a, statics)


def nancumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Running products along an axis; NaNs count as ones.

    >>> import tracebridge.numpy as tnp
    >>> tnp.nancumprod(tnp.array([2.0, tnp.nan, 3.0])).tolist()
    [2.0, 2.0, 6.0]
    """
    check_no_out("nancumprod", out)
    statics = ("nancumprod", "cumprod", _axis(axis), static_dtype("nancumprod", dtype), True)
    return _cumulative_call(a, statics)


def _with_initial(x: Value, op: str, axis: int, dtype: DType) -> Any:
    name = f"cumulative_{op[3:]}"
    out = _cumulative(x, name, op, axis, dtype, False)
    axis = normalize_axis(axis, out.aval.ndim, name)
    shape = tuple([1 if i == axis else d for i, d in enumerate(out.aval.shape)])
    first = full_of(out.aval.update(shape=shape), _FILL[op])
    return lax.concatenate([first, out], axis)


_with_initial_staged = StagedFunction(_with_initial, "cumulative")


def _cumulative_standard(
    op: str, x: Any, axis: int | None, dtype: Any, include_initial: bool
) -> Any:
    """The array-API form: the axis may be left out for vectors only."""
    name = f"cumulative_{op[3:]}"
    x = value_of(x)
    if axis is None and x.aval.ndim != 1:
        msg = f"{name}: got {x.aval.str_short()} without axis, which only vectors may leave out"
        raise RankError(msg)
    where = 0 if axis is None else normalize_axis(index_of(axis, name, "axis"), x.aval.ndim, name)
    kind = sum_dtype(x.aval.dtype) if dtype is None else static_dtype(name, dtype)
    if include_initial:
        return _with_initial_staged((x,), (op, where, kind))
    return _cumulative_staged((x,), (name, op, where, kind, False))


def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """Running sums along an axis, as the array API has them.

    Args:
        x: array with at least one axis.
        axis: may be left out for vectors only.
        dtype: dtype of the result, see ``cumsum``.
        include_initial: put a zero in front.

    >>> import tracebridge.numpy as tnp
    >>> tnp.cumulative_sum(tnp.array([1, 2, 3]), include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    return _cumulative_standard("cumsum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """Running products along an axis, as the array API has them; see ``cumulative_sum``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.cumulative_prod(tnp.array([2, 3, 4]), include_initial=True).tolist()
    [1, 2, 6, 24]
    """
    return _cumulative_standard("cumprod", x, axis, dtype, include_initial)
