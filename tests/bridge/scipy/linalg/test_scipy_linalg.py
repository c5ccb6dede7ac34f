"""tracebridge.scipy.linalg: SciPy's values, and derivatives of functions of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg as reference

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.linalg.laws import DTYPES, adjoint, close, hermitian, matrix, positive
from tests.quick_compiles import check_grads, quick_jit
from tracebridge import dlpack, errors
from tracebridge.core.config.option_scopes import enable_x64

la = tb.scipy.linalg
INEXACT = (np.float64, np.complex128)
PATTERNS: list[tuple[str, tuple[Any, ...]]] = [
    ("block_diag", (np.ones((2, 1)), np.ones((1, 3)), 2.0)),
    ("circulant", (np.arange(4.0),)),
    ("companion", (np.array([2.0, -3.0, 2.0, 1.0]),)),
    ("dft", (5,)),
    ("dft", (4, "sqrtn")),
    ("dft", (3, "n")),
    ("fiedler", (np.array([1.0, 4.0, 2.0]),)),
    *[("fiedler_companion", (np.arange(1.0, n),)) for n in range(3, 9)],
    ("hadamard", (8,)),
    ("hankel", (np.arange(3.0),)),
    ("hankel", (np.arange(3.0), np.arange(2.0, 6.0))),
    ("helmert", (4,)),
    ("helmert", (4, True)),
    ("hilbert", (4,)),
    ("invhilbert", (4,)),
    *[
        (name, (4, kind))
        for name in ("pascal", "invpascal")
        for kind in ("symmetric", "lower", "upper")
    ],
    ("leslie", (np.arange(1.0, 4.0), np.array([0.5, 0.2]))),
    ("toeplitz", (np.arange(3.0),)),
    ("toeplitz", (np.arange(3.0), np.arange(5.0))),
    ("toeplitz", (np.array([1.0, 2j]),)),
    *[
        ("convolution_matrix", (np.arange(1.0, 4.0), n, m))
        for n in (2, 5)
        for m in ("full", "same", "valid")
    ],
]


@pytest.mark.parametrize(("name", "args"), PATTERNS)
def test_patterns_are_scipys(name: str, args: tuple[Any, ...]) -> None:
    """Each matrix of a known pattern."""
    with enable_x64():
        close(getattr(reference, name)(*args), getattr(la, name)(*args), np.float64)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky_reads_the_triangle_of_its_factor(dtype: Any, lower: bool) -> None:
    """As SciPy does: what is in the other one changes neither the factor nor its derivatives."""
    p = positive(dtype, 4, 4)
    other = np.triu(np.full((4, 4), np.nan), 1) if lower else np.tril(np.full((4, 4), np.nan), -1)
    given = (p + other).astype(p.dtype)
    kept = np.tril(p) if lower else np.triu(p)
    with enable_x64():
        close(reference.cholesky(p, lower), la.cholesky(given, lower), dtype)
        close(reference.cholesky(p, lower), la.cho_factor(given, lower)[0], dtype)
        slope = tb.grad(lambda x: tnp.sum(tnp.abs(la.cholesky(x, lower)) ** 2))(kept)

        # The squares of a factor add up to the trace.
        assert np.allclose(np.eye(4), slope, atol=1e-4 if np.finfo(dtype).bits == 32 else 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_are_scipys(dtype: Any) -> None:
    """Cholesky, LU, QR, Hessenberg, Schur, polar, generalized eigenvalues."""
    a, p, h, r = (
        matrix(dtype, 4, 4),
        positive(dtype, 4, 4),
        hermitian(dtype, 4, 4),
        matrix(dtype, 5, 3),
    )
    b = matrix(dtype, 4, 2)
    with enable_x64():
        for lower in (False, True):
            close(reference.cholesky(p, lower), la.cholesky(p, lower), dtype)
            close(np.linalg.solve(p, b), la.cho_solve(la.cho_factor(p, lower), b), dtype, 10)
            for trans in (0, "T", 2):
                expected = reference.solve_triangular(a, b, trans, lower)
                close(expected, la.solve_triangular(a, b, trans, lower), dtype, 100)
            close(reference.eigh(h, p, lower=lower)[0], la.eigh(h, p, lower)[0], dtype, 10)
        for kind in (1, 2, 3):
            w, v = [np.asarray(x) for x in la.eigh(h, p, type=kind)]
            left = {1: h @ v, 2: h @ p @ v, 3: p @ h @ v}[kind]
            close(left, (p @ v if kind == 1 else v) * w, dtype, 300)
        for trans in (0, 1, 2):
            op = {0: a, 1: a.T, 2: adjoint(a)}[trans]
            close(
                np.linalg.solve(op, b[:, 0]),
                la.lu_solve(la.lu_factor(a), b[:, 0], trans),
                dtype,
                10,
            )
        for given in (a, r, r.T):
            for x, y in zip(reference.lu(given), la.lu(given), strict=True):
                close(x, y, dtype, 10)
        for mode in ("full", "economic", "r"):
            for x, y in zip(reference.qr(r, mode=mode), la.qr(r, mode=mode), strict=True):
                close(x, y, dtype)
        for x, y in zip(
            reference.hessenberg(a, calc_q=True), la.hessenberg(a, calc_q=True), strict=True
        ):
            close(x, y, dtype, 10)
        for output in ("real", "complex"):
            t, z = [np.asarray(x) for x in la.schur(a, output)]
            close(a, z @ t @ adjoint(z), dtype, 10)
        quasi = np.triu(a) + np.diag(matrix(dtype, 3) * [1, 0, 1], -1).astype(dtype)
        t, z = [np.asarray(x) for x in la.rsf2csf(quasi, np.eye(4, dtype=dtype))]
        close(quasi, z @ t @ adjoint(z), dtype, 10)
        close(np.triu(t), t, dtype)
        # Which eigenvalue of a complex block comes first is chance.
        for given in (quasi.real, np.triu(a), reference.schur(a)[0]):
            for x, y in zip(reference.rsf2csf(given, a), la.rsf2csf(given, a), strict=True):
                close(x, y, dtype, 10)
        for side in ("left", "right"):
            for method in ("qdwh", "svd"):
                for x, y in zip(
                    reference.polar(r, side), la.polar(r, side, method=method), strict=True
                ):
                    close(x, y, dtype, 100)


@pytest.mark.parametrize("method", ["qdwh", "svd"])
def test_polar_factors_of_batches(method: str) -> None:
    """Each matrix has its own; there may be none."""
    a = matrix(np.float32, 3, 4, 2)

    u, p = la.polar(a, method=method)

    for i in range(3):
        close(reference.polar(a[i])[0], u[i], np.float32, 10)
    close(a, np.matmul(u, p), np.float32, 10)
    assert (0, 2, 2) == la.polar(np.zeros((0, 4, 2)), method=method)[1].shape
    with pytest.raises(ValueError, match="expected matrices"):
        la.polar(np.ones(3), method=method)


def test_permutations_of_complex_matrices_are_real() -> None:
    """As SciPy's are."""
    a = matrix(np.complex64, 3, 3)

    assert reference.lu(a)[0].dtype == la.lu(a)[0].dtype


