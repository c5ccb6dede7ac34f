"""Tapes get gradients from residuals of the forward pass, and only those that they watch."""

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


def normal(*shape: int, seed: int = 0) -> Any:
    """A float32 tensor that is the same each time."""
    return tf.constant(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


X, W, V = normal(64, 64), normal(64, 64, seed=1) / 8, normal(64, 64, seed=2) / 8


def network(x: Any, w: Any, v: Any) -> Any:
    """Two layers with enough work that residuals are kept, in our functions."""
    h = tnp.tanh(x @ w)
    return h @ v, tnp.sin(h), tnp.argmax(h)


def native(x: Any, w: Any, v: Any) -> Any:
    """The same in TensorFlow's."""
    h = tf.tanh(x @ w)
    return h @ v, tf.sin(h), tf.argmax(h)


CONVERTED = tb.tf.to_tf(network)


def graph(fun: Callable[..., Any]) -> Any:
    """A function as TensorFlow compiles it."""
    return tf.function(fun, autograph=False)


def both_tapes(f: Any) -> Any:
    """One in the function that watches ``x``, one outside that watches ``w``."""

    @graph
    def inner(x: Any, w: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x, w, V)[0]
            loss = tf.reduce_sum(y**2)
        return tape.gradient(loss, x), y

    with tf.GradientTape() as tape:
        tape.watch(W)
        g, y = inner(X, W)
        loss = tf.reduce_sum(g**2) + tf.reduce_sum(y**3)
    return tape.gradient(loss, W)


def tape_and_gradients(f: Any) -> Any:
    """``tf.gradients`` by what no tape watches."""

    @graph
    def run(x: Any, w: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(f(x, w, V)[0] ** 2)
        return tape.gradient(loss, x), tf.gradients(loss, w)[0]

    return run(X, W)


def third_order(f: Any) -> Any:
    """Each tape watches something else."""
    with tf.GradientTape() as a:
        a.watch([X, V])
        with tf.GradientTape() as b:
            b.watch(X)
            with tf.GradientTape() as c:
                c.watch(W)
                y, h, _ = f(X, W, V)
                loss = tf.reduce_sum(y**3) + tf.reduce_sum(h**2)
            first = tf.reduce_sum(c.gradient(loss, W) ** 2) * 1e-3
        second = tf.reduce_sum(b.gradient(first, X) ** 2)
    return a.gradient(second, [X, V])


def persistent(f: Any) -> Any:
    """Several gradients of one call, of some results, one of them on the tape itself."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([X, W])
        y, h, _ = f(X, W, V)
        total, squares = tf.reduce_sum(y), tf.reduce_sum(h**2)
        g = tape.gradient(squares, W)
    return [*tape.gradient(total, [X, W]), tape.gradient(squares, X), *tape.gradient(g, [X, W])]


def loops(f: Any) -> Any:
    """A tape around a loop, and one in its body."""

    @graph
    def run(x: Any, w: Any) -> Any:
        def body(i: Any, w: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(w)
                loss = tf.reduce_mean(f(x, w, V)[0] ** 2)
            return i + 1, w - 0.1 * tape.gradient(loss, w)

        with tf.GradientTape() as tape:
            tape.watch(w)
            _, y = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, f(y, w, V)[1]), (0, x))
        return tf.while_loop(lambda i, _: i < 3, body, (0, w))[1], tape.gradient(y, w)

    return run(X, W)


def branches(f: Any) -> Any:
    """Tapes in the function and outside of it, by what a branch and a nested function capture."""

    def value(x: Any, w: Any) -> Any:
        nested = graph(lambda: f(x, w, V)[1])
        return tf.cond(x[0, 0] < 9.0, lambda: f(x, w, V)[0] * nested(), lambda: x)

    def gradients(run: Callable[..., Any], x: Any, w: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch([x, w])
            with tf.GradientTape() as tape:
                tape.watch([x, w])
                loss = tf.reduce_sum(run(x, w) ** 3)
            first = tape.gradient(loss, [x, w])
            squares = tf.add_n([tf.reduce_sum(g**2) * 1e-3 for g in first])
        return first, outer.gradient(squares, [x, w])

    outside = gradients(graph(value), X, W)
    return [value(X, W), outside, graph(lambda x, w: gradients(value, x, w))(X, W)]


def outside(f: Any) -> Any:
    """Of a function without a tape: by two tapes, in maps of TensorFlow and in another function."""
    function = graph(lambda x, w: f(x, w, V))

    def first(x: Any, w: Any, which: int = 0) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            loss = tf.reduce_sum(function(x, w)[which] ** 3)
        return tape.gradient(loss, [x, w])

    def second() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([X, W])
            squares = tf.add_n([tf.reduce_sum(g**2) * 1e-3 for g in first(X, W)])
        return tape.gradient(squares, [X, W])

    def by_row(x: Any) -> Any:
        return first(x[None], W)[1]

    mapped = tf.vectorized_map(by_row, X[:3], fallback_to_while_loop=False)
    both = graph(lambda x, w: [first(x, w), function(x, w)[:2]])
    found = [function(X, W)[:2], first(X, W), second(), first(X, W, 1), first(X, W), mapped]
    return [found, both(X, W), function(X, W)[:2]]


@pytest.mark.parametrize(
    "program", [both_tapes, tape_and_gradients, third_order, persistent, loops, branches, outside]
)
def test_who_asks_for_what(program: Callable[[Any], Any]) -> None:
    """Tapes, graphs and loops get the gradients that TensorFlow's own operations give them."""
    pairs = zip(*[tf.nest.flatten(program(f)) for f in (CONVERTED, native)], strict=True)
    for got, expected in pairs:
        scale = float(tf.reduce_max(tf.abs(expected)))
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.parametrize("batch", [None, 64])
def test_nothing_is_computed_that_is_not_asked_for(batch: int | None) -> None:
    """A forward pass with residuals and a backward pass of one gradient; without tapes neither."""
    w = tf.Variable(W)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(CONVERTED(x, w, V)[0])
        return tape.gradient(loss, w)

    def operations(function: Any) -> list[list[tuple[int | None, ...]]]:
        found = function.get_concrete_function(tf.TensorSpec((batch, 64))).graph.get_operations()
        calls = [op for op in found if op.type == "XlaCallModule"]
        return [[tuple(o.shape) for o in op.outputs] for op in calls]

    forward, backward = operations(graph(step))
    assert len(forward) > 3  # the results, and what the gradient reads
    assert backward == [(64, 64)]
    assert len(operations(graph(lambda x: CONVERTED(x, w, V)))[0]) == 3


def test_tapes_outside_of_functions() -> None:
    """The form of a function for tapes has residuals; calls without a tape run what they ran."""
    function = graph(lambda x: CONVERTED(x, W, V))
    concrete = function.get_concrete_function(X)
    with tf.GradientTape() as tape:
        tape.watch(X)
        loss = tf.reduce_sum(function(X)[0])
    tape.gradient(loss, X)
    (operation,) = [o for o in concrete.graph.get_operations() if o.type == "XlaCallModule"]
    assert len(operation.outputs) > 3
    (plain,) = [n for n in concrete.function_def.node_def if n.op == "XlaCallModule"]
    assert len(plain.attr["Tout"].list.type) == 3


def looped(x: Any, w: Any) -> Any:
    """A loop whose body captures what tapes watch."""
    return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, CONVERTED(y, w, V)[1]), (0, x))[1]


