"""Matrices by pattern: diagonals, triangles, powers of a vector."""

from __future__ import annotations

__all__ = ["diag", "diagflat", "diagonal", "eye", "identity", "tri", "tril", "triu", "vander"]

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit, default_float
from tracebridge.core.dtypes.dtypes import is_integer
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    index_of,
    size_of,
)
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.argument_types import DeviceLike, DimLike, DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.dims import Dim
from tracebridge.numpy._promote import (
    as_strong,
    broadcast_to,
    normalize_axis,
    promote_numeric,
    strongly,
)
from tracebridge.numpy._staging import is_traced, unwrapped
from tracebridge.numpy.conversion import on_device
from tracebridge.numpy.creation import canonical_shape, dimension

_INT32 = np.dtype(np.int32)


# ones on a diagonal ------------------------------------------------------------------------------


def _eye(n: Value, m: Value, k: int, dtype: DType) -> Any:
    rows = lax.broadcasted_iota(np.dtype(np.int32), (n, m), 0)
    columns = lax.broadcasted_iota(np.dtype(np.int32), (n, m), 1)
    return lax.convert_dtype(lax.eq(lax.add(rows, k), columns), dtype)


_eye_staged = StagedFunction(_eye, "eye")
_eye_traced = StagedFunction(
    lambda k, n, m, dtype: _eye(n, m, traced_offset("eye", k), dtype), "eye"
)


def traced_offset(name: str, k: Value) -> Any:
    """A traced offset of a diagonal, as int32.

    Raises:
        ArgumentTypeError: it is not one integer.
    """
    if k.aval.ndim or not is_integer(k.aval.dtype):
        msg = f"{name}: k is {k.aval.str_short()}, expected one integer"
        raise ArgumentTypeError(msg)
    return lax.convert_dtype(k, np.dtype(np.int32))


def eye(
    N: object,
    M: DimLike | None = None,
    k: ArrayLike = 0,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
) -> Array:
    """A matrix of zeros with ones on diagonal ``k``, which may be traced.

    >>> import tracebridge.numpy as tnp
    >>> tnp.eye(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    kind = default_float() if dtype is None else canonicalize_explicit(dtype, "eye")
    rows = dimension(N, "eye")
    columns = rows if M is None else dimension(M, "eye")
    if is_traced(k):
        return on_device(_eye_traced((k,), (rows, columns, kind)), device)
    offset = index_of(k, "eye", "k")
    if isinstance(rows, int) and isinstance(columns, int):
        offset = min(max(offset, -rows), columns)  # beyond the corners all matrices are zero
    return on_device(_eye_staged((), (rows, columns, offset, kind)), device)


def identity(n: DimLike, dtype: DTypeLike | None = None) -> Array:
    """The identity matrix of size ``n``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.identity(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return eye(n, dtype=dtype)


# diagonals ---------------------------------------------------------------------------------------


def diagonal_of(x: Value, offset: int, axis1: int, axis2: int, name: str = "diagonal") -> Any:
    """The diagonal of two axes, as the last axis of the result."""
    ndim = x.aval.ndim
    if ndim < 2:
        msg = f"{name}: needs at least two axes, got {x.aval.str_short()}"
        raise RankError(msg)
    i, j = normalize_axis(axis1, ndim, name), normalize_axis(axis2, ndim, name)
    if i == j:
        msg = f"{name}: axis1 and axis2 must differ, got {axis1} and {axis2}"
        raise ArgumentValueError(msg)
    rows, columns = x.aval.shape[i], x.aval.shape[j]
    first, last = max(-offset, 0), max(offset, 0)
    size = max(min(rows - first, columns - last), 0)
    others = [a for a in range(ndim) if a not in (i, j)]
    shape = (*[x.aval.shape[a] for a in others], size)
    if x.aval.size == 0 or size == 0:
        return zeros_of(x.aval.update(shape=shape))
    steps = lax.iota(_INT32, size)
    pairs = [lax.reshape(lax.add(steps, k), (size, 1)) for k in (first, last)]
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(len(others))),
        collapsed_slice_dims=tuple(sorted((i, j))),
        start_index_map=(i, j),
    )
    sizes = tuple([1 if a in (i, j) else d for a, d in enumerate(x.aval.shape)])
    return lax.gather(
        x, lax.concatenate(pairs, 1), numbers, sizes, unique_indices=True, indices_are_sorted=True
    )


