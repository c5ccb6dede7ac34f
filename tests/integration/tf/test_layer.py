"""Layers of Keras made of functions: weights, models, training, files, policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tracebridge.numpy as tnp
from tracebridge.errors import ArgumentSpecError, UnsupportedDtypeError
from tracebridge.testing import assert_allclose
from tracebridge.tf import Layer

pytestmark = [
    pytest.mark.tf,
    # Keras gives NumPy variables of TensorFlow when it writes files.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

X = np.linspace(0.1, 1.0, 12, dtype=np.float32).reshape(4, 3)
PARAMS = {
    "b": (np.zeros(2, np.float32), np.int32(3)),
    "w": np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32),
}


@keras.saving.register_keras_serializable(package="tests")
def dense(p: Any, x: Any, train: bool = False) -> Any:
    """A function of parameters in dicts and tuples, with a flag."""
    y = tnp.tanh(x @ p["w"] + p["b"][0])
    return y * 2 if train else y


@keras.saving.register_keras_serializable(package="tests")
def joined(inputs: Any, scale: Any) -> Any:
    """A function without parameters, of a dict and an array."""
    return {"sum": inputs["a"] + scale, "dot": (inputs["a"] * scale).sum(-1)}


def paths(weights: Any) -> list[str]:
    """The names that Keras gives to weights."""
    return [w.path for w in weights]


def test_in_a_model_with_a_batch_of_any_size(tmp_path: Path) -> None:
    """Shapes, names, the flag, training with and without XLA, and a file that loads again."""
    keras.utils.set_random_seed(0)
    layer = Layer(dense, PARAMS, train_argname="train", name="mine")
    model = keras.Sequential([keras.Input((3,)), layer, keras.layers.Dense(1)])
    assert layer.output.shape == (None, 2)
    assert paths(layer.trainable_variables) == ["mine/b.0", "mine/w"]
    assert paths(layer.non_trainable_variables) == ["mine/b.1"]
    assert_allclose(layer(X).numpy(), np.tanh(X @ PARAMS["w"]), rtol=1e-6)
    assert_allclose(layer(X, training=True).numpy(), 2 * np.tanh(X @ PARAMS["w"]), rtol=1e-6)
    start, losses = model.get_weights(), {}
    for jit_compile in (False, True):
        model.set_weights(start)
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=jit_compile)
        options = {"epochs": 4, "batch_size": 3, "shuffle": False, "verbose": 0}
        losses[jit_compile] = model.fit(X, np.ones((4, 1)), **options).history["loss"]
        assert losses[jit_compile][-1] < losses[jit_compile][0]
    assert_allclose(losses[True], losses[False], rtol=1e-5)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_allclose(loaded(X[:2]).numpy(), model(X[:2]).numpy(), rtol=1e-6)
    assert paths(loaded.layers[0].weights) == paths(layer.weights)
    model.export(str(tmp_path / "served"), verbose=False)
    served = tf.saved_model.load(str(tmp_path / "served"))
    assert_allclose(served.serve(X).numpy(), model(X).numpy(), rtol=1e-6)


def test_several_inputs_share_the_batch(tmp_path: Path) -> None:
    """In a functional model, with trees of inputs and results."""
    inputs = {name: keras.Input((3,), name=name) for name in ("a", "b")}
    out = Layer(joined, name="joined")({"a": inputs["a"]}, inputs["b"])
    assert (out["sum"].shape, out["dot"].shape) == ((None, 3), (None,))
    model = keras.Model(inputs, out)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert_allclose(loaded({"a": X, "b": X})["dot"].numpy(), (X * X).sum(-1), rtol=1e-6)


def test_sparse_inputs_are_made_dense() -> None:
    """Keras says of the double of any symbolic tensor that it may be sparse."""
    layer = Layer(lambda p, x: x @ p, np.ones((3, 2), np.float32))
    inputs = keras.Input((3,))
    net = keras.Model(inputs, layer(inputs * 2.0))

    assert_allclose(net(np.ones((4, 3), np.float32)), np.full((4, 2), 6.0, np.float32))
    assert_allclose(layer(tf.sparse.eye(3)), np.ones((3, 2), np.float32))


def test_what_is_trained() -> None:
    """A flag for all, a tree of flags, and Keras' own switch."""
    assert not Layer(dense, PARAMS, trainable=False).trainable_variables
    layer = Layer(dense, PARAMS, trainable={"w": False, "b": True}, name="part")
    assert paths(layer.trainable_variables) == ["part/b.0"]
    again = Layer.from_config(layer.get_config())
    assert paths(again.trainable_variables) == ["part/b.0"]
    layer.trainable = False
    assert not layer.trainable_variables
    frozen = Layer.from_config(layer.get_config())
    assert not frozen.trainable_variables
    frozen.trainable = True
    assert paths(frozen.trainable_variables) == ["part/b.0"]


