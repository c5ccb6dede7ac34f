"""to_tf(saved_grad_order=...): derivatives in SavedModels of a user's own modules and models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.transform_errors import ArgumentSpecError

pytestmark = [
    pytest.mark.tf,
    # Keras gives NumPy variables of TensorFlow when it writes files.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

WITH_GRADIENTS = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
BIG = np.random.default_rng(0).standard_normal((100, 200)).astype(np.float32)
W = np.float32([[0.3, -0.1], [0.2, 0.5]])

# Derivatives of orders 1 to 3 of the sum of squares, by the input, of each of the given models.
ALONE = """
import sys

for name in ("tracebridge", "jaxlib", "jax"):
    sys.modules[name] = None

import numpy as np
import tensorflow as tf

out, *folders = sys.argv[1:]
x = tf.constant([[0.5, -0.25], [0.125, 1.0]])


def derivative(model, order):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = derivative(model, order - 1) if order > 1 else model(x)
        total = tf.reduce_sum(y**2)
    return tape.gradient(total, x)


found = {}
for number, folder in enumerate(folders):
    model = tf.saved_model.load(folder)
    for order in (1, 2, 3):
        try:
            found[f"{number}_{order}"] = derivative(model, order)
        except LookupError:
            found[f"{number}_{order}"] = "none"
            break
