"""Products and views of matrices, with the arguments of the array API standard."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.lax.contract.precision import PrecisionLike
from tracebridge.core.linalg.matrices import eye_of
from tracebridge.core.runtime.arrays.argument_types import ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import one_program
from tracebridge.numpy.linalg._systems import inv


def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """Cross products of vectors of three elements.

    Args:
        x1: array with size 3 along ``axis``.
        x2: likewise.
        axis: where the elements of a vector are.

    Raises:
        ShapeMismatchError: the size is not 3.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.cross(tnp.array([1, 0, 0]), tnp.array([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    a, b = tnp.asarray(x1), tnp.asarray(x2)
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        msg = f"cross: got sizes {a.shape[axis]} and {b.shape[axis]} along axis {axis}"
        raise ShapeMismatchError(msg, expected="3 and 3")
    return tnp.cross(a, b, axis=axis)


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """Diagonals of the matrices in the last two axes.

    Args:
        x: array of shape ``(..., m, n)``.
        offset: which diagonal, positive ones are above the main one.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.diagonal(tnp.array([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    return tnp.diagonal(x, offset=offset, axis1=-2, axis2=-1)


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Sums of diagonals of the matrices in the last two axes.

    Args:
        x: array of shape ``(..., m, n)``.
        offset: which diagonal, positive ones are above the main one.
        dtype: of the sums.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.linalg.trace(tnp.array([[1, 2], [3, 4]])))
    5
    """
    return tnp.trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)


def matmul(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The matrix product, as ``tracebridge.numpy.matmul``.

    Args:
        x1: array of shape ``(..., n, k)`` or ``(k,)``.
        x2: array of shape ``(..., k, m)`` or ``(k,)``.
        precision: of the products.
        preferred_element_type: dtype of the sums.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.matmul(tnp.ones((2, 3)), tnp.ones(3)).tolist()
    [3.0, 3.0]
    """
    options: dict[str, Any] = {"precision": precision}
    return tnp.matmul(x1, x2, preferred_element_type=preferred_element_type, **options)


def matrix_transpose(x: ArrayLike, /) -> Array:
    """The transposed matrices in the last two axes.

    Args:
        x: array of shape ``(..., m, n)``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.matrix_transpose(tnp.ones((2, 3))).shape
    (3, 2)
    """
    return tnp.matrix_transpose(x)


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The outer product of two vectors.

    Args:
        x1: array of shape ``(m,)``.
        x2: array of shape ``(n,)``.

    Raises:
        RankError: an argument is no vector.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.outer(tnp.array([1, 2]), tnp.array([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    if tnp.ndim(x1) != 1 or tnp.ndim(x2) != 1:
        msg = f"outer: got {tnp.ndim(x1)} and {tnp.ndim(x2)} axes, expected two vectors"
        raise RankError(msg, hint="use tracebridge.numpy.outer, which flattens its arguments")
    return tnp.outer(x1, x2)


def tensordot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axes: int | tuple[Sequence[int], Sequence[int]] = 2,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Sums of products over axes, as ``tracebridge.numpy.tensordot``.

    Args:
        x1: array.
        x2: array.
        axes: how many, the last of ``x1`` and the first of ``x2``; or those of each.
        precision: of the products.
        preferred_element_type: dtype of the sums.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.linalg.tensordot(tnp.ones((2, 3)), tnp.ones((2, 3))))
    6.0
    """
    options: dict[str, Any] = {"axes": axes, "precision": precision, "out_sharding": out_sharding}
    return tnp.tensordot(x1, x2, preferred_element_type=preferred_element_type, **options)


def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Inner products of vectors, the first conjugated, as ``tracebridge.numpy.vecdot``.

    Args:
        x1: array.
        x2: array.
        axis: where the elements of a vector are.
        precision: of the products.
        preferred_element_type: dtype of the sums.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.linalg.vecdot(tnp.ones(3), tnp.ones(3)))
    3.0
    """
    options: dict[str, Any] = {"precision": precision}
    return tnp.vecdot(x1, x2, axis=axis, preferred_element_type=preferred_element_type, **options)


@one_program
def matrix_power(a: ArrayLike, n: int) -> Array:
    """Powers of square matrices.

    Args:
        a: matrices of shape ``(..., m, m)``.
        n: the exponent; a negative one inverts.

    Raises:
        ShapeMismatchError: the matrices are not square.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.matrix_power(tnp.array([[1, 1], [0, 1]]), 5).tolist()
    [[1, 5], [0, 1]]
    """
    exponent = operator.index(n)
    x = tnp.asarray(a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        msg = f"matrix_power: got shape {x.shape}, expected square matrices (..., m, m)"
        raise ShapeMismatchError(msg)
    if exponent < 0:
        x, exponent = inv(x), -exponent
    if exponent == 0:
        return eye_of(x)
    result: Any = None
    while exponent:
        if exponent & 1:
            result = x if result is None else tnp.matmul(result, x)
        exponent >>= 1
        if exponent:
            x = tnp.matmul(x, x)
    return result


def multi_dot(arrays: Sequence[ArrayLike], *, precision: PrecisionLike = None) -> Array:
    """The product of several matrices, in the order that takes the fewest operations.

    Args:
        arrays: at least two; the first and the last may be vectors.
        precision: of the products.

    Raises:
        ArgumentValueError: fewer than two.
        RankError: one in the middle is no matrix.
        ShapeMismatchError: sizes do not agree.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.multi_dot([tnp.ones((2, 3)), tnp.ones((3, 4)), tnp.ones(4)]).tolist()
    [12.0, 12.0]
    """
    xs = [tnp.asarray(a) for a in arrays]
    if len(xs) < 2:
        msg = f"multi_dot: got {len(xs)} array(s), expected at least two"
        raise ArgumentValueError(msg)
    if any([x.ndim != 2 for x in xs[1:-1]]) or any([x.ndim not in (1, 2) for x in xs]):
        msg = f"multi_dot: got shapes {[x.shape for x in xs]}"
        raise RankError(msg, expected="matrices, with vectors at the ends only")
    first = 1 if xs[0].ndim == 1 else xs[0].shape[0]
    sizes = [first, *[x.shape[0] for x in xs[1:]], 1 if xs[-1].ndim == 1 else xs[-1].shape[1]]
    split = _best_splits(sizes)

    def product(i: int, j: int) -> Any:
        if i == j:
            return xs[i]
        k = split[i, j]
        options: dict[str, Any] = {"precision": precision}
        return tnp.matmul(product(i, k), product(k + 1, j), **options)

    return product(0, len(xs) - 1)


def _best_splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to split products ``i`` to ``j``, which have ``sizes[i]`` rows and so on."""
    n = len(sizes) - 1
    costs = {(i, i): 0 for i in range(n)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            choices = [
                (costs[i, k] + costs[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            ]
            costs[i, j], split[i, j] = min(choices)
    return split
