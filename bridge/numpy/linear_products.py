"""Products of vectors and matrices: matmul, dot, vdot, inner, outer, tensordot, ..."""

from __future__ import annotations

__all__ = ["dot", "inner", "matmul", "outer", "tensordot", "vdot"]

from collections.abc import Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_complex
from tracebridge.core.errors.argument_errors import ArgumentTypeError, index_of
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.errors.shown import shown
from tracebridge.core.ir.aval import Shape
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.contract.precision import PrecisionLike
from tracebridge.core.lax.sharding_constraint import split_result
from tracebridge.core.runtime.arrays.argument_types import Axis, DType, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction, binary
from tracebridge.core.symbolic.dims import Dim
from tracebridge.numpy._promote import (
    broadcast_shape,
    broadcast_to,
    check_no_out,
    factors,
    normalize_axis,
    promote_dtypes,
)
from tracebridge.numpy._staging import static_dtype, static_precision


def _check_inner(name: str, a: Value, b: Value, size_a: Dim, size_b: Dim) -> None:
    if size_a != size_b:
        msg = (
            f"{name}: the inner sizes differ: {size_a} and {size_b}\n"
            f"    left  {a.aval.str_short()}\n    right {b.aval.str_short()}"
        )
        hint = ""
        if a.aval.ndim == b.aval.ndim == 2:
            if a.aval.shape[1] == b.aval.shape[1]:
                hint = f"did you mean {name}(a, b.T)?"
            elif a.aval.shape[0] == b.aval.shape[0]:
                hint = f"did you mean {name}(a.T, b)?"
        raise ShapeMismatchError(msg, hint=hint)


