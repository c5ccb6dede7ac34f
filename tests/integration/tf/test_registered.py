"""Gradients that TensorFlow registers for graphs end with them, and not before."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp

pytestmark = pytest.mark.tf

X = tf.constant([[0.5, 1.0], [-1.0, 2.0]])
CONVERTED = tb.tf.to_tf(lambda x: tnp.tanh(x @ x))


def graphs_of(run: Callable[[], object]) -> list[weakref.ref[Any]]:
    """The graphs that ``run`` makes."""
    made: list[weakref.ref[Any]] = []
    init = tf.Graph.__init__

    def noting(graph: Any, *args: Any, **kwargs: Any) -> None:
        init(graph, *args, **kwargs)
        made.append(weakref.ref(graph))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.Graph, "__init__", noting)
        run()
    return made


def jacobian() -> None:
    """Derivatives of a vectorized gradient, which is a graph of its own."""
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = CONVERTED(X)
    tape.jacobian(y, X)


def vectorized() -> None:
    """A map with a gradient."""
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = tf.vectorized_map(CONVERTED, tf.stack([X, X]))
    tape.gradient(y, X)


def second_order() -> None:
    """A function with tapes, of which nobody keeps a trace."""

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = CONVERTED(x)
            slope = tape.gradient(y, x)
        return outer.gradient(slope, x)

    step(X)


@pytest.mark.parametrize("run", [jacobian, vectorized, second_order])
def test_graphs_end_with_their_functions(run: Callable[[], None]) -> None:
    """What was registered for a graph does not hold it."""
    run()

    made = graphs_of(run)
    gc.collect()
    alive = [graph() for graph in made if graph() is not None]

    assert made
    assert alive == []


def test_gradients_of_a_graph_that_lives_are_found() -> None:
    """By name, as ``tf.gradients`` and loops look for them, whatever was collected before."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (2, 2))
        y = tf.while_loop(lambda i, _: i < 2, lambda i, z: (i + 1, CONVERTED(z)), (0, x))[1]
    gc.collect()
    with graph.as_default(), tf.compat.v1.Session() as session:
        found = session.run(tf.gradients(tf.reduce_sum(y), x)[0], {x: X.numpy()})

    with tf.GradientTape() as tape:
        tape.watch(X)
        z = tf.tanh(X @ X)
        z = tf.tanh(z @ z)
    np.testing.assert_allclose(found, tape.gradient(z, X), rtol=1e-5, atol=1e-6)
