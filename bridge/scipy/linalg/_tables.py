"""Matrices of given numbers: Hadamard, Hilbert, Pascal, Fourier and others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tracebridge.numpy as tnp
from tracebridge.core.dtypes.canonicalize import default_complex, default_float
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import DTypeLike
from tracebridge.numpy._staging import static_dtype

_KINDS = ("symmetric", "lower", "upper")


def _size(name: str, n: Any, least: int) -> int:
    size = index_of(n, name, "n")
    if size < least:
        msg = f"{name}: n={n}, expected at least {least}"
        raise ArgumentValueError(msg)
    return size


def _exact(rows: list[list[int]], n: int) -> Array:
    """Integers of any size, rounded once."""
    return tnp.asarray(np.array(rows, np.float64).reshape(n, n), default_float())


def dft(n: int, scale: str | None = None, *, dtype: DTypeLike | None = None) -> Array:
    """The matrix of the discrete Fourier transform.

    Args:
        n: the number of samples.
        scale: None, ``"sqrtn"`` to divide by the root of ``n`` (a unitary matrix), ``"n"`` to
            divide by ``n``.
        dtype: of the result, complex; the default complex dtype by default.

    Returns:
        Array of shape ``(n, n)``; its elements are exact up to rounding.

    Raises:
        ArgumentValueError: ``n`` is negative, or another ``scale``.
        UnsupportedDtypeError: ``dtype`` is not complex.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.dft(2).real.tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    size = _size("dft", n, 0)
    if scale not in (None, "sqrtn", "n"):
        msg = f"dft: scale={scale!r}"
        raise ArgumentValueError(msg, expected="None, 'sqrtn' or 'n'")
    wanted = static_dtype("dft", dtype) or default_complex()
    if not is_complex(wanted):
        msg = f"dft: dtype={wanted.name}, expected a complex dtype"
        raise UnsupportedDtypeError(msg)
    steps = np.arange(size)
    turns = np.exp(-2j * np.pi * np.arange(size) / max(size, 1))
    # Multiples of a quarter of a turn, where sine and cosine leave roundings.
    for quarter, value in enumerate((1, -1j, -1, 1j)):
        if quarter * size % 4 == 0 and size:
            turns[quarter * size // 4] = value
    matrix = turns[np.outer(steps, steps) % max(size, 1)]
    divisor = {None: 1.0, "sqrtn": math.sqrt(size), "n": float(size)}[scale]
    return tnp.asarray(matrix / (divisor or 1.0), wanted)


def hadamard(n: int, dtype: DTypeLike = int) -> Array:
    """Sylvester's Hadamard matrix: elements 1 and -1, orthogonal rows.

    Args:
        n: the size, a power of 2.
        dtype: of the result.

    Raises:
        ArgumentValueError: ``n`` is no power of 2.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.hadamard(2).tolist()
    [[1, 1], [1, -1]]
    """
    size = index_of(n, "hadamard", "n")
    if size < 1 or size & (size - 1):
        msg = f"hadamard: n={n}, expected a power of 2"
        raise ArgumentValueError(msg)
    matrix = np.ones((1, 1), np.int8)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return tnp.asarray(matrix).astype(static_dtype("hadamard", dtype))


def helmert(n: int, full: bool = False) -> Array:
    """Helmert's matrix: orthonormal rows, the means of differences.

    Args:
        n: how many columns.
        full: whether the first row, of equal elements, is there.

    Returns:
        Array of shape ``(n - 1, n)``, or ``(n, n)``.

    Raises:
        ArgumentValueError: ``n`` is not positive.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.helmert(2).round(4).tolist()
    [[0.7071, -0.7071]]
    """
    size = _size("helmert", n, 1)
    i, j = np.arange(size)[:, None], np.arange(size)[None, :]
    matrix = np.where(j < i, 1.0, np.where(i == j, -1.0 * i, 0.0))
    matrix = matrix / np.sqrt(np.maximum(i * (i + 1), 1))
    matrix[0] = 1 / math.sqrt(size)
    return tnp.asarray(matrix if full else matrix[1:], default_float())


def hilbert(n: int) -> Array:
    """Hilbert's matrix ``1 / (i + j + 1)``, badly conditioned.

    Args:
        n: the size.

    Raises:
        ArgumentValueError: ``n`` is negative.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.hilbert(2).round(4).tolist()
    [[1.0, 0.5], [0.5, 0.33329999446868896]]
    """
    size = _size("hilbert", n, 0)
    steps = np.arange(size)
    return tnp.asarray(1.0 / (steps[:, None] + steps[None, :] + 1), default_float())


def invhilbert(n: int) -> Array:
    """The inverse of Hilbert's matrix; its elements are integers, rounded once.

    Args:
        n: the size.

    Raises:
        ArgumentValueError: ``n`` is negative.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.invhilbert(2).tolist()
    [[4.0, -6.0], [-6.0, 12.0]]
    """
    size = _size("invhilbert", n, 0)

    def element(i: int, j: int) -> int:
        s = i + j
        sign = -1 if s % 2 else 1
        choices = math.comb(size + i, size - j - 1) * math.comb(size + j, size - i - 1)
        return sign * (s + 1) * choices * math.comb(s, i) ** 2

    return _exact([[element(i, j) for j in range(size)] for i in range(size)], size)


def _triangle(n: int) -> list[list[int]]:
    return [[math.comb(i, j) for j in range(n)] for i in range(n)]


def _kind(name: str, kind: str | None) -> str:
    if kind is not None and kind not in _KINDS:
        msg = f"{name}: kind={kind!r}"
        raise ArgumentValueError(msg, expected=f"one of {list(_KINDS)}")
    return kind or "symmetric"


def pascal(n: int, kind: str | None = None) -> Array:
    """Pascal's triangle as a matrix; its elements are integers, rounded once.

    Args:
        n: the size.
        kind: ``"symmetric"`` (the default), ``"lower"`` or ``"upper"`` triangular.

    Raises:
        ArgumentValueError: ``n`` is negative, or another ``kind``.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.pascal(3).tolist()
    [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 6.0]]
    """
    size, form = _size("pascal", n, 0), _kind("pascal", kind)
    if form == "symmetric":
        return _exact([[math.comb(i + j, i) for j in range(size)] for i in range(size)], size)
    lower = _exact(_triangle(size), size)
    return lower if form == "lower" else lower.T


def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of Pascal's matrix; its elements are integers, rounded once.

    Args:
        n: the size.
        kind: of the matrix that is inverted, as in ``pascal``.

    Raises:
        ArgumentValueError: ``n`` is negative, or another ``kind``.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.invpascal(2).tolist()
    [[2.0, -1.0], [-1.0, 1.0]]
    """
    size, form = _size("invpascal", n, 0), _kind("invpascal", kind)
    low = _triangle(size)
    signed = [[low[i][j] * (-1) ** (i - j) for j in range(size)] for i in range(size)]
    if form == "symmetric":
        # The product of the inverses of both triangles.
        signed = [
            [sum([signed[k][i] * signed[k][j] for k in range(size)]) for j in range(size)]
            for i in range(size)
        ]
    inverse = _exact(signed, size)
    return inverse.T if form == "upper" else inverse
