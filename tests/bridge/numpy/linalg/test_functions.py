"""tracebridge.numpy.linalg: NumPy's values, derivatives where they are hard, promotion."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.core.linalg.laws import DTYPES, close, hermitian, matrix
from tests.quick_compiles import check_grads
from tracebridge import numpy as tnp
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError

MATRIX_ORDERS = (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
VECTOR_ORDERS = (None, 0, 1, 2, 3, -1, -2, 0.5, np.inf, -np.inf)
INEXACT = (np.float64, np.complex128)


def check(fun: Any, args: Any, order: int = 2) -> None:
    """Both modes against finite differences."""
    check_grads(fun, args, order, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_systems_are_numpys(dtype: Any) -> None:
    """inv, solve, det, slogdet, pinv, lstsq, tensorinv, tensorsolve."""
    la, np_la = tnp.linalg, np.linalg
    a, r, b = matrix(dtype, 2, 3, 3), matrix(dtype, 4, 3), matrix(dtype, 3, 2)
    many, some = matrix(dtype, 4, 6, 8, 3), matrix(dtype, 4, 2)
    with enable_x64():
        close(np_la.inv(a), la.inv(a), dtype, 10)
        close(np_la.solve(a, b), la.solve(a, b), dtype, 10)
        close(np_la.solve(a, b[:, 0]), la.solve(a, b[:, 0]), dtype, 10)
        close(np_la.det(a), la.det(a), dtype)
        for x, y in zip(np_la.slogdet(a), la.slogdet(a), strict=True):
            close(x, y, dtype)
        close(np_la.pinv(r), la.pinv(r), dtype)
        for x, y in zip(np_la.lstsq(r, some), la.lstsq(r, some), strict=True):
            close(x, y, dtype)
        close(np_la.tensorinv(many), la.tensorinv(many), dtype, 100)
        wide = matrix(dtype, 2, 3, 6)
        close(np_la.tensorsolve(wide, b.T), la.tensorsolve(wide, b.T), dtype, 100)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms_are_numpys(dtype: Any) -> None:
    """norm, matrix_norm, vector_norm, cond, matrix_rank, svdvals, eigvalsh."""
    la, np_la = tnp.linalg, np.linalg
    a, r = matrix(dtype, 2, 3, 3), matrix(dtype, 4, 3)
    with enable_x64():
        for o in MATRIX_ORDERS:
            close(np_la.norm(r, o), la.norm(r, o), dtype)
            if o is not None:
                close(np_la.norm(a, o, axis=(2, 0)), la.norm(a, o, axis=(2, 0)), dtype)
                given = {"ord": o, "keepdims": True}
                close(np_la.matrix_norm(a, **given), la.matrix_norm(a, **given), dtype)
            if o not in ("fro", "nuc"):
                close(np_la.cond(r[:3], o), la.cond(r[:3], o), dtype, 50)
        for o in VECTOR_ORDERS:
            close(np_la.norm(r[0], o), la.norm(r[0], o), dtype)
            order = 2 if o is None else o
            given = {"ord": order, "axis": 1, "keepdims": True}
            close(np_la.vector_norm(r, **given), la.vector_norm(r, **given), dtype)
        low = r @ matrix(dtype, 3, 5)
        assert [3, 2] == [int(la.matrix_rank(low)), int(la.matrix_rank(r[:2]))]
        close(np_la.svdvals(r), la.svdvals(r), dtype)
        close(np_la.eigvalsh(hermitian(dtype, 3, 3)), la.eigvalsh(hermitian(dtype, 3, 3)), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_numpys(dtype: Any) -> None:
    """matrix_power, multi_dot, cross, outer, trace, diagonal, vecdot, tensordot."""
    la, np_la = tnp.linalg, np.linalg
    a, r, b = matrix(dtype, 2, 3, 3), matrix(dtype, 4, 3), matrix(dtype, 3, 2)
    with enable_x64():
        for n in (0, 1, 5, -2):
            close(np_la.matrix_power(a, n), la.matrix_power(a, n), dtype, 100)
        chain = [r[0], b, b.T.copy(), b, b[0]]
        close(np_la.multi_dot(chain), la.multi_dot(chain), dtype)
        for name in ("trace", "diagonal", "matrix_transpose"):
            close(getattr(np_la, name)(a), getattr(la, name)(a), dtype)
        for name in ("cross", "vecdot", "matmul"):
            other = a[0] if name == "matmul" else r[0]
            close(getattr(np_la, name)(r, other), getattr(la, name)(r, other), dtype)
        close(np_la.outer(r[0], r[1]), la.outer(r[0], r[1]), dtype)
        close(np_la.tensordot(a, r, axes=([2], [1])), la.tensordot(a, r, axes=([2], [1])), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_are_numpys(dtype: Any) -> None:
    """What the functions of lax.linalg give, in NumPy's order."""
    la, np_la = tnp.linalg, np.linalg
    r, h = matrix(dtype, 4, 3), hermitian(dtype, 3, 3)
    p = (h @ h.conj().T + np.eye(3)).astype(dtype)
    with enable_x64():
        close(np_la.cholesky(p), la.cholesky(p), dtype)
        close(np_la.cholesky(p).conj().T, la.cholesky(p, upper=True), dtype)
        upper = la.cholesky(np.triu(p), upper=True, symmetrize_input=False)
        close(np_la.cholesky(p).conj().T, upper, dtype)
        for mode in ("reduced", "complete", "raw"):
            for x, y in zip(np_la.qr(r, mode), la.qr(r, mode), strict=True):
                close(x, y, dtype)
        close(np_la.qr(r, "r"), la.qr(r, "r"), dtype)
        w, v = la.eigh(h)
        close(h @ np.asarray(v), np.asarray(v) * np.asarray(w), dtype, 10)
        u, s, vh = [np.asarray(x) for x in la.svd(r, full_matrices=False)]
        close(r, (u * s) @ vh, dtype)
        w, v = [np.asarray(x) for x in la.eig(r[:3])]
        close(r[:3] @ v, v * w, dtype, 10)
        found = np.sort_complex(np.asarray(la.eigvals(r[:3])))
        close(np.sort_complex(np_la.eigvals(r[:3])), found, dtype)


