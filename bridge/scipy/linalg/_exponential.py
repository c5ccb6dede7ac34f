"""The exponential of matrices, and its derivative in a direction."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.derivatives.jvp import jvp
from tracebridge.core.control.branches.switch import cond
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.value import Value
from tracebridge.core.linalg.family import rounded
from tracebridge.core.linalg.matrices import (
    as_dtype,
    eye_of,
    matmul,
    per_matrix,
    real_dtype,
    upper_part,
)
from tracebridge.core.linalg.solving import solution
from tracebridge.core.linalg.triangular import triangular_solve
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import one_program, remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import promote_inexact
from tracebridge.numpy._staging import value_of
from tracebridge.scipy._nested import nested, of_lists
from tracebridge.scipy.linalg._factors import one

# Coefficients of the diagonal Pade approximants (Higham, 2005) by degree.
_SEVEN = (17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1)
_THIRTEEN = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000,
    10559470521600, 670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
# Up to which 1-norm the approximant is exact but for roundings.
_SINGLE, _DOUBLE = (_SEVEN, 3.925724783138660), (_THIRTEEN, 5.371920351148152)


def _expm(a: Value, upper: bool, max_squarings: int) -> Any:
    x, dtype = one("expm", a)
    if upper:
        x = upper_part(x)
    if x.aval.size == 0:
        return tnp.zeros(x.aval.shape, dtype)
    is_double = real_dtype(x.aval.dtype) == np.float64
    coefficients, bound = _DOUBLE if is_double else _SINGLE
    size = lax.stop_gradient(tnp.max(tnp.sum(tnp.abs(x), -2), -1))
    # Where the size is 0, infinite or NaN, nothing is scaled.
    usable = (size > 0) & tnp.isfinite(size)
    power = tnp.ceil(tnp.log2(tnp.where(usable, size, bound) / bound))
    steps = tnp.maximum(power, 0).astype(np.int32)
    limited = tnp.minimum(steps, max_squarings)
    scale = tnp.exp2(-as_dtype(limited, size.dtype))
    exponential = _pade(
        x * as_dtype(per_matrix(scale, x.aval.shape), x.aval.dtype), coefficients, upper
    )
    exponential = _squared(exponential, limited, max_squarings)
    lost = tnp.isnan(size) | ~tnp.isfinite(size) | (steps > max_squarings)
    out = tnp.where(per_matrix(lost, x.aval.shape), np.nan, exponential)
    return rounded(out, dtype)


def _pade(x: Array, coefficients: tuple[int, ...], upper: bool) -> Any:
    """The approximant ``q(-x)^-1 q(x)``: even powers of q, and odd ones."""
    square = matmul(x, x)
    # Scaled, so that the largest coefficient is no larger than 1: sums overflow no sooner.
    fourth = matmul(square, square)
    powers = (square, fourth, matmul(square, fourth))
    even, odd = (_series(powers, coefficients[k::2], coefficients[0]) for k in (0, 1))
    odd = matmul(x, odd)
    bottom, top = even - odd, even + odd
    if upper:
        return triangular_solve(bottom, top, left_side=True)
    return solution(bottom, top)


def _series(powers: Sequence[Array], coefficients: Sequence[int], divisor: int) -> Any:
    """A polynomial of a matrix, of which some powers are given: Horner's rule by the last one."""
    n, last = len(powers), powers[-1]
    blocks = [coefficients[k : k + n] for k in range(1, len(coefficients), n)]
    total: Any = None
    for block in reversed(blocks):
        terms = [x * (c / divisor) for x, c in zip(powers, block, strict=False)]
        if total is not None:
            terms.append(matmul(last, total))
        total = functools.reduce(operator.add, terms)
    return total + eye_of(last) * (coefficients[0] / divisor)


def _squared(x: Array, steps: Array, limit: int) -> Any:
    """``x`` squared ``steps`` times, which may differ between the matrices of a batch."""
    if not limit:
        return x
    most = tnp.max(steps)

    def square(x: Array, i: Array) -> Any:
        if not steps.ndim:
            return matmul(x, x)
        doing = per_matrix(i < steps, x.aval.shape)
        # Not where it is not wanted: the derivative would be infinite times zero.
        kept = tnp.where(doing, x, eye_of(x))
        return tnp.where(doing, matmul(kept, kept), x)

    def step(x: Array, i: Array) -> tuple[Any, None]:
        return cond(i < most, square, lambda x, i: x, x, i), None

    return scan(step, x, tnp.arange(limit, dtype=np.int32))[0]


_expm_staged = of_lists(StagedFunction(_expm, "expm"))


@remembered
def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """The exponential of matrices, by a Pade approximant of scaled matrices that is squared.

    Args:
        A: matrices of shape ``(..., n, n)``; integers become floats.
        upper_triangular: whether the matrices are upper triangular; the rest is not read.
        max_squarings: how often the approximant may be squared; matrices that need more give NaN.

    Returns:
        Array of the shape of ``A``.

    Raises:
        ShapeMismatchError: the matrices are not square.
        ArgumentValueError: ``max_squarings`` is negative.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.expm(tb.numpy.array([[0.0, 1.0], [0.0, 0.0]])).round(4).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    limit = index_of(max_squarings, "expm", "max_squarings")
    if limit < 0:
        msg = f"expm: max_squarings={max_squarings}, expected at least 0"
        raise ArgumentValueError(msg)
    return _expm_staged((A,), (bool(upper_triangular), limit))


@one_program
def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Array | tuple[Array, Array]:
    """The exponential of matrices and its derivative in a direction.

    Args:
        A: matrices of shape ``(..., n, n)``.
        E: directions, of the shape of ``A``.
        method: None, ``"SPS"`` or ``"blockEnlarge"``; the derivative of the approximant is taken
            in any case.
        compute_expm: whether the exponential is wanted too.

    Returns:
        ``(exponential, derivative)``, or the derivative, of the shape of ``A``.

    Raises:
        ArgumentValueError: another ``method``.
        ShapeMismatchError: the matrices are not square, or the shapes differ.

    >>> import tracebridge as tb
    >>> a, e = tb.numpy.zeros((1, 1)), tb.numpy.ones((1, 1))
    >>> tb.scipy.linalg.expm_frechet(a, e, compute_expm=False).round(4).tolist()
    [[1.0]]
    """
    if method not in (None, "SPS", "blockEnlarge"):
        msg = f"expm_frechet: method={method!r}"
        raise ArgumentValueError(msg, expected="None, 'SPS' or 'blockEnlarge'")
    a, e = promote_inexact(*[value_of(nested(x)) for x in (A, E)])
    if a.aval.shape != e.aval.shape:
        msg = f"expm_frechet: got {a.aval.str_short()} and {e.aval.str_short()}"
        raise ShapeMismatchError(msg, expected="the same shape")
    exponential, change = jvp(expm, (a,), (e,))
    return (exponential, change) if compute_expm else change
