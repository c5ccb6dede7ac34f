"""Optimizers of trees against their formulas in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.errors import ArgumentTypeError, ShapeMismatchError, TreeMismatchError
from tracebridge.example_libraries import optimizers

X0 = np.array([[1.0, -2.0, 3.0], [0.5, 0.0, -1.5]], np.float32)


def gradient(x):
    return x * np.array([1.0, 0.5, 0.0], np.float32)


def momentum(x, v, a, b, i):
    v = 0.9 * v + gradient(x)
    return x - 0.1 * v, v, a, b


def nesterov(x, v, a, b, i):
    v = 0.9 * v + gradient(x)
    return x - 0.1 * (0.9 * v + gradient(x)), v, a, b


def scaled(squares):
    return np.where(squares > 0, 1 / np.sqrt(np.where(squares > 0, squares, 1)), 0)


def adagrad(x, s, m, b, i):
    s = s + gradient(x) ** 2
    m = 0.1 * gradient(x) * scaled(s) + 0.9 * m
    return x - 0.1 * m, s, m, b


def rmsprop(x, s, a, b, i):
    s = 0.9 * s + 0.1 * gradient(x) ** 2
    return x - 0.1 * gradient(x) / np.sqrt(s + 1e-8), s, a, b


def rmsprop_momentum(x, s, v, b, i):
    s = 0.9 * s + 0.1 * gradient(x) ** 2
    v = 0.9 * v + 0.1 * gradient(x) / np.sqrt(s + 1e-8)
    return x - v, s, v, b


def adam(x, m, s, b, i):
    m, s = 0.9 * m + 0.1 * gradient(x), 0.999 * s + 0.001 * gradient(x) ** 2
    mean, square = m / (1 - 0.9 ** (i + 1)), s / (1 - 0.999 ** (i + 1))
    return x - 0.1 * mean / (np.sqrt(square) + 1e-8), m, s, b


def adamax(x, m, u, b, i):
    m, u = 0.9 * m + 0.1 * gradient(x), np.maximum(0.999 * u, np.abs(gradient(x)))
    return x - 0.1 / (1 - 0.9 ** (i + 1)) * m / (u + 1e-8), m, u, b


def sm3(x, m, rows, columns, i):
    s = np.minimum(rows.max(1, keepdims=True), columns.max(0, keepdims=True)) + gradient(x) ** 2
    m = 0.1 * gradient(x) * scaled(s) + 0.9 * m
    # Two arrays whose maxima along an axis are the vectors of the method.
    return x - 0.1 * m, m, s, s


RULES = [momentum, nesterov, adagrad, rmsprop, rmsprop_momentum, adam, adamax, sm3]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_steps_follow_the_formula(rule):
    """Three steps of a compiled optimizer are those of the formula."""
    mass = (0.9,) if rule in (momentum, nesterov) else ()
    begin, update, read = getattr(optimizers, rule.__name__)(0.1, *mass)
    step = tb.jit(lambda i, s: update(i, tb.tree.map(gradient, read(s)), s))
    state, reference = begin({"w": X0}), (X0.astype(np.float64), *np.zeros((3, 2, 3)))
    for i in range(3):
        state, reference = step(i, state), rule(*reference, i)

    np.testing.assert_allclose(read(state)["w"], reference[0], rtol=1e-4, atol=1e-6)


def test_a_schedule_is_asked_for_each_step():
    """The step size may depend on the number of the step."""
    begin, step, read = optimizers.sgd(optimizers.piecewise_constant([0], [1.0, 0.5]))
    state = step(1, 1.0, step(0, 1.0, begin(5.0)))

    assert float(read(state)) == 3.5


def test_schedules_follow_their_formulas():
    """Each schedule at a step between."""
    assert optimizers.exponential_decay(2.0, 4, 0.25)(2) == 1.0
    assert float(optimizers.inverse_time_decay(2.0, 4, 1.0, staircase=True)(7)) == 1.0
    assert float(optimizers.polynomial_decay(2.0, 4, 1.0, 2.0)(2)) == 1.25
    assert float(optimizers.polynomial_decay(2.0, 4, 1.0, 2.0)(9)) == 1.0


def test_gradients_of_another_structure_are_refused():
    """The error names the optimizer and both structures."""
    begin, step, _ = optimizers.sgd(0.1)

    with pytest.raises(TreeMismatchError, match="sgd: the gradients are not structured"):
        step(0, [1.0, 2.0], begin({"w": 1.0}))


def test_a_rule_that_changes_its_state_is_refused():
    """The state of each parameter keeps its structure."""

    @optimizers.optimizer
    def growing():
        return (lambda x: x), (lambda i, g, x: (x, g)), (lambda x: x)

    begin, step, _ = growing()

    with pytest.raises(TreeMismatchError, match="changed the structure"):
        step(0, 1.0, begin(1.0))


def test_states_survive_unpacking():
    """A state from its plain form is the same state; other leaves are refused."""
    state = optimizers.adam(0.1).init_fn({"w": X0, "b": X0[0]})
    again = optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(state))

    assert tb.tree.structure(state) == tb.tree.structure(again)
    with pytest.raises(ArgumentTypeError, match="JoinPoint"):
        optimizers.pack_optimizer_state({"w": 1.0})


def test_arguments_of_schedules_are_checked():
    """Vectors that fit for pieces, a number or a function for a step size."""
    with pytest.raises(ShapeMismatchError, match="one value more"):
        optimizers.piecewise_constant([1, 2], [0.1, 0.2])
    with pytest.raises(TypeError, match="number or a function"):
        optimizers.make_schedule(np.ones(2))


def test_gradients_are_clipped_by_their_norm():
    """The norm is that of all arrays together; short gradients stay."""
    grads = {"a": np.array([3.0]), "b": np.array([4.0])}

    assert float(optimizers.l2_norm(grads)) == 5.0
    assert [float(g[0]) for g in optimizers.clip_grads(grads, 2.5).values()] == [1.5, 2.0]
    assert [float(g[0]) for g in optimizers.clip_grads(grads, 9.0).values()] == [3.0, 4.0]
