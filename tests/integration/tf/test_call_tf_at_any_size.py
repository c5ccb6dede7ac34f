"""TensorFlow functions with variables in programs for any size: values become arguments."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.errors import ArgumentSpecError
from tracebridge.testing import assert_allclose
from tracebridge.tf import call_tf, save, to_tf
from tracebridge.tf._foreign.graphs import Graph
from tracebridge.tf._foreign.lifting import Body

pytestmark = pytest.mark.tf

I32, F32 = ShapedArray((3, 2), np.int32), ShapedArray((3, 2, 1), np.float32)
RANDOM = np.random.default_rng(0)
TABLE = tf.Variable(RANDOM.normal(size=(7, 3)).astype(np.float32))
WEIGHT = tf.Variable(RANDOM.normal(size=(3, 3)).astype(np.float32))
UNUSED = tf.Variable(1.0)
VARIABLES = [TABLE, WEIGHT, UNUSED]
OFFSET = tf.constant(np.linspace(0, 1, 3, dtype=np.float32))
LARGE = tf.constant(RANDOM.normal(size=(3, 1000)).astype(np.float32))
IDS, SCALES = tf.TensorSpec((None, 2), tf.int32), tf.TensorSpec((None, 2, 1))


def model(ids: Any, scales: Any) -> Any:
    """Variables in lookups, loops and branches, and constants of two kinds."""
    h = tf.reduce_sum(tf.gather(TABLE, ids) * scales, 1)
    rows = tf.cast(tf.shape(TABLE)[0], tf.float32)

    def step(i: Any, h: Any) -> Any:
        return i + 1, tf.sin(h @ WEIGHT)

    _, h = tf.while_loop(lambda i, _: i < 2, step, (0, h), maximum_iterations=2)
    h = tf.cond(tf.reduce_sum(h) > 0, lambda: h * h, lambda: h @ WEIGHT)
    return (h + OFFSET) @ LARGE / rows


def loss(params: Any, ids: Any, scales: Any) -> Any:
    """A program of ours round it."""
    return tnp.sum(tnp.tanh(call_tf(model, variables=VARIABLES)(params, ids, scales)))


def of_batch(batch: int) -> tuple[Any, Any]:
    """Arguments."""
    random = np.random.default_rng(batch)
    ids = random.integers(0, 7, (batch, 2)).astype(np.int32)
    return tf.constant(ids), tf.constant(random.normal(size=(batch, 2, 1)).astype(np.float32))


def value_spec(captured: Any) -> Any:
    """The type of a variable or constant."""
    named = {id(v.handle): v for v in VARIABLES}
    value = named.get(id(captured), captured)
    return tf.TensorSpec(value.shape, value.dtype)


def converted(fun: Any) -> Any:
    """A TensorFlow function of the values of the variables, for any batch."""
    whole = to_tf(fun, polymorphic_shapes=(None, "b, 2", "b, 2, 1"))
    specs = [tf.TensorSpec(v.shape) for v in VARIABLES]
    return tf.function(whole, autograph=False, input_signature=[specs, IDS, SCALES])


def values() -> list[Any]:
    """Those of the variables."""
    return [tf.constant(v.numpy()) for v in VARIABLES]


def test_values_and_gradients() -> None:
    """One program for all batches: TensorFlow's results and gradients, for other values too."""
    program = converted(loss)
    params = [2 * v for v in values()]
    for batch in (1, 4):
        gc.collect()  # graphs of inner functions stay as long as the program
        ids, scales = of_batch(batch)
        with tf.GradientTape() as tape:
            tape.watch([params, scales])
            y = program(params, ids, scales)
        grads = tape.gradient(y, [*params, scales])
        for v in VARIABLES:
            v.assign(2 * v)
        try:
            with tf.GradientTape() as tape:
                tape.watch(scales)
                wanted = tf.reduce_sum(tf.tanh(model(ids, scales)))
            expected = tape.gradient(wanted, [*VARIABLES, scales], unconnected_gradients="zero")
        finally:
            for v in VARIABLES:
                v.assign(v / 2)
        assert_allclose(y.numpy(), wanted.numpy(), rtol=1e-5)
        for got, want in zip(grads, expected, strict=True):
            assert_allclose(got.numpy(), tf.convert_to_tensor(want).numpy(), rtol=1e-4, atol=1e-3)