_diagonal_staged = StagedFunction(strongly(diagonal_of), "diagonal")


@remembered
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The elements of ``a`` on a diagonal of two axes, as the last axis of the result.

    Args:
        a: array of at least two axes.
        offset: which diagonal; positive ones lie above the main one.
        axis1: axis of rows.
        axis2: axis of columns.

    >>> import tracebridge.numpy as tnp
    >>> tnp.diagonal(tnp.arange(9).reshape(3, 3), 1).tolist()
    [1, 5]
    """
    statics = (
        index_of(offset, "diagonal", "offset"),
        index_of(axis1, "diagonal", "axis1"),
        index_of(axis2, "diagonal", "axis2"),
    )
    return _diagonal_staged((a,), statics)


def _diag(x: Value, k: int) -> Any:
    if x.aval.ndim == 1:
        return _matrix_of(x, k)
    if x.aval.ndim == 2:
        return as_strong(diagonal_of(x, k, 0, 1, "diag"))
    msg = f"diag: needs one or two axes, got {x.aval.str_short()}"
    raise RankError(msg)


def _matrix_of(x: Value, k: int) -> Any:
    """A matrix with the vector ``x`` on diagonal ``k``."""
    n = x.aval.shape[0]
    size = n + abs(k)
    padded = lax.pad(x, zeros_of(x.aval.update(shape=())), [(max(-k, 0), max(k, 0), 0)])
    rows = lax.broadcast_in_dim(padded, (size, size), (0,))
    on = _on_diagonal((size, size), k)
    return lax.select_n(on, zeros_of(rows.aval), rows)


def _on_diagonal(shape: tuple[Dim, Dim], k: int) -> Any:
    rows = lax.broadcasted_iota(_INT32, shape, 0)
    columns = lax.broadcasted_iota(_INT32, shape, 1)
    return lax.eq(lax.add(rows, k), columns)


_diag_staged = StagedFunction(_diag, "diag")


@remembered
def diag(v: ArrayLike, k: int = 0) -> Array:
    """The matrix with a vector on diagonal ``k``, or the diagonal ``k`` of a matrix.

    >>> import tracebridge.numpy as tnp
    >>> tnp.diag(tnp.array([1, 2])).tolist()
    [[1, 0], [0, 2]]
    >>> tnp.diag(tnp.array([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    return _diag_staged((v,), (index_of(k, "diag", "k"),))


_diagflat_staged = StagedFunction(
    strongly(lambda x, k: _matrix_of(lax.reshape(x, (x.aval.size,)), k)), "diagflat"
)


def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """The matrix with the flattened ``v`` on diagonal ``k``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.diagflat(tnp.array([[1], [2]]), 1).tolist()
    [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    """
    return _diagflat_staged((v,), (index_of(k, "diagflat", "k"),))


# triangles ---------------------------------------------------------------------------------------


def lower_mask(shape: tuple[Dim, Dim], k: ArrayLike) -> Any:
    """True on and below diagonal ``k``."""
    rows = lax.broadcasted_iota(_INT32, shape, 0)
    columns = lax.broadcasted_iota(_INT32, shape, 1)
    return lax.ge(lax.add(rows, k), columns)


_tri_staged = StagedFunction(
    lambda n, m, k, dtype: lax.convert_dtype(lower_mask((n, m), k), dtype), "tri"
)


_tri_traced = StagedFunction(
    lambda k, n, m, dtype: lax.convert_dtype(lower_mask((n, m), traced_offset("tri", k)), dtype),
    "tri",
)


def tri(
    N: DimLike, M: DimLike | None = None, k: ArrayLike = 0, dtype: DTypeLike | None = None
) -> Array:
    """Ones on and below diagonal ``k``, which may be traced; zeros above.

    >>> import tracebridge.numpy as tnp
    >>> tnp.tri(2, 3, dtype=int).tolist()
    [[1, 0, 0], [1, 1, 0]]
    """
    kind = default_float() if dtype is None else canonicalize_explicit(dtype, "tri")
    rows, columns = canonical_shape((N, N if M is None else M), "eye")
    if is_traced(k):
        return _tri_traced((k,), (rows, columns, kind))
    return _tri_staged((), (rows, columns, size_of(k, "tri", "k"), kind))


def _triangle(x: Value, k: int, lower: bool) -> Any:
    name = "tril" if lower else "triu"
    if x.aval.ndim < 1:
        msg = f"{name}: needs at least one axis, got {x.aval.str_short()}"
        raise RankError(msg)
    if x.aval.ndim == 1:
        # NumPy makes the vector the rows of a square matrix.
        x = broadcast_to(x, (x.aval.shape[0], x.aval.shape[0]))
    mask = lower_mask(x.aval.shape[-2:], k if lower else k - 1)
    mask = lax.broadcast_in_dim(mask, x.aval.shape, (x.aval.ndim - 2, x.aval.ndim - 1))
    zero = zeros_of(x.aval)
    return lax.select_n(mask, zero, x) if lower else lax.select_n(mask, x, zero)


_triangle_staged = StagedFunction(_triangle, "triangle")


@remembered
def tril(m: ArrayLike, k: int = 0) -> Array:
    """The lower triangles of matrices: zeros above diagonal ``k``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.tril(tnp.ones((2, 2))).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    return _triangle_staged((m,), (size_of(k, "tril", "k"), True))


@remembered
def triu(m: ArrayLike, k: int = 0) -> Array:
    """The upper triangles of matrices: zeros below diagonal ``k``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.triu(tnp.ones((2, 2))).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return _triangle_staged((m,), (size_of(k, "triu", "k"), False))


_MAX_COLUMNS_WRITTEN_OUT = 32  # powers of `vander`


def _vander(x: Value, n: int, increasing: bool) -> Any:
    if x.aval.ndim != 1:
        msg = f"vander: needs a vector, got {x.aval.str_short()}"
        raise RankError(msg)
    (x,) = promote_numeric(x)
    size = x.aval.shape[0]
    if n == 0:
        return zeros_of(x.aval.update(shape=(size, 0)))
    if n > _MAX_COLUMNS_WRITTEN_OUT:
        rest = lax.broadcast_in_dim(x, (size, n - 1), (0,))
        table = lax.cumprod(
            lax.concatenate([full_of(x.aval.update(shape=(size, 1)), 1), rest], 1), 1
        )
        return table if increasing else lax.rev(table, (1,))
    powers = [full_of(x.aval, 1)]
    while len(powers) < n:
        powers.append(lax.mul(powers[-1], x))
    columns = [lax.reshape(p, (size, 1)) for p in (powers if increasing else powers[::-1])]
    return lax.concatenate(columns, 1) if n > 1 else columns[0]


_vander_staged = StagedFunction(strongly(_vander), "vander")


@remembered
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:
    """The matrix whose columns are powers of a vector, highest first.

    Raises:
        ArgumentValueError: ``N`` is negative.

    >>> import tracebridge.numpy as tnp
    >>> tnp.vander(tnp.array([2, 3]), 3).tolist()
    [[4, 2, 1], [9, 3, 1]]
    """
    x = unwrapped(x)
    count = (x.shape[0] if hasattr(x, "shape") and x.shape else 0) if N is None else N
    columns = index_of(count, "vander", "count")
    if columns < 0:
        msg = f"vander: N must not be negative, got {columns}"
        raise ArgumentValueError(msg)
    return _vander_staged((x,), (columns, bool(increasing)))