def test_the_switch_of_keras() -> None:
    """Frozen at first, trained later, and frozen again: what a configuration says too."""
    layer = Layer(dense, PARAMS, trainable=False, name="late")
    layer.trainable = True
    assert paths(layer.trainable_variables) == ["late/b.0", "late/w"]
    assert len(Layer.from_config(layer.get_config()).trainable_variables) == 2
    layer.trainable = False
    assert not Layer.from_config(layer.get_config()).trainable_variables


def test_policies() -> None:
    """Mixed precision casts for the call, and leaves weights as they are."""
    layer = Layer(dense, PARAMS, dtype="mixed_float16")
    assert layer(X).dtype == tf.float16
    assert [w.dtype for w in layer.trainable_variables] == ["float32", "float32"]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(X))
    assert [g.dtype for g in tape.gradient(loss, layer.trainable_variables)] == [tf.float32] * 2


def test_policies_of_one_dtype() -> None:
    """Weights of floats have it, as those of layers of Keras."""
    for dtype in ("float16", "bfloat16", "float64"):
        layer = Layer(dense, PARAMS, dtype=dtype)
        for found in (layer, Layer.from_config(layer.get_config())):
            assert [w.dtype for w in found.weights] == [dtype, dtype, "int32"]
            assert found(X).dtype.name == dtype
    assert Layer(dense, PARAMS).weights[0].dtype == "float32"


def test_shapes_from_shapes() -> None:
    """What layers ask that contain others; integers are tried too, results keep dtypes."""
    assert Layer(dense, PARAMS).compute_output_shape((None, 3)) == (None, 2)
    assert Layer(dense, PARAMS).compute_output_shape([7, 3]) == (7, 2)
    shapes = Layer(joined).compute_output_shape({"a": (None, 3)}, (None, 3))
    assert shapes == {"sum": (None, 3), "dot": (None,)}
    lookup = Layer(lambda p, i: p[i], np.ones((5, 2), np.float32))
    assert lookup.compute_output_shape((None, 4)) == (None, 4, 2)
    inputs = keras.Input((None, 3))
    model = keras.Model(inputs, keras.layers.TimeDistributed(Layer(dense, PARAMS))(inputs))
    assert model.output_shape == (None, None, 2)
    batch = np.stack([X, 2 * X])
    assert_allclose(model(batch).numpy(), np.tanh(batch @ PARAMS["w"]), rtol=1e-6)
    assert Layer(lambda x: x > 0)(inputs).dtype == "bool"


@keras.saving.register_keras_serializable(package="tests")
def halves(x: Any) -> Any:
    """A function whose trace fails unless it is known that there are two rows."""
    return x[2:] if x.shape[0] >= 2 else x


def test_options_of_to_tf() -> None:
    """What is known of sizes, and platforms; a configuration keeps them."""
    spec = tf.TensorSpec((None, 3))

    def operation(layer: Any) -> Any:
        graph = tf.function(layer).get_concrete_function(spec).graph
        (found,) = [o for o in graph.get_operations() if o.type == "XlaCallModule"]
        return found

    sizes = {"polymorphic_shapes": "b, 3", "polymorphic_constraints": ["b >= 2"]}
    layer = Layer(halves, **sizes, platforms=["cpu"], disabled_checks=["platform"])
    for found in (layer, Layer.from_config(layer.get_config())):
        assert operation(found).get_attr("platforms") == [b"CPU"]
        assert operation(found).get_attr("disabled_checks") == [b"platform"]
        assert_allclose(found(X).numpy(), X[2:])
    assert operation(Layer(tnp.sin, platforms="cpu")).get_attr("platforms") == [b"CPU"]


def test_errors() -> None:
    """What is no array, flags of another structure, trees that files of Keras do not hold."""
    with pytest.raises(UnsupportedDtypeError, match="the leaf w 'a' of type str"):
        Layer(dense, {"w": "a"})
    with pytest.raises(ArgumentSpecError, match="trainable has another structure"):
        Layer(dense, PARAMS, trainable={"w": True})
    with pytest.raises(ArgumentSpecError, match=r"Layer\(dense\): platforms contains 'npu'"):
        Layer(dense, PARAMS, platforms=["npu"])
    with pytest.raises(ArgumentSpecError, match="params is a dict"):
        Layer(dense, {0: X}).get_config()
