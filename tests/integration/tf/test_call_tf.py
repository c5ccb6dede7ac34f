"""TensorFlow functions in traced code: values, derivatives, batches, variables, what is refused."""

from __future__ import annotations

import concurrent.futures
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    ArgumentSpecError,
    CallbackError,
    ExportError,
    ShapeMismatchError,
    UnsupportedDtypeError,
)
from tracebridge.testing import assert_allclose, check_grads
from tracebridge.tf import call_tf, to_tf

pytestmark = pytest.mark.tf

X = np.linspace(0.1, 1.0, 6, dtype=np.float32).reshape(2, 3)


def smooth(x: Any) -> Any:
    """A TensorFlow function of one tensor."""
    return tf.sin(x) * tf.exp(-x * x)


def ours(x: Any) -> Any:
    """The same in our operations."""
    return tnp.sin(x) * tnp.exp(-x * x)


def by_strings(x: Any) -> Any:
    """A function that TensorFlow cannot compile: the cube, by a text."""
    text = tf.strings.as_string(x)
    return x**3 + 0 * tf.strings.to_number(text)


CALLED = call_tf(smooth)
TRANSFORMED = {
    "value": lambda f: f,
    "hessian": lambda f: tb.hessian(lambda x: f(x[0]).sum()),
    "third": lambda f: tb.grad(
        lambda x: tb.grad(lambda x: tb.grad(lambda x: f(x).sum())(x).sum())(x).sum()
    ),
    "jacfwd": tb.jacfwd,
    "vmap of vmap": lambda f: tb.vmap(tb.vmap(f)),
    "vmap of grad": lambda f: tb.vmap(tb.grad(lambda x: f(x).sum()), in_axes=1),
    "grad of vmap": lambda f: tb.grad(lambda x: tb.vmap(f, in_axes=1)(x).sum()),
    "scan": lambda f: tb.grad(lambda x: tb.lax.scan(lambda c, r: (f(c) + r, c), x[0], x)[0].sum()),
    "checkpoint": lambda f: tb.grad(lambda x: tb.checkpoint(f)(x).sum()),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_equals_the_same_function_of_ours(name: str) -> None:
    """Eagerly by TensorFlow, and in a program as a part of it."""
    transform = TRANSFORMED[name]
    expected = transform(ours)(X)
    assert_allclose(transform(CALLED)(X), expected, rtol=2e-5, atol=2e-6)
    assert_allclose(tb.jit(transform(CALLED))(X), expected, rtol=2e-5, atol=2e-6)


def test_programs_have_the_function_once_and_no_callback() -> None:
    """Calls with the same types share one function of the module."""
    text = tb.jit(lambda x: CALLED(CALLED(x))).lower(X).as_text()
    assert text.count("stablehlo.sine") == 1
    assert "custom_call" not in text


def test_what_cannot_be_compiled_calls_back() -> None:
    """One warning says so; values, derivatives and batches are those of a callback."""
    f = call_tf(by_strings)
    with pytest.warns(UserWarning, match="cannot compile it.*AsString"):
        assert_allclose(tb.jit(f)(X), X**3, rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_allclose(tb.jit(tb.grad(lambda x: f(x).sum()))(X), 3 * X**2, rtol=1e-5)
    sequential = call_tf(by_strings, vmap_method="sequential")
    assert_allclose(tb.vmap(sequential, in_axes=1, out_axes=1)(X), X**3, rtol=1e-6)
    with pytest.raises(ExportError, match="call_tf"):
        to_tf(f)(tf.constant(X))


def test_double_precision_complex_and_integers() -> None:
    """64 bits by finite differences; cotangents of complex numbers are not conjugated."""
    with tb.enable_x64(True):
        f = call_tf(lambda m, x: tf.linalg.matvec(m, tf.sin(x)))
        check_grads(f, (tnp.asarray(X, "float64"), tnp.ones(3, "float64")), order=2)
    z = np.array([1 + 2j, 0.5 - 1j], np.complex64)
    g = lambda z: z * z * (1 + 2j)
    assert_allclose(tb.vjp(call_tf(g), z)[1](z)[0], tb.vjp(g, z)[1](z)[0], rtol=1e-6)
    assert_allclose(tb.jvp(call_tf(g), (z,), (z,))[1], tb.jvp(g, (z,), (z,))[1], rtol=1e-6)
    h = call_tf(lambda x, i: {"y": tf.gather(x, i), "n": tf.argmax(x, -1), "none": None})
    out = tb.jit(h)(X, np.array([1, 1]))
    assert out["n"].dtype == np.int32
    assert out["none"] is None
    assert_allclose(out["y"], X[[1, 1]])
    grads = tb.jit(tb.grad(lambda x: h(x, np.array([1, 1]))["y"].sum()))(X)
    assert_allclose(grads, np.float32([[0, 0, 0], [2, 2, 2]]))


def test_no_gradients_and_no_elements() -> None:
    """What does not depend on an argument has a gradient of zeros."""
    stopped = call_tf(lambda x, y: tf.stop_gradient(x) + 0 * y)
    assert_allclose(tb.jit(tb.grad(lambda x: stopped(x, X).sum()))(X), np.zeros_like(X))
    empty = np.zeros((0, 3), np.float32)
    assert tb.jit(tb.grad(lambda x: CALLED(x).sum()))(empty).shape == (0, 3)
    assert tb.vmap(CALLED)(empty).shape == (0, 3)


def test_variables_are_read_when_the_program_runs() -> None:
    """A value of the trace would be wrong after the next step of an optimizer."""
    v = tf.Variable([1.0, 2.0, 3.0])
    scaled = tf.function(lambda x: x * v)
    with pytest.raises(ArgumentSpecError, match=r"trainable variable.*\n.*variables=\[\.\.\.\]"):
        call_tf(scaled)(X)
    f = call_tf(scaled, variables=[])
    program, eager = tb.jit(f), f
    for value in ([1.0, 2.0, 3.0], [0.0, 0.0, 5.0]):
        v.assign(value)
        assert_allclose(program(X), X * np.float32(value))
        assert_allclose(eager(X), X * np.float32(value))
    with pytest.raises(ExportError, match="reads the variable"):
        to_tf(f)(tf.constant(X))


def test_variables_as_arguments() -> None:
    """Their values come from the caller, with derivatives; the variables keep theirs."""
    v, before = tf.Variable([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]
    f = call_tf(tf.function(lambda x: tf.sin(x * v)), variables={"v": v})
    loss = lambda p, x: (f(p, x) ** 2).sum()
    expected = lambda p, x: (tnp.sin(x * p["v"]) ** 2).sum()
    p = {"v": np.float32([0.3, 0.2, 0.1])}
    want = tb.hessian(expected)(p, X)["v"]["v"]
    assert_allclose(tb.hessian(loss)(p, X)["v"]["v"], want, rtol=1e-5, atol=1e-6)
    assert_allclose(tb.jit(tb.hessian(loss))(p, X)["v"]["v"], want, rtol=1e-5, atol=1e-6)
    many = {"v": np.eye(3, dtype=np.float32)}
    got = tb.vmap(tb.grad(loss), in_axes=(0, None))(many, X)
    assert_allclose(
        got["v"], tb.vmap(tb.grad(expected), in_axes=(0, None))(many, X)["v"], rtol=1e-5
    )
    assert v.numpy().tolist() == before
    exported = to_tf(f)({"v": tf.constant(p["v"])}, tf.constant(X))
    assert_allclose(exported.numpy(), np.sin(X * p["v"]), rtol=1e-6)
    with pytest.raises(ShapeMismatchError, match="value of the variable"):
        f({"v": np.ones(4, np.float32)}, X)
    with pytest.raises(ArgumentSpecError, match="another structure"):
        f([p["v"]], X)


def test_a_model_of_keras() -> None:
    """A loss of a model by its weights, compiled, and as Keras computes it."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(4, "gelu"), tf.keras.layers.Dense(1)])
    model(X)
    f = call_tf(model, variables=model.trainable_variables)
    params = [w.numpy() for w in model.trainable_variables]
    grads = tb.jit(tb.grad(lambda p, x: (f(p, x) ** 2).mean()))(params, X)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(X) ** 2)
    for got, want in zip(grads, tape.gradient(loss, model.trainable_variables), strict=True):
        assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-6)
    model.trainable = False
    assert_allclose(tb.jit(call_tf(model))(X), model(X).numpy(), rtol=1e-5, atol=1e-6)


def test_compiling_it_draws_no_random_numbers() -> None:
    """Neither from the generator of the user nor in the graph around the call."""
    draw = lambda: tf.random.normal([2]).numpy()
    tf.random.set_seed(0)
    expected = draw()
    tf.random.set_seed(0)
    tb.jit(call_tf(smooth)).lower(X)

    assert_allclose(draw(), expected)
    around = tf.function(to_tf(tb.grad(lambda x: call_tf(smooth)(x).sum())))
    nodes = around.get_concrete_function(tf.TensorSpec((2, 3))).graph.as_graph_def().node
    assert not [node.op for node in nodes if "Random" in node.op]


def test_inside_of_to_tf_it_is_a_part_of_the_program() -> None:
    """With tapes around, in a tf.function."""
    c = tf.constant(2.0)
    f = to_tf(lambda x: tnp.sin(call_tf(lambda x: x * x + c)(x)).sum())
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.function(f)(x)
    assert_allclose(y.numpy(), np.sin(X * X + 2).sum(), rtol=1e-6)
    assert_allclose(tape.gradient(y, x).numpy(), np.cos(X * X + 2) * 2 * X, rtol=1e-5)


def test_inside_of_to_tf_at_any_batch(tmp_path: Path) -> None:
    """TensorFlow compiles it when the sizes are known: two functions, with gradients, saved."""
    w = tf.constant(np.random.default_rng(0).standard_normal((3, 200)).astype(np.float32))
    first, second = call_tf(lambda x: tf.nn.softmax(x @ w)), call_tf(lambda x: tf.pad(x, [[1, 0]]))
    f = lambda x: second((first(tnp.sin(x)) ** 2).sum(1))
    native = lambda x: tf.pad(tf.reduce_sum(tf.nn.softmax(tf.sin(x) @ w) ** 2, 1), [[1, 0]])
    run = tf.function(to_tf(f), input_signature=[tf.TensorSpec([None, 3])])
    x = tf.constant(np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        want, got = native(x), run(x)
    assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)
    grads = tape.gradient(got, x), tape.gradient(want, x)
    assert_allclose(grads[0].numpy(), grads[1].numpy(), rtol=1e-4, atol=1e-7)
    assert_allclose(run(x[:1]).numpy(), native(x[:1]).numpy(), rtol=1e-5)
    tb.tf.save(f, str(tmp_path), [tf.TensorSpec([None, 3])], grad_order=0)
    loaded = tf.saved_model.load(str(tmp_path))
    assert_allclose(loaded.serve(x).numpy(), want.numpy(), rtol=1e-5)


def test_a_large_constant_is_stored_once(tmp_path: Path) -> None:
    """Whatever the number of its uses and of the orders of derivatives."""
    c = tf.constant(np.eye(256, dtype=np.float32))
    f = call_tf(lambda x: tf.tanh(tf.tanh(x @ c) @ c))
    assert tb.jit(f).lower(np.ones((2, 256), np.float32)).as_text().count("dense<") == 0
    tb.tf.save(f, str(tmp_path), [tf.TensorSpec((2, 256))], grad_order=2)
    assert (tmp_path / "saved_model.pb").stat().st_size < 1.5 * 256 * 256 * 4
    x = tf.ones((2, 256))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.saved_model.load(str(tmp_path)).serve(x)
    t = np.tanh(1.0)
    want = (1 - np.tanh(t) ** 2) * (1 - t**2)
    assert_allclose(tape.gradient(y, x).numpy(), np.full((2, 256), want, np.float32), rtol=1e-5)


def test_side_effects() -> None:
    """Writing and drawing are refused unless they are announced; then each call counts."""
    count = tf.Variable(0, trainable=False)
    state = tf.function(lambda x: x + tf.cast(count.assign_add(1), tf.float32))
    with pytest.raises(CallbackError, match="writes to a variable"):
        call_tf(state)(X)
    with pytest.raises(CallbackError, match="draws random numbers"):
        call_tf(lambda x: x + tf.random.normal([3]))(X)
    values = tf.Variable([1.0, 2.0], trainable=False)
    with pytest.raises(CallbackError, match="ResourceStridedSliceAssign"):
        call_tf(lambda x: (values[0].assign(5.0), x)[1])(X)
    assert values.numpy()[0] == 1
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    with pytest.raises(CallbackError, match="LookupTableRemove"):
        call_tf(lambda x: (table.remove(tf.constant([1], tf.int64)), x)[1])(X)
    assert_allclose(call_tf(lambda i: tf.gather(values, i))(np.array([1])), np.array([2.0]))
    one = tf.constant([[1]], tf.int64)
    with pytest.raises(CallbackError, match="UniformCandidateSampler"):
        call_tf(lambda: tf.random.uniform_candidate_sampler(one, 1, 2, True, 9)[0])()
    f = call_tf(state, has_side_effects=True, ordered=True)
    last = tb.jit(lambda x: tb.lax.fori_loop(0, 3, lambda _, c: f(c), x))(X)
    assert count.numpy() == 3
    assert_allclose(last, X + 6)
    with pytest.raises(ArgumentSpecError, match="ordered"):
        call_tf(state, ordered=True)


def test_sizes_that_depend_on_values() -> None:
    """They are declared, and checked when the program runs; eager calls tell them."""
    unique = lambda x: tf.unique(x)[0]
    eager = call_tf(unique)
    for x in (X[0], np.ones(3, np.float32)):
        assert_allclose(eager(x), np.unique(x))
        with pytest.raises(CallbackError, match="shape of result 0 depends on values"):
            tb.jit(eager)(x)
        with pytest.raises(CallbackError, match="shape of result 0 depends on values"):
            tb.grad(lambda x: eager(x).sum())(x)
    f = tb.jit(call_tf(unique, output_shape_dtype=tb.ShapeDtypeStruct((3,), "float32")))
    with pytest.warns(UserWarning, match="shapes inside depend on values"):
        assert_allclose(f(X[0]), X[0])
    with pytest.raises(CallbackError, match="call_tf"):
        f(np.ones(3, np.float32)).block_until_ready()


def test_functions_made_for_any_batch() -> None:
    """What such a function says of its shapes is less than what TensorFlow compiles."""
    spec = tf.TensorSpec([None, 3])
    f = call_tf(tf.function(lambda x: (tf.sin(x), x[:, 0]), input_signature=[spec]))
    assert_allclose(tb.jit(lambda x: f(x)[0])(X), np.sin(X), rtol=1e-6)
    got = tb.jit(tb.vmap(tb.grad(lambda x: f(x)[0].sum())))(X[None])
    assert_allclose(got, np.cos(X)[None], rtol=1e-6)


def test_derivatives_of_branches_are_compiled() -> None:
    """Without optional values, which XLA does not know, and so without a callback and a warning."""
    f = call_tf(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x) * x, lambda: -(x**3)))
    gradient = tb.jit(tb.grad(lambda x: f(x).sum()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = gradient(X), gradient(-X)
    assert_allclose(got[0], np.cos(X) * X + np.sin(X), rtol=1e-5)
    assert_allclose(got[1], -3 * X**2, rtol=1e-5)


def test_recurrent_networks_are_compiled() -> None:
    """Gradients behind other layers, and maps that XLA does not take, in an exported program."""
    layers = tf.keras.layers
    net = tf.keras.Sequential([tf.keras.Input((4, 3)), layers.Dense(3), layers.GRU(2)])
    f = call_tf(net, variables=net.trainable_variables)
    weights = [w.numpy() for w in net.trainable_variables]
    xs = np.random.default_rng(0).standard_normal((2, 5, 4, 3)).astype(np.float32)
    gradient = tb.grad(lambda p, x: (f(p, x) ** 2).sum())

    def native(x: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(net(x) ** 2)
        return tape.gradient(loss, net.trainable_variables)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        each = to_tf(tb.vmap(gradient, in_axes=(None, 0)))(weights, xs)
    for i in range(2):
        for expected, got in zip(native(xs[i]), each, strict=True):
            assert_allclose(expected, got[i], rtol=1e-4, atol=1e-5)


def test_errors_say_what_to_do() -> None:
    """Strings, failures inside, unknown sizes, arguments of call_tf."""
    with pytest.raises(CallbackError, match="dtype string"):
        call_tf(tf.strings.as_string)(X)
    with pytest.raises(UnsupportedDtypeError, match=r"call_tf\(reshaped\): x is .*<U1"):
        call_tf(reshaped)(np.array(["a"]))
    with pytest.raises(CallbackError, match=r"call_tf\(reshaped\): the function raised"):
        tb.jit(call_tf(reshaped))(X)
    with pytest.raises(CallbackError, match="RaggedTensor"):
        call_tf(lambda x: tf.RaggedTensor.from_tensor(x))(X)
    v = tf.Variable(1.0)
    unknown = {
        "reads the variable 'Variable:0', at sizes": call_tf(lambda x: x * v, variables=[]),
        "size 0 of result 0 is another": call_tf(lambda x: tf.zeros(tf.shape(x)[0] // 2)),
    }
    for message, f in unknown.items():
        with pytest.raises(ArgumentSpecError, match=message):
            tf.function(to_tf(f), input_signature=[tf.TensorSpec([None, 3])])(tf.constant(X))
    with pytest.raises(ArgumentSpecError, match=r"variables has 'Variable:0' twice"):
        call_tf(lambda x: x * v, variables=[v, v])
    with pytest.raises(ArgumentSpecError, match="vmap_method"):
        call_tf(smooth, vmap_method="loop")


def test_numbers_that_compare_equal_are_other_arguments() -> None:
    """A zero with a sign, and what Python takes for the same number."""
    f = call_tf(lambda x, k: x / tf.constant(k, tf.float32) if k == 0 else tf.convert_to_tensor(k))
    one = np.float32(1)
    assert (float(f(one, 0.0)), float(f(one, -0.0))) == (np.inf, -np.inf)
    assert tuple(map(float, tb.jit(lambda x: (f(x, 0.0), f(x, -0.0)))(one))) == (np.inf, -np.inf)
    assert [f(one, k).dtype.name for k in (1, 1.0, True)] == ["int32", "float32", "bool"]


def reshaped(x: Any) -> Any:
    """A function that fails."""
    return tf.reshape(x, [7])


def test_functions_of_ours_inside(caplog: pytest.LogCaptureFixture) -> None:
    """What ``to_tf`` made is compiled into the program again; mapped it is called in turns."""
    f = call_tf(lambda x: to_tf(ours)(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = tb.jit(tb.vmap(tb.grad(lambda x: f(x).sum())))(X)
    assert_allclose(got, tb.grad(lambda x: ours(x).sum())(X), rtol=1e-5)
    assert not caplog.records


def test_threads() -> None:
    """Eager calls, programs and callbacks, with values for one variable."""
    v = tf.Variable(1.0)
    f = call_tf(lambda x: x * v, variables=[v])
    program = tb.jit(f)

    def work(k: int) -> bool:
        value = [np.float32(k)]
        return bool((f(value, X) == X * k).all() and (program(value, X) == X * k).all())

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(32)))


@pytest.mark.parametrize("function", [lambda f: f, tf.function])
def test_traced_values_that_a_function_closes_over(function: Any) -> None:
    """They are to be arguments."""

    def scaled(x: Any) -> Any:
        return call_tf(function(lambda y: y * x))(x)

    with pytest.raises(CallbackError, match=r"raised [a-zA-Z]*: .*on a traced value") as raised:
        tb.jit(scaled)(np.ones(2, np.float32))
    assert "pass traced values that the function uses as arguments" in str(raised.value)
