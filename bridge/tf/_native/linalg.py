"""Factors of matrices by TensorFlow's functions; other functions by what they consist of."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.tf._native.builder import Builder, Tensor, rule


def _is_empty(b: Builder) -> bool:
    return any([type(n) is int and n == 0 for a in b.avals for n in a.shape])


@rule("cholesky")
def _cholesky(b: Builder, x: Tensor, **_: object) -> Any:
    return NotImplemented if _is_empty(b) else tf.linalg.cholesky(x)


@rule("qr")
def _qr(b: Builder, x: Tensor, full_matrices: bool, pivoting: bool = False, **_: object) -> Any:
    if pivoting or _is_empty(b):
        return NotImplemented
    q, r = tf.linalg.qr(x, full_matrices=full_matrices)
    return [q, r]


@rule("eigh")
def _eigh(
    b: Builder, x: Tensor, lower: bool, subset_by_index: tuple[int, int] | None = None, **_: object
) -> Any:
    if _is_empty(b):
        return NotImplemented
    # TensorFlow reads the lower triangle.
    w, v = tf.linalg.eigh(x if lower else tf.linalg.adjoint(x))
    if is_complex(b.avals[0].dtype):
        w = tf.math.real(w)
    if subset_by_index is not None:
        low, high = subset_by_index
        w, v = w[..., low:high], v[..., low:high]
    return [v, w]


@rule("svd")
def _svd(
    b: Builder,
    x: Tensor,
    compute_uv: bool,
    full_matrices: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    **_: object,
) -> Any:
    if _is_empty(b) or subset_by_index is not None:
        return NotImplemented
    if not compute_uv:
        return [tf.linalg.svd(x, compute_uv=False)]
    s, u, v = tf.linalg.svd(x, full_matrices=full_matrices)
    return [s, u, tf.linalg.adjoint(v)]


@rule("eig")
def _eig(
    b: Builder,
    x: Tensor,
    compute_left_eigenvectors: bool,
    compute_right_eigenvectors: bool,
    **_: object,
) -> Any:
    if compute_left_eigenvectors or _is_empty(b):
        return NotImplemented
    if not compute_right_eigenvectors:
        return [tf.linalg.eigvals(x)]
    w, v = tf.linalg.eig(x)
    return [w, v]


@rule("triangular_solve")
def _triangular_solve(
    b: Builder,
    a: Tensor,
    y: Tensor,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
    **_: object,
) -> Tensor:
    if conjugate_a and is_complex(b.avals[0].dtype):
        a = tf.math.conj(a)
    if transpose_a:
        a, lower = tf.linalg.matrix_transpose(a), not lower
    if unit_diagonal:
        a = tf.linalg.set_diag(a, tf.ones_like(tf.linalg.diag_part(a)))
    if left_side:
        return tf.linalg.triangular_solve(a, y, lower=lower)
    flipped = tf.linalg.triangular_solve(
        tf.linalg.matrix_transpose(a), tf.linalg.matrix_transpose(y), lower=not lower
    )
    return tf.linalg.matrix_transpose(flipped)


@rule("symmetric_product")
def _symmetric_product(
    b: Builder, a: Tensor, c: Tensor, alpha: float, beta: float, **_: object
) -> Any:
    product = tf.matmul(a, a, transpose_b=True)
    return product * tf.constant(alpha, a.dtype) + c * tf.constant(beta, a.dtype)
