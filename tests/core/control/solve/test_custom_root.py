"""custom_root: derivatives by the implicit function theorem."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.transform_errors import ArgumentSpecError, TreeMismatchError


def newton(f, x):
    """Newton's method with a loop that has no reverse mode."""

    def step(state):
        x, _ = state
        return x - f(x) / tb.grad(f)(x), x

    return tb.lax.while_loop(lambda s: abs(s[0] - s[1]) > 1e-6, step, (x, x + 1.0))[0]


def divide(g, y):
    return y / g(1.0)


def root(a):
    """The square root."""
    return tb.lax.custom_root(lambda x: x * x - a, 1.0, newton, divide)


def close(actual, expected, tol=1e-5):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=tol, atol=tol)


def test_values_and_derivatives():
    """Those of the square root, both modes, three orders, eager and compiled."""
    close(root(4.0), 2)
    close(tb.jit(root)(4.0), 2)
    close(tb.grad(root)(4.0), 1 / 4)
    close(tb.jvp(root, (4.0,), (3.0,))[1], 3 / 4)
    close(tb.grad(tb.grad(root))(4.0), -1 / 32)
    close(tb.jit(tb.grad(tb.grad(tb.grad(root))))(4.0), 3 / 256)
    close(tb.jacfwd(tb.grad(tb.jit(root)))(4.0), -1 / 32)


def test_batches_and_scan():
    """vmap around and of gradients; inside a scan, with gradients."""
    xs = np.array([1.0, 4.0, 9.0], np.float32)

    close(tb.vmap(root)(xs), np.sqrt(xs))
    close(tb.vmap(tb.grad(root))(xs), 0.5 / np.sqrt(xs))
    twice = lambda a: tb.lax.scan(lambda c, _: (root(c), None), a, None, length=2)[0]
    close(twice(16.0), 2)
    close(tb.grad(twice)(16.0), 0.25 * 16 ** (-0.75))


def test_systems_with_a_dense_tangent_solver():
    """A vector root with trees of parameters, against finite differences."""

    def f(params):
        def residual(x):
            return tnp.stack([x[0] + params["k"] * x[1] ** 3 - 1.0, x[1] - 0.5 * tnp.sin(x[0])])

        def iterate(fun, x):
            return tb.lax.fori_loop(0, 60, lambda i, x: x - 0.5 * fun(x), x)

        def dense(g, y):
            m = tb.jacobian(g)(y)
            det = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
            adjoint = tnp.stack(
                [
                    tnp.stack([m[1, 1], -m[0, 1]]),
                    tnp.stack([-m[1, 0], m[0, 0]]),
                ]
            )
            return adjoint @ y / det

        return tb.lax.custom_root(residual, tnp.zeros(2), iterate, dense)

    at = lambda k: np.asarray(f({"k": np.float32(k)}), np.float64)
    expected = (at(0.31) - at(0.29)) / 0.02
    close(tb.jacrev(f)({"k": 0.3})["k"], expected, 1e-3)
    close(tb.jit(tb.jacfwd(f))({"k": 0.3})["k"], expected, 1e-3)


def test_auxiliary_results_and_closures_of_the_solver():
    """They have no derivative; what only the solver closes over gets none either."""

    def f(a, tolerance):
        def solve(fun, x):
            x = newton(fun, x)
            return x, (tolerance * 2.0, 3)

        return tb.lax.custom_root(lambda x: x * x - a, 1.0, solve, divide, has_aux=True)

    x, (double, three) = f(4.0, 0.5)

    close(x, 2)
    close(double, 1)
    assert 3 == int(three)
    close(tb.grad(lambda a, t: f(a, t)[0], argnums=(0, 1))(4.0, 0.5), [0.25, 0])
    assert 0 == float(tb.grad(lambda t: f(4.0, t)[1][0])(0.5))


def test_numbers_of_a_solver_become_arrays():
    """A root, or an auxiliary result, that does not depend on anything is an array too."""
    x, three = tb.lax.custom_root(lambda x: x - 1.0, 0.0, lambda *_: (1.0, 3), divide, has_aux=True)

    assert isinstance(x, tb.Array)
    assert isinstance(three, tb.Array)
    assert (1, 3) == (float(x), int(three))


