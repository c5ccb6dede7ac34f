"""Arrays of one value: full, full_like, zeros_like, empty."""

from __future__ import annotations

__all__ = ["empty", "full", "full_like", "ones_like", "zeros_like"]

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.canonicalize import canonicalize, canonicalize_explicit
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.float0 import is_float0
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal
from tracebridge.core.ir.varied import varied
from tracebridge.core.lax.ad_util import copies_of, float0_of
from tracebridge.core.lax.device_put import at_sharding
from tracebridge.core.lax.shape.axes import as_shape
from tracebridge.core.lax.sharding_constraint import constrained_result

if TYPE_CHECKING:
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.value import Operand


def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding: Any = None) -> Any:
    """An array with all elements ``fill_value``.

    Args:
        shape: shape of the result.
        fill_value: a scalar.
        dtype: of the result (default: that of ``fill_value``).
        sharding: where the result is put.

    Raises:
        RankError: ``fill_value`` has axes.
        ArgumentTypeError: ``sharding`` is no sharding.

    >>> import tracebridge as tb
    >>> tb.lax.full((2,), 7, "float32").tolist()
    [7.0, 7.0]
    """
    value = as_value(fill_value)
    if value.aval.ndim:
        msg = f"full: fill_value must be a scalar, got {value.aval.str_short()}"
        raise RankError(msg)
    kind = value.aval.dtype if dtype is None else canonicalize_explicit(dtype, "full")
    if kind == float0:
        return float0_of(as_shape("full", shape))
    weak = dtype is None and value.aval.weak_type
    out = copies_of(value, as_shape("full", shape), kind, weak)
    return out if sharding is None else at_sharding("full", out, sharding)


def empty(shape: object, dtype: DTypeLike, *, out_sharding: object = None) -> Any:
    """An array whose elements do not matter (they are zero).

    Args:
        shape: shape of the result.
        dtype: dtype of the result.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    >>> import tracebridge as tb
    >>> tb.lax.empty((2, 3), "int8").shape
    (2, 3)
    """
    out = full(shape, 0, dtype)
    return out if out_sharding is None else constrained_result("empty", out, out_sharding)


def full_like(
    x: Any, fill_value: Operand, dtype: Any = None, shape: object = None, sharding: object = None
) -> Any:
    """An array with the shape and dtype of ``x`` and all elements ``fill_value``.

    Args:
        x: an array, or anything with ``shape`` and ``dtype``.
        fill_value: a scalar.
        dtype: another dtype than that of ``x``.
        shape: another shape than that of ``x``.
        sharding: where the result is put.

    Raises:
        RankError: ``fill_value`` is no scalar.
        ArgumentTypeError: ``sharding`` is no sharding.

    >>> import tracebridge as tb
    >>> tb.lax.full_like(tb.numpy.zeros(2), 7).tolist()
    [7.0, 7.0]
    """
    if dtype is None and is_float0(x):
        return float0_of(x.shape if shape is None else as_shape("full_like", shape))
    like = aval_like(x)
    dims = like.shape if shape is None else as_shape("full_like", shape)
    value = as_value(fill_value)
    if value.aval.ndim:
        msg = f"full_like: fill_value must be a scalar, got {value.aval.str_short()}"
        raise RankError(msg)
    if dtype is None:
        out = copies_of(value, dims, like.dtype, like.weak_type)
    else:
        out = copies_of(value, dims, canonicalize_explicit(dtype, "full_like"))
    if sharding is not None:
        return at_sharding("full_like", out, sharding)
    place = _place_of(x) if dtype is not None or not like.weak_type else None
    if place is not None and (dims == like.shape or place.num_devices == 1):
        return at_sharding("full_like", out, place)
    if like.split is not None and dims == like.shape:
        out = lax.sharding_constraint_p.bind(out, sharding=like.split)
    return varied(out, like.vma)


def _place_of(x: Any) -> Any:
    """Where an array is that the user has put there, outside of traces; else None."""
    return x.sharding if is_eager() and getattr(x, "_sig", None) and x.committed else None


def zeros_like(x: Any, dtype: Any = None, shape: Any = None) -> Any:
    """Zeros with the shape and dtype of ``x``.

    >>> import tracebridge as tb
    >>> tb.lax.zeros_like(tb.numpy.ones(2)).tolist()
    [0.0, 0.0]
    """
    return full_like(x, 0, dtype, shape)


def ones_like(x: Any, dtype: Any = None, shape: Any = None) -> Any:
    """Ones with the shape and dtype of ``x``.

    >>> import tracebridge as tb
    >>> tb.lax.ones_like(tb.numpy.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return full_like(x, 1, dtype, shape)


def aval_like(x: Any) -> ShapedArray:
    """The aval of an array, or of anything that has a shape and a dtype."""
    if not isinstance(x, np.ndarray | Literal) and hasattr(x, "shape") and hasattr(x, "dtype"):
        found = getattr(x, "aval", None) or getattr(x, "__tracebridge_typeof__", None)
        if isinstance(found, ShapedArray):
            return found
        weak = bool(getattr(x, "weak_type", False))
        return ShapedArray(tuple(x.shape), canonicalize(x.dtype), weak)
    return as_value(x).aval
