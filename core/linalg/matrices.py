"""What rules and compositions of this folder do with batches of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.loops.fori import fori_loop
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.symbolic.dims import max_dim, min_dim

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracebridge.core.ir.aval import Shape
    from tracebridge.core.ir.values import Value

INT32 = np.dtype(np.int32)
_REAL = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(float)}
_COMPLEX = {np.dtype(np.float32): np.dtype(np.complex64), np.dtype(float): np.dtype(complex)}


def real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the absolute values of elements of ``dtype``."""
    return _REAL.get(dtype, dtype)


def complex_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The complex dtype that holds elements of ``dtype``."""
    return _COMPLEX.get(dtype, dtype)


def as_dtype(x: Value, dtype: np.dtype[Any]) -> Any:
    """``x`` in ``dtype``, whatever the option for 64 bits says."""
    return x if x.aval.dtype == dtype else lax.convert_dtype(x, dtype)


def matmul(a: Value, b: Value) -> Any:
    """The product of two batches of matrices, as exactly as the dtype allows."""
    return lax.batch_matmul(a, b, lax.Precision.HIGHEST)


def swapped(a: Value) -> Any:
    """The transposed matrices."""
    n = a.aval.ndim
    return lax.transpose(a, (*range(n - 2), n - 1, n - 2))


def conj(a: Value) -> Any:
    """The complex conjugate; real numbers as they are."""
    return lax.conj(a) if is_complex(a.aval.dtype) else a


def adjoint(a: Value) -> Any:
    """The transposed and conjugated matrices."""
    return conj(swapped(a))


def real(a: Value) -> Any:
    """The real part; real numbers as they are."""
    return lax.real(a) if is_complex(a.aval.dtype) else a


def rows_of(shape: Shape) -> Any:
    """The number of its row, for each element."""
    return lax.broadcasted_iota(INT32, shape, len(shape) - 2)


def columns_of(shape: Shape) -> Any:
    """The number of its column, for each element."""
    return lax.broadcasted_iota(INT32, shape, len(shape) - 1)


def lower_part(a: Value, k: int = 0) -> Any:
    """Elements up to the k-th diagonal; zero above."""
    shape = a.aval.shape
    inside = lax.ge(lax.add(rows_of(shape), _int(k)), columns_of(shape))
    return lax.select_n(inside, zeros_of(a.aval), a)


def upper_part(a: Value, k: int = 0) -> Any:
    """Elements from the k-th diagonal on; zero below."""
    shape = a.aval.shape
    inside = lax.le(lax.add(rows_of(shape), _int(k)), columns_of(shape))
    return lax.select_n(inside, zeros_of(a.aval), a)


def _int(k: int) -> Any:
    return full_of(ShapedArray((), INT32), k)


def scalar(x: Value, value: complex) -> Any:
    """A number of the dtype of ``x``."""
    return full_of(x.aval.update(shape=(), weak_type=False), value)


def eye(shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Ones on the main diagonals of matrices of ``shape``."""
    return lax.convert_dtype(lax.eq(rows_of(shape), columns_of(shape)), dtype)


def eye_of(a: Value) -> Any:
    """Ones on the main diagonals, of the shape and dtype of ``a``."""
    return eye(a.aval.shape, a.aval.dtype)


def diagonal(a: Value) -> Any:
    """The main diagonals, of shape ``(*batch, k)``."""
    *batch, m, n = a.aval.shape
    k = least(m, n)
    a = part(a, (0, k), (0, k))
    kept = lax.select_n(
        lax.eq(rows_of(a.aval.shape), columns_of(a.aval.shape)), zeros_of(a.aval), a
    )
    return lax.reduce_sum(kept, (len(batch),))


def from_diagonal(d: Value) -> Any:
    """Square matrices with ``d`` on their main diagonals."""
    *batch, n = d.aval.shape
    shape = (*batch, n, n)
    full = along_columns(d, shape)
    return lax.select_n(lax.eq(rows_of(shape), columns_of(shape)), zeros_of(full.aval), full)


def along_columns(d: Value, shape: Shape) -> Any:
    """``(*batch, n)`` as rows: element j stands in column j of each row."""
    n = len(shape)
    return lax.broadcast_in_dim(d, shape, (*range(n - 2), n - 1))


def along_rows(d: Value, shape: Shape) -> Any:
    """``(*batch, m)`` as columns: element i stands in row i of each column."""
    return lax.broadcast_in_dim(d, shape, tuple(range(len(shape) - 1)))


def per_matrix(d: Value, shape: Shape) -> Any:
    """``(*batch,)`` repeated over the matrices, or vectors, of ``shape``."""
    return lax.broadcast_in_dim(d, shape, tuple(range(d.aval.ndim)))


def scale_columns(a: Value, d: Value) -> Any:
    """Column j times ``d[j]``."""
    return lax.mul(a, along_columns(as_dtype(d, a.aval.dtype), a.aval.shape))


def scale_rows(a: Value, d: Value) -> Any:
    """Row i times ``d[i]``."""
    return lax.mul(a, along_rows(as_dtype(d, a.aval.dtype), a.aval.shape))


