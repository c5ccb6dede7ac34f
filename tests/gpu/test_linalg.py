"""Decompositions by the solver libraries of the GPU: what makes them decompositions holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax

pytestmark = pytest.mark.gpu

DTYPES = ("float32", "float64", "complex64", "complex128")
SHAPES = ((5, 5), (3, 6, 6), (40, 40), (2, 7, 4), (2, 4, 7), (0, 3, 3))


def matrices(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Random ones."""
    random = np.random.default_rng(0)
    x = random.normal(size=shape)
    if dtype.startswith("c"):
        x = x + 1j * random.normal(size=shape)
    return x.astype(dtype)


def close(a: Any, b: Any) -> None:
    """Equal up to rounding of sums of forty products."""
    a, b = np.asarray(a), np.asarray(b)
    limit = 2e-3 if a.dtype in (np.float32, np.complex64) else 1e-10
    np.testing.assert_allclose(a, b, rtol=limit, atol=limit)


def h(x: Any) -> Any:
    """The conjugate transpose."""
    return np.conj(np.swapaxes(np.asarray(x), -1, -2))


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with tb.enable_x64(True), tb.default_matmul_precision("highest"):
        yield


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_decompositions(shape: tuple[int, ...], dtype: str) -> None:
    """Products of the factors give the matrix."""
    a = matrices(shape, dtype)
    q, r = map(np.asarray, tb.jit(tnp.linalg.qr)(a))
    close(q @ r, a)
    u, s, vh = map(np.asarray, tb.jit(lambda a: tnp.linalg.svd(a, full_matrices=False))(a))
    close((u * s[..., None, :]) @ vh, a)
    close(s, np.linalg.svd(a, compute_uv=False))
    p, lower, upper = map(
        np.asarray, tb.jit(tb.vmap(tb.scipy.linalg.lu) if a.ndim > 2 else tb.scipy.linalg.lu)(a)
    )
    close(p @ lower @ upper, a)
    if shape[-1] != shape[-2]:
        return
    w, v = map(np.asarray, tb.jit(tnp.linalg.eigh)(a + h(a)))
    close((v * w[..., None, :]) @ h(v), a + h(a))
    spd = a @ h(a) + np.eye(shape[-1], dtype=dtype)
    lower = np.asarray(tb.jit(tnp.linalg.cholesky)(spd))
    close(lower @ h(lower), spd)
    w, v = map(np.asarray, tb.jit(tnp.linalg.eig)(a))
    close(a @ v, v * w[..., None, :])
    close(tb.jit(tnp.linalg.inv)(spd), np.linalg.inv(spd))
    b = matrices((*shape[:-1], 2), dtype)
    close(tb.jit(tnp.linalg.solve)(spd, b), np.linalg.solve(spd, b))
    solve = tb.jit(lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True))
    close(solve(lower, b), np.linalg.solve(lower, b))
    close(tb.jit(tnp.linalg.slogdet)(a)[1], np.linalg.slogdet(a)[1])


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_derivatives(dtype: str) -> None:
    """Of functions that no choice of signs changes: as on the CPU."""
    a = matrices((3, 4, 4), dtype)

    def total(a: Any) -> Any:
        w, v = tnp.linalg.eigh(a + tnp.conj(tnp.swapaxes(a, -1, -2)))
        u, s, _ = tnp.linalg.svd(a)
        q, r = tnp.linalg.qr(a)
        parts = [w**2, tnp.abs(v) ** 4, s, tnp.abs(u) ** 4, tnp.abs(q) ** 4, tnp.abs(r)]
        return sum(x.sum() for x in parts) + tnp.abs(tnp.linalg.det(a)).sum()

    results = []
    for platform in ("cpu", "gpu"):
        with tb.default_device(platform):
            results.append(tb.jit(tb.grad(total))(a))
    np.testing.assert_allclose(np.asarray(results[1]), np.asarray(results[0]), rtol=5e-3, atol=5e-3)


def test_failures_are_nan() -> None:
    """A matrix that is not positive definite, a singular one."""
    assert np.isnan(np.asarray(tnp.linalg.cholesky(-tnp.eye(3)))).any()
    assert not np.isfinite(np.asarray(tnp.linalg.inv(tnp.zeros((3, 3))))).all()
    nan = tnp.full((3, 3), tnp.nan)
    for f in (tnp.linalg.eigh, tnp.linalg.svd, tnp.linalg.qr):
        assert np.isnan(np.asarray(f(nan)[0])).all()
    for shape in ((2, 2), (3, 5, 5)):
        one = np.ones(shape, "f4") + np.eye(shape[-1], dtype="f4")
        one[..., 0, 0] = np.nan
        for f in (tnp.linalg.eigh, tnp.linalg.svd, tnp.linalg.qr, tnp.linalg.eig, tnp.linalg.inv,
                  tb.scipy.linalg.lu_factor, tnp.linalg.cholesky, tnp.linalg.det):  # fmt: skip
            first = np.asarray(tb.tree.leaves(tb.jit(f)(one))[0])
            assert np.isnan(first).reshape(*shape[:-2], -1).any(-1).all(), f.__name__


def test_triangles_that_are_not_read_may_have_nan() -> None:
    """As on the CPU."""
    a = np.diag(np.arange(1.0, 5.0)).astype("f4")
    a[0, 2] = np.nan
    for platform in ("cpu", "gpu"):
        with tb.default_device(platform):
            values = tb.lax.linalg.eigh(a, symmetrize_input=False)[1]
        np.testing.assert_allclose(np.asarray(values), [1, 2, 3, 4], rtol=1e-6)
