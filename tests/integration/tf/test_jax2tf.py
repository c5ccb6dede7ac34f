"""tracebridge.experimental.jax2tf: programs written for these names run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.experimental import jax2tf

pytestmark = pytest.mark.tf

# Runs in a process that can import neither the package nor what it is made of.
ALONE = """
import sys

for name in ("tracebridge", "jaxlib", "jax"):
    sys.modules[name] = None

import numpy as np
import tensorflow as tf

folder, out = sys.argv[1:]
model = tf.saved_model.load(folder)
x = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
n = tf.constant([2, 3])
with tf.GradientTape() as tape:
    tape.watch(x)
    y = model(x, n)
by_w, by_x = tape.gradient(y, [model.w, x])
compiled = tf.function(model.__call__, jit_compile=True)(x, n)
np.savez(out, y=y, by_w=by_w, by_x=by_x, one=model(x[:1], n[:1]), compiled=compiled)
"""

LARGE = np.linspace(-1.0, 1.0, 3000, dtype=np.float32).reshape(3, 1000)


def network(w: Any, x: Any, n: Any) -> Any:
    """A layer with a large constant and an integer argument."""
    return tnp.tanh(x @ (LARGE[:, :4] * w)) * n[:, None] + (x @ LARGE).sum(1, keepdims=True)


class Model(tf.Module):
    """As users save converted functions: variables in a module, the call in a tf.function."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(np.linspace(0.1, 1.2, 12, dtype=np.float32).reshape(3, 4))
        shapes = ["...", "(b, _)", "b"]
        self.converted = jax2tf.convert(network, polymorphic_shapes=shapes)

    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec((None, 3), name="x"), tf.TensorSpec((None,), tf.int32)],
    )
    def __call__(self, x: Any, n: Any) -> Any:
        """The network at the variable."""
        return self.converted(self.w, x, n)


