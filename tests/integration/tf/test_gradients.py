"""Gradients of converted functions through tapes: all orders, modes and kinds of arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp

pytestmark = pytest.mark.tf


def normal(*shape: int, seed: int = 0) -> Any:
    """A float32 tensor that is the same each time."""
    return tf.constant(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def model(w: Any, x: Any) -> Any:
    """One layer, in our functions."""
    return {"y": tnp.tanh(x @ w), "mean": x.mean(0), "index": tnp.argmax(x, -1)}


def native(w: Any, x: Any) -> Any:
    """The same in TensorFlow's."""
    return {"y": tf.tanh(x @ w), "mean": tf.reduce_mean(x, 0), "index": tf.argmax(x, -1)}


def gradients(fun: Any, w: Any, x: Any) -> list[Any]:
    """First and second order by both arguments."""
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            out = fun(w, x)
            loss = tf.reduce_sum(out["y"] ** 2) + tf.reduce_sum(out["mean"] ** 3)
        first = inner.gradient(loss, [w, x])
        norm = tf.add_n([tf.reduce_sum(g**2) for g in first])
    return [*first, *outer.gradient(norm, [w, x])]


def assert_all_close(got: Any, expected: Any) -> None:
    """Each relative to its largest element."""
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-5 * float(tf.reduce_max(tf.abs(e))))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("place", ["eager", "function", "tapes inside", "unknown batch"])
def test_first_and_second_order(place: str, jit_compile: bool) -> None:
    """Tapes outside of and inside of ``tf.function``, with known and unknown batch size."""
    w, x = tf.Variable(normal(3, 4)), normal(5, 3, seed=1)
    fun = tb.tf.to_tf(model)
    options: dict[str, Any] = {"jit_compile": jit_compile}
    spec = tf.TensorSpec((None, 3), tf.float32)
    if place == "eager":
        got = gradients(fun, w, x)
    elif place == "function":
        got = gradients(tf.function(fun, **options), w, x)
    elif place == "tapes inside":
        inside = tf.function(
            lambda x: gradients(fun, w, x), input_signature=[spec], autograph=False, **options
        )
        got = inside(x)
    else:
        unknown = tf.function(lambda x: fun(w, x), input_signature=[spec], **options)
        got = gradients(lambda w, x: unknown(x), w, x)

    assert_all_close(got, gradients(native, w, x))


def test_third_order() -> None:
    """Each order has a gradient of its own."""
    fun = tf.function(tb.tf.to_tf(lambda x: tnp.sin(x) * x))
    x = tf.constant(0.7)
    with tf.GradientTape() as t3:
        t3.watch(x)
        with tf.GradientTape() as t2:
            t2.watch(x)
            with tf.GradientTape() as t1:
                t1.watch(x)
                y = fun(x)
            d1 = t1.gradient(y, x)
        d2 = t2.gradient(d1, x)
    d3 = t3.gradient(d2, x)

    np.testing.assert_allclose(d3, -3 * np.sin(0.7) - 0.7 * np.cos(0.7), rtol=1e-5)


