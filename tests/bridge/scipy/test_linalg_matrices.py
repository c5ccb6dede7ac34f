"""Matrices of tracebridge.scipy.linalg, against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import BroadcastError, RankError, ShapeMismatchError
from tracebridge.testing import assert_allclose

sla = tb.scipy.linalg
X = np.random.default_rng(0).normal(size=(2, 7)) + 2.0
Z = X + 1j * X[::-1]

TABLES = [
    ("dft", (5,)), ("dft", (8,)), ("dft", (6, "n")), ("dft", (3, "sqrtn")), ("dft", (1,)),
    ("hadamard", (8,)), ("hadamard", (1,)), ("hadamard", (4, float)),
    ("helmert", (4,)), ("helmert", (4, True)), ("helmert", (1, True)),
    ("hilbert", (6,)), ("invhilbert", (1,)), ("invhilbert", (6,)), ("invhilbert", (12,)),
    ("pascal", (6,)), ("pascal", (6, "lower")), ("pascal", (6, "upper")),
    ("invpascal", (6,)), ("invpascal", (6, "lower")), ("invpascal", (6, "upper")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), TABLES)
def test_given_numbers(name: str, args: Any) -> None:
    """Rounded once, in both precisions."""
    want = getattr(scipy.linalg, name)(*args)
    assert_allclose(getattr(sla, name)(*args), want, rtol=1e-6, atol=1e-6)
    with tb.enable_x64(True):
        assert_allclose(getattr(sla, name)(*args), want, rtol=1e-15, atol=2e-15)


@pytest.mark.parametrize("name", ["hilbert", "invhilbert", "pascal", "invpascal", "dft"])
def test_no_rows(name: str) -> None:
    """A size of 0 is no error."""
    assert (0, 0) == getattr(sla, name)(0).shape


VECTORS = ["toeplitz", "hankel", "circulant", "companion", "fiedler", "fiedler_companion"]


@pytest.mark.parametrize("name", VECTORS)
def test_of_vectors(name: str) -> None:
    """Every size, dtypes, derivatives; under jit and vmap each row for itself."""
    ours, theirs = getattr(sla, name), getattr(scipy.linalg, name)
    for n in (2, 3, 4, 5, 6, 7):
        for x in (X[0, :n], Z[0, :n]):
            assert_allclose(tb.jit(ours)(x), theirs(x), rtol=1e-5, atol=1e-6)
    with tb.enable_x64(True):
        check_grads(ours, (X[0, :4],), order=2)
        assert_allclose(tb.vmap(ours)(X), np.stack([theirs(x) for x in X]), rtol=1e-14, atol=1e-14)
        assert_allclose(ours(X), np.stack([theirs(x) for x in X]), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", ["toeplitz", "hankel"])
def test_first_column_and_row(name: str) -> None:
    """The row is longer, shorter or a number; batches are broadcast."""
    ours, theirs = getattr(sla, name), getattr(scipy.linalg, name)
    for m, n in ((3, 5), (5, 2), (1, 4), (4, 1)):
        assert_allclose(ours(X[0, :m], X[1, :n]), theirs(X[0, :m], X[1, :n]), rtol=1e-6)
    assert "int32" == ours(np.arange(3)).dtype
    assert_allclose(ours(X[:, :3], X[0, :2])[1], theirs(X[1, :3], X[0, :2]), rtol=1e-6)
    assert (1, 1) == ours(2.0).shape
    with pytest.raises(BroadcastError):
        ours(np.ones((2, 3)), np.ones((3, 3)))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolution_matrix(mode: str) -> None:
    """It convolves, whatever is longer."""
    for m, n in ((3, 5), (5, 3), (1, 1), (4, 4), (2, 1), (1, 2)):
        a = X[0, :m]
        want = scipy.linalg.convolution_matrix(a, n, mode)
        assert_allclose(sla.convolution_matrix(a, n, mode), want, rtol=1e-6)
    with tb.enable_x64(True):
        check_grads(lambda a: sla.convolution_matrix(a, 3, mode), (X[0],), order=1)
        found = sla.convolution_matrix(X, 3, mode)
        want = np.stack([scipy.linalg.convolution_matrix(x, 3, mode) for x in X])
        assert_allclose(found, want, rtol=1e-15)


def test_leslie() -> None:
    """Against SciPy, in batches, with derivatives in both arguments."""
    f, s = X[:, :4], X[:, 4:]
    with tb.enable_x64(True):
        assert_allclose(sla.leslie(f[0], s[0]), scipy.linalg.leslie(f[0], s[0]), rtol=1e-15)
        want = np.stack([scipy.linalg.leslie(a, b) for a, b in zip(f, s, strict=True)])
        assert_allclose(sla.leslie(f, s), want, rtol=1e-15)
        check_grads(sla.leslie, (f[0], s[0]), order=1)
    with pytest.raises(ShapeMismatchError):
        sla.leslie(f[0], f[0])


def test_block_diag() -> None:
    """Numbers, vectors, matrices, blocks without rows; promotion; derivatives of each block."""
    blocks = (2.0, X[0, :3], X[:, :2], np.zeros((0, 2)))
    assert_allclose(sla.block_diag(*blocks), scipy.linalg.block_diag(*blocks), rtol=1e-6)
    assert (1, 0) == sla.block_diag().shape
    assert not sla.block_diag(5, 6).weak_type
    assert (
        "complex64"
        == sla.block_diag(np.ones((1, 1), np.int32), np.full((1, 1), 1j, np.complex64)).dtype
    )
    with tb.enable_x64(True):
        check_grads(sla.block_diag, blocks[:3], order=1)
        assert (2, 2, 5) == tb.vmap(sla.block_diag)(X[:, :3], X[:, :2]).shape
    with pytest.raises(RankError, match="block_diag"):
        sla.block_diag(np.ones((1, 1, 1)))


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (lambda: sla.dft(2, "half"), ArgumentValueError),
        (lambda: sla.dft(2, dtype="float32"), UnsupportedDtypeError),
        (lambda: sla.hadamard(6), ArgumentValueError),
        (lambda: sla.helmert(0), ArgumentValueError),
        (lambda: sla.hilbert(-1), ArgumentValueError),
        (lambda: sla.pascal(3, "left"), ArgumentValueError),
        (lambda: sla.companion(np.ones(1)), ShapeMismatchError),
        (lambda: sla.fiedler_companion(np.ones((2, 0))), ShapeMismatchError),
        (lambda: sla.convolution_matrix(np.ones(2), 0), ArgumentValueError),
        (lambda: sla.convolution_matrix(np.ones(2), 2, "half"), ArgumentValueError),
        (lambda: sla.convolution_matrix(np.ones(0), 2), ShapeMismatchError),
    ],
)
def test_errors(run: Any, error: type[Exception]) -> None:
    """Sizes, kinds and dtypes that there are no matrices for."""
    with pytest.raises(error):
        run()