def test_saved_models_run_and_train_in_another_process(tmp_path: Path) -> None:
    """Values and gradients, by the variable too, at two batch sizes, and compiled."""
    model = Model()
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(model, str(tmp_path / "model"), options=options)

    command = [sys.executable, "-c", ALONE, tmp_path / "model", tmp_path / "out.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    out = np.load(tmp_path / "out.npz")

    x = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)
    n, w = np.int32([2, 3]), model.w.numpy()
    expected = np.tanh(x @ (LARGE[:, :4] * w)) * n[:, None] + (x @ LARGE).sum(1, keepdims=True)
    slope = (1 - np.tanh(x @ (LARGE[:, :4] * w)) ** 2) * n[:, None]
    np.testing.assert_allclose(out["y"], expected, rtol=2e-5)
    np.testing.assert_allclose(out["one"], expected[:1], rtol=2e-5)
    np.testing.assert_allclose(out["compiled"], expected, rtol=2e-5)
    np.testing.assert_allclose(out["by_w"], x.T @ slope * LARGE[:, :4], rtol=2e-5)
    by_x = slope @ (LARGE[:, :4] * w).T + 4 * LARGE.sum(1)
    np.testing.assert_allclose(out["by_x"], by_x, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("jit_compile", [True, False, None], ids=["xla", "graph", "eager"])
def test_gradients_of_two_orders(jit_compile: bool | None) -> None:
    """The derivatives of x ** 3 by a tape in a tape."""

    def both(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = jax2tf.convert(lambda x: x**3)(x)
            slope = inner.gradient(y, x)
        return y, slope, outer.gradient(slope, x)

    run = both if jit_compile is None else tf.function(both, jit_compile=jit_compile)
    assert [8.0, 12.0, 12.0] == [float(v) for v in run(tf.constant(2.0))]


def test_gradients_of_unused_and_integer_inputs() -> None:
    """Zero for an unused float, None for integers and booleans."""
    xs = [tf.Variable(v) for v in (10.0, 11.0, 12, True)]
    with tf.GradientTape() as tape:
        y, n = jax2tf.convert(lambda a, b, n, t: (2 * a, n))(*xs)
    assert (20.0, 12) == (float(y), int(n))
    assert [2.0, 0.0, None, None] == [g if g is None else float(g) for g in tape.gradient(y, xs)]


@pytest.mark.parametrize(
    ("value", "narrow", "wide"),
    [
        (1.5, "float32", "float64"),
        (2, "int32", "int64"),
        (True, "bool", "bool"),
        (1j, "complex64", "complex128"),
        (np.float64(1.5), "float32", "float64"),
        (np.arange(3), "int32", "int64"),
        (np.ones(2, np.complex128), "complex64", "complex128"),
        (tf.constant(2.0, tf.float64), "float32", "float64"),
        (tf.constant(2, tf.uint64), "uint32", "uint64"),
        (tf.constant(2.0, tf.bfloat16), "bfloat16", "bfloat16"),
    ],
    ids=str,
)
def test_dtypes_are_those_of_jit(value: Any, narrow: str, wide: str) -> None:
    """64 bits are an option, for arguments and for what dtype_of_val says of them."""
    for on, expected in ((False, narrow), (True, wide)):
        with tb.enable_x64(on):
            got = jax2tf.convert(lambda x: x)(value)
            assert (expected, expected) == (got.dtype.name, jax2tf.dtype_of_val(value).name)


def test_numbers_are_no_weak_types() -> None:
    """A Python float is an argument of 32 bits, also beside one of 16 bits."""
    got = jax2tf.convert(lambda x, y: x + y)(tf.ones(2, tf.bfloat16), 2.0)
    assert ("float32", [3.0, 3.0]) == (got.dtype.name, got.numpy().tolist())


def test_gradient_of_a_wide_argument() -> None:
    """The gradient has the dtype of the argument, though the program computes in 32 bits."""
    x = tf.constant([1.0, 2.0], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = jax2tf.convert(lambda x: (x**2).sum())(x)
    gradient = tape.gradient(y, x)
    assert ("float32", "float64") == (y.dtype.name, gradient.dtype.name)
    assert [2.0, 4.0] == gradient.numpy().tolist()


def test_trees_and_keywords() -> None:
    """Dicts, tuples, None and keyword arguments; a default stays what it is."""

    def f(tree: Any, *, scale: Any = 3, extra: Any = None) -> Any:
        assert extra is None
        return {"out": (tree["a"] * scale, None), "b": tree["b"][0]}

    converted = jax2tf.convert(f)
    tree = {"a": tf.Variable([1.0, 2.0]), "b": [np.int32(4)]}
    for run in (converted, tf.function(converted, autograph=False)):
        got = run(tree, scale=tf.constant(2.0))
        assert [2.0, 4.0] == got["out"][0].numpy().tolist()
        assert (None, 4) == (got["out"][1], int(got["b"]))
        assert [3.0, 6.0] == run(tree)["out"][0].numpy().tolist()


def test_arguments_that_a_module_holds() -> None:
    """Lists and dicts that tf.Module has wrapped are narrowed as others are."""
    owner = tf.Module()
    owner.params = {"w": [tf.Variable([1.0, 2.0], dtype=tf.float64)]}
    got = jax2tf.convert(lambda p: p["w"][0] * 2)(owner.params)
    assert ("float32", [2.0, 4.0]) == (got.dtype.name, got.numpy().tolist())


@pytest.mark.parametrize(
    "shapes",
    ["(b, _, 4)", "b, ...", jax2tf.PolyShape("b", ...), ["b, _, 4"], (jax2tf.PolyShape("b", 3, 4),),
     None],
    ids=str,
)  # fmt: skip
def test_sizes_that_vary(shapes: Any) -> None:
    """One graph for all batch sizes, whatever form the sizes are given in."""
    converted = jax2tf.convert(lambda x: x.reshape(x.shape[0], -1), polymorphic_shapes=shapes)
    run = tf.function(converted, autograph=False, input_signature=[tf.TensorSpec((None, 3, 4))])
    assert [(2, 12), (5, 12)] == [tuple(run(tf.ones((n, 3, 4))).shape) for n in (2, 5)]


def test_sizes_that_do_not_fit() -> None:
    """Equal names are equal sizes; a constraint is checked."""
    converted = jax2tf.convert(lambda x, y: x + y, polymorphic_shapes=["b", "b"])
    with pytest.raises(ValueError, match=r"y.shape\[0\] is 3"):
        converted(tf.ones(2), tf.ones(3))
    odd = jax2tf.convert(
        lambda x: x[:2], polymorphic_shapes="b", polymorphic_constraints=["b >= 2"]
    )
    signature = [tf.TensorSpec((None,))]
    assert 2 == tf.function(odd, autograph=False, input_signature=signature)(tf.ones(4)).shape[0]


def test_names_in_graphs() -> None:
    """Consumers of graphs find arguments and results by name."""
    run = tf.function(jax2tf.convert(lambda x, y: (x + y, x * y)), autograph=False)
    nodes = run.get_concrete_function(tf.ones(2), tf.ones(2)).graph.as_graph_def().node
    names = {node.name for node in nodes}
    assert {"jax2tf_arg_0", "jax2tf_arg_1", "jax2tf_out", "jax2tf_out_1"} <= names
    assert "XlaCallModule" in {node.op for node in nodes}


@pytest.mark.parametrize("option", ["enable_xla", "native_serialization"])
def test_operations_of_tensorflow(option: str) -> None:
    """Without XLA there are TensorFlow's own operations alone."""
    options: Any = {option: False}
    run = tf.function(jax2tf.convert(lambda x: tnp.sin(x) @ x, **options), autograph=False)
    operations = {
        n.op for n in run.get_concrete_function(tf.ones((2, 2))).graph.as_graph_def().node
    }
    assert "Sin" in operations
    assert "XlaCallModule" not in operations
    assert np.allclose(np.sin(1.0) * 2, run(tf.ones((2, 2))))


def test_platforms() -> None:
    """A program for another platform runs where the check is left out."""
    check = jax2tf.DisabledSafetyCheck.platform()
    chosen: Any = {"native_serialization_platforms": ("tpu",)}
    with pytest.raises(tf.errors.NotFoundError, match=r"TPU|tpu|platform"):
        jax2tf.convert(tnp.sin, **chosen)(1.0)
    run = jax2tf.convert(tnp.sin, **chosen, native_serialization_disabled_checks=[check])
    assert np.allclose(np.sin(1.0), run(1.0))


def test_custom_calls_that_are_allowed() -> None:
    """What only some processes have registered is refused, unless it is named."""

    def f(x: Any) -> Any:
        return tb.ffi.ffi_call("own_kernel", tb.ShapeDtypeStruct(x.shape, x.dtype))(x)

    signature = tf.TensorSpec((3,))
    with pytest.raises(tb.errors.ExportError, match="own_kernel"):
        tf.function(jax2tf.convert(f), autograph=False).get_concrete_function(signature)
    checks = [jax2tf.DisabledSafetyCheck.custom_call("own_kernel")]
    allowed = jax2tf.convert(f, native_serialization_disabled_checks=checks)
    traced = tf.function(allowed, autograph=False).get_concrete_function(signature)
    assert (3,) == tuple(traced.structured_outputs.shape)


def test_no_gradient() -> None:
    """A tape says that there is none, eagerly and in graphs."""

    def gradient(run: Any, x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(x)
        return tape.gradient(y, x)

    for run in (f := jax2tf.convert(tnp.sin, with_gradient=False), tf.function(f, autograph=False)):
        with pytest.raises(LookupError, match="with_gradient"):
            gradient(run, tf.constant(1.0))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"native_serialization_platforms": ("xpu",)},
            ValueError,
            "native_serialization_platforms",
        ),
        ({"native_serialization_platforms": ("gpu",)}, ValueError, "cuda"),
        ({"polymorphic_shapes": ["b", "c"]}, ValueError, "polymorphic_shapes"),
        ({"polymorphic_shapes": "b, c"}, ValueError, "polymorphic_shapes"),
        (
            {"enable_xla": False, "native_serialization_platforms": ("cpu",)},
            ArgumentSpecError,
            "enable_xla",
        ),
    ],
    ids=str,
)
def test_what_convert_refuses(options: Any, error: type[Exception], words: str) -> None:
    """The error names the option."""
    with pytest.raises(error, match=words):
        jax2tf.convert(lambda x: x, **options)(tf.ones(3))