def branched(x: Any, w: Any) -> Any:
    """A branch that captures what tapes watch."""
    return tf.cond(x[0, 0] < 9.0, lambda: CONVERTED(x, w, V)[1], lambda: x)


def reached(concrete: Any) -> list[int]:
    """The numbers of results of our operations that a function runs, in its loops and branches."""
    definition = concrete.graph.as_graph_def()
    functions = {f.signature.name: f.node_def for f in definition.library.function}
    found: list[int] = []
    waiting = list(definition.node)
    while waiting:
        node = waiting.pop()
        if node.op == "XlaCallModule":
            found.append(len(node.attr["Tout"].list.type))
        for value in node.attr.values():
            for function in (value.func, *value.list.func):
                waiting.extend(functions.get(function.name, ()))
    return sorted(found)


@pytest.mark.parametrize("fun", [looped, branched])
def test_bodies(fun: Any) -> None:
    """Gradients of loops and branches read residuals; without gradients there are none."""

    def step(x: Any, w: Any, *, asks: bool) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = tf.reduce_sum(fun(x, w))
        return tape.gradient(loss, w) if asks else loss

    plain, asked = [
        reached(graph(lambda x, w, a=a: step(x, w, asks=a)).get_concrete_function(X, W))
        for a in (False, True)
    ]
    assert plain == [3]
    assert len(asked) == 2  # one pass forward and one back
    assert asked[1] > 3
    function = graph(fun)
    with tf.GradientTape() as tape:
        tape.watch(W)
        loss = tf.reduce_sum(function(X, W))
    tape.gradient(loss, W)
    assert [3] == [
        len(node.attr["Tout"].list.type)
        for f in function.get_concrete_function(X, W).graph.as_graph_def().library.function
        for node in f.node_def
        if node.op == "XlaCallModule" and "rewritten" not in f.signature.name
    ]


def test_saved_steps(tmp_path: Path) -> None:
    """A function that holds a tape is saved with its gradients, and differentiated when loaded."""
    module: Any = tf.Module()
    module.w = tf.Variable(W)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(CONVERTED(x, module.w, V)[1] ** 2)
        return tape.gradient(loss, module.w)

    def second(fun: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(X)
            squares = tf.reduce_sum(fun(X) ** 2)
        return tape.gradient(squares, X)

    module.step = tf.function(step, input_signature=[tf.TensorSpec((None, 64))], autograph=False)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, tmp_path, options=options)
    loaded = tf.saved_model.load(tmp_path)

    np.testing.assert_allclose(loaded.step(X), step(X), rtol=1e-4, atol=1e-4)
    expected = second(step)
    scale = float(tf.reduce_max(tf.abs(expected)))
    np.testing.assert_allclose(second(loaded.step), expected, rtol=1e-3, atol=1e-4 * scale)
