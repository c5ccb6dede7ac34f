"""Products along an axis and of other kinds: vecdot, matvec, vecmat, kron, cross, trace."""

from __future__ import annotations

__all__ = ["cross", "kron", "matvec", "trace", "vecdot", "vecmat"]

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_complex
from tracebridge.core.errors.argument_errors import index_of
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.contract.precision import PrecisionLike
from tracebridge.core.runtime.arrays.argument_types import DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import (
    as_strong,
    broadcast_shape,
    broadcast_to,
    check_no_out,
    factors,
    normalize_axis,
    promote_dtypes,
    strong_array,
)
from tracebridge.numpy._staging import is_traced, static_dtype, static_precision
from tracebridge.numpy.matrices import diagonal_of, traced_offset
from tracebridge.numpy.reductions import sum_dtype


def _contract(
    name: str, a: Any, b: Any, n_a: int, n_b: int, numbers: Any, precision: Any, preferred: Any
) -> Any:
    """dot_general with leading axes broadcast as batches; ``n`` counts the other axes."""
    batch = broadcast_shape(
        name, [v.aval.shape[: v.aval.ndim - n] for v, n in ((a, n_a), (b, n_b))]
    )
    a, b = (
        broadcast_to(v, (*batch, *v.aval.shape[v.aval.ndim - n :])) for v, n in ((a, n_a), (b, n_b))
    )
    k = len(batch)
    (left, right), batches = numbers, tuple(range(k))
    return lax.dot_general(
        a,
        b,
        (((k + left,), (k + right,)), (batches, batches)),
        precision=precision,
        preferred_element_type=preferred,
    )


def _check(name: str, a: Value, b: Value, n_a: int, n_b: int, i: int, j: int) -> None:
    for v, n in ((a, n_a), (b, n_b)):
        if v.aval.ndim < n:
            msg = f"{name}: needs at least {n} axes, got {v.aval.str_short()}"
            raise RankError(msg)
    if a.aval.shape[i] != b.aval.shape[j]:
        msg = (
            f"{name}: the inner sizes differ: {a.aval.shape[i]} and {b.aval.shape[j]}\n"
            f"    left  {a.aval.str_short()}\n    right {b.aval.str_short()}"
        )
        raise ShapeMismatchError(msg)


def _vecdot(a: Value, b: Value, axis: int, precision: PrecisionLike, preferred: DType) -> Any:
    a, b, preferred = factors(a, b, preferred)
    a, b = (_last(v, axis) for v in (a, b))
    _check("vecdot", a, b, 1, 1, -1, -1)
    a = lax.conj(a) if is_complex(a.aval.dtype) else a
    return _contract("vecdot", a, b, 1, 1, (0, 0), precision, preferred)


def _last(x: Value, axis: int) -> Any:
    """``x`` with ``axis`` moved to the end."""
    if not x.aval.ndim:
        return x
    where = normalize_axis(axis, x.aval.ndim, "vecdot")
    return lax.transpose(x, (*[i for i in range(x.aval.ndim) if i != where], where))


_vecdot_staged = StagedFunction(_vecdot, "vecdot")


def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Sums of ``conj(x1) * x2`` along an axis; other axes are broadcast.

    Args:
        x1: array with at least one axis.
        x2: array with at least one axis.
        axis: the axis that is summed.
        precision: precision of the products, see ``tracebridge.lax.Precision``.
        preferred_element_type: dtype of the sums and of the result.

    >>> import tracebridge.numpy as tnp
    >>> tnp.vecdot(tnp.array([[1.0, 2.0], [3.0, 4.0]]), tnp.array([1.0, 10.0])).tolist()
    [21.0, 43.0]
    """
    preferred = static_dtype("vecdot", preferred_element_type)
    return _vecdot_staged(
        (x1, x2),
        (index_of(axis, "vecdot", "axis"), static_precision("vecdot", precision), preferred),
    )


def _matvec(a: Value, b: Value) -> Any:
    a, b, preferred = factors(a, b, None)
    _check("matvec", a, b, 2, 1, -1, -1)
    return _contract("matvec", a, b, 2, 1, (1, 0), None, preferred)


_matvec_staged = StagedFunction(_matvec, "matvec")


def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Products of matrices ``(..., n, m)`` and vectors ``(..., m)``; leading axes are broadcast.

    >>> import tracebridge.numpy as tnp
    >>> tnp.matvec(tnp.array([[1.0, 2.0], [3.0, 4.0]]), tnp.array([1.0, 10.0])).tolist()
    [21.0, 43.0]
    """
    return _matvec_staged((x1, x2))


def _vecmat(a: Value, b: Value) -> Any:
    a, b, preferred = factors(a, b, None)
    _check("vecmat", a, b, 1, 2, -1, -2)
    a = lax.conj(a) if is_complex(a.aval.dtype) else a
    return _contract("vecmat", a, b, 1, 2, (0, 0), None, preferred)


_vecmat_staged = StagedFunction(_vecmat, "vecmat")


