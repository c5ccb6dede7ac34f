"""Norms, condition numbers, ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.dtypes.dtypes import itemsize_bits
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.linalg.svd import svd
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import one_program, remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction, unary_with_statics
from tracebridge.core.symbolic.compare import is_empty
from tracebridge.numpy._promote import (
    hashable_axis,
    normalize_axes,
    normalize_axis,
    promote_inexact,
)
from tracebridge.numpy._staging import value_of
from tracebridge.numpy.linalg._systems import inv

_FLOAT32 = np.dtype(np.float32)


def _root(total: Any, power: float) -> Any:
    """``total ** (1 / power)``, whose derivative is taken to be 0 at 0."""
    zero = total == 0
    safe = tnp.where(zero, 1, total)
    root = lax.sqrt(safe) if power == 2 else safe ** (1.0 / power)
    return tnp.where(zero, 0, root)


def _squares(x: Any) -> Any:
    if tnp.iscomplexobj(x):
        return tnp.real(x) ** 2 + tnp.imag(x) ** 2
    return x * x


def _of_vectors(x: Any, order: Any, axes: Any, keepdims: bool) -> Any:
    if order in (None, 2, "fro"):
        return _root(tnp.sum(_squares(x), axes, keepdims=keepdims), 2)
    size = tnp.abs(x)
    if order == math.inf:
        return tnp.max(size, axes, keepdims=keepdims, initial=0)
    if order == -math.inf:
        return tnp.min(size, axes, keepdims=keepdims)
    if order == 0:
        return tnp.sum((x != 0).astype(size.dtype), axes, keepdims=keepdims)
    if order == 1:
        return tnp.sum(size, axes, keepdims=keepdims)
    # A zero has no share, and no derivative that would be infinite times zero.
    zero = size == 0
    power = tnp.where(zero, 0.0 if order > 0 else tnp.inf, tnp.where(zero, 1, size) ** order)
    total = tnp.sum(power.astype(size.dtype), axes, keepdims=keepdims)
    if order < 0:
        return total ** (1.0 / order)
    return _root(total, order)


def _of_matrices(x: Any, order: Any, axes: tuple[int, int], keepdims: bool) -> Any:
    row, column = axes
    if order in (None, "fro"):
        return _root(tnp.sum(_squares(x), axes, keepdims=keepdims), 2)
    if order in (1, -1, math.inf, -math.inf):
        first, second = (row, column) if order in (1, -1) else (column, row)
        sums = tnp.sum(tnp.abs(x), first, keepdims=True)
        if order > 0:
            out = tnp.max(sums, second, keepdims=True, initial=0)
        else:
            out = tnp.min(sums, second, keepdims=True)
    else:
        s = svd(tnp.moveaxis(x, axes, (-2, -1)), compute_uv=False)
        if order == "nuc":
            norms = tnp.sum(s, -1)
        elif order == 2:
            norms = tnp.max(s, -1, initial=0)
        else:
            norms = tnp.min(s, -1)
        return tnp.expand_dims(norms, axes) if keepdims else norms
    return out if keepdims else tnp.squeeze(out, axes)


def _rounded_once(norm: Callable[..., Any]) -> Callable[..., Any]:
    """A norm of floats or complex numbers, in float32 of narrow ones: powers overflow in these."""

    def run(x: Any, *statics: Any) -> Any:
        (x,) = promote_inexact(x)
        dtype = x.aval.dtype
        if itemsize_bits(dtype) >= 32:
            return norm(x, *statics)
        return lax.convert_dtype(norm(lax.convert_dtype(x, _FLOAT32), *statics), dtype)

    return run


def _norm(x: Any, order: Any, axis: Any, keepdims: bool) -> Any:
    n = x.aval.ndim
    if axis is None and order is None:
        return _of_vectors(x, None, tuple(range(n)), keepdims)
    given = (axis,) if isinstance(axis, int) else axis
    # In the order that is given: it says which axis is that of the rows.
    axes = tuple(range(n)) if given is None else tuple([normalize_axis(a, n) for a in given])
    if len(axes) == 1:
        return _of_vectors(x, order, axes, keepdims)
    if len(axes) != 2:
        msg = f"norm: ord={order!r} over {len(axes)} axes of {x.aval.str_short()}"
        raise RankError(msg, hint="pass axis: one for vectors, two for matrices")
    return _of_matrices(x, order, (axes[0], axes[1]), keepdims)


_VECTOR = "a number, inf or -inf"
_MATRIX = ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf, None)
_norm_staged = StagedFunction(_rounded_once(_norm), "norm", exact=True)
_norm_call = unary_with_statics(_norm_staged)


def _vector_norm(x: Any, order: Any, axis: Any, keepdims: bool) -> Any:
    axes = tuple(range(x.aval.ndim)) if axis is None else normalize_axes(axis, x.aval.ndim)
    return _of_vectors(x, order, axes, keepdims)


_vector_norm_staged = StagedFunction(_rounded_once(_vector_norm), "vector_norm", exact=True)


def _checked(name: str, order: Any, *, matrix: bool) -> Any:
    """An order as a static."""
    if isinstance(order, str) or order is None:
        good = order in _MATRIX if matrix else order is None
    else:
        order = float(order)
        good = not matrix or order in _MATRIX
    if not good:
        expected = "one of 'fro', 'nuc', 1, -1, 2, -2, inf, -inf" if matrix else _VECTOR
        msg = f"{name}: ord={order!r}"
        raise ArgumentValueError(msg, expected=expected)
    return order


@remembered
def norm(
    x: ArrayLike,
    ord: float | str | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> Array:
    """Norms of vectors or matrices. The derivative at 0 is taken to be 0.

    Args:
        x: array; integers become floats.
        ord: which norm. Vectors: a number, ``inf`` or ``-inf``; matrices: ``"fro"``, ``"nuc"``, 1,
            -1, 2, -2, ``inf`` or ``-inf``. None: the root of the sum of squares.
        axis: one axis for vectors, two for matrices; None: all of them.
        keepdims: whether the axes stay, with size 1.

    Raises:
        ArgumentValueError: there is no such norm.
        RankError: neither vectors nor matrices.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.linalg.norm(tnp.array([3.0, 4.0])))
    5.0
    """
    axes = hashable_axis(axis, "norm")
    if ord is None:
        return _norm_call(x, (None, axes, bool(keepdims)))
    ndim = tnp.ndim(x)
    count = 1 if isinstance(axes, int) else ndim if axes is None else len(axes)
    order = _checked("norm", ord, matrix=count == 2)
    return _norm_staged((x,), (order, axes, bool(keepdims)))


@remembered
def vector_norm(
    x: ArrayLike,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: float | str = 2,
) -> Array:
    """Norms of vectors.

    Args:
        x: array; integers become floats.
        axis: axes that hold the elements of a vector; None: all.
        keepdims: whether the axes stay, with size 1.
        ord: a number, ``inf`` or ``-inf``.

    Raises:
        ArgumentValueError: there is no such norm.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.linalg.vector_norm(tnp.array([3.0, 4.0]), ord=1))
    7.0
    """
    order = _checked("vector_norm", ord, matrix=False)
    return _vector_norm_staged((x,), (order, hashable_axis(axis, "vector_norm"), bool(keepdims)))


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: float | str = "fro") -> Array:
    """Norms of the matrices that the last two axes hold.

    Args:
        x: array of shape ``(..., m, n)``; integers become floats.
        keepdims: whether the two axes stay, with size 1.
        ord: as in ``norm``.

    Raises:
        ArgumentValueError: there is no such norm.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.linalg.matrix_norm(tnp.eye(4)))
    2.0
    """
    order = _checked("matrix_norm", ord, matrix=True)
    return _norm_staged((x,), (order, (-2, -1), bool(keepdims)))


@one_program
def cond(x: ArrayLike, p: float | str | None = None) -> Array:
    """Condition numbers: how much errors may grow when a system is solved.

    Args:
        x: matrices of shape ``(..., m, n)``, square unless ``p`` is None, 2 or -2.
        p: the norm, as in ``norm``; None is 2.

    Returns:
        Array of shape ``(...)``; infinite for singular matrices.

    Raises:
        ArgumentValueError: there is no such norm.
        ShapeMismatchError: the matrices have no elements, or are not square where they must be.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.linalg.cond(tnp.diag(tnp.array([4.0, 2.0]))))
    2.0
    """
    (a,) = promote_inexact(value_of(x))
    if any([is_empty(n) for n in a.aval.shape[-2:]]):
        msg = f"cond: got {a.aval.str_short()}, expected matrices with elements"
        raise ShapeMismatchError(msg)
    if p in (None, 2, -2):
        s = svd(a, compute_uv=False)
        ratio = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    else:
        ratio = matrix_norm(a, ord=p) * matrix_norm(inv(a), ord=p)
    # NaN that does not come from the matrix is 0 over 0, or comes of an inverse that is not there.
    has_nan = tnp.any(tnp.isnan(a), (-2, -1))
    return tnp.where(tnp.isnan(ratio) & ~has_nan, tnp.inf, ratio)


@one_program
def matrix_rank(
    M: ArrayLike,
    rtol: ArrayLike | None = None,
    *,
    hermitian: bool = False,
    tol: ArrayLike | None = None,
) -> Array:
    """How many singular values are not 0.

    Args:
        M: matrices of shape ``(..., m, n)``; integers become floats.
        rtol: those up to this times the largest count as 0; ``max(m, n)`` roundings by default.
        hermitian: whether the matrices are Hermitian; no effect on the result.
        tol: singular values up to this count as 0, in place of ``rtol``.

    Returns:
        Integer array of shape ``(...)``.

    Raises:
        ArgumentValueError: both ``rtol`` and ``tol``.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.linalg.matrix_rank(tnp.ones((3, 3))))
    1
    """
    del hermitian
    if rtol is not None and tol is not None:
        raise ArgumentValueError(
            call="matrix_rank", got="both rtol and tol", expected="one of them"
        )
    (a,) = promote_inexact(value_of(M))
    if a.aval.ndim < 2:
        return tnp.any(tnp.asarray(a) != 0).astype(int)
    s = svd(a, compute_uv=False)
    if s.shape[-1] == 0:
        return tnp.zeros(s.shape[:-1], int)
    if tol is not None:
        bound = tnp.asarray(tol)
        bound = bound[..., None] if bound.ndim else bound
    else:
        share = tnp.asarray(max(a.aval.shape[-2:]) * float(tnp.finfo(s.dtype).eps))
        if rtol is not None:
            share = tnp.asarray(rtol)
        share = share[..., None] if share.ndim else share
        bound = share * s[..., :1]
    return tnp.sum(s > bound, -1)
