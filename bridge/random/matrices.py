"""Samples that need a decomposition of matrices: normal vectors, orthogonal matrices."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.linalg.cholesky import cholesky
from tracebridge.core.linalg.eigh import eigh
from tracebridge.core.linalg.matrices import diagonal, matmul, scale_columns, swapped
from tracebridge.core.linalg.qr import qr
from tracebridge.core.linalg.svd import svd
from tracebridge.core.runtime.arrays.argument_types import DType, ShapeLike, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.numpy._promote import promote_inexact
from tracebridge.random._streams import (
    chosen,
    float_dtype,
    joint_shape,
    normals,
    sample,
    samplers,
    sizes_of,
    spread,
    stream_of,
)

__all__ = ["multivariate_normal", "orthogonal"]

_METHODS = ("cholesky", "eigh", "svd")


def _factor(covariance: Value, method: str) -> Any:
    """A matrix F with ``F F^T = covariance``."""
    if method == "cholesky":
        return cholesky(covariance)
    if method == "eigh":
        vectors, squares = eigh(covariance)
    else:
        vectors, squares, _ = svd(covariance)
    return scale_columns(vectors, lax.sqrt(squares))


def _multivariate_normal(
    key: Value,
    mean: Any,
    cov: Any,
    shape: tuple[int, ...] | None,
    dtype: DType | None,
    method: str,
) -> Any:
    mean, cov = promote_inexact(mean, cov)
    kind: Any = mean.aval.dtype if dtype is None else dtype
    for name, value, rank in (("mean", mean, 1), ("cov", cov, 2)):
        if value.aval.ndim < rank:
            msg = f"multivariate_normal: {name} is {value.aval.str_short()}"
            raise RankError(msg, expected="mean of shape (..., n), cov of shape (..., n, n)")
    n = mean.aval.shape[-1]
    if cov.aval.shape[-2:] != (n, n):
        msg = f"multivariate_normal: mean is {mean.aval.str_short()}, cov {cov.aval.str_short()}"
        raise ShapeMismatchError(msg, expected=f"matrices of shape {(n, n)}")
    batch = joint_shape("multivariate_normal", shape, mean.aval.shape[:-1], cov.aval.shape[:-2])
    z = normals(stream_of("multivariate_normal", key), (*batch, n), kind)
    factor = lax.convert_dtype(_factor(cov, method), kind)
    leading = cov.aval.ndim - 2
    if leading == 0:
        # One factor for all vectors: one product of matrices.
        numbers = (((len(batch),), (1,)), ((), ()))
        moved = lax.dot_general(z, factor, numbers, lax.Precision.HIGHEST)
    else:
        factor = spread(factor, (*batch, n, n))
        moved = matmul(factor, lax.reshape(z, (*batch, n, 1)))
        moved = lax.reshape(moved, (*batch, n))
    return lax.add(spread(mean, (*batch, n), kind), moved)


def _orthogonal(key: Value, n: int, m: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    z = normals(stream_of("orthogonal", key), (*shape, max(n, m), min(n, m)), dtype)
    q, r = qr(z, full_matrices=False)
    # The decomposition with a positive diagonal is unique: its Q has no preferred direction.
    q = scale_columns(q, lax.sign(diagonal(r)))
    return swapped(q) if n < m else q


_STAGED = samplers(_multivariate_normal, _orthogonal)


def multivariate_normal(
    key: ArrayLike,
    mean: ArrayLike,
    cov: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    method: str = "cholesky",
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Normal vectors of a mean and a covariance.

    Args:
        key: one key, typed or as words.
        mean: array of shape ``(*batch, n)``.
        cov: symmetric positive definite matrices of shape ``(*batch, n, n)``; batch axes of both
            broadcast together. The factor of a matrix that is not positive definite is NaN.
        shape: the axes of the result before the last one, to which those of ``mean`` and ``cov``
            broadcast; ``None`` means these.
        dtype: floating dtype of the result; ``None`` means that of ``mean`` and ``cov`` together.
        method: how the covariance is factored: ``"cholesky"``, or for singular matrices
            ``"eigh"`` or ``"svd"``.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Returns:
        Array of shape ``(*shape, n)``.

    Raises:
        ArgumentValueError: there is no such method.
        RankError: ``mean`` has no axis, or ``cov`` fewer than two.
        ShapeMismatchError: the sizes of vectors and matrices differ.
        BroadcastError: the other axes do not fit together.
        UnsupportedDtypeError: ``dtype`` is no floating dtype, or a parameter is complex.

    >>> import tracebridge as tb
    >>> cov = tb.numpy.array([[1.0, 0.5], [0.5, 2.0]])
    >>> tb.random.multivariate_normal(tb.random.key(0), tb.numpy.zeros(2), cov, (3,)).shape
    (3, 2)
    """
    name = "multivariate_normal"
    chosen(name, "method", method, _METHODS)
    kind = None if dtype is None else float_dtype(name, dtype)
    return sample(
        _STAGED[name], key, (mean, cov), (sizes_of(name, shape), kind, method), out_sharding
    )


def orthogonal(
    key: ArrayLike,
    n: int,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    m: int | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Orthogonal matrices, each direction as likely as the others; unitary ones if complex.

    Args:
        key: one key, typed or as words.
        n: number of rows.
        shape: axes of the result before those of the matrices.
        dtype: floating or complex dtype of the result; ``None`` means the default float.
        m: number of columns, by default as many as rows. If they differ, the rows are
            orthonormal where there are fewer of them, the columns otherwise.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Returns:
        Array of shape ``(*shape, n, m)``.

    Raises:
        ArgumentTypeError: a number of rows or columns is no integer.
        ArgumentValueError: it is negative.
        UnsupportedDtypeError: ``dtype`` is no floating or complex dtype.

    Source: Mezzadri (2007), Notices of the AMS 54(5).

    >>> import tracebridge as tb
    >>> q = tb.random.orthogonal(tb.random.key(0), 3)
    >>> bool(tb.numpy.allclose(q @ q.T, tb.numpy.eye(3), atol=1e-5))
    True
    """
    name = "orthogonal"
    rows = _size("n", n)
    statics = (
        rows,
        rows if m is None else _size("m", m),
        sizes_of(name, shape),
        float_dtype(name, dtype, complexes=True),
    )
    return sample(_STAGED[name], key, (), statics, out_sharding)


def _size(name: str, value: Any) -> int:
    """A number of rows or columns."""
    try:
        size = operator.index(value)
    except TypeError as exc:
        raise ArgumentTypeError(
            call="orthogonal", where=f"argument {name}", got=repr(value), expected="an integer"
        ) from exc
    if size < 0:
        raise ArgumentValueError(
            call="orthogonal", where=f"argument {name}", got=repr(size), expected="0 or more"
        )
    return size
