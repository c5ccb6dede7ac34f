"""Eigenvalues and eigenvectors of general matrices from their Schur forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.linalg.blocks import complex_form
from tracebridge.core.linalg.matrices import (
    INT32,
    adjoint,
    along_columns,
    as_dtype,
    conj,
    diagonal,
    eye_of,
    from_diagonal,
    is_empty,
    matmul,
    part,
    per_matrix,
    real_dtype,
    repeated,
    rows_of,
    scalar,
    scale_columns,
    size_value,
    unit_scaled,
    upper_part,
)
from tracebridge.core.linalg.qr_iterations import for_each_matrix, schur_by_sweeps
from tracebridge.core.linalg.reflectors import absolute_squares

if TYPE_CHECKING:
    from tracebridge.core.ir.values import Value


def eig_by_sweeps(a: Value, *, left: bool, right: bool) -> list[Any]:
    """Eigenvalues, then left and right eigenvectors where they are wanted."""
    wanted = left or right
    # Quotients of complex numbers are made of squares.
    scaled, unit = unit_scaled(a)
    form, *q = schur_by_sweeps(scaled, vectors=wanted)
    if is_complex(a.aval.dtype):
        values = diagonal(form)
    else:
        values = _of_blocks(form)
        if wanted:
            form, *q = complex_form(form, *q)
    whole = lax.mul(values, as_dtype(per_matrix(unit, values.aval.shape), values.aval.dtype))
    if not wanted:
        return [whole]
    # Rounding of the rotations is taken off the eigenvalues of real matrices.
    form = lax.add(upper_part(form, 1), from_diagonal(values))
    is_real = None if is_complex(a.aval.dtype) else lax.eq(lax.imag(values), _zero_imag(values))
    outs = [whole]
    if left:
        # Those of the adjoint matrix, whose form is turned round to be upper triangular.
        turned = _turned(adjoint(form))
        vectors = for_each_matrix(_of_triangular, turned, ranks=(2,))[0]
        outs.append(_scaled_vectors(matmul(q[0], _turned(vectors)), is_real))
    if right:
        vectors = for_each_matrix(_of_triangular, form, ranks=(2,))[0]
        outs.append(_scaled_vectors(matmul(q[0], vectors), is_real))
    return outs


def _zero_imag(values: Value) -> Any:
    return zeros_of(lax.imag(values).aval)


def _turned(a: Value) -> Any:
    n = a.aval.ndim
    return lax.rev(a, (n - 2, n - 1))


def _of_blocks(form: Value) -> Any:
    """Eigenvalues of a real Schur form: blocks of two rows have equal numbers on the diagonal."""
    n = form.aval.shape[-1]
    middle = diagonal(form)
    imaginary = zeros_of(middle.aval)
    if type(n) is not int or n > 1:
        below = diagonal(part(form, (1, n), (0, n - 1)))
        beside = diagonal(part(form, (0, n - 1), (1, n)))
        size = lax.mul(lax.sqrt(lax.abs(below)), lax.sqrt(lax.abs(beside)))
        none = lax.eq(below, zeros_of(below.aval))
        size = lax.select_n(none, size, zeros_of(size.aval))
        config = [(0, 0, 0)] * (size.aval.ndim - 1)
        first, second = [lax.pad(size, scalar(size, 0), [*config, c]) for c in _SIDES]
        imaginary = lax.sub(first, second)
    return lax.complex(middle, imaginary)


_SIDES = ((0, 1, 0), (1, 0, 0))


def _of_triangular(t: Value) -> list[Any]:
    """Eigenvectors of an upper triangular matrix, row by row from below, none above 1."""
    n = t.aval.shape[-1]
    shape, size = t.aval.shape, lax.abs(t)
    kind = np.finfo(real_dtype(t.aval.dtype))
    values = diagonal(t)
    largest = lax.reduce_max(size, (0, 1))
    bound = lax.max(lax.mul(largest, scalar(largest, float(kind.eps))), scalar(largest, kind.tiny))
    least = lax.broadcast_in_dim(bound, (n,), ())
    above = upper_part(t, 1)
    unit = eye_of(t)
    rows = rows_of(shape)

    def step(i: Any, x: Any) -> Any:
        row = lax.sub(size_value(n - 1), i)
        zero = full_of(i.aval, 0)
        product = lax.reshape(matmul(lax.dynamic_slice(above, (row, zero), (1, n)), x), (n,))
        here = lax.reshape(lax.dynamic_slice(values, (row,), (1,)), ())
        gap = lax.sub(lax.broadcast_in_dim(here, (n,), ()), values)
        # Equal eigenvalues are moved apart by a rounding, as LAPACK does.
        gap = lax.select_n(lax.lt(lax.abs(gap), least), gap, as_dtype(least, gap.aval.dtype))
        entries = lax.neg(lax.div(product, gap))
        new = lax.select_n(lax.eq(rows, row), x, along_columns(entries, shape))
        # Columns further left are zero so far, and begin with 1 in their own row.
        new = lax.select_n(lax.bitwise_and(lax.eq(rows, row), _is_one(unit)), new, unit)
        most = lax.reduce_max(lax.abs(new), (0,))
        most = lax.max(most, full_of(most.aval, 1))
        return lax.div(new, as_dtype(along_columns(most, shape), new.aval.dtype))

    return [repeated(n, step, zeros_of(t.aval))]


def _is_one(unit: Value) -> Any:
    return lax.ne(unit, zeros_of(unit.aval))


def _scaled_vectors(v: Value, is_real: Value | None) -> Any:
    """Columns of length 1 whose largest element is real; real ones of real eigenvalues."""
    down = (v.aval.ndim - 2,)
    shape = v.aval.shape
    if is_empty(v.aval):
        return v
    length = lax.sqrt(lax.reduce_sum(absolute_squares(v), down))
    unit = scale_columns(v, lax.div(full_of(length.aval, 1), length))
    size = lax.abs(unit)
    largest = lax.argmax(size, down[0], INT32)
    here = lax.eq(rows_of(shape), along_columns(largest, shape))
    pivot = lax.reduce_sum(lax.select_n(here, zeros_of(v.aval), unit), down)
    phase = lax.div(conj(pivot), as_dtype(lax.abs(pivot), v.aval.dtype))
    unit = scale_columns(unit, phase)
    plain = here if is_real is None else lax.bitwise_or(here, along_columns(is_real, shape))
    imaginary = lax.imag(unit)
    return lax.complex(lax.real(unit), lax.select_n(plain, imaginary, zeros_of(imaginary.aval)))
