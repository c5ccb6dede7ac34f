"""Linear algebra in exported programs, which cannot call LAPACK: residuals, values, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.linalg.laws import adjoint, matrix, positive
from tracebridge import lax

pytestmark = pytest.mark.tf

REAL = (np.float32, np.float64)
DTYPES = (*REAL, np.complex64)
linalg = tb.lax.linalg


def exported(fun: Callable[..., Any], *args: Any) -> Any:
    """The results of a tf.function, as arrays."""
    with tb.enable_x64(True):
        graph = tf.function(tb.tf.to_tf(fun), autograph=False)
        outs = graph(*[tf.constant(a) for a in args])
    return tf.nest.map_structure(lambda t: t.numpy(), outs)


def norm(x: Any) -> Any:
    """Of each matrix of a batch, in float64."""
    return np.linalg.norm(np.asarray(x, np.complex128), axis=(-2, -1))


def residual(a: Any, product: Any) -> float:
    """``||A - product|| / ||A||`` in roundings of the dtype and per row: the worst of the batch."""
    eps = np.finfo(a.dtype).eps * a.shape[-2]
    return float(np.max(norm(a - product) / norm(a) / eps, initial=0))


def orthogonality(q: Any) -> float:
    """``||Q^H Q - 1||`` in roundings of the dtype and per row."""
    eps = np.finfo(q.dtype).eps * q.shape[-2]
    return float(np.max(norm(adjoint(q) @ q - np.eye(q.shape[-1])) / eps, initial=0))


def everything(a: Any, p: Any, b: Any) -> dict[str, Any]:
    """All factors of general matrices, and of positive ones, and solutions."""
    return {
        "cholesky": linalg.cholesky(p),
        "lu": linalg.lu(a),
        "qr": linalg.qr(a),
        "eigh": linalg.eigh(p),
        "svd": linalg.svd(a, full_matrices=False),
        "solve": tnp.linalg.solve(a, b),
        "triangular_solve": linalg.triangular_solve(
            linalg.cholesky(p), b, left_side=True, lower=True
        ),
        "inv": tnp.linalg.inv(a),
        "det": tnp.linalg.det(a),
        "slogdet": tnp.linalg.slogdet(a),
    }


def measured(dtype: Any, n: int, batch: int) -> dict[str, float]:
    """The largest residual of each decomposition, in roundings per row."""
    a, p, b = matrix(dtype, batch, n, n), positive(dtype, batch, n, n), matrix(dtype, batch, n, 3)
    found = exported(everything, a, p, b)
    low = found["cholesky"]
    packed, _, order = found["lu"]
    q, r = found["qr"]
    v, w = found["eigh"]
    u, s, vh = found["svd"]
    lower, upper = np.tril(packed, -1) + np.eye(n, dtype=dtype), np.triu(packed)
    rows = np.take_along_axis(a, order[..., None], -2)
    inverse, x, y = found["inv"], found["solve"], found["triangular_solve"]
    sign, log = found["slogdet"]
    wide = a.astype(np.complex128)
    eps = np.finfo(dtype).eps * n
    scale = norm(a) * norm(x)
    return {
        "cholesky: A - L L^H": residual(p, low @ adjoint(low)),
        "lu: P A - L U": residual(rows, lower @ upper),
        "qr: A - Q R": residual(a, q @ r),
        "qr: Q^H Q - 1": orthogonality(q),
        "eigh: A - V w V^H": residual(p, (v * w[..., None, :]) @ adjoint(v)),
        "eigh: V^H V - 1": orthogonality(v),
        "svd: A - U s V^H": residual(a, (u * s[..., None, :]) @ vh),
        "svd: U^H U - 1": orthogonality(u),
        "svd: V^H V - 1": orthogonality(adjoint(vh)),
        "solve: A X - B": float(np.max(norm(a @ x - b) / scale / eps)),
        "triangular_solve: L Y - B": float(np.max(norm(low @ y - b) / (norm(low) * norm(y)) / eps)),
        "inv: A X - 1": float(
            np.max(norm(a @ inverse - np.eye(n)) / (norm(a) * norm(inverse)) / eps)
        ),
        "det, relative": relative(found["det"], np.linalg.det(wide), a),
        "slogdet, relative": relative(sign * np.exp(log), np.linalg.det(wide), a),
    }


def relative(found: Any, expected: Any, a: Any) -> float:
    """In roundings per row and per unit of the condition of the matrix."""
    eps = np.finfo(a.dtype).eps * a.shape[-1]
    error = np.abs(found - expected) / np.abs(expected)
    return float(np.max(error / np.linalg.cond(a.astype(np.complex128)) / eps))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "batch"), [(5, 3), (1, 2), (24, 1)])
def test_residuals(dtype: Any, n: int, batch: int) -> None:
    """Backward errors are some roundings per row, as LAPACK's are."""
    worst = measured(dtype, n, batch)

    assert {k: v for k, v in worst.items() if not v < 8} == {}