def test_arguments_that_are_no_arrays() -> None:
    """Strings and ragged tensors are a TypeError that names the argument."""
    for value in ("a", tf.constant("a"), tf.ragged.constant([[1], [1, 2]])):
        with pytest.raises(TypeError, match=r"convert\(<lambda>\): x"):
            jax2tf.convert(lambda x: x)(value)


def test_shapes_of_results() -> None:
    """Types with symbolic sizes, and strings that the next function takes."""
    types, texts = jax2tf.eval_polymorphic_shape(
        lambda a, x: {"y": (a @ x).T, "z": x.sum()},
        polymorphic_shapes=["a, b", jax2tf.PolyShape("b", "c")],
    )(tb.ShapeDtypeStruct((2, 3), "float32"), tb.ShapeDtypeStruct((3, 4), "float32"))
    assert {"y": "(c, a)", "z": "()"} == texts
    assert ("(c, a)", "float32") == (str(types["y"].shape), str(types["y"].dtype))
    again = jax2tf.eval_polymorphic_shape(lambda x: x.T, polymorphic_shapes=[texts["y"]])
    assert "(a, c)" == again(types["y"])[1]


def test_a_converted_function_in_traced_code() -> None:
    """There and back: a converted function that call_tf calls, and its derivative."""
    back = jax2tf.call_tf(jax2tf.convert(lambda x: tnp.sin(x) * 2))
    assert np.allclose(2 * np.cos(1.0), tb.jit(tb.grad(back))(1.0))
    twice = jax2tf.convert(lambda x: jax2tf.call_tf(tf.math.lgamma)(x) * 2)
    assert np.allclose(2 * np.log(2.0), twice(tf.constant(3.0)))


