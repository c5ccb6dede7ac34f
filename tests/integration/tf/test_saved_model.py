"""tracebridge.tf.save: models that load, run and differentiate without this package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError
from tracebridge.core.errors.transform_errors import ArgumentSpecError

pytestmark = pytest.mark.tf

# Runs in a process that can import neither the package nor what it is made of.
ALONE = """
import sys

for name in ("tracebridge", "jaxlib", "jax"):
    sys.modules[name] = None

import numpy as np
import tensorflow as tf

folder, data, out = sys.argv[1:]
x = tf.constant(np.load(data))
on_temporary = tf.saved_model.load(folder).serve(x)
model = tf.saved_model.load(folder)
variables = [model.params["b"], model.params["layers"][0]["w"]]
with tf.GradientTape() as outer:
    outer.watch(x)
    with tf.GradientTape() as inner:
        inner.watch(x)
        y = model.serve(x)
        loss = tf.reduce_sum(y**2)
    first = inner.gradient(loss, [*variables, x])
    norm = tf.add_n([tf.reduce_sum(g**2) for g in first])
second = outer.gradient(norm, [*variables, x])
served = model.signatures["serving_default"](x=x)["output_0"]
compiled = tf.function(model.serve, jit_compile=True)(x)
small = model.serve(x[:1])
arrays = [on_temporary, y, served, compiled, small, *first, *second]
np.savez(out, *[a.numpy() for a in arrays], names=[v.name for v in variables])
"""


def model(params: Any, x: Any) -> Any:
    """One layer with an operation that older consumers do not know."""
    return lax.erf(x @ params["layers"][0]["w"] + params["b"])


def model_params() -> Any:
    """Weights of ``model``."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 4)).astype(np.float32)
    return {"layers": [{"w": w}], "b": np.float32([0.1, 0.2, 0.3, 0.4])}


def test_runs_and_differentiates_without_this_package(tmp_path: Path) -> None:
    """Values, first and second derivatives by input and variables, at two batch sizes."""
    params, folder = model_params(), tmp_path / "model"
    x = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    tb.tf.save(model, folder, [tf.TensorSpec((None, 3), name="x")], params=params)

    command = [sys.executable, "-c", ALONE, folder, tmp_path / "x.npy", tmp_path / "out.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    out = np.load(tmp_path / "out.npz")
    got = [out[name] for name in out.files if name != "names"]

    def loss(args: Any) -> Any:
        b, w, x = args
        return (model({"layers": [{"w": w}], "b": b}, x) ** 2).sum()

    def norm(args: Any) -> Any:
        return sum((g**2).sum() for g in tb.grad(loss)(args))

    args = [tnp.asarray(a) for a in (params["b"], params["layers"][0]["w"], x)]
    y = np.asarray(model(params, args[2]))
    expected = [y, y, y, y, y[:1], *tb.grad(loss)(args), *tb.grad(norm)(args)]
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-5)
    assert out["names"].tolist() == ["b:0", "layers/0/w:0"]


def saved(tmp_path: Path, fun: Any, signature: Any, **options: Any) -> Any:
    """The loaded model of ``fun``."""
    tb.tf.save(fun, tmp_path / "model", signature, **options)
    return tf.saved_model.load(str(tmp_path / "model"))


def test_loaded_gradients_read_residuals(tmp_path: Path) -> None:
    """One pass forward and one back; XLA compiles what has residuals, which it leaves out else."""
    w = tnp.ones((64, 64)) / 64
    loaded = saved(
        tmp_path, lambda w, x: tnp.tanh(x @ w) + 1, [tf.TensorSpec((None, 64))], params=w
    )

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loaded.serve(x))
        return tape.gradient(loss, loaded.params)

    definition = step.get_concrete_function(tf.ones((3, 64))).graph.as_graph_def()
    functions = {f.signature.name: f for f in definition.library.function}
    found: list[tuple[int, bool]] = []
    waiting = [(node, False) for node in definition.node]
    while waiting:
        node, compiled = waiting.pop()
        if node.op == "XlaCallModule":
            found.append((len(node.attr["Tout"].list.type), compiled))
        if "PartitionedCall" in node.op:
            function = functions[node.attr["f"].func.name]
            inside = compiled or function.attr["_XlaMustCompile"].b
            waiting.extend([(n, inside) for n in function.node_def])
    assert sorted(found) == [(2, True), (2, True)]  # result and residual; both gradients
    np.testing.assert_allclose(step(tf.ones((3, 64))), np.full((64, 64), 3 / np.cosh(1) ** 2), 1e-5)