@pytest.mark.parametrize("dtype", REAL)
def test_values_are_numpys(dtype: Any) -> None:
    """What has no choice of signs or order."""
    a, p, b = matrix(dtype, 2, 6, 6), positive(dtype, 2, 6, 6), matrix(dtype, 2, 6, 3)
    found = exported(everything, a, p, b)
    bound = 2e-3 if dtype is np.float32 else 1e-11
    expected = {
        "cholesky": np.linalg.cholesky(p),
        "eigh": (None, np.linalg.eigvalsh(p)),
        "svd": (None, np.linalg.svd(a, compute_uv=False), None),
        "solve": np.linalg.solve(a, b),
        "triangular_solve": np.linalg.solve(np.linalg.cholesky(p), b),
        "inv": np.linalg.inv(a),
        "det": np.linalg.det(a),
        "slogdet": tuple(np.linalg.slogdet(a)),
    }

    for name, values in expected.items():
        for e, f in zip(*map(tf.nest.flatten, (values, found[name])), strict=True):
            if e is not None:
                assert f.dtype == dtype
                np.testing.assert_allclose(f, e, rtol=bound, atol=bound)


def with_squares(values: Any, vectors: Any) -> Any:
    """What does not depend on signs of vectors."""
    return values, vectors**2


# Functions of the matrix that do not depend on signs of vectors; what TensorFlow's own operations
# give is the reference of their gradients.
GRADIENTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "cholesky": (lambda p: linalg.cholesky(p), tf.linalg.cholesky),
    "lu": (
        lambda p: tnp.abs(linalg.lu(p)[0].diagonal(axis1=-2, axis2=-1).prod(-1)),
        lambda p: tf.abs(tf.linalg.det(p)),
    ),
    "qr": (lambda p: linalg.qr(p)[1] ** 2, lambda p: tf.linalg.qr(p)[1] ** 2),
    "eigh": (
        lambda p: with_squares(*linalg.eigh(p)[::-1]),
        lambda p: with_squares(*tf.linalg.eigh(p)),
    ),
    "svd": (
        lambda p: with_squares(*linalg.svd(p)[1::-1]),
        lambda p: with_squares(*tf.linalg.svd(p)[:2]),
    ),
    "solve": (lambda p: tnp.linalg.solve(p, p[..., :2] ** 2),
              lambda p: tf.linalg.solve(p, p[..., :2] ** 2)),
    "triangular_solve": (
        lambda p: linalg.triangular_solve(p, p[..., :2] ** 2, left_side=True, lower=True),
        lambda p: tf.linalg.triangular_solve(p, p[..., :2] ** 2, lower=True),
    ),
    "inv": (tnp.linalg.inv, tf.linalg.inv),
    "det": (tnp.linalg.det, tf.linalg.det),
    "slogdet": (lambda p: tnp.linalg.slogdet(p)[1], lambda p: tf.linalg.slogdet(p)[1]),
}  # fmt: skip


def gradient(fun: Callable[[Any], Any], a: Any) -> Any:
    """By a tape, of a weighted sum of the results."""
    x = tf.constant(a)
    with tf.GradientTape() as tape:
        tape.watch(x)
        outs = tf.nest.flatten(fun(x))
        loss = tf.add_n([tf.reduce_sum(y * weights(y)) for y in outs])
    return tape.gradient(loss, x)