@pytest.mark.parametrize("method", ["qdwh", "svd"])
@pytest.mark.parametrize("dtype", INEXACT)
def test_derivatives_of_polar_factors(method: str, dtype: Any) -> None:
    """Both modes to second order, on both sides; with equal singular values too."""

    def factors(a: Any, b: Any) -> Any:
        wide = a[:2] + 1.5 * np.eye(2, 3, dtype=dtype)
        return la.polar(a, method=method), la.polar(wide, "left", method=method), la.polar(
            b, method=method
        )  # fmt: skip

    with enable_x64():
        check_grads(factors, (matrix(dtype, 4, 3), 2 * np.eye(2, dtype=dtype)), 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_are_scipys(dtype: Any) -> None:
    """expm, its derivative, sqrtm, funm, Sylvester's equation."""
    a, b = matrix(dtype, 4, 4), matrix(dtype, 3, 3)
    c, p = matrix(dtype, 4, 3), positive(dtype, 4, 4)
    with enable_x64():
        for scale in (0.1, 1.0, 10.0):
            e = reference.expm((a * scale).astype(np.complex128))
            close(
                e / abs(e).max(),
                np.asarray(la.expm((a * scale).astype(dtype))) / abs(e).max(),
                dtype,
                30,
            )
        up = np.triu(a)
        close(reference.expm(up), la.expm(up, upper_triangular=True), dtype, 30)
        for x, y in zip(reference.expm_frechet(a, p), la.expm_frechet(a, p), strict=True):
            close(x, y, dtype, 300)
        close(a @ a, np.linalg.matrix_power(np.asarray(la.sqrtm(a @ a)), 2), dtype, 300)
        close(reference.funm(p, np.log), la.funm(p, tb.numpy.log), dtype, 30)
        x = np.asarray(la.solve_sylvester(a, b, c))
        close(c, a @ x + x @ b, dtype, 100)


@pytest.mark.parametrize("dtype", INEXACT)
def test_derivatives(dtype: Any) -> None:
    """Both modes, to second order."""
    a, b, c = matrix(dtype, 3, 3), matrix(dtype, 2, 2), matrix(dtype, 3, 2)
    near = {"atol": 2e-3, "rtol": 2e-3}
    with enable_x64():
        check_grads(la.expm, (a,), 2, **near)
        check_grads(lambda a: la.funm(a, tb.numpy.exp), (a,), 2, **near)
        check_grads(la.sqrtm, (positive(dtype, 3, 3),), 2, **near)
        check_grads(la.solve_sylvester, (a, b, c), 2, **near)


def test_functions_of_normal_matrices_with_equal_eigenvalues() -> None:
    """First derivatives by the matrix and by what the function closes over."""
    a = np.diag([2.0, 2.0, 5.0])
    change = matrix(np.float64, 3, 3)

    def power(a: Any, p: Any) -> Any:
        return la.funm(a, lambda x: tb.numpy.exp(p * x))

    with enable_x64():
        out = quick_jit(lambda *xs: tb.jvp(power, xs[:2], xs[2:])[1])(a, 0.5, change, 0.1)

    expected = reference.expm_frechet(a / 2, change / 2 + 0.1 * a, compute_expm=False)
    close(expected, out, np.float64)


@pytest.mark.parametrize(("dtype", "products"), [(np.float32, 4), (np.float64, 6)])
def test_approximants_of_exponentials_need_few_products(dtype: Any, products: int) -> None:
    """Beside one for each squaring, of which there is a loop with one."""
    a = np.linspace(-3.0, 3.0, 400, dtype=dtype).reshape(20, 20) / 4
    with tb.enable_x64(True):
        text = tb.jit(la.expm).lower(a).as_text()
        assert products + 1 == text.count("stablehlo.dot_general")

        e = reference.expm(a.astype(np.float64))
        mapped = tb.vmap(la.expm)(np.stack([a, a / 100]))
        np.testing.assert_allclose(mapped[0] / abs(e).max(), e / abs(e).max(), 0, 1e-6)


def test_narrow_floats() -> None:
    """Sylvester's equation of 16 bits, with complex eigenvalues, is solved in float32."""
    a, b, c = [matrix(np.float32, 3, 3, seed=i).astype("float16") for i in (0, 1, 2)]
    x = la.solve_sylvester(a, b, c)
    wide = [y.astype("f4") for y in (a, b, c)]

    assert x.dtype == np.float16
    np.testing.assert_allclose(x, reference.solve_sylvester(*wide), rtol=2e-3)


def test_eigenvalues_of_tridiagonal_matrices() -> None:
    """All, by index, and by value."""
    d, e = matrix(np.float32, 5), matrix(np.float32, 4)
    w = reference.eigh_tridiagonal(d, e, eigvals_only=True)

    close(w, la.eigh_tridiagonal(d, e, eigvals_only=True), np.float32)
    some = la.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 3))
    close(w[1:4], some, np.float32)
    some = la.eigh_tridiagonal(d, e, eigvals_only=True, select="v", select_range=(w[0] + 0.01, 9.0))
    close(w[1:], some, np.float32)