def test_parameters_that_are_tensors(tmp_path: Path) -> None:
    """They become variables like arrays."""
    loaded = saved(tmp_path, lambda p, x: p * x, [tf.TensorSpec(())], params=tf.constant(3.0))
    assert float(loaded.serve(tf.constant(2.0))) == 6.0
    assert isinstance(loaded.params, tf.Variable)


def test_unknown_sizes_of_axis_0_are_one_batch(tmp_path: Path) -> None:
    """Other unknown sizes are sizes of their own."""
    specs = [tf.TensorSpec((None, 3)), {"a": tf.TensorSpec((None, None))}]
    loaded = saved(tmp_path, lambda x, y: {"sum": x.sum(1) + y["a"].sum(1), "x": x * 2}, specs)
    out = loaded.serve(tf.ones((2, 3)), {"a": tf.ones((2, 5))})
    default = loaded.signatures["serving_default"]

    assert sorted(out) == ["sum", "x"]
    assert out["sum"].numpy().tolist() == [8.0, 8.0]
    assert sorted(default.structured_outputs) == ["sum", "x"]
    assert len(default.structured_input_signature[1]) == 2
    with pytest.raises(tf.errors.InvalidArgumentError):
        loaded.serve(tf.ones((2, 3)), {"a": tf.ones((4, 5))})


def test_sizes_by_specification(tmp_path: Path) -> None:
    """Names of the caller replace the rule."""
    specs = [tf.TensorSpec((None,)), tf.TensorSpec((None,))]

    with pytest.raises(InconclusiveDimensionError, match="polymorphic_shapes"):
        saved(tmp_path, lambda x, y: x + y, specs, polymorphic_shapes=["a", "b"])
    loaded = saved(tmp_path, lambda x, y: tnp.outer(x, y), specs, polymorphic_shapes=["a", "b"])
    assert loaded.serve(tf.ones(2), tf.ones(3)).shape == (2, 3)


class Layer(NamedTuple):
    """Parameters with names."""

    w: Any
    n: Any


def test_parameters_of_all_kinds(tmp_path: Path) -> None:
    """Named tuples, integers, our arrays and existing variables; trees stay readable."""
    trained = tf.Variable([2.0], name="trained")
    params = {"layer": Layer(tnp.ones(1), np.int32(3)), "old": trained}
    loaded = saved(
        tmp_path, lambda p, x: x * p["layer"].w * p["layer"].n + p["old"],
        [tf.TensorSpec((None,))], params=params,
    )  # fmt: skip

    assert loaded.serve(tf.ones(2)).numpy().tolist() == [5.0, 5.0]
    loaded.params["layer/w"].assign([2.0])
    assert loaded.serve(tf.ones(2)).numpy().tolist() == [8.0, 8.0]
    assert not loaded.params["layer/n"].trainable


@pytest.mark.parametrize("order", [0, 1])
def test_grad_order(tmp_path: Path, order: int) -> None:
    """Derivatives up to that order are in the file, and no others."""
    loaded = saved(tmp_path, lambda x: tnp.sin(x), [tf.TensorSpec((None,))], grad_order=order)
    x = tf.constant([0.5])

    def derivative(k: int) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loaded.serve(x) if k == 1 else derivative(k - 1)
        return tape.gradient(y, x)

    np.testing.assert_allclose(loaded.serve(x), np.sin([0.5]), rtol=1e-6)
    if order:
        np.testing.assert_allclose(derivative(1), np.cos([0.5]), rtol=1e-6)
    with pytest.raises(LookupError, match=f"saved with grad_order={order}"):
        derivative(order + 1)


