"""cg, bicgstab and gmres: residuals, derivatives, trees and preconditioners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.scipy.sparse import linalg
from tracebridge.testing import assert_allclose

N = 12
SOLVERS = ["cg", "bicgstab", "gmres", "gmres_incremental", "gmres_restarted"]
VARIANTS: dict[str, dict[str, Any]] = {
    "gmres_incremental": {"solve_method": "incremental"},
    "gmres_restarted": {"restart": 5, "maxiter": 500},
}


def solver(name: str) -> Any:
    """A solver with its options, to a tight tolerance."""
    fun = getattr(linalg, name.partition("_")[0])
    return lambda A, b, **kwargs: fun(A, b, **{"tol": 1e-11, **VARIANTS.get(name, {}), **kwargs})[0]


def system(name: str, kind: str) -> tuple[Any, Any]:
    """A matrix that the solver takes, and a right-hand side; real or complex."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(N, N)), random.normal(size=N)
    if kind == "c":
        a, b = a + 1j * random.normal(size=(N, N)), b + 1j * random.normal(size=N)
    return (a @ a.conj().T if name == "cg" else a) + N * np.eye(N), b


@pytest.mark.parametrize("kind", ["f", "c"])
@pytest.mark.parametrize("name", SOLVERS)
def test_solutions(name: str, kind: str) -> None:
    """Of real and complex systems, by matrices, functions and preconditioners, over a batch."""
    A, b = system(name, kind)
    M = np.diag(1 / np.diag(A))
    with tb.enable_x64(True):
        solve, expected = solver(name), np.linalg.solve(A, b)
        given = tb.numpy.array(A)

        assert_allclose(tb.jit(solve)(A, b), expected, rtol=1e-8, atol=1e-9)
        assert_allclose(solve(lambda v: given @ v, b, x0=b, M=M), expected, rtol=1e-8, atol=1e-9)
        many = tb.vmap(lambda b: solve(given, b))(np.stack([b, 2 * b]))
        assert_allclose(many[1], 2 * expected, rtol=1e-8, atol=1e-9)
        assert np.zeros(N).tolist() == solve(given, 0 * b).real.tolist()


@pytest.mark.parametrize("name", SOLVERS)
def test_derivatives(name: str) -> None:
    """Of matrix and right-hand side, with an unsymmetric preconditioner where one is allowed."""
    A, b = system(name, "f")
    M = np.linalg.inv(A) + (0 if name == "cg" else 0.001)

    def run(A: Any, b: Any) -> Any:
        return solver(name)((A + A.T) / 2 if name == "cg" else A, b, M=M)

    with tb.enable_x64(True):
        check_grads(run, (A, b), order=1)


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_trees(name: str) -> None:
    """A vector may be a tree of arrays of any shape."""
    b = {"x": np.ones((2, 2), np.float32), "y": (np.float32(3.0),)}
    A = lambda t: tb.tree.map(lambda v: 2 * v, t)
    x = getattr(linalg, name)(A, b, x0=b)[0]

    assert_allclose(x["x"], np.full((2, 2), 0.5), rtol=1e-5)
    assert_allclose(x["y"][0], 1.5, rtol=1e-5)


def test_limits() -> None:
    """Few iterations give what they found; loose tolerances end early; integers are converted."""
    A, b = system("cg", "f")
    x = linalg.cg(A, b, maxiter=1)[0]
    step = b @ b / (b @ A @ b)

    assert_allclose(x, step * b, rtol=1e-4)
    assert np.zeros(N).tolist() == linalg.cg(A, b, atol=1e6)[0].tolist()
    assert [1.0, 2.0] == linalg.cg(np.eye(2), np.array([1, 2]))[0].tolist()


BAD = [
    (ArgumentTypeError, "A is of type int", lambda: linalg.cg(3, np.ones(2))),
    (RankError, r"A has shape \(2, 3\)", lambda: linalg.cg(np.ones((2, 3)), np.ones(3))),
    (RankError, r"M has shape \(3,\)", lambda: linalg.cg(np.eye(3), np.ones(3), M=np.ones(3))),
    (ArgumentValueError, "x0 has the structure", lambda: linalg.cg(np.eye(2), np.ones(2), [1])),
    (ShapeMismatchError, r"x0 has arrays", lambda: linalg.cg(np.eye(2), np.ones(2), np.ones(3))),
    (ShapeMismatchError, r"A of x has arrays", lambda: linalg.cg(lambda v: v[:1], np.ones(2))),
    (ArgumentValueError, "restart is 0", lambda: linalg.gmres(np.eye(2), np.ones(2), restart=0)),
    (ArgumentValueError, "is 'x'", lambda: linalg.gmres(np.eye(2), np.ones(2), solve_method="x")),
]


@pytest.mark.parametrize("i", range(len(BAD)))
def test_bad_arguments(i: int) -> None:
    """Errors say what was expected."""
    kind, text, call = BAD[i]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_complex_matrices_of_real_vectors(name: str) -> None:
    """The solution is complex; a function that leaves the real numbers is an error."""
    matrix, b = np.array([[4, 1j], [-1j, 3]], np.complex64), np.array([1.0, 2.0], np.float32)
    solver = getattr(linalg, name)

    found = solver(matrix, b, tol=1e-6)[0]
    assert found.dtype == np.complex64
    assert_allclose(found, np.linalg.solve(matrix, b), rtol=1e-5)
    with pytest.raises(DtypeMismatchError, match=rf"{name}: A of x is complex, b has .* float32"):
        solver(lambda v: matrix @ v, b)


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_sizes(name: str) -> None:
    """No unknowns have no numbers as their solution; a vector of another size is an error."""
    solver = getattr(linalg, name)

    assert solver(np.eye(0, dtype=np.float32), np.zeros(0, np.float32))[0].shape == (0,)
    assert solver(lambda t: t, {"a": np.zeros((0, 3))})[0]["a"].shape == (0, 3)
    with pytest.raises(ShapeMismatchError, match=rf"{name}: A has shape \(3, 3\), b \(4,\)"):
        solver(np.eye(3), np.ones(4))
    with pytest.raises(ShapeMismatchError, match=rf"{name}: M has shape \(2, 2\), b \(3,\)"):
        solver(np.eye(3), np.ones(3), M=np.eye(2))