def test_derivatives_inside() -> None:
    """The gradient, a product with the Hessian and a batch, made by us, for any size."""
    cubes = call_tf(lambda x: x**3 * TABLE[0, 0], variables=[TABLE])

    def product(table: Any, x: Any) -> Any:
        gradient = tb.grad(lambda x: cubes([table], x).sum())
        return tb.jvp(gradient, (x,), (x,))[1], tb.vmap(gradient)(x[:, None])

    program = to_tf(product, polymorphic_shapes=(None, "b"))
    specs = [tf.TensorSpec((7, 3)), tf.TensorSpec((None,))]
    twice, once = tf.function(program, autograph=False, input_signature=specs)(
        TABLE.value(), tf.constant([1.0, -2.0, 3.0])
    )
    x, a = np.array([1.0, -2.0, 3.0]), TABLE.numpy()[0, 0]
    assert_allclose(twice.numpy(), 6 * a * x * x, rtol=1e-5)
    assert_allclose(once.numpy(), (3 * a * x * x)[:, None], rtol=1e-5)


LOADED = """
import sys, numpy as np, tensorflow as tf
model, x = tf.saved_model.load(sys.argv[1]), tf.constant(np.load(sys.argv[2])["x"])
for batch in (1, 3):
    with tf.GradientTape() as tape:
        y = model(x[:batch])
    grads = tape.gradient(y, model.trainable_variables)
    print(float(tf.reduce_sum(y)), *[float(tf.reduce_sum(g)) for g in grads])
"""


def test_a_network_of_keras_is_saved(tmp_path: Path) -> None:
    """A recurrent one with its weights, inside of our function: TensorFlow loads it alone."""
    network = tf.keras.Sequential([tf.keras.Input((4, 3)), tf.keras.layers.SimpleRNN(3)])
    weights = network.trainable_variables
    apply = call_tf(network, variables=weights)
    params = [w.numpy() for w in weights]
    spec = [tf.TensorSpec((None, 4, 3))]
    save(lambda p, x: tnp.tanh(apply(p, x)), tmp_path / "m", signature=spec, params=params)
    x = RANDOM.normal(size=(3, 4, 3)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(tmp_path / "m"), str(tmp_path / "x.npz")],
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for batch, line in zip((1, 3), done.stdout.splitlines(), strict=True):
        with tf.GradientTape() as tape:
            y = tf.tanh(network(x[:batch]))
        grads = tape.gradient(y, weights)
        wanted = [float(tf.reduce_sum(a)) for a in (y, *grads)]
        assert_allclose([float(word) for word in line.split()], wanted, rtol=1e-4, atol=1e-5)


def test_what_cannot_become_an_argument_is_named() -> None:
    """A variable that nobody gave, and one that is needed as itself."""
    v = tf.Variable(1.0)

    def exists(x: Any) -> Any:
        return x * v + tf.cast(tf.raw_ops.VarIsInitializedOp(resource=v.handle), tf.float32)

    def at_any_size(fun: Any) -> Any:
        return tf.function(to_tf(fun), input_signature=[tf.TensorSpec([None])])(tf.ones(2))

    with pytest.raises(ArgumentSpecError, match=r"reads the variable .*\n.*name it in variables"):
        at_any_size(call_tf(lambda x: x * v, variables=[]))
    with pytest.raises(ArgumentSpecError, match=r"cannot become arguments.*\n.*known sizes"):
        at_any_size(lambda x: call_tf(exists, variables=[v])([x.sum()], x))


def test_functions_go_with_the_graphs_that_need_them() -> None:
    """The names of inner functions are taken out of TensorFlow's table."""

    def names() -> set[str]:
        gc.collect()
        return set(context.context().list_function_names())

    before = names()
    graph = Graph("model", lambda *xs: (model(*xs),), [I32, F32])
    body = Body(graph, graph.captured)
    assert not [n for n in names() - before if "frozen" in n]
    function = tf.function(body.imported, autograph=False)
    concrete = function.get_concrete_function(*graph.specs, *map(value_spec, graph.captured))
    during = names()
    del function, concrete, graph
    assert len([n for n in during - before if "frozen" in n]) == 4  # a loop and two branches
    assert not names() - before
