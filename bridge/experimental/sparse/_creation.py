"""New sparse arrays: empty, eye, random_bcoo."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.numpy as tnp
from tracebridge._api.vectorize.vmap import vmap
from tracebridge.core.dtypes.canonicalize import default_float
from tracebridge.core.dtypes.dtypes import as_dtype
from tracebridge.core.errors.argument_errors import (
    ArgumentValueError,
    UnsupportedArgumentError,
    index_of,
)
from tracebridge.experimental.sparse._base import JAXSparse, checked_shape
from tracebridge.experimental.sparse._bcoo.arguments import check_kinds
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.layouts import bcoo_update_layout
from tracebridge.experimental.sparse._bcoo.sorting import bcoo_sort_indices
from tracebridge.experimental.sparse._bcsr import BCSR
from tracebridge.experimental.sparse._matrices import COO, CSC, CSR
from tracebridge.random.keys import split
from tracebridge.random.selection import choice
from tracebridge.random.uniform import uniform

_FORMATS: dict[str, Any] = {"bcoo": BCOO, "bcsr": BCSR, "coo": COO, "csc": CSC, "csr": CSR}


def _format(call: str, name: Any) -> Any:
    found = _FORMATS.get(name)
    if found is None:
        msg = f"{call}: sparse_format is {name!r}, expected one of {sorted(_FORMATS)}"
        raise ArgumentValueError(msg)
    return found


def empty(
    shape: Sequence[int],
    dtype: Any = None,
    index_dtype: Any = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> JAXSparse:
    """A sparse array without elements.

    Args:
        shape: shape of the dense array.
        dtype: dtype of the elements (default: the default float).
        index_dtype: dtype of the coordinates.
        sparse_format: name of the format.
        **kwds: ``n_batch``, ``n_dense`` and ``nse``, the number of elements of padding.

    Raises:
        ArgumentValueError: there is no such format.

    >>> from tracebridge.experimental import sparse
    >>> sparse.empty((2, 3))
    BCOO(float32[2, 3], nse=0)
    """
    kind = default_float() if dtype is None else as_dtype(dtype)
    return _convert(
        _format("empty", sparse_format),
        _empty(checked_shape("empty", shape), kind, as_dtype(index_dtype), **kwds),
    )


def _empty(
    shape: tuple[int, ...],
    dtype: Any,
    index_dtype: Any,
    n_batch: int = 0,
    n_dense: int = 0,
    nse: int = 0,
) -> BCOO:
    n_batch, n_dense = check_kinds("empty", n_batch, n_dense, len(shape))
    count = index_of(nse, "empty", "nse")
    batch, sizes = shape[:n_batch], shape[n_batch : len(shape) - n_dense]
    rest = tnp.asarray(sizes, index_dtype)
    return BCOO(
        (
            tnp.zeros((*batch, count, *shape[len(shape) - n_dense :]), dtype),
            tnp.broadcast_to(rest, (*batch, count, len(sizes))),
        ),
        shape=shape,
        indices_sorted=True,
        unique_indices=True,
    )


def _convert(kind: Any, mat: BCOO) -> Any:
    return mat if kind is BCOO else kind.from_bcoo(mat)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    index_dtype: Any = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> JAXSparse:
    """A matrix with ones on a diagonal.

    Args:
        N: number of rows.
        M: number of columns; None for ``N``.
        k: which diagonal: 0 is the main one, positive ones are above it.
        dtype: dtype of the elements (default: the default float).
        index_dtype: dtype of the coordinates.
        sparse_format: name of the format.
        **kwds: ``n_batch`` and ``n_dense``.

    Raises:
        ArgumentValueError: there is no such format, or a size is negative.
        UnsupportedArgumentError: further arguments.

    >>> from tracebridge.experimental import sparse
    >>> print(sparse.eye(2, 3, 1).todense())
    [[0. 1. 0.]
     [0. 0. 1.]]
    """
    n, m = checked_shape("eye", (N, N if M is None else M))
    offset = index_of(k, "eye", "k")
    count = max(min(n + min(offset, 0), m - max(offset, 0)), 0)
    first = tnp.arange(count, dtype=as_dtype(index_dtype).name)
    indices = tnp.stack([first - min(offset, 0), first + max(offset, 0)], axis=-1)
    kind: Any = default_float() if dtype is None else as_dtype(dtype)
    data = tnp.ones(count, kind)
    out = BCOO((data, indices), shape=(n, m), indices_sorted=True, unique_indices=True)
    kinds = check_kinds("eye", kwds.pop("n_batch", 0), kwds.pop("n_dense", 0), 2)
    if kwds:
        msg = f"eye: unknown arguments {sorted(kwds)}, expected n_batch and n_dense"
        raise UnsupportedArgumentError(msg)
    out = bcoo_update_layout(out, n_batch=kinds[0], n_dense=kinds[1], on_inefficient=None)
    return _convert(_format("eye", sparse_format), out)


def random_bcoo(
    key: Any,
    shape: Sequence[int],
    *,
    dtype: Any = "float64",
    indices_dtype: Any = None,
    nse: float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Callable[..., Any] = uniform,
    **kwds: Any,
) -> BCOO:
    """A BCOO array with random elements at random coordinates.

    Args:
        key: random key.
        shape: shape of the dense array.
        dtype: dtype of the elements; of 64 bits where these are enabled.
        indices_dtype: dtype of the coordinates; None for int32.
        nse: number of stored elements, of each batch, or the part of all that is stored, below 1.
        n_batch: number of leading axes with coordinates of their own.
        n_dense: number of trailing axes along which elements are stored whole.
        unique_indices: whether coordinates occur once.
        sorted_indices: whether they are in lexicographic order.
        generator: ``(key, shape=..., dtype=..., **kwds) -> array`` makes the elements.
        **kwds: further arguments of it.

    Raises:
        ArgumentValueError: ``nse`` is negative, or larger than the number of different
            coordinates.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental import sparse
    >>> sparse.random_bcoo(tb.random.key(0), (3, 4), dtype="float32")
    BCOO(float32[3, 4], nse=3)
    """
    call = "random_bcoo"
    sizes = checked_shape(call, shape)
    n_batch, n_dense = check_kinds(call, n_batch, n_dense, len(sizes))
    batch, inner = sizes[:n_batch], sizes[n_batch : len(sizes) - n_dense]
    most = math.prod(inner)
    count = math.ceil(nse * most) if 0 < nse < 1 else index_of(nse, call, "nse")
    if count < 0 or (unique_indices and count > most):
        msg = f"{call}: nse is {nse!r} for {most} different coordinates"
        raise ArgumentValueError(msg)
    kind: Any = as_dtype("int32" if indices_dtype is None else indices_dtype)
    place_key, data_key = split(key)

    def places(one: Any) -> Any:
        found = choice(one, most, (count,), replace=not unique_indices)
        return tnp.stack(tnp.unravel_index(found, inner), axis=-1).astype(kind)

    if not inner or count == 0:
        indices = tnp.zeros((*batch, count, len(inner)), kind)
    else:
        keys = split(place_key, math.prod(batch))
        indices = vmap(places)(keys).reshape((*batch, count, len(inner)))
    data = generator(
        data_key, shape=(*batch, count, *sizes[len(sizes) - n_dense :]), dtype=dtype, **kwds
    )
    out = BCOO((data, indices), shape=sizes, unique_indices=unique_indices)
    return bcoo_sort_indices(out) if sorted_indices else out
