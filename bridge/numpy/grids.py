"""Grids of coordinates and positions: meshgrid, indices, flat and multi-indices."""

from __future__ import annotations

__all__ = [
    "diag_indices", "diag_indices_from", "indices", "ix_", "mask_indices", "meshgrid",
    "ravel_multi_index", "tril_indices", "tril_indices_from", "triu_indices", "triu_indices_from",
    "unravel_index",
]  # fmt: skip

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import (
    canonicalize_explicit,
    default_float,
    default_int,
)
from tracebridge.core.dtypes.dtypes import is_bool, is_integer, is_unsigned
from tracebridge.core.dtypes.finfo import iinfo
from tracebridge.core.dtypes.promotion import promote
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.aval import Shape
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.runtime.arrays.argument_types import DType, ShapeLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.arrays.transfer import put_made
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import broadcast_operands
from tracebridge.numpy._staging import concrete, is_traced, shape_of
from tracebridge.numpy.conversion import asarray
from tracebridge.numpy.creation import arange, canonical_shape
from tracebridge.numpy.manipulation import reshape
from tracebridge.numpy.matrices import lower_mask
from tracebridge.numpy.positions import nonzero

_INT32 = np.dtype(np.int32)


def _meshgrid(*args: Value) -> list[Any]:
    *xs, sparse, swap = args
    n = len(xs)
    axes = list(range(n))
    if swap and n > 1:
        axes[0], axes[1] = 1, 0
    shape: list[Any] = [1] * n
    for x, axis in zip(xs, axes, strict=True):
        shape[axis] = x.aval.size
    out: list[Any] = []
    for x, axis in zip(xs, axes, strict=True):
        if sparse:
            sizes = tuple([x.aval.size if i == axis else 1 for i in range(n)])
            out.append(lax.reshape(x, sizes))
        else:
            flat = lax.reshape(x, (x.aval.size,))
            out.append(lax.broadcast_in_dim(flat, tuple(shape), (axis,)))
    return out


_meshgrid_staged = StagedFunction(_meshgrid, "meshgrid")


def meshgrid(
    *xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> list[Array]:
    """The coordinates of a grid, one array for each vector of coordinates.

    Args:
        *xi: vectors (or scalars).
        copy: must be ``True``: arrays are no views.
        sparse: leave axes of the grid with size 1 where coordinates do not change along them.
        indexing: ``"xy"`` exchanges the first two axes, ``"ij"`` does not.

    Raises:
        RankError: an argument is no vector.
        ArgumentValueError: ``copy`` is False, or ``indexing`` is unknown.

    >>> import tracebridge.numpy as tnp
    >>> x, y = tnp.meshgrid(tnp.arange(3), tnp.arange(2))
    >>> x.tolist(), y.tolist()
    ([[0, 1, 2], [0, 1, 2]], [[0, 0, 0], [1, 1, 1]])
    """
    if not copy:
        msg = "meshgrid: copy=False, expected True: arrays are no views"
        raise ArgumentValueError(msg)
    if indexing not in ("xy", "ij"):
        msg = f"meshgrid: indexing={indexing!r}, expected 'xy' or 'ij'"
        raise ArgumentValueError(msg)
    if any([len(shape_of(x)) > 1 for x in xi]):
        msg = f"meshgrid: expected vectors, got shapes {[shape_of(x) for x in xi]}"
        raise RankError(msg)
    return _meshgrid_staged(xi, (bool(sparse), indexing == "xy")) if xi else []


@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: Literal[False] = False
) -> Array: ...


@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, *, sparse: Literal[True]
) -> tuple[Array, ...]: ...


@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: bool = False
) -> Array | tuple[Array, ...]: ...
def indices(dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: bool = False) -> Any:
    """The positions along each axis of an array of shape ``dimensions``.

    Args:
        dimensions: a shape.
        dtype: dtype of the result (default: the default integer).
        sparse: give a tuple of arrays with size 1 along the other axes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.indices((2, 2)).tolist()
    [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
    """
    kind = default_int() if dtype is None else canonicalize_explicit(dtype, "indices")
    shape = canonical_shape(tuple(dimensions), "indices")
    if sparse:
        return tuple(_indices_staged((), (shape, kind, True)))
    if not shape:
        return put_made("indices", lambda: np.zeros((0,), kind))
    return _indices_staged((), (shape, kind, False))