np.savez(out, **found)
"""


def layer(w: Any, x: Any) -> Any:
    """What the modules compute with."""
    return tnp.tanh(x @ w)


@tf.keras.utils.register_keras_serializable(package="tests")
def layer_of_rows(w: Any, x: Any) -> Any:
    """What the layer of Keras computes."""
    return tnp.sin(x @ w)


@tb.custom_vjp
def cubes(x: Any) -> Any:
    """A function whose derivative has a large constant that it has not itself."""
    return x**3


def _cubes_backward(x: Any, ct: Any) -> Any:
    return (ct * 3 * x**2 + 0 * (ct.sum() * BIG).sum(),)


cubes.defvjp(lambda x: (x**3, x), _cubes_backward)


class Module(tf.Module):
    """A module with a variable, whose method calls another one."""

    def __init__(self, fun: Any) -> None:
        super().__init__()
        self.w = tf.Variable(W)
        self.fun = fun

    @tf.function
    def inner(self, x: Any) -> Any:
        """The function, in a graph of its own."""
        return self.fun(self.w, x)

    @tf.function(input_signature=[tf.TensorSpec((None, 2))])
    def __call__(self, x: Any) -> Any:
        """The function and an operation of TensorFlow."""
        return 2 * self.inner(x)


class Cubes(tf.Module):
    """Of a function without parameters."""

    def __init__(self, fun: Any) -> None:
        super().__init__()
        self.fun = fun

    @tf.function(input_signature=[tf.TensorSpec((None, 2))])
    def __call__(self, x: Any) -> Any:
        """The function."""
        return self.fun(x)


class Network(tf.keras.Model):
    """A model of Keras."""

    def __init__(self, fun: Any) -> None:
        super().__init__()
        self.fun = fun
        self.w = self.add_weight(
            name="w", shape=(2, 2), initializer=lambda s, dtype: tf.cast(W, dtype)
        )

    def call(self, x: Any) -> Any:
        """The function and an operation of TensorFlow."""
        return 2 * self.fun(self.w, x)


def served(model: Any) -> Any:
    """A module that can be called when it is loaded, with a model of Keras."""
    module: Any = tf.Module()
    module.model = model
    module.__call__ = tf.function(model.call, input_signature=[tf.TensorSpec((None, 2))])
    return module


def derivatives(fun: Any) -> list[Any]:
    """Of orders 1 to 3, as in ``ALONE``, by this package."""
    x = np.float32([[0.5, -0.25], [0.125, 1.0]])
    found: list[Any] = []
    for _ in range(3):
        fun = tb.grad(lambda x, fun=fun: (fun(x) ** 2).sum())
        found.append(np.asarray(fun(x)))
    return found


def test_derivatives_of_modules_and_models_without_this_package(tmp_path: Path) -> None:
    """To the order that was asked for, through nested functions and with constants of their own."""
    network = Network(tb.tf.to_tf(layer, saved_grad_order=2))
    network(tf.ones((1, 2)))
    own_layer = tb.tf.Layer(layer_of_rows, W, saved_grad_order=2)
    sequential = tf.keras.Sequential([tf.keras.Input((2,)), own_layer])
    modules = [
        Module(tb.tf.to_tf(layer, saved_grad_order=3)),
        Cubes(tb.tf.to_tf(cubes, saved_grad_order=1)),
        served(network),
        served(sequential),
    ]
    folders = [str(tmp_path / str(i)) for i in range(len(modules))]
    for module, folder in zip(modules, folders, strict=True):
        tf.saved_model.save(module, folder, options=WITH_GRADIENTS)
    command = [sys.executable, "-c", ALONE, str(tmp_path / "out.npz"), *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    out = np.load(tmp_path / "out.npz")

    twice = derivatives(lambda x: 2 * layer(W, x))
    once = derivatives(lambda x: layer_of_rows(W, x))
    expected = [twice, derivatives(lambda x: x**3), twice, once]
    for i, (stored, wanted) in enumerate(zip((3, 1, 2, 2), expected, strict=True)):
        for order in (1, 2, 3):
            if order > stored:
                assert "none" == out[f"{i}_{stored + 1}"]
            else:
                got = out[f"{i}_{order}"]
                np.testing.assert_allclose(got, wanted[order - 1], rtol=2e-5, atol=1e-5)


def test_layers_of_keras_keep_the_order(tmp_path: Path) -> None:
    """In their configuration; what is no number of derivatives is an error where it is given."""
    net = tf.keras.Sequential(
        [tf.keras.Input((2,)), tb.tf.Layer(layer_of_rows, W, saved_grad_order=2)]
    )
    net.save(tmp_path / "net.keras")
    again = tf.keras.models.load_model(tmp_path / "net.keras").layers[0]

    assert 2 == again.get_config()["saved_grad_order"]
    with pytest.raises(ArgumentSpecError, match=r"Layer\(layer_of_rows\): saved_grad_order is"):
        tb.tf.Layer(layer_of_rows, W, saved_grad_order=0)


def test_orders_of_derivatives_in_this_process_are_not_limited() -> None:
    """The option is about files: tapes differentiate graphs and eager calls as often as wanted."""
    fun = tb.tf.to_tf(tnp.sin, saved_grad_order=1)
    x = tf.constant(0.5)
    for call in (fun, tf.function(fun)):
        with tf.GradientTape() as third:
            third.watch(x)
            with tf.GradientTape() as second:
                second.watch(x)
                with tf.GradientTape() as first:
                    first.watch(x)
                    y = call(x)
                dy = first.gradient(y, x)
            d2y = second.gradient(dy, x)
        np.testing.assert_allclose(third.gradient(d2y, x), -np.cos(0.5), rtol=1e-6)


def test_calls_of_one_function_share_their_pullbacks(tmp_path: Path) -> None:
    """A second call adds neither constants nor pullbacks to the file."""
    fun = tb.tf.to_tf(lambda x: tnp.sin(x @ BIG @ BIG.T), saved_grad_order=3)
    module: Any = tf.Module()
    module.__call__ = tf.function(
        lambda x: fun(x) + fun(x), input_signature=[tf.TensorSpec((None, 100))]
    )
    tf.saved_model.save(module, str(tmp_path), options=WITH_GRADIENTS)
    data = (tmp_path / "saved_model.pb").read_bytes()
    library = saved_model_pb2.SavedModel.FromString(data).meta_graphs[0].graph_def.library
    names = [f.signature.name for f in library.function]

    assert 3 == len([name for name in names if name.startswith("__inference_pull_")])
    assert len(data) < 2.5 * BIG.nbytes  # the matrix and its transpose


def test_files_written_while_functions_run_eagerly_have_all_orders(tmp_path: Path) -> None:
    def model(params: Any, x: Any) -> Any:
        return tnp.tanh(tnp.tanh(x @ params))

    spec = tf.TensorSpec((None, 2), tf.float32)
    tf.config.run_functions_eagerly(True)
    try:
        tb.tf.save(model, tmp_path / "model", [spec], params=W)
    finally:
        tf.config.run_functions_eagerly(False)
    loaded: Any = tf.saved_model.load(str(tmp_path / "model"))
    x = tf.constant([[0.5, -0.25], [0.125, 1.0]])

    def second(fun: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(fun(x))
            slope = tf.reduce_sum(inner.gradient(y, x) ** 2)
        return outer.gradient(slope, x).numpy()

    wanted = second(lambda x: tf.tanh(tf.tanh(x @ W)))
    np.testing.assert_allclose(second(loaded.serve), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("order", [0, -1, 1.5, "2", True])
def test_orders_that_do_not_fit(order: Any) -> None:
    """Said when the function is converted."""
    with pytest.raises(ArgumentSpecError, match=r"to_tf\(sin\): saved_grad_order is"):
        tb.tf.to_tf(tnp.sin, saved_grad_order=order)
    with pytest.raises(ArgumentSpecError, match="with_gradient=False"):
        tb.tf.to_tf(tnp.sin, saved_grad_order=1, with_gradient=False)