DOUBLE = {
    "sqrtm": la.sqrtm,
    "derivative of sqrtm": lambda a: tb.jvp(la.sqrtm, (a,), (a,)),
    "funm": lambda a: la.funm(a, tnp.exp),
    "solve_sylvester": lambda a: la.solve_sylvester(a, a, a),
    "expm_frechet": lambda a: la.expm_frechet(a, a),
    "companion": lambda a: la.companion(a[0]),
    "hessenberg": lambda a: la.hessenberg(a, calc_q=True),
    "matrix_power": lambda a: tnp.linalg.matrix_power(a, 0),
    "gmres": lambda a: tb.scipy.sparse.linalg.gmres(a, a[0])[0],
    "bicgstab": lambda a: tb.scipy.sparse.linalg.bicgstab(a, a[0])[0],
    "minimize": lambda a: tb.scipy.optimize.minimize(lambda x: x @ x, a[0], method="BFGS").x,
}


@pytest.mark.parametrize("name", DOUBLE)
def test_data_of_64_bits_is_computed_in_64(name: str) -> None:
    """Whatever the option says, which is about dtypes that a user names."""
    a = dlpack.from_dlpack(np.diag([2.0, 3, 4]) + 0.1)
    with tb.explicit_x64_dtypes("error"):
        results = tb.tree.leaves(tb.eval_shape(DOUBLE[name], a))

    assert {tnp.finfo(r.dtype).bits for r in results} == {64}