def _indices(shape: Shape, dtype: DType, sparse: bool) -> Any:
    n = len(shape)
    if sparse:
        sizes = [tuple([d if i == a else 1 for i, d in enumerate(shape)]) for a in range(n)]
        return [lax.broadcasted_iota(dtype, s, a) for a, s in enumerate(sizes)]
    rows = [lax.broadcasted_iota(dtype, (1, *shape), a + 1) for a in range(n)]
    return lax.concatenate(rows, 0) if n > 1 else rows[0]


_indices_staged = StagedFunction(_indices, "indices")


# positions of diagonals and triangles ------------------------------------------------------------


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """The positions of the main diagonal of an array with ``ndim`` axes of size ``n``.

    Raises:
        ArgumentValueError: a size is negative.

    >>> import tracebridge.numpy as tnp
    >>> [p.tolist() for p in tnp.diag_indices(2)]
    [[0, 1], [0, 1]]
    """
    size, count = index_of(n, "diag_indices", "n"), index_of(ndim, "diag_indices", "ndim")
    if size < 0 or count < 0:
        msg = f"diag_indices: n and ndim must not be negative, got {size} and {count}"
        raise ArgumentValueError(msg)
    return (arange(size),) * count


def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """The positions of the main diagonal of ``arr``, whose axes have equal sizes.

    Raises:
        ShapeMismatchError: the sizes of the axes differ, or there are less than two.

    >>> import tracebridge.numpy as tnp
    >>> [p.tolist() for p in tnp.diag_indices_from(tnp.ones((2, 2)))]
    [[0, 1], [0, 1]]
    """
    shape = shape_of(arr)
    if len(shape) < 2 or len(set(shape)) > 1:
        msg = f"diag_indices_from: needs at least two axes of equal sizes, got shape {shape}"
        raise ShapeMismatchError(msg)
    return diag_indices(shape[0], len(shape))