def test_shared_variables_are_trained_once(tmp_path: Path) -> None:
    """A variable in two places of the parameters is one, with the sum of its gradients."""
    tied = tf.Variable(3.0)
    loaded = saved(
        tmp_path,
        lambda p, x: p["a"] * p["b"] * x,
        [tf.TensorSpec(())],
        params={"a": tied, "b": tied},
    )

    with tf.GradientTape() as tape:
        y = loaded.serve(tf.constant(2.0))
    assert 1 == len(loaded.serve.trainable_variables) == len(loaded.serve.variables)
    assert [12.0] == [float(g) for g in tape.gradient(y, loaded.serve.trainable_variables)]


def test_dicts_with_other_keys_than_strings(tmp_path: Path) -> None:
    """Said in words of the caller; parameters and inputs may have any keys."""
    with pytest.raises(ArgumentSpecError, match=r"the result has a dict with the key 0 of type"):
        tb.tf.save(lambda x: {"a": {0: x}}, tmp_path, [tf.TensorSpec((2,))])
    loaded = saved(tmp_path, lambda p, x: {"a": p[0] * x}, [tf.TensorSpec((2,))], params={0: 1.0})

    assert [1.0, 1.0] == loaded.serve(tf.ones(2))["a"].numpy().tolist()


@pytest.mark.parametrize("name", ["é", "ä b", "1x", "self", "名"])
def test_names_of_inputs_that_graphs_do_not_take(name: str, tmp_path: Path) -> None:
    """The signature gets a name that TensorFlow takes."""
    spec = tf.TensorSpec((2,), name=name)
    loaded = saved(tmp_path, lambda x: {name: x * 2}, [spec])
    signature = loaded.signatures["serving_default"]
    (key,) = signature.structured_input_signature[1]

    assert key.isascii()
    (result,) = signature(**{key: tf.ones(2)}).values()
    assert [2.0, 2.0] == result.numpy().tolist()


def test_64_bit_dtypes(tmp_path: Path) -> None:
    """They stay in the file."""
    loaded = saved(
        tmp_path, lambda p, x: x * p, [tf.TensorSpec((2,), tf.float64)], params=np.float64(1 / 3)
    )

    assert loaded.serve(tf.ones(2, tf.float64)).numpy().tolist() == [1 / 3, 1 / 3]


def test_arguments_that_do_not_fit(tmp_path: Path) -> None:
    """The message says what was expected."""
    with pytest.raises(ArgumentSpecError, match=r"save\(.*\): signature contains 'x'"):
        tb.tf.save(lambda x: x, tmp_path, ["x"])
    with pytest.raises(ArgumentSpecError, match="signature is 3"):
        tb.tf.save(lambda x: x, tmp_path, 3)
    with pytest.raises(UnsupportedDtypeError, match="params contains 'text'"):
        tb.tf.save(lambda p, x: x, tmp_path, [tf.TensorSpec((3,))], params={"a": "text"})


def test_importing_the_package_does_not_import_tensorflow(
    subprocess_environment: dict[str, str],
) -> None:
    """Neither does the module; its first use does, and leaves its devices to be configured."""
    code = (
        "import sys, tracebridge.tf\n"
        "assert 'tensorflow' not in sys.modules\n"
        "tracebridge.tf.to_tf, tracebridge.tf.Layer, tracebridge.tf.save\n"
        "print('tensorflow' in sys.modules)\n"
        "from tensorflow import config\n"
        "two = [config.LogicalDeviceConfiguration()] * 2\n"
        "config.set_logical_device_configuration(config.list_physical_devices('CPU')[0], two)\n"
        "print(len(config.list_logical_devices('CPU')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env=subprocess_environment, timeout=120,
    )  # fmt: skip

    assert ["True", "2"] == done.stdout.split()