@pytest.mark.parametrize("dtype", INEXACT)
def test_derivatives_of_determinants(dtype: Any) -> None:
    """Also of singular matrices of each rank, to second order."""
    low = matrix(dtype, 3, 2) @ matrix(dtype, 2, 3, seed=1)
    one = np.outer([1.0, 2.0, 3.0], [1.0, -1.0, 2.0]).astype(dtype)
    with enable_x64():
        for a in (matrix(dtype, 3, 3), low, one, np.zeros((2, 2), dtype)):
            check(tnp.linalg.det, (a,))
        check(tnp.linalg.slogdet, (matrix(dtype, 3, 3),))


def test_systems_keep_64_bits_where_they_are_off() -> None:
    """Arrays that came with 64 bits are not rounded on the way: pinv, lstsq."""
    a, b = [tb.dlpack.from_dlpack(matrix(np.float64, 4, n, seed=n)) for n in (3, 2)]
    inverse = np.linalg.pinv(np.asarray(a))

    np.testing.assert_allclose(tnp.linalg.pinv(a), inverse, rtol=1e-12)
    np.testing.assert_allclose(tnp.linalg.lstsq(a, b)[0], inverse @ np.asarray(b), rtol=1e-12)


@pytest.mark.parametrize("dtype", INEXACT)
def test_derivatives_of_systems(dtype: Any) -> None:
    """inv, solve, pinv and lstsq, of equal singular values too."""
    la = tnp.linalg
    unitary = np.linalg.qr(matrix(dtype, 3, 3))[0]
    with enable_x64():
        check(la.inv, (matrix(dtype, 3, 3),))
        check(la.solve, (matrix(dtype, 3, 3), matrix(dtype, 3, 2)))
        for a in (matrix(dtype, 4, 3), matrix(dtype, 2, 3), unitary):
            check(la.pinv, (a,))
        check(lambda a, b: la.lstsq(a, b)[:2], (matrix(dtype, 5, 3), matrix(dtype, 5)))
        check(lambda a, b: la.lstsq(a, b)[3], (matrix(dtype, 3, 3), matrix(dtype, 3)), 1)
        for a in (unitary[:, :2], unitary[:2]):
            check(lambda a, b: la.lstsq(a, b)[0], (a, matrix(dtype, len(a), seed=3)))


def test_derivatives_of_lstsq_at_a_lower_rank() -> None:
    """Along directions that keep the rank, where the solution of least norm is smooth."""
    a, w, b = matrix(np.float64, 4, 2), matrix(np.float64, 2, 3, seed=1), matrix(np.float64, 4)
    a = np.linalg.qr(a)[0]
    w = np.linalg.qr(w.T)[0].T
    with enable_x64():
        check(lambda a, w, b: tnp.linalg.lstsq(a @ w, b, rcond=1e-8)[0], (a, w, b))