def test_bad_arguments():
    """Messages say what was returned and what was expected."""
    with pytest.raises(ArgumentSpecError, match="tangent_solve is None"):
        tb.lax.custom_root(lambda x: x, 1.0, newton, None)
    with pytest.raises(ArgumentSpecError, match=r"initial_guess has a leaf i32"):
        tb.lax.custom_root(lambda x: x, 1, newton, divide)
    with pytest.raises(TreeMismatchError, match=r"f returned something of another type"):
        tb.lax.custom_root(lambda x: (x, x), 1.0, newton, divide)
    with pytest.raises(ArgumentSpecError, match=r"pair \(x, aux\)"):
        tb.lax.custom_root(lambda x: x - 1.0, 1.0, newton, divide, has_aux=True)


def test_a_bad_solver_of_the_tangents_is_found_without_derivatives():
    """Its result is checked in each call, and its own errors come through."""

    def broken(g, y):
        raise KeyError("broken")

    with pytest.raises(TreeMismatchError, match="tangent_solve returned something of another type"):
        tb.lax.custom_root(lambda x: x - 1.0, 0.0, newton, lambda g, y: (y, y))
    with pytest.raises(TreeMismatchError, match="tangent_solve returned something of another type"):
        tb.lax.custom_root(lambda x: x - 1.0, tnp.zeros(2), lambda f, x: x, lambda g, y: y[0])
    with pytest.raises(KeyError, match="broken"):
        tb.lax.custom_root(lambda x: x - 1.0, 0.0, newton, broken)


def matrix_root(a, b, has_aux=False):
    """The solution of a system; both solvers close over the matrix."""
    det = a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
    adjoint = tnp.stack([tnp.stack([a[1, 1], -a[0, 1]]), tnp.stack([-a[1, 0], a[0, 0]])])
    found = (lambda x: (x, {"det": det})) if has_aux else lambda x: x
    return tb.lax.custom_root(
        lambda x: a @ x - b,
        b,
        lambda f, x: found(adjoint @ b / det),
        lambda g, y: tb.lax.custom_linear_solve(
            g, y, lambda _, y: adjoint @ y / det, lambda _, y: adjoint.T @ y / det
        ),
        has_aux=has_aux,
    )


A = tnp.asarray([[2.0, 0.5], [-0.3, 1.5]])
B = tnp.asarray([1.0, -2.0])


def plain_root(a, b):
    det = a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
    return tnp.stack([a[1, 1] * b[0] - a[0, 1] * b[1], a[0, 0] * b[1] - a[1, 0] * b[0]]) / det


@pytest.mark.parametrize("argnum", [0, 1])
def test_solvers_that_close_over_differentiated_values(argnum):
    """Derivatives of two orders in both modes are those of the solution, eager and compiled."""
    first = tb.jacrev(plain_root, argnum)(A, B)
    second = tb.jacfwd(tb.jacrev(plain_root, argnum), argnum)(A, B)
    for f in (matrix_root, tb.jit(matrix_root), tb.checkpoint(matrix_root)):
        close(tb.jacrev(f, argnum)(A, B), first)
        close(tb.jacfwd(f, argnum)(A, B), first)
    close(tb.jit(tb.jacfwd(tb.jacrev(matrix_root, argnum), argnum))(A, B), second, 1e-4)
    close(tb.jit(tb.jacrev(tb.jacrev(matrix_root, argnum), argnum))(A, B), second, 1e-4)


def test_batches_of_solvers_with_closed_over_values():
    """vmap around and inside of derivatives."""
    many = tnp.stack([A, A + 0.5])

    batched = tb.vmap(tb.jacrev(matrix_root), (0, None))(many, B)
    close(batched, tnp.stack([tb.jacrev(plain_root)(a, B) for a in many]))
    (_, aux), (_, aux_slope) = tb.jvp(lambda a: matrix_root(a, B, True), (A,), (A,))
    close(aux["det"], 3.15)
    close(aux_slope["det"], 0.0)


def test_weak_types_stay():
    """Numbers of Python stay weak, as in any other operation."""
    root = tb.lax.custom_root(
        lambda x: x - 2.0, 1.0, lambda f, x: x - f(x), lambda g, y: y / g(1.0)
    )
    system = tb.lax.custom_linear_solve(
        lambda x: x * 2.0, 1.0, lambda f, y: y / 2.0, symmetric=True
    )

    assert (2.0, True) == (float(root), root.weak_type)
    assert (0.5, True) == (float(system), system.weak_type)
