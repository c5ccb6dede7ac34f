"""Blocks of two rows on the diagonals of quasi-triangular matrices, and their complex form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.matrices import (
    adjoint,
    along_columns,
    along_rows,
    as_dtype,
    columns_of,
    complex_dtype,
    conj,
    diagonal,
    from_diagonal,
    is_empty,
    matmul,
    part,
    real_dtype,
    rows_of,
    scalar,
    upper_part,
)
from tracebridge.core.linalg.reflectors import absolute_squares, masked

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import Shape
    from tracebridge.core.ir.values import Value


def beside(t: Value) -> tuple[Any, Any]:
    """Elements right of the diagonal and below it by the smaller of their indices, then a zero."""
    n = t.aval.shape[-1]
    config = [*[(0, 0, 0)] * (t.aval.ndim - 2), (0, 1, 0)]
    blocks = (((0, n - 1), (1, n)), ((1, n), (0, n - 1)))
    right, below = [lax.pad(diagonal(part(t, *block)), scalar(t, 0), config) for block in blocks]
    return right, below


def moved_down(x: Value) -> Any:
    """Each element in the place of the next one, zero or False first."""
    config = [*[(0, 0, 0)] * (x.aval.ndim - 1), (1, -1, 0)]
    return lax.pad(x, full_of(x.aval.update(shape=()), 0), config)


def differences(x: Value) -> Any:
    """How much larger the next element is; the last one has none and gives any number."""
    config = [*[(0, 0, 0)] * (x.aval.ndim - 1), (-1, 1, 0)]
    return lax.sub(lax.pad(x, scalar(x, 0), config), x)


def placed(x: Value, shape: Shape, *, below: bool) -> Any:
    """The elements of ``x`` below the diagonal or right of it, by the smaller of their indices."""
    rows, columns = rows_of(shape), columns_of(shape)
    here = lax.eq(lax.sub(rows, columns), full_of(rows.aval, 1 if below else -1))
    return masked(along_columns(x, shape) if below else along_rows(x, shape), here)


def eigenvectors_of_blocks(t: Value, alone: Value) -> Any:
    """The unitary matrix of blocks like those of ``t``, in whose basis ``t`` is triangular.

    With ``[[a, b], [c, d]]`` and half the difference p of a and d, the eigenvector ``(z, c)`` has
    ``z = p + sqrt(p^2 + b c)`` with the root that p does not cancel, or has a positive imaginary
    part.

    Args:
        t: quasi-triangular matrices.
        alone: which rows begin no block of two, the last one among them: of shape
            ``(*batch, n)``.
    """
    b, c = beside(t)
    one = full_of(c.aval, 1)
    b, c = masked(b, lax.bitwise_not(alone)), lax.select_n(alone, c, one)
    p = lax.mul(differences(diagonal(t)), scalar(t, -0.5))
    p = masked(p, lax.bitwise_not(alone))
    size = lax.stop_gradient(lax.max(lax.max(lax.abs(b), lax.abs(c)), lax.abs(p)))
    b, c, p = [lax.div(x, as_dtype(size, x.aval.dtype)) for x in (b, c, p)]
    z = _largest_root(lax.select_n(alone, lax.add(lax.mul(p, p), lax.mul(b, c)), one), p)
    length = lax.sqrt(lax.add(absolute_squares(z), absolute_squares(c)))
    first, second = [
        lax.div(x, as_dtype(length, x.aval.dtype)) for x in (z, as_dtype(c, z.aval.dtype))
    ]
    begins = lax.bitwise_not(alone)
    ends = moved_down(begins)
    unit = full_of(first.aval, 1)
    main = lax.select_n(begins, lax.select_n(ends, unit, moved_down(conj(first))), first)
    second = masked(second, begins)
    shape = t.aval.shape
    corners = lax.sub(placed(second, shape, below=True), placed(conj(second), shape, below=False))
    return lax.add(from_diagonal(main), corners)


def _largest_root(square: Value, p: Value) -> Any:
    """P plus a root of ``square``, complex."""
    if is_complex(p.aval.dtype):
        root = lax.sqrt(square)
        against = lax.lt(lax.real(lax.mul(conj(p), root)), zeros_of(lax.real(p).aval))
        return lax.add(p, lax.select_n(against, root, lax.neg(root)))
    zero = zeros_of(p.aval)
    root, is_real = lax.sqrt(lax.abs(square)), lax.ge(square, zero)
    signed = lax.select_n(lax.lt(p, zero), root, lax.neg(root))
    return lax.complex(lax.add(p, masked(signed, is_real)), masked(root, lax.bitwise_not(is_real)))


def complex_form(t: Value, z: Value) -> list[Any]:
    """The triangular and the unitary matrices of a complex Schur form, from those of a real one.

    Elements below the diagonal that are roundings of their neighbours there count as zero.
    """
    kind = complex_dtype(t.aval.dtype)
    if is_empty(t.aval):
        return [as_dtype(x, kind) for x in (t, z)]
    _, below = beside(t)
    size = lax.abs(diagonal(t))
    after = lax.pad(size, scalar(size, 0), [*[(0, 0, 0)] * (size.aval.ndim - 1), (-1, 1, 0)])
    eps = scalar(size, float(np.finfo(real_dtype(t.aval.dtype)).eps))
    alone = lax.le(lax.abs(below), lax.mul(lax.add(size, after), eps))
    unitary = eigenvectors_of_blocks(t, alone)
    return [upper_part(in_basis(t, unitary)), matmul(as_dtype(z, kind), unitary)]


def in_basis(x: Value, basis: Value) -> Any:
    """``B^H X B`` for unitary B, complex."""
    return matmul(adjoint(basis), matmul(as_dtype(x, basis.aval.dtype), basis))