def test_results_whose_paths_are_alike_keep_names_of_their_own(tmp_path: Path) -> None:
    """No result of ``serving_default`` is lost, nor a parameter of ``params``."""
    fun = lambda p, x: {"a b": x, "a_b": 2 * x, "a": {"b": 3 * x}, "a-b": p["k/v"] + p["k"].w}
    params = {"k/v": np.float32(1), "k": Layer(np.float32(3), np.float32(4)), "k/w": np.float32(5)}
    loaded = saved(tmp_path, fun, [tf.TensorSpec((), name="x")], params=params)
    out = loaded.signatures["serving_default"](x=tf.constant(1.0))

    assert [1.0, 2.0, 3.0, 4.0] == sorted(v.numpy().item() for v in out.values())
    assert {"a_b", "a_b_", "a_b__", "a_b___"} == set(out)
    assert [1.0, 3.0, 4.0, 5.0] == sorted(v.numpy().item() for v in loaded.params.values())


def test_inputs_by_keyword(tmp_path: Path) -> None:
    """As the function names them; what it names like a method's own gets an underscore."""
    specs = [tf.TensorSpec((None,)), {"a": tf.TensorSpec((None,))}, tf.TensorSpec(())]
    loaded = saved(tmp_path, lambda p, x, ids, self: x * p + ids["a"] * self, specs, params=2.0)
    x, ids, scale = tf.ones(2), {"a": tf.ones(2)}, tf.constant(3.0)

    assert [5.0, 5.0] == loaded.serve(x=x, ids=ids, self_=scale).numpy().tolist()
    assert [5.0, 5.0] == loaded.serve(x, ids, self_=scale).numpy().tolist()
    assert [5.0, 5.0] == loaded(x, ids, scale).numpy().tolist()
    assert [2.0] == [v.numpy() for v in loaded.trainable_variables] == [loaded.variables[0].numpy()]
    many = saved(tmp_path / "many", lambda *xs: sum(xs), [tf.TensorSpec(())] * 2)
    assert 3.0 == many.serve(args_0=tf.constant(1.0), args_1=tf.constant(2.0))


@pytest.mark.parametrize("order", [-1, 1.5, "2", None])
def test_orders_that_are_no_numbers_of_derivatives(order: Any, tmp_path: Path) -> None:
    """Said before anything is written."""
    with pytest.raises(ArgumentSpecError, match="grad_order is"):
        saved(tmp_path, lambda x: x, [tf.TensorSpec(())], grad_order=order)
    assert not list(tmp_path.iterdir())


def test_variables_of_keras_and_its_layer_for_models(tmp_path: Path) -> None:
    """Variables are shared, not copied; TFSMLayer takes the folder and trains the variables."""
    keras = pytest.importorskip("keras")
    w = keras.Variable(np.ones((3, 2), np.float32), name="w")
    steps = keras.Variable(np.int32(3), trainable=False, dtype="int32")
    fun = lambda p, x: tnp.tanh(x @ p["w"]) * p["steps"]
    folder = str(tmp_path / "model")
    tb.tf.save(fun, folder, [tf.TensorSpec((None, 3))], params={"w": w, "steps": steps})
    layer = keras.layers.TFSMLayer(folder)
    x = tf.ones((5, 3))

    np.testing.assert_allclose(layer(x), np.full((5, 2), 3 * np.tanh(3.0)), rtol=1e-6)
    assert [(3, 2)] == [tuple(v.shape) for v in layer.trainable_variables]
    assert [()] == [tuple(v.shape) for v in layer.non_trainable_variables]
    with tf.GradientTape() as tape:
        y = layer(0.1 * x)
    (gradient,) = tape.gradient(y, [layer.trainable_variables[0].value])
    np.testing.assert_allclose(gradient, np.full((3, 2), 1.5 / np.cosh(0.3) ** 2), rtol=1e-5)


