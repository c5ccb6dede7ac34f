"""Matrices by pattern, made of vectors: Toeplitz, Hankel, companions and others."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.linalg.matrices import as_dtype, eye
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import (
    broadcast_shape,
    broadcast_to,
    promote_dtypes,
    promote_inexact,
    strongly,
)

_INT32 = np.dtype(np.int32)


def _vectors(name: str, *xs: Any) -> list[Any]:
    """Vectors along the last axis, other axes broadcast; a number is a vector of one element."""
    xs = tuple([tnp.reshape(x, (1,)) if x.aval.ndim == 0 else x for x in xs])
    batch = broadcast_shape(name, [x.aval.shape[:-1] for x in xs])
    return [broadcast_to(x, (*batch, x.aval.shape[-1])) for x in xs]


def _spread(x: Value, index: np.ndarray[Any, Any]) -> Any:
    """The elements of the last axis that a matrix of positions names."""
    if not index.size:
        return tnp.zeros((*x.aval.shape[:-1], *index.shape), x.aval.dtype)
    return tnp.take(x, index.astype(_INT32), axis=-1, mode="clip")


def _grid(rows: int, columns: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.arange(rows)[:, None], np.arange(columns)[None, :]


def _toeplitz(c: Value, r: Value) -> Any:
    c, r = _vectors("toeplitz", *promote_dtypes(c, r))
    m, n = c.aval.shape[-1], r.aval.shape[-1]
    i, j = _grid(m, n)
    both = tnp.concatenate([tnp.flip(c, -1), r[..., 1:]], -1)
    return _spread(both, m - 1 - i + j)


def _hankel(c: Value, r: Value) -> Any:
    c, r = _vectors("hankel", *promote_dtypes(c, r))
    i, j = _grid(c.aval.shape[-1], r.aval.shape[-1])
    return _spread(tnp.concatenate([c, r[..., 1:]], -1), i + j)


def _circulant(c: Value) -> Any:
    (c,) = _vectors("circulant", c)
    n = c.aval.shape[-1]
    i, j = _grid(n, n)
    return _spread(c, (i - j) % max(n, 1))


def _convolution_matrix(a: Value, n: int, mode: str) -> Any:
    (a,) = _vectors("convolution_matrix", a)
    m = a.aval.shape[-1]
    if not m:
        msg = "convolution_matrix: the vector has no elements"
        raise ShapeMismatchError(msg, expected="at least one")
    cut = {"full": 0, "same": min(n, m) - 1, "valid": 2 * (min(n, m) - 1)}[mode]
    first = cut // 2
    i, j = _grid(m + n - 1 - cut, n)
    position = i + first - j
    inside = (position >= 0) & (position < m)
    return tnp.where(inside, _spread(a, np.clip(position, 0, m - 1)), tnp.zeros((), a.aval.dtype))


def _companion(a: Value) -> Any:
    (a,) = promote_inexact(a)
    (a,) = _vectors("companion", a)
    n = a.aval.shape[-1]
    if n < 2:
        msg = f"companion: {a.aval.str_short()} along the last axis, expected at least 2 elements"
        raise ShapeMismatchError(msg)
    row = tnp.expand_dims(-a[..., 1:] / a[..., :1], -2)
    below = tnp.broadcast_to(eye((n - 2, n - 1), a.aval.dtype), (*a.shape[:-1], n - 2, n - 1))
    return tnp.concatenate([row, below], -2)


def _fiedler(a: Value) -> Any:
    (a,) = _vectors("fiedler", a)
    return tnp.abs(tnp.expand_dims(a, -1) - tnp.expand_dims(a, -2))


def _fiedler_companion(a: Value) -> Any:
    (a,) = promote_inexact(a)
    (a,) = _vectors("fiedler_companion", a)
    n = a.aval.shape[-1] - 1
    if n < 0:
        msg = f"fiedler_companion: {a.aval.str_short()} has no elements along the last axis"
        raise ShapeMismatchError(msg, expected="at least one")
    # Positions in the coefficients, behind which stand 0 and 1.
    zero, one = n + 1, n + 2
    index = np.full((n, n), zero)
    for k in range(1, n):
        # Odd coefficients stand below the diagonal, even ones above it, ones beside them.
        row, column = (k, k - 1) if k % 2 == 0 else (k - 1, k)
        index[row, column] = k + 1
        if k % 2 and k + 1 < n:
            index[k - 1, k + 1] = one
        if k % 2 == 0 and k + 1 < n:
            index[k + 1, k - 1] = one
    if n:
        index[0, 0] = 1
    if n > 1:
        index[1, 0] = one
    ends = broadcast_to(as_dtype(tnp.asarray([0, 1]), a.aval.dtype), (*a.aval.shape[:-1], 2))
    return _spread(tnp.concatenate([-a / a[..., :1], ends], -1), index)


def _leslie(f: Value, s: Value) -> Any:
    f, s = _vectors("leslie", *promote_dtypes(f, s))
    n = f.aval.shape[-1]
    if s.aval.shape[-1] != n - 1:
        msg = f"leslie: {n} rates of birth and {s.aval.shape[-1]} of survival"
        raise ShapeMismatchError(msg, expected="one of survival less than of birth")
    i, j = _grid(n - 1, n)
    below = tnp.where(i == j, tnp.expand_dims(s, -1), zeros_of(s.aval.update(shape=())))
    return tnp.concatenate([tnp.expand_dims(f, -2), below], -2)


def _block_diag(*blocks: Value) -> Any:
    xs = [lax.convert_dtype(x, x.aval.dtype) for x in promote_dtypes(*blocks)]
    for x in xs:
        if x.aval.ndim > 2:
            msg = f"block_diag: got {x.aval.str_short()}, expected at most 2 axes"
            raise RankError(msg, hint="use tracebridge.vmap for batches")
    xs = [tnp.atleast_2d(x) for x in xs]
    width = sum([x.shape[1] for x in xs])
    rows, start = [], 0
    for x in xs:
        rows.append(tnp.pad(x, ((0, 0), (start, width - start - x.shape[1]))))
        start += x.shape[1]
    return tnp.concatenate(rows, 0)


_toeplitz_staged = StagedFunction(strongly(_toeplitz), "toeplitz")
_hankel_staged = StagedFunction(strongly(_hankel), "hankel")
_circulant_staged = StagedFunction(_circulant, "circulant")
_convolution_staged = StagedFunction(_convolution_matrix, "convolution_matrix")
_companion_staged = StagedFunction(_companion, "companion")
_fiedler_staged = StagedFunction(_fiedler, "fiedler")
_fiedler_companion_staged = StagedFunction(_fiedler_companion, "fiedler_companion")
_leslie_staged = StagedFunction(_leslie, "leslie")


@functools.lru_cache(maxsize=64)
def _block_diag_staged(count: int) -> StagedFunction:
    return StagedFunction(_block_diag, f"block_diag_{count}")


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Matrices with equal elements along each diagonal.

    Args:
        c: the first columns, of shape ``(..., m)``.
        r: the first rows, of shape ``(..., n)``, of which the first element is not read; the
            conjugate of ``c`` by default.

    Returns:
        Array of shape ``(..., m, n)``.

    Raises:
        BroadcastError: the leading axes differ.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.toeplitz(tb.numpy.array([1, 2]), tb.numpy.array([0, 3, 4])).tolist()
    [[1, 3, 4], [2, 1, 3]]
    """
    return _toeplitz_staged((c, tnp.conj(c) if r is None else r))