@pytest.mark.parametrize("graph", [False, True])
def test_integers_have_no_gradient(graph: bool) -> None:
    """Neither as arguments nor as results."""
    fun = tb.tf.to_tf(lambda x, n: (x * n, n + 1))
    fun = tf.function(fun) if graph else fun
    x, n = tf.constant([1.0, 2.0]), tf.constant([3, 4])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y, _ = fun(x, n)
    x_bar, n_bar = tape.gradient(y, [x, n])

    assert x_bar.numpy().tolist() == [3.0, 4.0]
    assert n_bar is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_gradients_keep_dtypes(dtype: str) -> None:
    """A cotangent has the dtype of its argument."""
    x = tf.constant([0.5, 1.0], dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tb.tf.to_tf(lambda x: x * x)(x)
    got = tape.gradient(y, x)

    assert got.dtype == x.dtype
    assert tf.cast(got, tf.float32).numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("order", [1, 2])
def test_complex_gradients_follow_tensorflow(order: int) -> None:
    """TensorFlow's are conjugates of cotangents."""
    z = tf.constant([1 + 2j, 0.5 - 1j], tf.complex64)

    def gradient(fun: Any, order: int, z: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(z)
            out = fun(z) if order == 1 else gradient(fun, order - 1, z)
            loss = tf.reduce_sum(tf.math.real(out) + 2 * tf.math.imag(out))
        return tape.gradient(loss, z)

    got = gradient(tb.tf.to_tf(lambda z: z * z * z), order, z)

    np.testing.assert_allclose(got, gradient(lambda z: z * z * z, order, z), rtol=1e-5)


@pytest.mark.parametrize("wrapper", [lambda f: f, lambda f: tf.function(f, autograph=False)])
def test_without_gradient(wrapper: Any) -> None:
    """Asking a tape for the gradient is an error that says why; constants are no obstacle."""
    x = normal(3)
    fun = tb.tf.to_tf(lambda x: (x * 2, x > 0), with_gradient=False)

    @wrapper
    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fun(x)[0]
        return tape.gradient(y, x)

    @wrapper
    def gradient_of_the_rest(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * tf.stop_gradient(fun(x)[0]) * tf.cast(fun(x)[1], x.dtype)
        return tape.gradient(y, x)

    with pytest.raises(LookupError, match="with_gradient=False"):
        gradient(x)
    np.testing.assert_allclose(
        gradient_of_the_rest(x), np.where(x > 0, 2 * x.numpy(), 0), rtol=1e-6
    )


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}, None])
def test_results_without_derivatives(options: dict[str, bool] | None) -> None:
    """Integers and bools have no gradient, as with TensorFlow's own functions."""
    x = normal(4)
    fun = tb.tf.to_tf(tnp.argmax)
    fun = fun if options is None else tf.function(fun, **options)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        index = fun(x)
        y = x * tf.cast(index, x.dtype)

    assert int(np.argmax(x)) == int(index)
    assert tape.gradient(index, x) is None
    np.testing.assert_allclose(tape.gradient(y, x), np.full(4, index, np.float32))


