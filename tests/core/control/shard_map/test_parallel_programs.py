"""Programs in parallel, as users write them: data, layers, rings and stages over devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.control.shard_map.grids import TOL, Fun, X, over, sample
from tracebridge import P, lax
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)


def mlp(w: Any, x: Any) -> Any:
    """Results of a small network."""
    return tnp.tanh(x @ w["a"]) @ w["b"]


WEIGHTS = {"a": sample(4, 8, seed=2), "b": sample(8, 3, seed=3)}
INPUTS, TARGETS = sample(16, 4, seed=4), sample(16, 3, seed=5)


def loss(w: Any, x: Any, y: Any) -> Any:
    """The mean error."""
    return tnp.mean((mlp(w, x) - y) ** 2)


def test_gradient_of_a_data_parallel_loss() -> None:
    """Arguments that all devices have get the gradient of the program of whole arrays."""
    parallel = over(
        lambda w, x, y: lax.pmean(loss(w, x, y), ("x", "y")),
        (P(), P(("x", "y")), P(("x", "y"))),
        P(),
    )
    args = WEIGHTS, INPUTS, TARGETS

    assert_allclose(
        tb.jit(tb.value_and_grad(parallel, (0, 1)))(*args),
        tb.value_and_grad(loss, (0, 1))(*args),
        **TOL,
    )


def test_data_parallel_training() -> None:
    """The gradient inside of the mean of the losses of all devices is the whole gradient."""

    def mean(w: Any, x: Any, y: Any) -> Any:
        return lax.pmean(loss(w, x, y), "x")

    def step(w: Any, x: Any, y: Any) -> Any:
        gradient = tb.grad(mean)(w, x, y)
        return tb.tree.map(lambda a, g: a - 0.1 * g, w, gradient)

    parallel = tb.jit(over(step, (P(), P("x"), P("x")), P(), (8,)))
    w = v = WEIGHTS
    for _ in range(3):
        w = parallel(w, INPUTS, TARGETS)
        v = tb.tree.map(lambda a, g: a - 0.1 * g, v, tb.grad(loss)(v, INPUTS, TARGETS))

    assert_allclose(w, v, **TOL)


def test_tensor_parallel_matmul() -> None:
    """Two layers, split by columns and by rows: one psum, and the gradients of whole arrays."""
    parallel = over(
        lambda w, x: lax.psum(mlp(w, x), "y"),
        ({"a": P(None, "y"), "b": P("y")}, P("x")),
        P("x"),
    )

    def total(f: Fun) -> Fun:
        return lambda w, x: tnp.sum(tnp.sin(f(w, x)))

    assert_allclose(parallel(WEIGHTS, INPUTS), mlp(WEIGHTS, INPUTS), **TOL)
    assert_allclose(
        tb.jit(tb.grad(total(parallel), (0, 1)))(WEIGHTS, INPUTS),
        tb.grad(total(mlp), (0, 1))(WEIGHTS, INPUTS),
        **TOL,
    )


def test_ring_reduction() -> None:
    """Blocks that go around the ring add up to the sum, with its derivatives."""

    def ring(b: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            total, moving = state
            moving = lax.ppermute(moving, "x", [(i, (i + 1) % 8) for i in range(8)])
            return total + moving, moving

        return lax.fori_loop(0, 7, step, (b, b))[0]

    f = over(ring, P("x"), P("x"), (8,))
    expected = np.tile(X.sum(0), (8, 1))

    assert_allclose(f(X), expected, **TOL)
    assert_allclose(tb.grad(lambda x: tnp.sum(f(x)[:2]))(X), np.full((8, 8), 2.0), **TOL)


def test_pipeline_of_halves_of_exchanges() -> None:
    """Stages send on what they have made and take what was sent: the layers one after another."""
    onward = [(i, i + 1) for i in range(7)]

    def stage(w: Any, x: Any) -> Any:
        def tick(_: Any, h: Any) -> Any:
            sent = lax.psend(tnp.tanh(h * w[0]), "x", onward)
            return tnp.where(lax.axis_index("x") == 0, x, lax.precv(sent, h, "x", onward))

        h = lax.fori_loop(0, 7, tick, lax.pcast(x, "x", to="varying"))
        return tnp.tanh(h * w)

    def layers(w: Any, x: Any) -> Any:
        for row in w:
            x = tnp.tanh(x * row)
        return x

    w, x = 1 + 0.1 * X, sample(8)
    pipeline = over(stage, (P("x"), P()), P("x"), (8,))

    def last(w: Any, x: Any) -> Any:
        return tnp.sum(pipeline(w, x)[-1] ** 2)

    assert_allclose(pipeline(w, x)[-1], layers(w, x), **TOL)
    assert_allclose(
        tb.jit(tb.grad(last, (0, 1)))(w, x),
        tb.grad(lambda w, x: tnp.sum(layers(w, x) ** 2), (0, 1))(w, x),
        **TOL,
    )


def test_gradients_of_casted_weights_are_those_of_a_device() -> None:
    """Weights that are let to vary have a gradient on each device; a psum gives the whole one."""

    def f(w: Any, b: Any) -> Any:
        own = lax.pcast(w, "x", to="varying")
        parts = tb.grad(lambda v: tnp.sum(tnp.sin(v * b)))(own)
        return lax.pcast(lax.psum(parts, "x"), "x", to="reduced")

    mapped = over(f, (P(), P("x")), P(), (8,))
    expected = tb.grad(lambda v: tnp.sum(tnp.sin(v * X)))(X[0])

    assert_allclose(mapped(X[0], X), expected, **TOL)