def part(a: Value, rows: tuple[Any, Any], columns: tuple[Any, Any]) -> Any:
    """The block of ``rows`` and ``columns``, each a start and a stop."""
    shape = a.aval.shape
    n = len(shape)
    if rows == (0, shape[-2]) and columns == (0, shape[-1]):
        return a
    starts = (*(0,) * (n - 2), rows[0], columns[0])
    stops = (*shape[:-2], rows[1], columns[1])
    return lax.slice(a, starts, stops)


def joined(parts: Sequence[Value], axis: int) -> Any:
    """Blocks side by side along ``axis`` (negative); those without elements left out."""
    kept = [p for p in parts if p.aval.shape[axis] != 0] or list(parts[:1])
    return kept[0] if len(kept) == 1 else lax.concatenate(kept, kept[0].aval.ndim + axis)


def padded(a: Value, rows: Any, columns: Any) -> Any:
    """The matrices with zeros below and to the right, of shape ``(*batch, rows, columns)``."""
    *batch, m, n = a.aval.shape
    if (m, n) == (rows, columns):
        return a
    config = [*[(0, 0, 0)] * len(batch), (0, rows - m, 0), (0, columns - n, 0)]
    return lax.pad(a, scalar(a, 0), config)


def least(m: Any, n: Any) -> Any:
    """The smaller of two sizes; they may be symbolic."""
    if type(m) is int and type(n) is int:
        return min(n, m)
    return min_dim(m, n)


def size_value(size: Any) -> Any:
    """A size as an int32, of which a symbolic one is known when the program runs."""
    if type(size) is int:
        return _int(size)
    return lax.convert_dtype(as_value(size), INT32)


def most(m: Any, n: Any) -> Any:
    """The larger of two sizes; they may be symbolic."""
    if type(m) is int and type(n) is int:
        return max(n, m)
    return max_dim(m, n)


def symmetrized(a: Value) -> Any:
    """The mean of the matrices and their adjoints."""
    return lax.mul(lax.add(a, adjoint(a)), full_of(a.aval.update(shape=()), 0.5))


def hermitian_of(a: Value, *, lower: bool) -> Any:
    """Hermitian matrices of one of their triangles, with the real part of the diagonal."""
    off = lower_part(a, -1) if lower else upper_part(a, 1)
    middle = from_diagonal(as_dtype(real(diagonal(a)), a.aval.dtype))
    return lax.add(middle, lax.add(off, adjoint(off)))


def is_empty(*avals: ShapedArray) -> bool:
    """Whether some axis has the size 0."""
    return any([type(d) is int and d == 0 for a in avals for d in a.shape])


def take_rows(a: Value, order: Value) -> Any:
    """The rows of ``a`` (``(*batch, m, n)``) in the order of ``order`` (``(*batch, k)``)."""
    n = a.aval.ndim
    if is_empty(a.aval):
        return zeros_of(a.aval.update(shape=(*order.aval.shape, a.aval.shape[-1])))
    batch = tuple(range(n - 2))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(n - 1,),
        collapsed_slice_dims=(n - 2,),
        start_index_map=(n - 2,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    indices = lax.reshape(order, (*order.aval.shape, 1))
    sizes = (*(1,) * (n - 1), a.aval.shape[-1])
    return lax.gather(a, indices, numbers, sizes, mode="promise_in_bounds")


def take_columns(a: Value, order: Value) -> Any:
    """The columns of ``a`` in the order of ``order`` (``(*batch, k)``)."""
    return swapped(take_rows(swapped(a), order))


def unit_scaled(a: Value) -> tuple[Any, Any]:
    """Matrices divided by their largest elements, which squares need; and these."""
    shape = a.aval.shape
    n = len(shape)
    size = lax.reduce_max(lax.abs(a), (n - 2, n - 1))
    usable = lax.bitwise_and(lax.gt(size, scalar(size, 0)), lax.is_finite(size))
    unit = lax.select_n(usable, full_of(size.aval, 1), size)
    return lax.div(a, as_dtype(per_matrix(unit, shape), a.aval.dtype)), unit


def nan_unless_finite(x: Value, a: Value) -> Any:
    """``x``, or NaN where a matrix of ``a`` has elements that are no numbers."""
    shape = x.aval.shape
    return lax.select_n(per_matrix(all_finite(a), shape), full_of(x.aval, float("nan")), x)


def all_finite(a: Value) -> Any:
    """Whether all elements of a matrix are finite, for each."""
    finite = lax.is_finite(lax.real(a)) if is_complex(a.aval.dtype) else lax.is_finite(a)
    if is_complex(a.aval.dtype):
        finite = lax.bitwise_and(finite, lax.is_finite(lax.imag(a)))
    return lax.reduce_and(finite, (a.aval.ndim - 2, a.aval.ndim - 1))


def repeated(n: Any, step: Callable[[Any, Any], Any], state: Any) -> Any:
    """``step(i, state)`` for each ``i`` below ``n``, an int32 whatever the option for 64 bits."""
    return fori_loop(0, n, lambda i, s: step(lax.convert_dtype(i, INT32), s), state)