def weights(y: Any) -> Any:
    """Another weight for each element."""
    return np.cos(np.arange(y.shape.num_elements())).reshape(y.shape).astype(y.dtype.name)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_tensorflows(name: str, dtype: Any) -> None:
    """Of a batch, in a tf.function and through the tape."""
    ours, theirs = GRADIENTS[name]
    a = positive(dtype, 2, 4, 4) + np.diag(np.arange(4, dtype=dtype))
    with tb.enable_x64(True):
        graph = tf.function(tb.tf.to_tf(ours), autograph=False)
        got, expected = gradient(graph, a), gradient(theirs, a)
    if name in ("eigh", "cholesky"):
        # Functions of symmetric matrices: the derivative in symmetric directions.
        got, expected = [(g + tf.linalg.matrix_transpose(g)) / 2 for g in (got, expected)]

    assert got.dtype == expected.dtype
    bound = 5e-3 if dtype is np.float32 else 1e-9
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(got / scale, expected / scale, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", REAL)
def test_no_elements(dtype: Any) -> None:
    """Matrices without rows, and batches without matrices; determinants of nothing are 1."""
    for shape in ((0, 0), (0, 3, 3), (2, 0, 0)):
        a = np.zeros(shape, dtype)
        found = exported(everything, a, a, np.zeros((*shape[:-1], 3), dtype))
        assert shape == found["cholesky"].shape == found["inv"].shape == found["qr"][0].shape
        assert shape == found["svd"][0].shape == found["eigh"][0].shape
        np.testing.assert_array_equal(found["det"], np.linalg.det(a))


@pytest.mark.parametrize("dtype", REAL)
def test_singular(dtype: Any) -> None:
    """Factors of matrices without an inverse exist; what does not exist is not finite."""
    a = np.outer([1, 2, 3], [1, -1, 2]).astype(dtype)
    p = np.outer([1, -2, 3], [1, -2, 3]).astype(dtype)
    found = exported(everything, np.stack([a, 0 * a]), np.stack([p, -p]), np.ones((2, 3, 1), dtype))
    q, r = found["qr"]
    u, s, vh = found["svd"]
    v, w = found["eigh"]
    eps = 50 * np.finfo(dtype).eps

    np.testing.assert_allclose((q @ r)[0], a, atol=eps)
    np.testing.assert_allclose(((u * s[..., None, :]) @ vh)[0], a, atol=eps)
    np.testing.assert_allclose(s[0, 1:], 0, atol=eps)
    np.testing.assert_array_equal(s[1], np.zeros(3))
    np.testing.assert_allclose((v * w[..., None, :]) @ adjoint(v), [p, -p], atol=eps)
    for factor in (q, u, v):
        np.testing.assert_allclose(adjoint(factor) @ factor, [np.eye(3)] * 2, atol=eps)
    np.testing.assert_allclose(found["det"], 0, atol=eps)
    assert np.isneginf(found["slogdet"][1][1])
    assert np.isnan(found["cholesky"][1][np.tril_indices(3)]).all()
    assert not np.isfinite(found["inv"][1]).any()
    assert not np.isfinite(found["solve"][1]).any()


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_general_eigenvalues(dtype: Any) -> None:
    """eig, schur, hessenberg, tridiagonal and QR with pivots, by their definitions."""
    a, h = matrix(dtype, 2, 4, 4), positive(dtype, 2, 4, 4)

    def run(a: Any, h: Any) -> Any:
        return {
            "eig": tnp.linalg.eig(a),
            "schur": lax.linalg.schur(a),
            "hessenberg": lax.linalg.hessenberg(a)[0],
            "tridiagonal": lax.linalg.tridiagonal(h)[1:3],
            "pivots": lax.linalg.qr(a, pivoting=True),
        }

    found = exported(run, a, h)
    w, v = found["eig"]
    t, z = found["schur"]
    q, r, order = found["pivots"]
    d, e = found["tridiagonal"]
    reduced = np.triu(found["hessenberg"], -1)
    bands = np.stack(
        [np.diag(x) + np.diag(y, 1) + np.diag(y.conj(), -1) for x, y in zip(d, e, strict=True)]
    )

    assert residual(a, (v * w[..., None, :]) @ np.linalg.inv(v)) < 100
    assert residual(a, z @ t @ adjoint(z)) < 20
    assert orthogonality(z) < 20
    assert residual(np.take_along_axis(a, order[..., None, :], -1), q @ r) < 8
    assert (np.diff(np.abs(np.diagonal(r, axis1=-2, axis2=-1))) < 1e-5).all()
    np.testing.assert_allclose(norm(reduced), norm(a), rtol=1e-4)
    np.testing.assert_allclose(np.linalg.eigvalsh(bands), np.linalg.eigvalsh(h), rtol=1e-4)
