"""qr, householder_product, ormqr: factors, orthogonality, rules, portable lowering."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tracebridge as tb
from tests.core.linalg.laws import (
    DTYPES,
    EMPTY,
    SHAPES,
    adjoint,
    close,
    jitted,
    matrix,
    without_libraries,
)
from tests.quick_compiles import check_grads
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.linalg.qr import geqrf_p, householder_product, ormqr, qr

WAYS = list(itertools.product([False, True], repeat=2))


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_factors_are_scipys(dtype: Any, shape: tuple[int, ...], portable: bool) -> None:
    """Reduced and full, with and without exchanges of columns."""
    a = matrix(dtype, *shape)

    def each_way(a: Any) -> Any:
        return [qr(a, pivoting=pivoting, full_matrices=full) for pivoting, full in WAYS]

    with enable_x64(), without_libraries() if portable else nullcontext():
        results = jitted(each_way, portable)(a)
        for (pivoting, full), found in zip(WAYS, results, strict=True):
            q, r, *order = map(np.asarray, found)
            moved = np.take_along_axis(a, order[0][..., None, :], -1) if order else a
            close(moved, q @ r, dtype)
            close(
                np.broadcast_to(np.eye(q.shape[-1]), (adjoint(q) @ q).shape), adjoint(q) @ q, dtype
            )
            if len(shape) == 2:
                mode = "full" if full else "economic"
                for x, y in zip(
                    scipy.linalg.qr(a, mode=mode, pivoting=pivoting), (q, r, *order), strict=True
                ):
                    close(x, y, dtype, 10)


@pytest.mark.parametrize("shape", EMPTY)
@pytest.mark.parametrize("full", [False, True])
def test_empty(shape: tuple[int, ...], full: bool) -> None:
    """Q is the identity."""
    q, r, order = qr(np.zeros(shape, "f4"), pivoting=True, full_matrices=full)
    m, n = shape[-2:]
    k = m if full else min(m, n)

    assert ((*shape[:-2], m, k), (*shape[:-2], k, n)) == (q.shape, r.shape)
    np.testing.assert_array_equal(np.broadcast_to(np.eye(m, k), q.shape), q)
    assert n == order.shape[-1]


@pytest.mark.parametrize("portable", [False, True])
def test_zero_and_nan(portable: bool) -> None:
    """No NaN where columns are zero; NaN where they are NaN."""
    with without_libraries() if portable else nullcontext():
        q, r = tb.jit(lambda a: qr(a))(np.zeros((3, 2), "f4"))
        bad = tb.jit(lambda a: qr(a))(np.full((2, 2), np.nan, "f4"))

    np.testing.assert_array_equal(np.eye(3), q)
    np.testing.assert_array_equal(np.zeros((3, 2)), r)
    assert np.isnan(bad[1]).any()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (2, 2, 3), (4, 2)])
@pytest.mark.parametrize("pivoting", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_derivatives(dtype: Any, shape: tuple[int, ...], pivoting: bool, full: bool) -> None:
    """Both modes agree with finite differences, to second order; also of the full Q."""

    def factors(a: Any) -> Any:
        return qr(a, pivoting=pivoting, full_matrices=full)[:2]

    with enable_x64():
        check_grads(factors, (matrix(dtype, *shape),), 2, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_reflectors_without_elements(shape: tuple[int, int]) -> None:
    """There are none; the columns keep their order."""
    found, taus, order = geqrf_p.bind(tb.numpy.zeros(shape), pivoting=True)

    assert shape == found.shape
    assert (0,) == taus.shape
    assert list(range(shape[1])) == order.tolist()


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_products(dtype: Any, left: bool, transpose: bool, portable: bool) -> None:
    """ormqr multiplies with what householder_product makes."""

    def both(a: Any, c: Any, rest: Any) -> Any:
        found, taus = geqrf_p.bind(tb.numpy.asarray(a), pivoting=False)
        wide = tb.numpy.concatenate([found, rest], -1)
        out = ormqr(found, taus, c, left=left, transpose=transpose)
        return out, householder_product(wide, taus)

    for shape in ((6, 4), (2, 5, 5)):
        m = shape[-2]
        c = matrix(dtype, *shape[:-2], *((m, 3) if left else (3, m)))
        a, rest = matrix(dtype, *shape), matrix(dtype, *shape[:-1], m - shape[-1])
        with enable_x64(), without_libraries() if portable else nullcontext():
            out, q = map(np.asarray, jitted(both, portable)(a, c, rest))
        q = adjoint(q) if transpose else q

        close(q @ c if left else c @ q, out, dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_derivatives_of_products(dtype: Any) -> None:
    """All arguments, both modes, to second order."""
    with enable_x64():
        a, taus = geqrf_p.bind(tb.numpy.asarray(matrix(dtype, 4, 2)), pivoting=False)
        check_grads(householder_product, (a, taus), 2, atol=1e-3, rtol=1e-3)
        for left, transpose in WAYS:
            c = matrix(dtype, 4, 2) if left else matrix(dtype, 2, 4)

            def multiply(*xs: Any, left: bool = left, transpose: bool = transpose) -> Any:
                return ormqr(*xs, left=left, transpose=transpose)

            # To second order once: the first derivative is a function of differentiable functions.
            order = 2 if left and transpose else 1
            check_grads(multiply, (a, taus, c), order, atol=1e-3, rtol=1e-3)


def test_mapped() -> None:
    """A mapped axis at any place is a batch, for each argument."""
    a, taus, c = [matrix(np.float32, *s) for s in ((4, 4), (4,), (4, 2))]
    expected = np.asarray(ormqr(a, taus, c))
    for i in range(3):
        given = [np.stack([x] * 3, -1) if i == k else x for k, x in enumerate((a, taus, c))]
        out = tb.vmap(ormqr, tuple(-1 if i == k else None for k in range(3)))(*given)
        close(np.stack([expected] * 3), out, np.float32)


def test_arguments_are_checked() -> None:
    """Shapes are shown."""
    with pytest.raises(ShapeMismatchError, match="more columns than rows"):
        householder_product(np.ones((2, 3), "f4"), np.ones(2, "f4"))
    with pytest.raises(ShapeMismatchError, match="3 rows"):
        ormqr(np.ones((3, 2), "f4"), np.ones(2, "f4"), np.ones((2, 2), "f4"))


def test_sizes_that_no_one_has_compared() -> None:
    """The smaller of two symbolic sizes is an expression, unless a constraint says which it is."""
    m, n = tb.export.symbolic_shape("m, n")
    tall, wide = tb.export.symbolic_shape("t, w", constraints=["t >= w"])

    def shapes(*sizes: Any) -> list[str]:
        out = tb.eval_shape(tb.numpy.linalg.qr, tb.ShapeDtypeStruct(sizes, "float32"))
        return [str(part.shape) for part in out]

    assert ["(m, min(m, n))", "(min(m, n), n)"] == shapes(m, n)
    assert ["(t, w)", "(w, w)"] == shapes(tall, wide)