def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Products of conjugated vectors ``(..., n)`` and matrices ``(..., n, m)``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.vecmat(tnp.array([1.0, 10.0]), tnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [31.0, 42.0]
    """
    return _vecmat_staged((x1, x2))


def _kron(a: Value, b: Value) -> Any:
    a, b = promote_dtypes(a, b)
    n = max(a.aval.ndim, b.aval.ndim)
    left, right = ((1,) * (n - v.aval.ndim) + v.aval.shape for v in (a, b))
    wide_a = tuple([d for pair in zip(left, (1,) * n, strict=True) for d in pair])
    wide_b = tuple([d for pair in zip((1,) * n, right, strict=True) for d in pair])
    shape = tuple([d for pair in zip(left, right, strict=True) for d in pair])
    a, b = (broadcast_to(lax.reshape(v, w), shape) for v, w in ((a, wide_a), (b, wide_b)))
    multiply = lax.bitwise_and if is_bool(a.aval.dtype) else lax.mul
    return lax.reshape(multiply(a, b), tuple([x * y for x, y in zip(left, right, strict=True)]))


_kron_staged = StagedFunction(_kron, "kron")


@remembered
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """The Kronecker product: each element of ``a`` times all of ``b``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.kron(tnp.array([1, 10]), tnp.array([1, 2])).tolist()
    [1, 2, 10, 20]
    """
    return _kron_staged((a, b))


def _cross(a: Value, b: Value, axes: tuple[int, int, int]) -> Any:
    a, b = promote_dtypes(a, b)
    axis_a, axis_b, axis_c = axes
    sizes: list[int] = []
    moved: list[Any] = []
    for v, axis in ((a, axis_a), (b, axis_b)):
        where = normalize_axis(axis, v.aval.ndim, "cross")
        if v.aval.shape[where] not in (2, 3):
            msg = f"cross: vectors have 2 or 3 elements, got {v.aval.str_short()} along axis {axis}"
            raise ShapeMismatchError(msg)
        sizes.append(v.aval.shape[where])
        order = (where, *[i for i in range(v.aval.ndim) if i != where])
        moved.append(lax.transpose(v, order))
    shape = broadcast_shape("cross", [v.aval.shape[1:] for v in moved])
    parts = [
        [broadcast_to(lax.index_in_dim(v, i, 0, keepdims=False), shape) for i in range(n)]
        for v, n in zip(moved, sizes, strict=True)
    ]

    def minor(i: int, j: int) -> Any:
        """``a[i] * b[j] - a[j] * b[i]``; plane vectors have no third element."""
        terms = [(x, y) for x, y in ((i, j), (j, i)) if x < sizes[0] and y < sizes[1]]
        products = [lax.mul(parts[0][x], parts[1][y]) for x, y in terms]
        if len(products) == 2:
            return lax.sub(products[0], products[1])
        return products[0] if terms[0] == (i, j) else lax.neg(products[0])

    if sizes == [2, 2]:
        return strong_array(minor(0, 1))
    rows = [lax.reshape(minor(i, j), (*shape, 1)) for i, j in ((1, 2), (2, 0), (0, 1))]
    out = lax.concatenate(rows, len(shape))
    target = normalize_axis(axis_c, out.aval.ndim, "cross")
    order = list(range(len(shape)))
    order.insert(target, len(shape))
    return as_strong(lax.transpose(out, tuple(order)))


_cross_staged = StagedFunction(_cross, "cross")


@remembered
def cross(
    a: ArrayLike,
    b: ArrayLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Array:
    """Cross products of vectors with 3 (or 2) elements; other axes are broadcast.

    Args:
        a: first vectors.
        b: second vectors.
        axisa: axis of ``a`` along which the vectors lie.
        axisb: axis of ``b`` along which the vectors lie.
        axisc: axis of the result; products of plane vectors are numbers.
        axis: all three axes at once.

    >>> import tracebridge.numpy as tnp
    >>> tnp.cross(tnp.array([1, 0, 0]), tnp.array([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    axes = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    first, second, third = (index_of(x, "cross", "an axis") for x in axes)
    return _cross_staged((a, b), ((first, second, third),))


def _trace(x: Any, offset: int, axis1: int, axis2: int, dtype: DType) -> Any:
    x = lax.convert_dtype(x, dtype or sum_dtype(x.aval.dtype))
    diagonal = diagonal_of(x, offset, axis1, axis2, "trace")
    last = (diagonal.aval.ndim - 1,)
    if is_bool(diagonal.aval.dtype):  # dtype=bool: whether any is not zero
        return lax.reduce_or(diagonal, last)
    return lax.reduce_sum(diagonal, last)


def _trace_of(x: Any, offset: Value, axis1: int, axis2: int, dtype: DType) -> Any:
    """The sum over a diagonal that is known when the program runs."""
    x = lax.convert_dtype(x, dtype or sum_dtype(x.aval.dtype))
    first, second = [normalize_axis(k, x.aval.ndim, "trace") for k in (axis1, axis2)]
    rows, columns = [
        lax.broadcasted_iota(np.dtype(np.int32), x.aval.shape, k) for k in (first, second)
    ]
    here = lax.eq(lax.add(rows, traced_offset("trace", offset)), columns)
    x = lax.select_n(here, zeros_of(x.aval), x)
    axes = tuple(sorted((first, second)))
    return lax.reduce_or(x, axes) if is_bool(x.aval.dtype) else lax.reduce_sum(x, axes)


_trace_staged = StagedFunction(_trace, "trace")
_trace_traced = StagedFunction(_trace_of, "trace")


@remembered
def trace(
    a: ArrayLike,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
    out: None = None,
) -> Array:
    """The sum over a diagonal of two axes.

    Args:
        a: array of at least two axes.
        offset: which diagonal; positive ones lie above the main one.
        axis1: axis of rows.
        axis2: axis of columns.
        dtype: dtype of the sum (default as of ``sum``).
        out: not supported.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.trace(tnp.eye(3)))
    3.0
    """
    check_no_out("trace", out)
    if is_traced(offset):
        axes = (index_of(axis1, "trace", "axis1"), index_of(axis2, "trace", "axis2"))
        return _trace_traced((a, offset), (*axes, static_dtype("trace", dtype)))
    axes = (
        index_of(offset, "trace", "offset"),
        index_of(axis1, "trace", "axis1"),
        index_of(axis2, "trace", "axis2"),
    )
    return _trace_staged((a,), (*axes, static_dtype("trace", dtype)))
