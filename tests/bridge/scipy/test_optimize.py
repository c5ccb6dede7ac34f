"""minimize: minima that are known, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.scipy.optimize import OptimizeResults, minimize

METHODS = ["BFGS", "l-bfgs-experimental-do-not-rely-on-this"]


def rosenbrock(x: Any) -> Any:
    """Its minimum is 0, at ones, in a curved valley."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def himmelblau(x: Any) -> Any:
    """Four minima of value 0."""
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


def matyas(x: Any) -> Any:
    """Its minimum is 0, at 0."""
    return 0.26 * (x[0] ** 2 + x[1] ** 2) - 0.48 * x[0] * x[1]


def steep(x: Any) -> Any:
    """Overflows where steps are too long."""
    return tnp.exp(x * x).sum() + (x**4).sum()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("fun", "start", "least", "steps"),
    [(rosenbrock, [-1.2, 1.0], 0.0, 60), (rosenbrock, [1.5, 0.5, 2.0, 1.0], 0.0, 80),
     (himmelblau, [1.0, 1.0], 0.0, 30), (matyas, [3.0, -2.0], 0.0, 20),
     (steep, [5.0, -3.0], 2.0, 60)],
)  # fmt: skip
def test_known_minima(fun: Any, start: list[float], least: float, steps: int, method: str) -> None:
    """The value and the gradient there, in a program, after a moderate number of steps."""
    with tb.enable_x64(True):
        tight = {"gtol": 1e-8, **({} if method == "BFGS" else {"ftol": 0.0})}
        found = tb.jit(lambda x: minimize(fun, x, method=method, options=tight))(np.array(start))

    assert bool(found.success)
    assert int(found.status) == 0
    assert np.abs(found.jac).max() <= 1e-8
    assert float(found.fun) == pytest.approx(least, abs=1e-9)
    assert int(found.nit) <= steps
    assert int(found.nfev) >= int(found.nit)


@pytest.mark.parametrize("start", [[-1.2, 1.0], [3.0, -2.0], [0.0, 0.0]])
def test_as_fast_as_scipy(start: list[float]) -> None:
    """About as many steps as SciPy's BFGS, to the same point."""
    with tb.enable_x64(True):
        ours = minimize(rosenbrock, np.array(start), method="BFGS", tol=1e-8)
        theirs = scipy.optimize.minimize(
            lambda x: float(rosenbrock(x)), start, method="BFGS", tol=1e-8,
            jac=lambda x: np.asarray(tb.grad(rosenbrock)(x)),
        )  # fmt: skip

    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-6)
    assert int(ours.nit) <= 2 * theirs.nit + 5


def test_inverse_hessian() -> None:
    """Of a quadratic function it is found after as many steps as there are unknowns."""
    a = np.array([[3.0, 1.0], [1.0, 2.0]])
    with tb.enable_x64(True):
        found = minimize(lambda x: x @ a @ x / 2 - x.sum(), np.zeros(2), method="bfgs")

    np.testing.assert_allclose(found.x, np.linalg.solve(a, np.ones(2)), rtol=1e-5)
    np.testing.assert_allclose(found.hess_inv, np.linalg.inv(a), rtol=0.2, atol=0.05)


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_and_arguments(method: str) -> None:
    """Further arguments of the function; integers to start with; a tree of results."""
    found = minimize(
        lambda x, c, scale: scale * ((x - c) ** 2).sum(), np.zeros(3, int),
        (np.float32([1, 2, 3]), 2.0), method=method, tol=1e-3,
    )  # fmt: skip

    np.testing.assert_allclose(found.x, [1, 2, 3], atol=1e-3)
    assert "float32" == found.x.dtype
    assert isinstance(tb.tree.map(lambda x: x, found), OptimizeResults)


@pytest.mark.parametrize("method", METHODS)
def test_mapped(method: str) -> None:
    """One search for each start."""
    starts = np.float32([[0.0, 0.0], [4.0, -1.0]])
    found = tb.vmap(lambda x: minimize(matyas, x, method=method).x)(starts)

    np.testing.assert_allclose(found, np.zeros((2, 2)), atol=1e-3)


def test_statuses() -> None:
    """Too few steps, no step that helps, and a gradient that is not finite."""
    few = minimize(rosenbrock, np.zeros(2), method="BFGS", options={"maxiter": 2})
    assert (1, 2, False) == (int(few.status), int(few.nit), bool(few.success))
    stuck = minimize(lambda x: -x.sum(), np.zeros(2), method="BFGS", options={"maxiter": 50})
    assert int(stuck.status) == 5
    lost = minimize(lambda x: tnp.sqrt(x).sum(), np.zeros(2), method="BFGS")
    assert int(lost.status) == -1
    there = minimize(matyas, np.zeros(2), method="BFGS")
    assert (0, 0, 1) == (int(there.status), int(there.nit), int(there.nfev))


def test_bad_arguments() -> None:
    """Errors say what was expected."""
    with pytest.raises(ArgumentTypeError, match="args is of type list, expected a tuple"):
        minimize(matyas, np.zeros(2), [1], method="BFGS")
    with pytest.raises(ArgumentValueError, match="method is 'Newton'"):
        minimize(matyas, np.zeros(2), method="Newton")
    with pytest.raises(ArgumentValueError, match=r"unknown options \['xtol'\]"):
        minimize(matyas, np.zeros(2), method="BFGS", options={"xtol": 1})
    with pytest.raises(RankError, match="x0 has 2 axes, expected a vector"):
        minimize(matyas, np.zeros((2, 2)), method="BFGS")
    with pytest.raises(TypeError, match="x0 is complex64, expected real numbers"):
        minimize(matyas, np.zeros(2, np.complex64), method="BFGS")
    with pytest.raises(RankError, match=r"fun gives an array of shape \(2,\)"):
        minimize(lambda x: x, np.zeros(2), method="BFGS")


def test_the_least_slope_as_a_norm() -> None:
    """The norm of minus infinity is the smallest part of the gradient, as in SciPy."""
    options = {"norm": -np.inf, "gtol": 1e-2}
    found = minimize(lambda x: (x**4).sum(), np.array([1.0, 0.2]), method="BFGS", options=options)

    slopes = np.abs(found.jac)
    assert found.success
    assert slopes.min() <= 1e-2 < slopes.max()
