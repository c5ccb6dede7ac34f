"""custom_linear_solve: against dense solutions and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.quick_compiles import check_grads
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    CustomRuleError,
    TreeMismatchError,
)

RNG = np.random.default_rng(0)
A = (RNG.normal(size=(3, 3)) + 4 * np.eye(3)).astype(np.float32)
B = RNG.normal(size=3).astype(np.float32)


def product(a):
    return lambda x: tnp.sum(a * x, axis=1)


def jacobi(matvec, b):
    """An iteration without derivative of its own: a loop until the residual is small."""
    eye = tnp.eye(3, dtype=b.dtype)
    diagonal = tnp.stack([matvec(eye[i])[i] for i in range(3)])

    def go_on(x):
        return tnp.max(tnp.abs(matvec(x) - b)) > 1e-6

    return tb.lax.while_loop(go_on, lambda x: x + (b - matvec(x)) / diagonal, b)


def solve(a, b, **options):
    options.setdefault("transpose_solve", jacobi)
    return tb.lax.custom_linear_solve(product(a), b, jacobi, **options)


def close(actual, expected, tol=2e-4):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=tol, atol=tol)


def test_forward_values():
    """The solver's value, eager and compiled."""
    close(solve(A, B), np.linalg.solve(A, B))
    close(tb.jit(solve)(A, B), np.linalg.solve(A, B))


def test_derivatives_of_both_modes_and_orders():
    """The solver has a while loop, which has no reverse mode: rules replace it."""
    check_grads(solve, (A, B), order=2, modes=("fwd", "rev"), rtol=3e-2, atol=3e-2)
    inverse = np.linalg.inv(A)
    close(tb.jacrev(solve, argnums=1)(A, B), inverse)
    close(tb.jacfwd(solve, argnums=1)(A, B), inverse)
    close(tb.jit(tb.jacrev(tb.jit(solve), argnums=1))(A, B), inverse)
    # dx = -inverse dA x
    expected = -np.einsum("ij,k->ijk", inverse, np.linalg.solve(A, B))
    close(tb.jacrev(solve)(A, B), expected)
    close(tb.jacfwd(solve)(A, B), expected)


def test_symmetric():
    """One solver serves both systems."""
    sym = (A + A.T) / 2
    f = lambda a, b: tb.lax.custom_linear_solve(product(a), b, jacobi, symmetric=True)

    close(f(sym, B), np.linalg.solve(sym, B))
    close(tb.jacrev(f, argnums=1)(sym, B), np.linalg.inv(sym))


def test_batches_of_matrices_and_right_hand_sides():
    """vmap over either argument, or both, and of gradients."""
    many_a = np.stack([A, A + np.eye(3, dtype=np.float32), A.T])
    many_b = np.stack([B, 2 * B, B + 1])
    dense = lambda a, b: np.linalg.solve(a, b[..., None])[..., 0]

    close(tb.vmap(solve)(many_a, many_b), dense(many_a, many_b))
    close(tb.vmap(solve, (0, None))(many_a, B), dense(many_a, np.stack([B] * 3)))
    close(tb.vmap(solve, (None, 1))(A, many_b.T), dense(np.stack([A] * 3), many_b))
    loss = lambda a, b: tnp.sum(solve(a, b) ** 2)
    one_by_one = np.stack([tb.grad(loss)(a, b) for a, b in zip(many_a, many_b, strict=True)])
    close(tb.vmap(tb.grad(loss))(many_a, many_b), one_by_one)
    close(tb.grad(lambda a: tnp.sum(tb.vmap(loss)(a, many_b)))(many_a), one_by_one)


def test_auxiliary_results():
    """They come beside the solution and have no derivative."""

    def with_count(matvec, b):
        return jacobi(matvec, b), {"norm": tnp.sum(b * b)}

    f = lambda b: tb.lax.custom_linear_solve(
        product(A), b, with_count, transpose_solve=with_count, has_aux=True
    )
    x, aux = f(B)

    close(x, np.linalg.solve(A, B))
    close(aux["norm"], np.sum(B * B), 1e-6)
    close(tb.jacrev(lambda b: f(b)[0])(B), np.linalg.inv(A))
    close(tb.grad(lambda b: f(b)[1]["norm"])(B), np.zeros(3))
    close(tb.vmap(f)(np.stack([B, 2 * B]))[1]["norm"], [np.sum(B * B), 4 * np.sum(B * B)], 1e-5)


def test_trees_and_scan():
    """The unknown may be a tree; the equation works in the body of a scan."""

    def f(a, tree):
        matvec = lambda t: {"u": a * t["u"], "v": 2.0 * t["v"]}
        divide = lambda matvec, b: {"u": b["u"] / a, "v": b["v"] / 2.0}
        return tb.lax.custom_linear_solve(matvec, tree, divide, symmetric=True)

    def last(a):
        def body(carry, _):
            return f(a, carry), None

        return tb.lax.scan(body, {"u": 3.0, "v": 1.0}, None, length=3)[0]["u"]

    close(last(2.0), 3 / 8)
    close(tb.grad(last)(2.0), -9 / 16)
    close(tb.jit(tb.grad(tb.grad(last)))(2.0), 36 / 32)


def test_bad_arguments():
    """Messages say which function returned what."""
    with pytest.raises(ArgumentSpecError, match="solve is 3 of type int"):
        tb.lax.custom_linear_solve(product(A), B, 3)
    with pytest.raises(
        TreeMismatchError, match=r"matvec returned.*(?s:.)*f32\[\].*(?s:.)*f32\[3\]"
    ):
        tb.lax.custom_linear_solve(lambda x: x.sum(), B, jacobi)
    with pytest.raises(ArgumentSpecError, match=r"pair \(x, aux\)"):
        tb.lax.custom_linear_solve(product(A), B, jacobi, has_aux=True)
    with pytest.raises(ArgumentSpecError, match=r"b has a leaf i32\[3\]"):
        tb.lax.custom_linear_solve(product(A), np.arange(3, dtype=np.int32), jacobi)
    with pytest.raises(CustomRuleError, match="transpose_solve required for reverse mode"):
        tb.grad(lambda b: solve(A, b, transpose_solve=None).sum())(B)