@pytest.mark.parametrize("dtype", INEXACT)
def test_derivatives_of_norms(dtype: Any) -> None:
    """Each smooth norm; 0 at 0, where one would divide by 0."""
    with enable_x64():
        for order in ("nuc", 2, 1, np.inf):
            check(lambda a, o=order: tnp.linalg.norm(a, o), (matrix(dtype, 3, 3),), 1)
        for order in (1, 3, 2, 0.5):
            check(lambda a, o=order: tnp.linalg.norm(a, o), (matrix(dtype, 3),))
        zero = tb.grad(lambda x: tnp.linalg.norm(x) + tnp.linalg.norm(x, 3))(np.zeros(3))
        np.testing.assert_array_equal(np.zeros(3), zero)


def test_singular_integers_and_narrow_floats() -> None:
    """Infinite conditions, no error for singular matrices, dtypes of results."""
    la = tnp.linalg
    ones = np.ones((2, 2), np.float32)

    assert [np.inf] * 2 == [float(la.cond(ones, 1)), float(la.cond(ones * 0))]
    assert not np.isfinite(la.inv(ones)).any()
    assert (0.0, -np.inf) == tuple(map(float, la.slogdet(ones)))
    assert np.float32 == la.inv(np.eye(2, dtype=int)).dtype
    assert tnp.bfloat16 == la.inv(tnp.eye(2, dtype="bfloat16")).dtype
    assert np.float16 == la.det(np.eye(2, dtype="f2")).dtype


def test_arguments_are_checked() -> None:
    """Shapes, orders and modes."""
    la = tnp.linalg
    with pytest.raises(ShapeMismatchError, match="square"):
        la.inv(np.ones((2, 3)))
    with pytest.raises(ShapeMismatchError, match=r"expected: 2 rows\n.*b\[\.\.\., None\]"):
        tnp.linalg.solve(np.ones((3, 2, 2), np.float32), np.ones((3, 2), np.float32))
    with pytest.raises(ShapeMismatchError, match="solve"):
        la.solve(np.eye(2), np.ones(3))
    with pytest.raises(ValueError, match=r"cond: .* with elements"):
        la.cond(np.ones((3, 0)))
    with pytest.raises(ArgumentValueError, match="ord='max'"):
        la.norm(np.eye(2), "max")
    with pytest.raises(RankError, match="3 axes"):
        la.norm(np.ones((2, 2, 2)), 2)
    with pytest.raises(ArgumentValueError, match="mode"):
        la.qr(np.eye(2), "economic")
    with pytest.raises(ArgumentValueError, match="both rtol and tol"):
        la.matrix_rank(np.eye(2), 1e-3, tol=1e-3)
    with pytest.raises(ArgumentValueError, match="both rtol and rcond"):
        la.pinv(np.eye(2), 1e-3, rcond=1e-3)


def test_mapped_and_compiled() -> None:
    """jit and vmap at other axes."""
    a = matrix(np.float32, 3, 5, 3)
    expected = np.linalg.inv(a.transpose(1, 0, 2))

    close(expected, tb.jit(tb.vmap(tnp.linalg.inv, 1))(a), np.float32, 10)
    close(np.linalg.det(expected), tb.vmap(tnp.linalg.det)(expected), np.float32, 10)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_derivatives_of_small_determinants_are_minors(n: int) -> None:
    """By their products, without factors; of singular matrices too."""
    a = np.arange(2.0 * n * n, dtype=np.float32).reshape(2, n, n) ** 2
    expected = np.zeros_like(a)
    for k, i, j in itertools.product(range(2), range(n), range(n)):
        rest = np.delete(np.delete(a[k], i, 0), j, 1)
        expected[k, i, j] = (-1) ** (i + j) * (np.linalg.det(rest) if n > 1 else 1)
    slopes = tb.jit(tb.grad(lambda a: tnp.linalg.det(a).sum()))

    np.testing.assert_allclose(slopes(a), expected, 1e-4, 1e-2)
    assert "custom_call" not in slopes.lower(a).as_text()

    check_grads(lambda a: tnp.linalg.det(a).sum(), (a / a.max(),), 2)