def test_rows_that_do_not_fit_q() -> None:
    """``Q c`` needs as many rows as Q has columns; all of Q only where ``c`` may be lost."""
    a, c = np.arange(12.0, dtype="f4").reshape(4, 3) % 5, np.ones((4, 2), "f4")

    with pytest.raises(ValueError, match=r"\(4, 2\)|f32\[4,2\]"):
        tb.scipy.linalg.qr_multiply(a, c, mode="left")
    whole, _ = tb.scipy.linalg.qr_multiply(a, c, mode="left", overwrite_c=True)

    expected = reference.qr_multiply(a, c.copy(), mode="left", overwrite_c=True)[0]
    np.testing.assert_allclose(np.abs(whole), np.abs(expected), rtol=1e-4)


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (3, 5, 5), (2, 0, 4, 4), (40, 40)])
def test_square_roots_of_any_size_give_the_matrix_back(shape: tuple[int, ...]) -> None:
    """One by one, stacked, mapped, and where there is nothing to do."""
    drawn = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    a = drawn @ drawn
    root = np.asarray(la.sqrtm(a))
    assert root.shape == shape
    np.testing.assert_allclose(root @ root, a, rtol=1e-4, atol=1e-5 * np.abs(a).max(initial=1))
    both = tb.jit(tb.vmap(la.sqrtm))(np.stack([a, a]))
    np.testing.assert_allclose(both, np.stack([root, root]), rtol=1e-2, atol=1e-3)


def test_square_roots_of_nilpotent_matrices_keep_what_they_had() -> None:
    """Where two roots add up to 0 they count as 1; a NaN anywhere is one everywhere."""
    assert np.asarray(la.sqrtm(np.float32([[0, 1], [0, 0]]))).tolist() == [[0, 1], [0, 0]]
    assert np.isnan(la.sqrtm(np.full((2, 2), np.nan, np.float32))).all()


def test_batches_of_sylvester_equations() -> None:
    """Leading axes are broadcast; each equation is solved as by itself, in a program too."""
    with enable_x64(True):
        random = np.random.default_rng(4)
        a, c = random.normal(size=(2, 1, 3, 3)), random.normal(size=(4, 3, 2))
        b = random.normal(size=(2, 2)) + 4 * np.eye(2)

        for solve in (la.solve_sylvester, tb.jit(la.solve_sylvester)):
            x = np.asarray(solve(a, b, c))
            assert (2, 4, 3, 2) == x.shape
            np.testing.assert_allclose(a @ x + x @ b, np.broadcast_to(c, x.shape), atol=1e-10)
        check_grads(la.solve_sylvester, (a, b, c), 1)
        with pytest.raises(errors.BroadcastError):
            la.solve_sylvester(a, b, np.zeros((3, 4, 3, 2)))


def test_diagonals_of_other_lengths_are_refused() -> None:
    """The diagonal is a vector of one element more than the one beside it."""
    for d, e in ((1, 1), (3, 3), (3, 0), (0, 0)):
        with pytest.raises(errors.ShapeMismatchError, match="eigh_tridiagonal"):
            la.eigh_tridiagonal(np.zeros(d), np.zeros(e), eigvals_only=True)
    with pytest.raises(errors.RankError, match="vmap"):
        la.eigh_tridiagonal(np.zeros((2, 3)), np.zeros((2, 2)))