def test_call_tf_takes_numbers_as_arrays() -> None:
    """Numbers, arguments and results, are arrays; trees keep their structure."""

    def f(x: Any, tree: Any) -> Any:
        return {"y": tf.sin(x) * tree["k"], "n": 3.0, "none": None}

    call = jax2tf.call_tf(f)
    for run in (call, tb.jit(call)):
        got = run(1.0, {"k": 2.0})
        assert np.allclose(2 * np.sin(1.0), got["y"])
        assert (tb.Array, None) == (type(got["n"]), got["none"])
        assert "float32" == str(got["n"].dtype)
    assert np.allclose(np.sin(1.0), tb.grad(lambda k: call(1.0, {"k": k})["y"])(2.0))


def test_call_tf_reads_trainable_variables() -> None:
    """No variable need be named; values are those of when the program runs."""
    v = tf.Variable(2.0)
    call = tb.jit(jax2tf.call_tf(lambda x: x * v))
    assert 6.0 == float(call(3.0))
    v.assign(5.0)
    assert (15.0, 5.0) == (float(call(3.0)), float(tb.grad(call)(3.0)))


def test_call_tf_with_effects() -> None:
    """Writes and draws happen in each call, without being announced; False makes them an error."""
    v = tf.Variable(0.0)

    def count(x: Any) -> Any:
        v.assign_add(1.0)
        return x + v

    call = jax2tf.call_tf(count)
    got = [float(call(1.0)), float(tb.jit(call)(1.0)), float(tb.jit(call)(1.0))]
    assert ([2.0, 3.0, 4.0], 3.0) == (got, float(v))
    draw = tb.jit(jax2tf.call_tf(lambda x: x + tf.random.uniform(()), ordered=True))
    assert float(draw(1.0)) != float(draw(1.0))
    with pytest.raises(tb.errors.CallbackError, match="has_side_effects"):
        jax2tf.call_tf(count, has_side_effects=False)(1.0)


def test_call_tf_with_types_of_results() -> None:
    """Declared types are those of a traced call; others are an error."""
    declared = tb.ShapeDtypeStruct((2,), "float32")
    call = jax2tf.call_tf(lambda x: tf.boolean_mask(x, x > 1), output_shape_dtype=declared)
    x = tnp.array([1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match="call_tf"):
        assert [2.0, 3.0] == tb.jit(call)(x).tolist()
    plain = jax2tf.call_tf(tf.sin, output_shape_dtype=jax2tf.UnspecifiedOutputShapeDtype())
    assert np.allclose(np.sin(1.0), plain(1.0))
    with pytest.raises(tb.errors.CallbackError, match="result 0"):
        jax2tf.call_tf(lambda x: x, output_shape_dtype=declared)(1.0)


def test_call_tf_derivatives_of_integers() -> None:
    """An integer argument has no tangents, a second derivative is that of tapes."""
    call = jax2tf.call_tf(lambda x, n: x ** tf.cast(n, tf.float32))
    slope = tb.grad(lambda x: call(x, 3))
    assert (12.0, 12.0) == (float(slope(2.0)), float(tb.jit(tb.grad(slope))(2.0)))
    _, pull = tb.vjp(call, 2.0, 3)
    assert tb.dtypes.float0 == pull(tnp.float32(1.0))[1].dtype


@pytest.mark.parametrize("parts", [[2, 1], None], ids=str)
def test_split_to_logical_devices(parts: Any) -> None:
    """The values stay what they are; a wrong number of axes is an error."""
    run = tf.function(lambda x: jax2tf.split_to_logical_devices(x, parts))
    assert np.array_equal(np.ones((2, 3)), run(tf.ones((2, 3))))
    with pytest.raises(ArgumentSpecError, match="partition_dimensions"):
        jax2tf.split_to_logical_devices(tf.ones((2, 3)), [2])