def _triangle(
    name: str, n: ArrayLike, k: int, m: ArrayLike | None, *, upper: bool
) -> tuple[Any, Any]:
    """Rows and columns of the places up to diagonal ``k``, or of the others."""
    rows = index_of(n, name, "n")
    columns = rows if m is None else index_of(m, name, "m")
    if rows < 0 or columns < 0:
        msg = f"{name}: n and m must not be negative, got {rows} and {columns}"
        raise ArgumentValueError(msg)

    def places() -> np.ndarray[Any, Any]:
        lower = np.tri(rows, columns, k, dtype=bool)
        return np.asarray((~lower if upper else lower).nonzero(), default_int())

    made = put_made(name, places)
    return made[0], made[1]


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The positions of the lower triangle of an ``n`` by ``m`` matrix, up to diagonal ``k``.

    >>> import tracebridge.numpy as tnp
    >>> [p.tolist() for p in tnp.tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    name = "tril_indices"
    return _triangle(name, n, index_of(k, name, "k"), m, upper=False)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The positions of the upper triangle of an ``n`` by ``m`` matrix, from diagonal ``k`` on.

    >>> import tracebridge.numpy as tnp
    >>> [p.tolist() for p in tnp.triu_indices(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    name = "triu_indices"
    return _triangle(name, n, index_of(k, name, "k") - 1, m, upper=True)


def _matrix_shape(name: str, arr: ArrayLike) -> tuple[int, int]:
    shape = shape_of(arr)
    if len(shape) != 2:
        msg = f"{name}: needs a matrix, got shape {shape}"
        raise RankError(msg)
    return shape[0], shape[1]


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """The positions of the lower triangle of a matrix, up to diagonal ``k``.

    >>> import tracebridge.numpy as tnp
    >>> [p.tolist() for p in tnp.tril_indices_from(tnp.ones((2, 2)))]
    [[0, 1, 1], [0, 0, 1]]
    """
    rows, columns = _matrix_shape("tril_indices_from", arr)
    return tril_indices(rows, k, columns)


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """The positions of the upper triangle of a matrix, from diagonal ``k`` on.

    >>> import tracebridge.numpy as tnp
    >>> [p.tolist() for p in tnp.triu_indices_from(tnp.ones((2, 2)))]
    [[0, 0, 1], [0, 1, 1]]
    """
    rows, columns = _matrix_shape("triu_indices_from", arr)
    return triu_indices(rows, k, columns)


def mask_indices(
    n: int, mask_func: Callable[[Any, int], Any], k: int = 0, *, size: int | None = None
) -> tuple[Array, Array]:
    """The positions of an ``n`` by ``n`` matrix that ``mask_func`` leaves nonzero.

    >>> import tracebridge.numpy as tnp
    >>> [p.tolist() for p in tnp.mask_indices(2, tnp.triu)]
    [[0, 0, 1], [0, 1, 1]]
    """
    ones = _ones_staged((), (index_of(n, "mask_indices", "n"),))
    rows, columns = nonzero(mask_func(ones, k), size=size)
    return rows, columns


_ones_staged = StagedFunction(
    lambda n: full_of(lower_mask((n, n), 0).aval.update(dtype=default_float()), 1), "ones"
)


# open grids and flat positions -------------------------------------------------------------------


def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """Index arrays that choose the rows and columns (and so on) given by vectors.

    Raises:
        RankError: an argument is no vector.

    >>> import tracebridge.numpy as tnp
    >>> x = tnp.arange(9).reshape(3, 3)
    >>> x[tnp.ix_(tnp.array([0, 2]), tnp.array([1]))].tolist()
    [[1], [7]]
    """
    out: list[Any] = []
    for i, a in enumerate(args):
        value = asarray(as_value(a, "ix_"))
        if value.aval.ndim != 1:
            msg = f"ix_: expected vectors, got {value.aval.str_short()} as argument {i}"
            raise RankError(msg)
        if is_bool(value.aval.dtype):
            (value,) = nonzero(value)
        if value.aval.size == 0:
            value = value.astype(default_int())
        shape = tuple([value.shape[0] if k == i else 1 for k in range(len(args))])
        out.append(reshape(value, shape))
    return tuple(out)


def _unravel(flat: Value, shape: Shape) -> list[Any]:
    if not is_integer(flat.aval.dtype):
        msg = f"unravel_index: indices must be integers, got {flat.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    dtype, weak = flat.aval.dtype, flat.aval.weak_type
    if dtype.itemsize < 4:
        flat = lax.convert_dtype(flat, _INT32)
    total = 1
    for d in shape:
        total = total * d
    scalar = flat.aval.strong.update(shape=())
    if not is_unsigned(flat.aval.dtype):
        flat = lax.select_n(lax.lt(flat, 0), flat, lax.add(flat, full_of(scalar, total)))
        flat = lax.max(flat, full_of(scalar, 0))
    flat = lax.min(flat, full_of(scalar, max(total - 1, 0)))
    out: list[Any] = []
    for d in reversed(shape):
        size = full_of(scalar, max(d, 1))
        out.append(lax.rem(flat, size))
        flat = lax.div(flat, size)
    return [lax.convert_dtype(v, dtype, weak) for v in out[::-1]]


def _unravel_traced(flat: Value, sizes: Value) -> list[Any]:
    """Of sizes that are known when the program runs."""
    if sizes.aval.ndim != 1 or not is_integer(sizes.aval.dtype):
        msg = f"unravel_index: shape is {sizes.aval.str_short()}, expected a vector of integers"
        raise UnsupportedDtypeError(msg)
    if not is_integer(flat.aval.dtype):
        msg = f"unravel_index: indices must be integers, got {flat.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    dtype = flat.aval.dtype
    wide = lax.convert_dtype(flat, _INT32) if dtype.itemsize < 4 else flat
    sizes = lax.convert_dtype(sizes, wide.aval.dtype)
    total = lax.reduce_prod(sizes, (0,))
    zero, one = full_of(total.aval, 0), full_of(total.aval, 1)
    if not is_unsigned(wide.aval.dtype):
        wide = lax.select_n(lax.lt(wide, 0), wide, lax.add(wide, total))
        wide = lax.max(wide, zero)
    wide = lax.min(wide, lax.max(lax.sub(total, one), zero))
    out: list[Any] = []
    for k in range(sizes.aval.shape[0])[::-1]:
        size = lax.max(lax.index_in_dim(sizes, k, 0, False), one)
        out.append(lax.convert_dtype(lax.rem(wide, size), dtype))
        wide = lax.div(wide, size)
    return out[::-1]


_unravel_staged = StagedFunction(_unravel, "unravel_index")
_unravel_traced_staged = StagedFunction(_unravel_traced, "unravel_index")


def unravel_index(indices: ArrayLike, shape: ShapeLike) -> tuple[Array, ...]:
    """The positions along each axis of ``shape`` for positions in the flattened array.

    Negative positions count from the end; those out of bounds are clamped. The results have the
    dtype of ``indices``.

    >>> import tracebridge.numpy as tnp
    >>> [p.tolist() for p in tnp.unravel_index(tnp.array([5, -1]), (2, 3))]
    [[1, 1], [2, 2]]
    """
    if is_traced(shape):
        return tuple(_unravel_traced_staged((indices, shape)))
    sizes = canonical_shape(shape, "unravel_index")
    return tuple(_unravel_staged((indices,), (sizes,))) if sizes else ()


def _ravel(*args: Any) -> Any:
    *parts, dims, modes, order, dtype = args
    parts = broadcast_operands("ravel_multi_index", *parts)
    total: Any = None
    pairs = list(zip(parts, dims, modes, strict=True))
    for part, size, mode in pairs if order == "C" else pairs[::-1]:
        p = lax.convert_dtype(part, dtype)
        scalar = p.aval.update(shape=())
        length = full_of(scalar, size)
        if mode == "clip":
            p = lax.max(lax.min(p, full_of(scalar, size - 1)), full_of(scalar, 0))
        elif mode == "wrap":
            p = lax.rem(p, length)
            p = lax.select_n(lax.lt(p, full_of(scalar, 0)), p, lax.add(p, length))
        total = p if total is None else lax.add(lax.mul(total, length), p)
    return total


_ravel_staged = StagedFunction(_ravel, "ravel_multi_index")


def ravel_multi_index(
    multi_index: Any,
    dims: Sequence[int],
    mode: Any = "raise",
    order: str = "C",
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """The positions in the flattened array for positions along each axis.

    Args:
        multi_index: integers of one shape, one array for each axis.
        dims: the shape.
        mode: what to do out of bounds: ``"raise"`` needs concrete integers, ``"clip"``,
            ``"wrap"``, ``"ignore"`` (calculate all the same); one for all axes or one for each.
        order: ``"C"`` (the last axis changes fastest) or ``"F"`` (the first).
        dtype: dtype of the result (default: that of the indices, if it holds all positions, else
            the default integer).

    Raises:
        ArgumentValueError: ``mode`` or ``order`` is unknown, or with ``'raise'`` an index is out
            of bounds.
        UnsupportedDtypeError: the indices are no integers.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.ravel_multi_index((1, 2), (2, 3)))
    5
    """
    sizes = tuple([index_of(d, "ravel_multi_index", "a size") for d in dims])
    parts = [asarray(m) for m in multi_index]
    if len(parts) != len(sizes):
        msg = f"ravel_multi_index: got {len(parts)} index arrays for {len(sizes)} axes"
        raise ArgumentValueError(msg)
    modes = (mode,) * len(sizes) if isinstance(mode, str) else tuple(mode)
    for part, size, how in zip(parts, sizes, modes, strict=True):
        if not is_integer(part.aval.dtype):
            msg = f"ravel_multi_index: indices must be integers, got {part.aval.str_short()}"
            raise UnsupportedDtypeError(msg)
        if how == "raise":
            host = concrete(part, "mode='raise' checks it", "pass mode='clip' or mode='wrap'")
            if host.size and not (host.min() >= 0 and host.max() < size):
                msg = f"ravel_multi_index: an index is out of bounds for an axis of size {size}"
                raise ArgumentValueError(msg)
        elif how not in ("clip", "wrap", "ignore"):
            msg = f"ravel_multi_index: mode={how!r}, expected 'raise', 'clip', 'wrap' or 'ignore'"
            raise ArgumentValueError(msg)
    if order not in ("C", "F"):
        msg = f"ravel_multi_index: order={order!r}, expected 'C' or 'F'"
        raise ArgumentValueError(msg)
    if dtype is None:
        kind = _position_dtype(parts, math.prod(sizes))
    else:
        kind = canonicalize_explicit(dtype, "ravel_multi_index")
    return _ravel_staged(parts, (sizes, modes, order, kind))


def _position_dtype(parts: Sequence[Array], size: int) -> DType:
    """The dtype of the indices, if it can count ``size`` elements, else the default integer."""
    pairs = tuple([(part.aval.dtype, part.aval.weak_type) for part in parts])
    kind = promote(pairs)[0] if pairs else default_int()
    return kind if is_integer(kind) and size - 1 <= iinfo(kind).max else default_int()


# objects that are indexed ------------------------------------------------------------------------