def _matmul(
    a: Value, b: Value, precision: PrecisionLike = None, preferred_element_type: DType | None = None
) -> Any:
    a, b, preferred_element_type = factors(a, b, preferred_element_type)
    if a.aval.ndim == 0 or b.aval.ndim == 0:
        msg = (
            f"matmul: operands need at least one axis, got {a.aval.str_short()} and "
            f"{b.aval.str_short()}"
        )
        raise RankError(msg, hint="use * for products with scalars")
    vector_a, vector_b = a.aval.ndim == 1, b.aval.ndim == 1
    inner_b = b.aval.shape[0] if vector_b else b.aval.shape[-2]
    _check_inner("matmul", a, b, a.aval.shape[-1], inner_b)
    n_a, n_b = max(a.aval.ndim - 2, 0), max(b.aval.ndim - 2, 0)
    if n_a and n_b:
        batch = broadcast_shape("matmul", [a.aval.shape[:n_a], b.aval.shape[:n_b]])
        a, b = _expand_batch(a, batch, n_a), _expand_batch(b, batch, n_b)
        n = len(batch)
        dims = (
            ((a.aval.ndim - 1,), (n if b.aval.ndim == n + 1 else b.aval.ndim - 2,)),
            (tuple(range(n)), tuple(range(n))),
        )
        return lax.dot_general(
            a, b, dims, precision=precision, preferred_element_type=preferred_element_type
        )
    contract = ((a.aval.ndim - 1,), (0 if vector_b else b.aval.ndim - 2,))
    out = lax.dot_general(
        a,
        b,
        (contract, ((), ())),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    if n_b and not vector_a:
        # dot_general puts the free axes of the left operand first: (i, batch..., j).
        order = (*range(1, n_b + 1), 0, *range(n_b + 1, out.aval.ndim))
        out = lax.transpose(out, order)
    return out


def _expand_batch(x: Value, batch: Shape, n: int) -> Any:
    shape = (*batch, *x.aval.shape[n:])
    return broadcast_to(x, shape)


_matmul_staged = StagedFunction(_matmul, "matmul")
_matmul_fast = binary(_matmul_staged)


def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Matrix product; leading axes are batches and broadcast.

    Args:
        a: array of shape ``(..., n, k)`` or ``(k,)``.
        b: array of shape ``(..., k, m)`` or ``(k,)``.
        precision: precision of the products, see ``tracebridge.lax.Precision``.
        preferred_element_type: dtype of the sums and of the result.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ShapeMismatchError: the inner sizes differ.

    >>> import tracebridge.numpy as tnp
    >>> tnp.matmul(tnp.ones((2, 3)), tnp.ones((3, 4))).shape
    (2, 4)
    """
    if out_sharding is not None:
        return split_result(
            "matmul",
            out_sharding,
            matmul,
            a,
            b,
            precision=precision,
            preferred_element_type=preferred_element_type,
        )
    try:
        if precision is None and preferred_element_type is None:
            return _matmul_fast(a, b)
        return _matmul_staged(
            (a, b),
            (static_precision("matmul", precision), static_dtype("matmul", preferred_element_type)),
        )
    except Exception as error:
        hide_internal_frames(error)
        raise


def _product(a: Value, b: Value, dtype: DType | None) -> Any:
    """The product with a scalar."""
    if dtype is not None:
        a, b = lax.convert_dtype(a, dtype), lax.convert_dtype(b, dtype)
    return lax.bitwise_and(a, b) if is_bool(a.aval.dtype) else lax.mul(a, b)


def _dot(
    a: Value, b: Value, precision: PrecisionLike = None, preferred_element_type: DType | None = None
) -> Any:
    a, b, preferred_element_type = factors(a, b, preferred_element_type)
    if a.aval.ndim == 0 or b.aval.ndim == 0:
        a, b = promote_dtypes(a, b)
        return _product(a, b, preferred_element_type)
    axis = b.aval.ndim - 2 if b.aval.ndim > 1 else 0
    _check_inner("dot", a, b, a.aval.shape[-1], b.aval.shape[axis])
    return lax.dot_general(
        a,
        b,
        (((a.aval.ndim - 1,), (axis,)), ((), ())),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


_dot_staged = StagedFunction(_dot, "dot")


@remembered
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Sum over the last axis of ``a`` and the second-to-last of ``b``; scalars multiply.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.dot(tnp.array([1.0, 2.0]), tnp.array([3.0, 4.0])))
    11.0
    """
    if out_sharding is not None:
        return split_result(
            "dot",
            out_sharding,
            dot,
            a,
            b,
            precision=precision,
            preferred_element_type=preferred_element_type,
        )
    try:
        return _dot_staged(
            (a, b),
            (static_precision("dot", precision), static_dtype("dot", preferred_element_type)),
        )
    except Exception as error:
        hide_internal_frames(error)
        raise


def _tensordot(
    a: Value,
    b: Value,
    axes: Any,
    precision: PrecisionLike = None,
    preferred_element_type: DType | None = None,
) -> Any:
    a, b, preferred_element_type = factors(a, b, preferred_element_type)
    n_a, n_b = a.aval.ndim, b.aval.ndim
    if isinstance(axes, int):
        if axes > min(n_a, n_b):
            msg = (
                f"Number of tensordot axes, {axes}, exceeds input ranks: got {a.aval.str_short()} "
                f"and {b.aval.str_short()}"
            )
            raise RankError(msg)
        left, right = tuple(range(n_a - axes, n_a)), tuple(range(axes))
    else:
        left = tuple([normalize_axis(i, n_a, "tensordot") for i in axes[0]])
        right = tuple([normalize_axis(i, n_b, "tensordot") for i in axes[1]])
    for i, j in zip(left, right, strict=True):
        _check_inner("tensordot", a, b, a.aval.shape[i], b.aval.shape[j])
    return lax.dot_general(
        a,
        b,
        ((left, right), ((), ())),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


_tensordot_staged = StagedFunction(_tensordot, "tensordot")


def _axes_static(axes: Axis) -> Any:
    if isinstance(axes, np.ndarray):
        axes = axes.tolist()
    if not isinstance(axes, Sequence):
        return index_of(axes, "tensordot", "axes")
    if isinstance(axes, str) or len(axes) != 2:
        kinds = "an int, a pair of axes, or two sequences of them"
        msg = f"tensordot: its axes argument must be {kinds}, got {shown(axes)}"
        raise ArgumentTypeError(msg)
    pair = [(x,) if isinstance(x, str) or not isinstance(x, Sequence) else tuple(x) for x in axes]
    left, right = [tuple([index_of(i, "tensordot", "an axis") for i in p]) for p in pair]
    if len(left) != len(right):
        msg = f"tensordot requires axes lists to have equal length, got {left} and {right}"
        raise ArgumentTypeError(msg)
    return left, right


@remembered
def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: Axis = 2,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Sum over axes of both operands.

    Args:
        a: array.
        b: array.
        axes: number of last axes of ``a`` and first axes of ``b``, or a pair of axes or of
            sequences of axes.
        precision: precision of the products, see ``tracebridge.lax.Precision``.
        preferred_element_type: dtype of the sums and of the result.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    >>> import tracebridge.numpy as tnp
    >>> tnp.tensordot(tnp.ones((2, 3, 4)), tnp.ones((3, 4, 5))).shape
    (2, 5)
    """
    if out_sharding is not None:
        return split_result(
            "tensordot",
            out_sharding,
            tensordot,
            a,
            b,
            axes,
            precision=precision,
            preferred_element_type=preferred_element_type,
        )
    try:
        preferred = static_dtype("tensordot", preferred_element_type)
        return _tensordot_staged(
            (a, b), (_axes_static(axes), static_precision("tensordot", precision), preferred)
        )
    except Exception as error:
        hide_internal_frames(error)
        raise


def _vdot(a: Value, b: Value, precision: PrecisionLike, preferred_element_type: DType) -> Any:
    a, b = lax.reshape(a, (a.aval.size,)), lax.reshape(b, (b.aval.size,))
    a = lax.conj(a) if is_complex(a.aval.dtype) else a
    return _dot(a, b, precision, preferred_element_type)


_vdot_staged = StagedFunction(_vdot, "vdot")


@remembered
def vdot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Sum of ``conj(a) * b`` over all elements.

    >>> import tracebridge.numpy as tnp
    >>> complex(tnp.vdot(1j, 1j))
    (1+0j)
    """
    return _vdot_staged(
        (a, b), (static_precision("vdot", precision), static_dtype("vdot", preferred_element_type))
    )


def _inner(a: Value, b: Value, precision: PrecisionLike, preferred_element_type: DType) -> Any:
    a, b, preferred_element_type = factors(a, b, preferred_element_type)
    if a.aval.ndim == 0 or b.aval.ndim == 0:
        a, b = promote_dtypes(a, b)
        return _product(a, b, preferred_element_type)
    _check_inner("inner", a, b, a.aval.shape[-1], b.aval.shape[-1])
    return lax.dot_general(
        a,
        b,
        (((a.aval.ndim - 1,), (b.aval.ndim - 1,)), ((), ())),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


_inner_staged = StagedFunction(_inner, "inner")


@remembered
def inner(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Sum of products over the last axis of both operands.

    >>> import tracebridge.numpy as tnp
    >>> tnp.inner(tnp.ones((2, 3)), tnp.ones((4, 3))).shape
    (2, 4)
    """
    return _inner_staged(
        (a, b),
        (static_precision("inner", precision), static_dtype("inner", preferred_element_type)),
    )


def _outer(a: Value, b: Value) -> Any:
    a, b = promote_dtypes(a, b)
    shape = (a.aval.size, b.aval.size)
    left = lax.broadcast_in_dim(lax.reshape(a, shape[:1]), shape, (0,))
    right = lax.broadcast_in_dim(lax.reshape(b, shape[1:]), shape, (1,))
    return _product(left, right, None)


_outer_staged = StagedFunction(_outer, "outer")


@remembered
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """All products of elements of ``a`` and ``b``, flattened.

    >>> import tracebridge.numpy as tnp
    >>> tnp.outer(tnp.array([1, 2]), tnp.array([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    check_no_out("outer", out)
    return _outer_staged((a, b))
