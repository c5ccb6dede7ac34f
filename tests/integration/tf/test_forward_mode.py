"""Tangents of ``tf.autodiff.ForwardAccumulator``, alone and among tapes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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


def push(f: Fun, x: Any = X, dx: Any = DX) -> Any:
    """The tangents of ``f`` at ``x``."""
    with tf.autodiff.ForwardAccumulator(x, dx) as accumulator:
        y = f(x)
    return accumulator.jvp(y)


def pull(f: Fun, x: Any = X) -> Any:
    """The gradient of the sum of the results."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(f(x))
    return tape.gradient(y, x)


ORDERS: dict[str, Callable[[Fun], Any]] = {
    "tangents": push,
    "of tangents": lambda f: push(lambda x: push(f, x), X, DX * 2),
    "of a gradient": lambda f: push(lambda x: pull(f, x)),
    "gradient of tangents": lambda f: pull(lambda x: push(f, x)),
    "third": lambda f: pull(lambda x: push(lambda x: pull(f, x) ** 2, x)),
    "fourth": lambda f: push(lambda x: push(lambda x: pull(lambda x: pull(f, x) ** 2, x), x)),
}


# What they are of the sine, by hand.
OF_SINE: dict[str, Any] = {
    "tangents": tf.cos(X) * DX,
    "of tangents": -tf.sin(X) * DX * DX * 2,
    "of a gradient": -tf.sin(X) * DX,
    "gradient of tangents": -tf.sin(X) * DX,
    "third": -2 * tf.cos(2 * X) * DX,
    "fourth": 4 * tf.sin(2 * X) * DX * DX,
}


# In tapes around tangents of a function TensorFlow loses its own operations too.
OUTSIDE = ["tangents", "of a gradient"]