def test_fit_with_a_partial_last_batch() -> None:
    """Integers, masks and features of unknown batch size in a Keras model."""
    keras = pytest.importorskip("keras")
    pick = tb.tf.to_tf(
        lambda w, ids, mask: tnp.where(mask[:, None], w[ids], 0.0),
        polymorphic_shapes=["_, _", "b", "b"],
    )

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.table = self.add_weight(shape=(4, 2), name="table")

        def call(self, inputs: Any) -> Any:
            return pick(self.table, inputs["ids"], inputs["mask"])

    rng = np.random.default_rng(0)
    ids, mask = rng.integers(0, 4, 10), np.arange(10) % 5 != 4
    target = (np.eye(4)[ids] @ rng.standard_normal((4, 2)) * mask[:, None]).astype(np.float32)
    model = Model()
    model.compile(optimizer=keras.optimizers.SGD(0.5), loss="mse")
    data = tf.data.Dataset.from_tensor_slices(({"ids": ids, "mask": mask}, target)).batch(4)
    losses = model.fit(data, epochs=20, verbose=0, shuffle=False).history["loss"]

    assert losses[-1] < 1e-2 * losses[0]
    assert (10, 2) == model.predict(data, verbose=0).shape


def test_constants_are_in_the_file_once(tmp_path: Path) -> None:
    """However often they are used, and for however many derivatives."""
    w = np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32)
    copy = tnp.asarray(w)
    fun = lambda x: tnp.tanh(tnp.sin(x @ w) @ copy) + x @ w.copy()
    saved(tmp_path, fun, [tf.TensorSpec((None, 200))])
    size = (tmp_path / "model" / "saved_model.pb").stat().st_size

    assert size < w.nbytes * 1.4


SEVERAL = """
import sys

for name in ("tracebridge", "jaxlib", "jax"):
    sys.modules[name] = None

import numpy as np
import tensorflow as tf

folder, out = sys.argv[1:]
model = tf.saved_model.load(folder)
w, x, y = model.params["w"], tf.constant([[1.0, 2.0]]), tf.constant([[0.5]])
with tf.GradientTape() as outer:
    with tf.GradientTape() as inner:
        loss = model.loss(x, y)
    first = inner.gradient(loss, w)
    norm = tf.reduce_sum(first**2)
second = outer.gradient(norm, w)
predicted = model.signatures["predict"](inputs=x)["y"]
default = model.signatures["serving_default"](inputs=x)["y"]
w.assign(2 * w)
after = [model.predict(x)["y"], model(x)["y"], model.loss(x, y)]
arrays = [predicted, default, loss, first, second, *after]
np.savez(out, *[a.numpy() for a in arrays], names=sorted(model.signatures))
"""


def predict(params: Any, x: Any) -> Any:
    """One layer, with a named result."""
    return {"y": tnp.tanh(x @ params["w"])}


def squared_error(params: Any, x: Any, y: Any) -> Any:
    """The loss of ``predict``."""
    return ((predict(params, x)["y"] - y) ** 2).sum()


