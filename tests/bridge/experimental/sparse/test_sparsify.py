"""sparsify: programs of dense operations on sparse arguments, beside the dense programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.bridge.experimental.sparse.test_bcoo import dense, host, padded
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.experimental import sparse

ARRAY = dense(3, 4)
VECTOR = dense(4) + 1


def loop(m: Any) -> Any:
    """A loop that carries a matrix, and one along its rows."""
    doubled = tb.lax.fori_loop(0, 2, lambda _, c: c * 2.0, m)
    total, rows = tb.lax.scan(lambda c, row: (c + row @ VECTOR, row * 2.0), 0.0, m)
    return doubled, total, rows


def choice(m: Any) -> Any:
    """A branch that stays sparse, and a loop of an unknown number of steps."""
    halved = tb.lax.cond(VECTOR[0] > 0, lambda x: x / 2.0, lambda x: x * 3.0, m)
    count, grown = tb.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2.0), (0, m))
    return halved, count, grown


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda m: tnp.sin(-m) * 2 + tnp.sqrt(tnp.abs(m)) - m**3 / VECTOR,
    "products": lambda m: (m.T @ m, m @ VECTOR, VECTOR @ m.T, tnp.einsum("ij,j->i", m, VECTOR)),
    "moves": lambda m: (m.reshape(2, 6)[:, ::-1], tnp.concatenate([m, m[:1]]), m[None, 1:]),
    "parts": lambda m: (m[tnp.array([2, 0])], tb.lax.dynamic_slice(m, (1, 1), (2, 2))),
    "sums": lambda m: (m.sum(), m.mean(0), tnp.sum(m, axis=1, keepdims=True)),
    "functions": lambda m: (tnp.maximum(m, 0.0), tb.jit(tnp.tanh)(m), tnp.split(m, 2, axis=1)[1]),
    "loop": loop,
    "choice": choice,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_give_the_dense_results(name: str) -> None:
    """With padding, and an element twice; the results are trees of sparse and dense arrays."""
    function = FUNCTIONS[name]

    actual = sparse.sparsify(function)(padded(ARRAY))
    expected = function(tnp.asarray(ARRAY))
    actual_leaves = tb.tree.leaves(actual, lambda x: isinstance(x, sparse.JAXSparse))
    for a, e in zip(actual_leaves, tb.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(e, host(a), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("use_tracer", [False, True])
@pytest.mark.parametrize("kind", [sparse.BCOO, sparse.BCSR])
def test_regions_of_elements_that_keep_zeros(kind: Any, use_tracer: bool) -> None:
    """Programs of which only the whole is zero where the argument is, of both formats."""

    def function(m: Any) -> Any:
        return (
            tb.nn.relu(m),
            tb.nn.silu(m),
            tnp.where(m > 1, m, 0.0),
            tnp.clip(m, -1, 2),
            m @ VECTOR,
        )

    actual = sparse.sparsify(function, use_tracer=use_tracer)(kind.fromdense(ARRAY))
    for a, e in zip(actual, function(tnp.asarray(ARRAY)), strict=True):
        np.testing.assert_allclose(e, host(a), rtol=1e-6)
    assert all([isinstance(a, kind) for a in actual[:4]])


def test_sparsified_functions_are_transformed() -> None:
    """They compile, batch and differentiate; arguments may have any format, and keywords."""
    function = sparse.sparsify(lambda m, *, x: tnp.sum(tnp.tanh(m @ x) ** 2))
    mat = sparse.BCSR.fromdense(ARRAY / 10)

    wanted = float(np.sum(np.tanh(ARRAY / 10 @ VECTOR) ** 2))
    np.testing.assert_allclose(wanted, function(mat, x=VECTOR), rtol=1e-6)
    np.testing.assert_allclose(wanted, tb.jit(function)(mat, x=VECTOR), rtol=1e-6)
    slope = sparse.grad(function)(mat, x=VECTOR)
    by_dense = tb.grad(lambda m: tnp.sum(tnp.tanh(m @ VECTOR) ** 2))(ARRAY / 10)
    np.testing.assert_allclose(by_dense * (ARRAY != 0), host(slope), rtol=1e-5, atol=1e-6)
    rows = sparse.BCOO.fromdense(ARRAY, n_batch=1)
    sums = tb.vmap(sparse.sparsify(lambda row: tnp.sin(row).sum()))(rows)
    np.testing.assert_allclose(np.sin(ARRAY).sum(1), sums, rtol=1e-6)


def test_what_would_be_dense_is_refused() -> None:
    """The error names the operation and its arguments."""
    for function, name in (
        (tnp.exp, "exp"),
        (tnp.cos, "cos"),
        (lambda m: tnp.maximum(m, 1.0), "max"),
    ):
        with pytest.raises(UnsupportedArgumentError, match=rf"{name}.*BCOO\(float32\[3, 4\]"):
            sparse.sparsify(function)(sparse.BCOO.fromdense(ARRAY))