def test_jacobian_and_vectorized_map() -> None:
    """TensorFlow's own vectorization takes the operation."""
    fun = tb.tf.to_tf(lambda x: tnp.sin(x).sum() * x)
    x = normal(3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fun(x)
    got = tape.jacobian(y, x)
    expected = np.asarray(tb.vjp(lambda x: tnp.sin(x).sum() * x, tnp.asarray(x.numpy()))[0])

    np.testing.assert_allclose(
        got, np.outer(x, np.cos(x)) + np.eye(3) * np.sin(x).sum(), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(tf.vectorized_map(fun, x[None])[0], expected, rtol=1e-5)


def test_keras_style_training_step() -> None:
    """A variable is trained through a converted loss in a compiled function."""
    w = tf.Variable(tf.zeros((3, 1)))
    x = normal(32, 3)
    target = x @ tf.constant([[1.0], [-2.0], [0.5]])
    loss_of = tb.tf.to_tf(lambda w, x, y: ((x @ w - y) ** 2).mean())

    @tf.function(jit_compile=True)
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(w, x, y)
        w.assign_sub(0.3 * tape.gradient(loss, w))
        return loss

    losses = [float(step(x, target)) for _ in range(60)]

    assert losses[-1] < 1e-4 * losses[0]


def take(x: Any, i: Any, m: Any) -> tuple[Any, Any, Any]:
    """Integers and booleans as indices, as numbers and as masks; all of unknown size."""
    return tnp.where(m, x[i] * i, 0.0), i + 1, ~m


@pytest.mark.parametrize("place", ["eager", "function", "jit_compile", "saved"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integers_and_booleans_of_unknown_size(place: str, dtype: str, tmp_path: Path) -> None:
    """They have no gradient; first and second order of the others are those of TensorFlow."""
    specs = [tf.TensorSpec((4,)), tf.TensorSpec((None,), dtype), tf.TensorSpec((None,), tf.bool)]
    fun: Any = tb.tf.to_tf(take, polymorphic_shapes=["_", "b", "b"])
    if place == "saved":
        tb.tf.save(take, tmp_path, specs)
        fun = tf.saved_model.load(tmp_path).serve
    elif place != "eager":
        fun = tf.function(fun, input_signature=specs, jit_compile=place == "jit_compile")
    x = normal(4)
    for n in (3, 2):
        i, m = tf.cast(tf.constant([3, 0, 1][:n]), dtype), tf.constant([True, False, True][:n])

        def native(x: Any, i: Any = i, m: Any = m) -> Any:
            y = tf.gather(x, tf.cast(i, tf.int32)) * tf.cast(i, tf.float32)
            return tf.where(m, y, 0.0)

        def orders(call: Any, i: Any = i, m: Any = m) -> list[Any]:
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as inner:
                    inner.watch([x, m])
                    loss = tf.reduce_sum(call() ** 3)
                of_x, of_i, of_m = inner.gradient(loss, [x, i, m])
                of_x = tf.convert_to_tensor(of_x)
            assert (of_i, of_m) == (None, None)
            return [of_x, tf.convert_to_tensor(outer.gradient(of_x, x))]

        got = orders(lambda i=i, m=m: fun(x, i, m)[0])
        assert_all_close(got, orders(lambda call=native: call(x)))
        assert (i + 1).numpy().tolist() == fun(x, i, m)[1].numpy().tolist()


def test_models_without_gradient_are_saved_with_custom_gradients(tmp_path: Path) -> None:
    """The loaded function says the same; what needs no reverse mode is never differentiated."""
    module = tf.Module()
    looping = lambda x: tb.lax.while_loop(lambda y: y[0] < 10, lambda y: y * 2, x)
    fun = tb.tf.to_tf(looping, with_gradient=False)
    module.f = tf.function(fun, input_signature=[tf.TensorSpec((2,))])
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, tmp_path, options=options)
    loaded = tf.saved_model.load(tmp_path)
    x = tf.ones(2)

    assert [16.0, 16.0] == loaded.f(x).numpy().tolist()
    with tf.GradientTape() as tape, pytest.raises(LookupError, match="with_gradient=False"):
        tape.gradient(loaded.f(tf.Variable(x)), x)


UNCONNECTED: dict[str, tuple[Any, Any]] = {
    "not used": (lambda x, y: x * 2 + y.shape[0], lambda x, y: x * 2 + y.shape[0]),
    "stopped": (
        lambda x, y: x * tb.lax.stop_gradient(y),
        lambda x, y: x * tf.stop_gradient(y),
    ),
    "an integer between": (
        lambda x, y: x * y.astype(int).astype(x.dtype),
        lambda x, y: x * tf.cast(tf.cast(y, tf.int32), x.dtype),
    ),
    "none at all": (
        lambda x, y: tb.lax.stop_gradient(x * y),
        lambda x, y: tf.stop_gradient(x * y),
    ),
    "zero, but connected": (lambda x, y: x + 0 * y, lambda x, y: x + 0 * y),
}


@pytest.mark.parametrize("how", ["eager", "tape inside", "tape outside", "persistent", "loop"])
@pytest.mark.parametrize("name", UNCONNECTED)
def test_what_no_result_depends_on_has_no_gradient(name: str, how: str) -> None:
    """None as for TensorFlow's own operations: optimizers skip it, and Keras warns."""
    ours, theirs = UNCONNECTED[name]
    persistent = how == "persistent"

    def slopes(fun: Any) -> list[Any]:
        x, y = tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])
        with tf.GradientTape(persistent=persistent) as tape:
            tape.watch([x, y])
            out = fun(x, y)
        return tape.gradient(out, [x, y])

    fun = tb.tf.to_tf(ours)
    if how == "tape outside":
        fun = tf.function(fun, autograph=False)
        zeros = {"unconnected_gradients": "zero"}
        x, y = tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, y])
            outs = fun(x, y), theirs(x, y)
        found, expected = [tape.gradient(out, [x, y], **zeros) for out in outs]
    elif how == "tape inside":
        found, expected = tf.function(lambda: slopes(fun), autograph=False)(), slopes(theirs)
    elif how == "loop":
        once = lambda f: (
            lambda x, y: tf.while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, f(c, y)), (0, x))[1]
        )
        looped = tf.function(lambda x, y: once(fun)(x, y), autograph=False)
        found = [tf.zeros(2) if g is None else g for g in slopes(looped)]
        expected = [tf.zeros(2) if g is None else g for g in slopes(once(theirs))]
    else:
        found, expected = slopes(fun), slopes(theirs)

    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b)
