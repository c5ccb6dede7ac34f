"""``tf.vectorized_map`` and Jacobians run one program for all iterations, without a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp

pytestmark = pytest.mark.tf

RNG = np.random.default_rng(0)
X, W, DX = [tf.constant(RNG.standard_normal(s), tf.float32) for s in [(4, 3), (3, 2), (4, 3)]]
Fun = Callable[..., Any]


def ours(x: Any, w: Any) -> Any:
    """A layer, in our functions."""
    return tnp.tanh(x @ w) ** 2


def native(x: Any, w: Any) -> Any:
    """The same in TensorFlow's."""
    return tf.tanh(x @ w) ** 2


CONVERTED = tb.tf.to_tf(ours)


def gradient(f: Fun, x: Any) -> Any:
    """The gradient of the sum of the results."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(f(x))
    return tape.gradient(y, x)


def jacobian(f: Fun, x: Any, method: str = "jacobian") -> Any:
    """Derivatives of all results."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return getattr(tape, method)(y, x)


def mapped(f: Fun, x: Any) -> Any:
    """``f`` of each row; an error where TensorFlow would loop."""
    return tf.vectorized_map(f, x, fallback_to_while_loop=False)


def tangents(f: Fun, x: Any) -> Any:
    """Of a map, in the graph where it is built."""
    with tf.autodiff.ForwardAccumulator(x, DX) as accumulator:
        y = f(x)
    return accumulator.jvp(y)


PROGRAMS: dict[str, Callable[[Fun, Any], Any]] = {
    "rows": lambda f, x: mapped(lambda r: f(r[None], W), x),
    "closure": lambda f, x: mapped(lambda w: f(x, w), tf.stack([W, 2 * W])),
    "both": lambda f, x: mapped(lambda a: f(*a), (x[:, None], tf.stack([W] * 4))),
    "a function": lambda f, x: mapped(tf.function(lambda r: f(r[None], W), autograph=False), x),
    "gradients": lambda f, x: mapped(lambda r: gradient(lambda r: f(r[None], W), r), x),
    "of gradients": lambda f, x: gradient(lambda x: mapped(lambda r: f(r[None], W), x) ** 2, x),
    "twice": lambda f, x: mapped(lambda r: mapped(lambda w: f(r[None], w), tf.stack([W, -W])), x),
    "tangents": lambda f, x: tangents(lambda x: mapped(lambda r: f(r[None], W), x), x),
    "jacobian": lambda f, x: jacobian(lambda x: f(x, W), x),
    "batch_jacobian": lambda f, x: jacobian(lambda x: f(x, W), x, "batch_jacobian"),
    "hessian": lambda f, x: jacobian(lambda x: gradient(lambda x: f(x, W), x), x),
    "of jacobian": lambda f, x: gradient(lambda x: jacobian(lambda x: f(x, W), x) ** 2, x),
}


def loops_of(function: Any) -> list[str]:
    """The loops in a concrete function and in those that it calls."""
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *[n for f in graph.library.function for n in f.node_def]]
    return [n.name for n in nodes if n.op in ("While", "StatelessWhile")]


@pytest.mark.parametrize(("program", "rows"), [*[(p, None) for p in PROGRAMS], ("both", 4)])
def test_no_loop(program: str, rows: int | None) -> None:
    """Known and unknown numbers of rows: TensorFlow's results, and no loop in the graph."""
    run = PROGRAMS[program]
    spec = tf.TensorSpec((rows, 3))
    function = tf.function(lambda x: run(CONVERTED, x), input_signature=[spec], autograph=False)

    concrete = function.get_concrete_function()

    assert [] == loops_of(concrete)
    expected = tf.convert_to_tensor(run(native, X))
    got = tf.convert_to_tensor(concrete(X))  # of IndexedSlices
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("program", ["of gradients", "batch_jacobian"])
def test_eager(program: str) -> None:
    """The same outside of functions."""
    run = PROGRAMS[program]

    np.testing.assert_allclose(run(CONVERTED, X), run(native, X), rtol=1e-3, atol=1e-4)


def test_integers_booleans_and_what_does_not_vary() -> None:
    """Arguments without derivatives vary too; results of invariant arguments are repeated."""
    fun = tb.tf.to_tf(lambda x, i, m: (tnp.where(m, x[i], 0.0), i + 1, x * 2))
    i, m = tf.constant([2, 0, 1]), tf.constant([True, False, True])
    got = mapped(lambda a: fun(X[:, 0], *a), (i, m))
    invariant = mapped(lambda _: fun(X[:, 0], 1, True)[1], i)

    np.testing.assert_array_equal(got[0], tf.where(m, tf.gather(X[:, 0], i), 0.0))
    np.testing.assert_array_equal(got[1], i + 1)
    np.testing.assert_array_equal(got[2], tf.stack([X[:, 0] * 2] * 3))
    assert [2, 2, 2] == invariant.numpy().tolist()


def test_what_cannot_be_vectorized_is_looped_over() -> None:
    """A program whose trace needs to know more of the sizes than that there are some."""

    @tb.custom_batching.custom_vmap
    def alone(x: Any) -> Any:
        return x * 2

    @alone.def_vmap
    def _(axis_size: Any, in_batched: Any, x: Any) -> Any:
        if not isinstance(axis_size, int):
            raise tb.errors.InconclusiveDimensionError("the rule wants a number")
        return x * 2, in_batched[0]

    fun = tb.tf.to_tf(alone)
    run = tf.function(
        lambda x: tf.vectorized_map(fun, x, warn=False),
        input_signature=[tf.TensorSpec((None, 3))],
        autograph=False,
    )

    np.testing.assert_allclose(mapped(fun, X), X * 2)
    assert [] != loops_of(run.get_concrete_function())
    np.testing.assert_allclose(run(X), X * 2)


def test_no_iterations_and_no_traces() -> None:
    """The body of a loop that was vectorized does not run: there may be no element for it."""
    row = tb.tf.to_tf(lambda x, w: tnp.tanh(x @ w))
    w = tf.ones((3, 2))
    mapped = tf.function(
        lambda x: tf.vectorized_map(lambda r: row(r, w), x, fallback_to_while_loop=False),
        input_signature=[tf.TensorSpec((None, 3))],
        autograph=False,
    )
    for rows in (0, 2):
        assert mapped(tf.ones((rows, 3))).shape == (rows, 2)
    assert not mapped.get_concrete_function().function_def.control_ret
