"""Programs with symbolic sizes compute what programs with static sizes do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.core.lax.symbolic import run_symbolic
from tracebridge import lax
from tracebridge.testing import assert_allclose

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
SHAPES = ["n, 4", "5, m", "n, m"]

SCANS = [lax.cumsum, lax.cumprod, lax.cummax, lax.cumlogsumexp]
REDUCTIONS = [lax.reduce_sum, lax.reduce_prod, lax.reduce_max, lax.reduce_min]
CASES = {
    **{f"{f.__name__}{axes}": (lambda x, f=f, a=axes: f(x, a))
       for f in REDUCTIONS for axes in ((0,), (1,), (0, 1))},
    **{f"{f.__name__}{axis}{reverse}": (lambda x, f=f, a=axis, r=reverse: f(x, a, r))
       for f in SCANS for axis in (0, 1) for reverse in (False, True)},
    **{f"{f.__name__}{axis}": (lambda x, f=f, a=axis: f(x, a, np.int32))
       for f in (lax.argmax, lax.argmin) for axis in (0, 1)},
    "reduce_or": lambda x: lax.reduce_or(lax.gt(x, lax.full_like(x, 1.0)), (0,)),
    "dot": lambda x: lax.dot(x, lax.transpose(x, (1, 0))),
    "dot_batched": lambda x: lax.dot_general(x, x, (((1,), (1,)), ((0,), (0,)))),
    "optimization_barrier": lambda x: lax.optimization_barrier(x),
    "gradient_of_prod": tb.grad(lambda x: lax.reduce_sum(lax.reduce_prod(x, (0,)), (0,))),
    "gradient_of_max": tb.grad(lambda x: lax.reduce_sum(lax.reduce_max(x, (1,)), (0,))),
    "gradient_of_cumsum": tb.grad(lambda x: lax.reduce_sum(lax.sin(lax.cumsum(x)), (0, 1))),
    "gradient_of_dot": tb.grad(
        lambda x: lax.reduce_sum(lax.dot(x, lax.transpose(x, (1, 0))), (0, 1))
    ),
    "psum": lambda x: tb.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(x),
    "psum_of_constant": lambda x: tb.vmap(
        lambda x: x + lax.psum(lax.full((), 1.0, np.float32), "i"), axis_name="i"
    )(x),
    "pmean": lambda x: tb.vmap(lambda x: lax.pmean(x, "i"), axis_name="i")(x),
    "axis_index": lambda x: tb.vmap(lambda x: lax.axis_index("i"), axis_name="i")(x),
    "all_gather": lambda x: tb.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(x),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CASES)
def test_symbolic_sizes(name: str, shape: str) -> None:
    """Traced once with symbols, run at sizes."""
    fun = CASES[name]
    expected = fun(X)

    (result,) = run_symbolic(fun, shape, X)

    assert_allclose(result, expected, rtol=1e-5, atol=1e-5, check_dtype=True)


@pytest.mark.parametrize("scan", [lax.cumprod, lax.cummax, lax.cumlogsumexp])
@pytest.mark.parametrize("axis", [0, 1])
def test_derivatives_of_scans(scan: Any, axis: int) -> None:
    """They work along a symbolic axis and along another axis of the array."""
    gradient = tb.grad(lambda x: lax.reduce_sum(scan(x, axis), (0, 1)))

    (result,) = run_symbolic(gradient, "5, m", X)

    assert_allclose(result, gradient(X), rtol=1e-5, atol=1e-5)