def test_several_functions_of_the_same_parameters(tmp_path: Path) -> None:
    """Each has its signature and its derivatives, in a process without this package."""
    w = np.float32([[0.3], [-0.2]])
    rows = tf.TensorSpec((None, 2), name="inputs")
    tb.tf.save(
        {"predict": predict, "loss": squared_error}, tmp_path / "model",
        {"predict": [rows], "loss": [rows, tf.TensorSpec((None, 1), name="target")]},
        params={"w": w}, grad_order={"predict": 0},
    )  # fmt: skip
    command = [sys.executable, "-c", SEVERAL, tmp_path / "model", tmp_path / "out.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    out = np.load(tmp_path / "out.npz")
    got = [out[name] for name in out.files if name != "names"]

    x, y = np.float32([[1.0, 2.0]]), np.float32([[0.5]])

    def loss(w: Any) -> Any:
        return squared_error({"w": w}, x, y)

    def norm(w: Any) -> Any:
        return (tb.grad(loss)(w) ** 2).sum()

    value, doubled = np.tanh(x @ w), np.tanh(x @ (2 * w))
    expected = [value, value, loss(w), tb.grad(loss)(w), tb.grad(norm)(w), doubled, doubled]
    for g, e in zip(got, [*expected, ((doubled - y) ** 2).sum()], strict=True):
        np.testing.assert_allclose(g, np.asarray(e), rtol=1e-5, atol=1e-6)
    assert ["loss", "predict", "serving_default"] == out["names"].tolist()


def test_several_functions_share_variables_and_constants(tmp_path: Path) -> None:
    """What two of them use is in the file once; a function with the name is the default."""
    w = np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32)
    params = {"w": np.random.default_rng(1).standard_normal((200, 200)).astype(np.float32)}
    specs = {"up": [tf.TensorSpec((None, 200), name="x")], "serving_default": [tf.TensorSpec(())]}
    funs = {"up": lambda p, x: x @ p["w"] @ w, "serving_default": lambda p, x: p["w"] * x + w}
    loaded = saved(tmp_path, funs, specs, params=params)
    graph = (tmp_path / "model" / "saved_model.pb").stat().st_size
    data = [p.stat().st_size for p in (tmp_path / "model" / "variables").glob("*.data*")]

    assert graph < w.nbytes * 1.4
    assert sum(data) < w.nbytes * 1.1
    assert [params["w"].size] == [int(tf.size(v)) for v in loaded.variables]
    assert ["serving_default", "up"] == sorted(loaded.signatures)
    default = loaded.signatures["serving_default"](x=tf.constant(2.0))["output_0"]
    np.testing.assert_allclose(default, 2 * params["w"] + w, rtol=1e-6)


def test_sizes_of_one_of_several_functions(tmp_path: Path) -> None:
    """Options by name are for the functions that they name; the others have the defaults."""
    spec = tf.TensorSpec((None,))
    loaded = saved(
        tmp_path, {"outer": tnp.outer, "inner": tnp.dot},
        {"outer": [spec] * 2, "inner": [spec] * 2},
        polymorphic_shapes={"outer": ["a", "b"]}, polymorphic_constraints={"inner": ["batch >= 2"]},
    )  # fmt: skip

    assert (
        (2, 3) == loaded.outer(tf.ones(2), tf.ones(3)).shape == loaded(tf.ones(2), tf.ones(3)).shape
    )
    assert 2.0 == loaded.inner(tf.ones(2), tf.ones(2))
    with pytest.raises(tf.errors.InvalidArgumentError):
        loaded.inner(tf.ones(1), tf.ones(1))


@pytest.mark.parametrize(
    ("names", "options", "what"),
    [
        ([], {}, "fun is an empty dict"),
        (["a b"], {}, "fun has the name 'a b'"),
        (["_a"], {}, "fun has the name '_a'"),
        (["params"], {}, "fun has the name 'params'"),
        (["variables"], {}, "fun has the name 'variables'"),
        ([3], {}, "fun has the name 3"),
        (["a"], {"signature": [tf.TensorSpec(())]}, "signature is "),
        (["a"], {"signature": {"b": [tf.TensorSpec(())]}}, "signature is "),
        (["a"], {"grad_order": {"b": 1}}, "grad_order has the name 'b'"),
        (["a"], {"grad_order": {"a": -1}}, "grad_order is -1"),
        (["a"], {"polymorphic_shapes": {"b": None}}, "polymorphic_shapes has the name 'b'"),
    ],
)
def test_names_that_do_not_fit(names: Any, options: Any, what: str, tmp_path: Path) -> None:
    """Said before anything is written."""
    options = {"signature": {name: [tf.TensorSpec(())] for name in names}, **options}

    with pytest.raises(ArgumentSpecError, match=what):
        saved(tmp_path, dict.fromkeys(names, tnp.sin), **options)
    assert not list(tmp_path.iterdir())