def _minors(a: Any) -> Any:
    """Slopes of determinants, one minor after the other in float64 or complex128."""
    wide = np.asarray(a).astype(np.result_type(a, np.float64))
    expected = np.zeros_like(wide)
    for k, i, j in np.ndindex(*a.shape):
        rest = np.delete(np.delete(wide[k], i, 0), j, 1)
        expected[k, i, j] = (-1) ** (i + j) * np.linalg.det(rest)
    return expected


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("kinds", ["regular", "near", "singular", "regular near singular zero"])
def test_derivatives_of_larger_determinants(kinds: str, dtype: str) -> None:
    """By factors where all matrices have an inverse; singular ones have slopes as well."""
    n, chosen = 5, kinds.split()
    a = np.stack([matrix(np.dtype(dtype), n, n)] * len(chosen))
    for k, kind in enumerate(chosen):
        if kind == "near":  # of rank n - 1 but for rounding
            a[k, 3] = a[k, 0] * 0.3 + a[k, 1] * 0.7
        elif kind == "singular":
            a[k, 4] = a[k, 1]
        elif kind == "zero":  # of rank n - 2: all minors are zero
            a[k, :2] = 0
    with tb.enable_x64(dtype == "float64"):
        slopes = tb.jit(tb.grad(lambda a: tnp.real(tnp.linalg.det(a)).sum()))(a)

    bound = 1e-10 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(slopes, _minors(a), bound, bound)
    assert slopes.dtype == dtype


@pytest.mark.parametrize("scale", [1e-11, 1e10])
def test_derivatives_of_determinants_that_no_number_is(scale: float) -> None:
    """Minors have one factor less than the determinant, which is 0 or infinite here."""
    a = matrix(np.float32, 1, 4, 4) * np.float32(scale)
    slopes = tb.grad(lambda a: tnp.linalg.det(a).sum())(a)

    assert float(tnp.linalg.det(a)[0]) in {0.0, np.inf, -np.inf}
    np.testing.assert_allclose(slopes, _minors(a), 1e-3, 1e-3 * scale**3)


def test_derivatives_of_determinants_of_numbers_that_are_none() -> None:
    """NaN goes into the slopes; there may be no matrix, and mapped ones are a batch."""
    a = matrix(np.float32, 2, 4, 4)
    slopes = tb.grad(lambda a: tnp.linalg.det(a).sum())

    np.testing.assert_allclose(_minors(a), tb.vmap(tb.grad(tnp.linalg.det))(a), 1e-3, 1e-3)
    a[1, 2, 2] = np.nan
    assert np.isnan(slopes(a)[1]).any()
    assert (0, 4, 4) == slopes(np.zeros((0, 4, 4), "f")).shape
    assert (2, 0, 0) == slopes(np.zeros((2, 0, 0), "f")).shape


def test_half_precision_goes_through():
    """All results of ``lstsq`` have the dtype of the arguments, singular values too."""
    a = tnp.eye(2, dtype="float16")
    x, left, _, s = tnp.linalg.lstsq(a, a)

    assert ["float16"] * 3 == [v.dtype for v in (x, left, s)]
    density = tb.scipy.stats.gaussian_kde(tnp.array([1.0, 2.0, 3.0], "float16"))
    assert density.inv_cov.dtype == "float16"


@pytest.mark.parametrize("order", [None, 2, 3])
def test_norms_of_narrow_floats_are_rounded_once(order: Any) -> None:
    """Powers of the elements may be outside of what the dtype holds."""
    x = tnp.asarray([3000.0, 4000.0, 1e-4, 0.0], "float16")
    expected = np.linalg.norm(np.asarray(x, np.float64), order)

    assert np.float16(expected) == np.asarray(tnp.linalg.norm(x, order))
    small = tnp.asarray([3e-4, 4e-4], "float16")
    np.testing.assert_allclose(float(tnp.linalg.vector_norm(small)), 5e-4, rtol=2e-3)


def test_correlations_of_large_narrow_floats() -> None:
    """Their variances are outside of what the dtype holds."""
    x = tnp.asarray([[1000.0, 2000.0, 4000.0], [300.0, 100.0, 50.0]], "float16")
    expected = np.corrcoef(np.asarray(x, np.float64))

    np.testing.assert_allclose(np.asarray(tnp.corrcoef(x), np.float64), expected, rtol=1e-3)
    assert tnp.corrcoef(x).dtype == "float16"


def test_least_squares_of_weak_numbers_are_strong() -> None:
    """Solutions are arrays like any other, whatever made the matrix."""
    weak = tnp.full((3, 2), 1.5)
    assert weak.weak_type
    assert not tnp.linalg.pinv(weak).weak_type
    assert not any(x.weak_type for x in tnp.linalg.lstsq(weak, weak[:, 0]))