@pytest.mark.parametrize(
    ("order", "place"),
    [
        *[(order, "outside") for order in OUTSIDE],
        *[(order, "inside") for order in ORDERS],
        *[(order, "eager") for order in ORDERS if order != "fourth"],
    ],
)
def test_orders_mix(order: str, place: str) -> None:
    """Tapes and accumulators in any order, in the function and around it."""
    sine = tb.tf.to_tf(tnp.sin)
    sine = tf.function(sine, autograph=False) if place == "outside" else sine
    run = lambda: ORDERS[order](sine)
    run = tf.function(run, autograph=False) if place == "inside" else run

    np.testing.assert_allclose(run(), OF_SINE[order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", ["eager", "inside"])
def test_hessian_vector_products(place: str) -> None:
    """A tangent of a gradient that was computed from kept residuals."""
    run = lambda: ORDERS["of a gradient"](lambda x: CONVERTED(x, W))
    run = tf.function(run, autograph=False) if place == "inside" else run

    expected = ORDERS["of a gradient"](lambda x: native(x, W))
    np.testing.assert_allclose(run(), expected, rtol=1e-4, atol=1e-4)


def test_only_what_has_tangents_is_pushed() -> None:
    """Two arguments of five have tangents; integers and what does not depend on them have none."""
    y, n, flag = tf.constant([2.0, 3.0]), tf.constant([2, 3]), tf.constant(True)
    fun = tb.tf.to_tf(lambda x, y, n, z, flag: (x * y * n, n + 1, z * 2, tnp.where(flag, z, x)))
    x, z = tf.constant([1.0, 5.0]), tf.constant([7.0, 1.0])
    with tf.autodiff.ForwardAccumulator([x, y], [tf.ones(2), tf.constant([1.0, 0.0])]) as a:
        outs = fun(x, y, n, z, flag)

    got = [a.jvp(o, tf.UnconnectedGradients.ZERO).numpy().tolist() for o in [outs[0], *outs[2:]]]
    assert [[6.0, 9.0], [0.0, 0.0], [0.0, 0.0]] == got
    assert a.jvp(outs[1]) is None


def test_values_and_tangents_are_one_pass() -> None:
    """An operation with both results; maps and tapes by the tangents alone go through it."""
    run = tf.function(lambda x, dx: push(lambda x: CONVERTED(x, W), x, dx), autograph=False)
    graph = run.get_concrete_function(X, DX).graph
    (operation,) = [o for o in graph.get_operations() if o.type == "XlaCallModule"]
    assert [(4, 2), (4, 2)] == [tuple(o.shape) for o in operation.outputs]

    many = tf.stack([DX, 2 * DX, X])
    for f in (CONVERTED, tf.function(CONVERTED, autograph=False)):

        def by(dx: Any, f: Fun = f) -> Any:
            return push(lambda x: f(x, W), X, dx)

        mapped = tf.vectorized_map(by, many, fallback_to_while_loop=f is not CONVERTED)
        expected = tf.stack([push(lambda x: native(x, W), X, dx) for dx in many])
        np.testing.assert_allclose(mapped, expected, rtol=1e-4, atol=1e-5)

    def squares(f: Fun, dx: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(dx)
            y = tf.reduce_sum(push(lambda x: f(x, W), X, dx) ** 2)
        return tape.gradient(y, dx)

    for form in (lambda f: f, lambda f: tf.function(f, autograph=False)):
        got = form(lambda dx: squares(CONVERTED, dx))(DX)
        np.testing.assert_allclose(got, squares(native, DX), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "complex64"])
def test_dtypes(dtype: str) -> None:
    """Tangents have the dtype of the values; those of complex numbers are not conjugated."""
    x, dx = tf.cast(tf.constant([0.5, 2.0]), dtype), tf.cast(tf.constant([1.0, -3.0]), dtype)
    if dtype == "complex64":
        x, dx = tf.complex([0.5, 2.0], [1.0, 4.0]), tf.complex([1.0, -3.0], [0.5, 2.0])
    cube = lambda x: x * x * x
    for run in (push, lambda f, *at: push(lambda x: push(f, x, dx), *at)):
        got, expected = run(tb.tf.to_tf(cube), x, dx), run(cube, x, dx)
        assert got.dtype == dtype
        np.testing.assert_array_equal(tf.cast(got, "complex64"), tf.cast(expected, "complex64"))


@pytest.mark.parametrize("graph", [False, True])
def test_sizes_of_zero_and_unknown_ones(graph: bool) -> None:
    """One program pushes tangents of any number of rows."""
    spec = tf.TensorSpec((None, 3))
    run = lambda x, dx: push(lambda x: CONVERTED(x, W), x, dx)
    run = tf.function(run, input_signature=[spec, spec], autograph=False) if graph else run

    for n in (0, 2):
        expected = push(lambda x: native(x, W), X[:n], DX[:n])
        np.testing.assert_allclose(run(X[:n], DX[:n]), expected, rtol=1e-5, atol=1e-6)


def test_what_has_no_reverse_mode() -> None:
    """Forward mode goes through loops of unknown length, as with ``tb.jvp``."""
    doubled = lambda x: tb.lax.while_loop(lambda y: y[0] < 10, lambda y: y * y, x)

    got = push(tb.tf.to_tf(doubled), tf.constant([2.0, 3.0]), tf.constant([1.0, 1.0]))

    np.testing.assert_allclose(got, [4 * 2.0**3, 4 * 3.0**3])


def test_rules_for_the_reverse_mode_only() -> None:
    """Their transpose is the tangent."""

    @tb.custom_vjp
    def thrice(x: Any) -> Any:
        return tnp.sin(x)

    thrice.defvjp(lambda x: (tnp.sin(x), x), lambda x, g: (3 * g * tnp.cos(x),))

    np.testing.assert_allclose(push(tb.tf.to_tf(thrice)), 3 * DX * tf.cos(X), rtol=1e-5)


def test_programs_of_native_operations() -> None:
    """They have the same tangents."""
    got = push(lambda x: tb.tf.to_tf(ours, native_ops=True)(x, W))

    np.testing.assert_allclose(got, push(lambda x: native(x, W)), rtol=1e-4, atol=1e-5)


def test_tangents_are_refused_with_gradients() -> None:
    """``with_gradient=False`` holds for both modes."""
    fun = tb.tf.to_tf(tnp.sin, with_gradient=False)

    with pytest.raises(LookupError, match="with_gradient=False"):
        push(fun)


def test_saved_models(tmp_path: Path) -> None:
    """A loaded function has tangents by two orders of gradients; errors name ``grad_order``."""
    for order in (1, 2):
        path = tmp_path / str(order)
        tb.tf.save(ours, path, [X, W], polymorphic_shapes=["b, _", None], grad_order=order)
        loaded = tf.saved_model.load(path)
        fun = lambda x, loaded=loaded: loaded.serve(x, W)

        if order == 2:
            expected = push(lambda x: native(x, W))
            np.testing.assert_allclose(push(fun), expected, rtol=1e-4, atol=1e-5)
        with pytest.raises(LookupError, match=f"saved with grad_order={order}"):
            ORDERS["tangents" if order == 1 else "of a gradient"](fun)