def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Matrices with equal elements along each diagonal that runs up to the right.

    Args:
        c: the first columns, of shape ``(..., m)``.
        r: the last rows, of shape ``(..., n)``, of which the first element is not read; zeros by
            default.

    Returns:
        Array of shape ``(..., m, n)``.

    Raises:
        BroadcastError: the leading axes differ.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.hankel(tb.numpy.array([1, 2]), tb.numpy.array([0, 3, 4])).tolist()
    [[1, 2, 3], [2, 3, 4]]
    """
    return _hankel_staged((c, tnp.zeros_like(c) if r is None else r))


def circulant(c: ArrayLike) -> Array:
    """Square matrices whose columns are shifted one by one, around the end.

    Args:
        c: the first columns, of shape ``(..., n)``.

    Returns:
        Array of shape ``(..., n, n)``.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.circulant(tb.numpy.array([1, 2, 3])).tolist()
    [[1, 3, 2], [2, 1, 3], [3, 2, 1]]
    """
    return _circulant_staged((c,))


def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """The matrix whose product with a vector is its convolution with ``a``.

    Args:
        a: vectors of shape ``(..., m)``.
        n: the size of what is convolved.
        mode: ``"full"``, ``"same"`` or ``"valid"``, as of ``tracebridge.numpy.convolve``.

    Returns:
        Array of shape ``(..., k, n)``.

    Raises:
        ArgumentValueError: ``n`` is not positive, or another ``mode``.
        ShapeMismatchError: ``a`` has no elements.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.convolution_matrix(tb.numpy.array([1, 2]), 2).tolist()
    [[1, 0], [2, 1], [0, 2]]
    """
    size = index_of(n, "convolution_matrix", "n")
    if size <= 0:
        msg = f"convolution_matrix: n={n}, expected a positive size"
        raise ArgumentValueError(msg)
    if mode not in ("full", "same", "valid"):
        msg = f"convolution_matrix: mode={mode!r}"
        raise ArgumentValueError(msg, expected="'full', 'same' or 'valid'")
    return _convolution_staged((a,), (size, mode))


def companion(a: ArrayLike) -> Array:
    """Companion matrices: their eigenvalues are the roots of polynomials.

    Args:
        a: coefficients of shape ``(..., n)``, highest power first; integers become floats.

    Returns:
        Array of shape ``(..., n - 1, n - 1)``.

    Raises:
        ShapeMismatchError: fewer than 2 coefficients.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.companion(tb.numpy.array([1, -3, 2])).tolist()
    [[3.0, -2.0], [1.0, 0.0]]
    """
    return _companion_staged((a,))


def fiedler(a: ArrayLike) -> Array:
    """Symmetric matrices of the distances of numbers.

    Args:
        a: numbers of shape ``(..., n)``.

    Returns:
        Array of shape ``(..., n, n)``.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.fiedler(tb.numpy.array([1, 4])).tolist()
    [[0, 3], [3, 0]]
    """
    return _fiedler_staged((a,))


def fiedler_companion(a: ArrayLike) -> Array:
    """The companion matrix of a polynomial that has five diagonals only.

    Args:
        a: coefficients of shape ``(..., n)``, highest power first; integers become floats.

    Returns:
        Array of shape ``(..., n - 1, n - 1)``.

    Raises:
        ShapeMismatchError: ``a`` has no elements along its last axis.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.fiedler_companion(tb.numpy.array([1, -3, 2])).tolist()
    [[3.0, -2.0], [1.0, 0.0]]
    """
    return _fiedler_companion_staged((a,))


def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """Leslie matrices: how a population with several age groups grows in a step.

    Args:
        f: rates of birth, of shape ``(..., n)``.
        s: rates of survival, of shape ``(..., n - 1)``.

    Returns:
        Array of shape ``(..., n, n)``.

    Raises:
        ShapeMismatchError: the sizes do not fit.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.leslie(tb.numpy.array([1.0, 2.0]), tb.numpy.array([0.5])).tolist()
    [[1.0, 2.0], [0.5, 0.0]]
    """
    return _leslie_staged((f, s))


@remembered
def block_diag(*arrs: ArrayLike) -> Array:
    """A matrix of blocks on the diagonal, zero elsewhere.

    Args:
        arrs: matrices; vectors are rows, and numbers blocks of one element.

    Raises:
        RankError: a block has more than two axes.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.block_diag(tb.numpy.array([[1], [2]]), 3).tolist()
    [[1, 0], [2, 0], [0, 3]]
    """
    if not arrs:
        return tnp.zeros((1, 0))
    return _block_diag_staged(len(arrs))(arrs)
