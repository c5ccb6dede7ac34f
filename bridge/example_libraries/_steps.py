"""Rules of optimizers for one array. The number of the first step is 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tracebridge.core.tree.tree as trees
import tracebridge.numpy as tnp
from tracebridge.example_libraries._optimizer_state import Rules, optimizer
from tracebridge.example_libraries._schedules import make_schedule

__all__ = [
    "adagrad",
    "adam",
    "adamax",
    "clip_grads",
    "l2_norm",
    "momentum",
    "nesterov",
    "rmsprop",
    "rmsprop_momentum",
    "sgd",
    "sm3",
]


def _first(state: Sequence[Any]) -> Any:
    return state[0]


@optimizer
def sgd(step_size: Any) -> Rules:
    """Steps against the gradient.

    Args:
        step_size: a number, or a function from the number of the step to one.

    Returns:
        An `Optimizer`.

    >>> from tracebridge.example_libraries.optimizers import sgd
    >>> begin, step, parameters = sgd(0.5)
    >>> parameters(step(0, 2.0, begin(3.0)))
    2.0
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, x: Any) -> Any:
        return x - size(i) * g

    return (lambda x: x), update, (lambda x: x)


@optimizer
def momentum(step_size: Any, mass: Any) -> Rules:
    """Steps along a decaying sum of gradients.

    Args:
        step_size: a number, or a function from the number of the step to one.
        mass: by which the sum is multiplied before each step.

    Returns:
        An `Optimizer`.

    >>> from tracebridge.example_libraries.optimizers import momentum
    >>> begin, step, parameters = momentum(0.5, 0.9)
    >>> float(parameters(step(0, 2.0, begin(3.0))))
    2.0
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - size(i) * velocity, velocity

    return _beside_zeros, update, _first


@optimizer
def nesterov(step_size: Any, mass: Any) -> Rules:
    """Momentum that looks one step ahead.

    Args:
        step_size: a number, or a function from the number of the step to one.
        mass: by which the sum of gradients is multiplied before each step.

    Returns:
        An `Optimizer`.

    Source: Sutskever, Martens, Dahl, Hinton (2013), ICML, the form without a second point.

    >>> from tracebridge.example_libraries.optimizers import nesterov
    >>> begin, step, parameters = nesterov(0.5, 0.5)
    >>> float(parameters(step(0, 2.0, begin(3.0))))
    1.5
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - size(i) * (mass * velocity + g), velocity

    return _beside_zeros, update, _first


@optimizer
def adagrad(step_size: Any, momentum: Any = 0.9) -> Rules:
    """Steps divided by the root of the sum of all squared gradients.

    Args:
        step_size: a number, or a function from the number of the step to one.
        momentum: weight of the last direction in the next one.

    Returns:
        An `Optimizer`.

    Source: Duchi, Hazan, Singer (2011), JMLR 12.

    >>> from tracebridge.example_libraries.optimizers import adagrad
    >>> begin, step, parameters = adagrad(1.0, momentum=0.0)
    >>> float(parameters(step(0, 2.0, begin(3.0))))
    2.0
    """
    size = make_schedule(step_size)

    def init(x: Any) -> Any:
        return x, tnp.zeros_like(x), tnp.zeros_like(x)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, direction = state
        squares = squares + tnp.square(g)
        direction = (1 - momentum) * (g * _inverse_root(squares)) + momentum * direction
        return x - size(i) * direction, squares, direction

    return init, update, _first


@optimizer
def rmsprop(step_size: Any, gamma: Any = 0.9, eps: Any = 1e-8) -> Rules:
    """Steps divided by the root of a moving average of squared gradients.

    Args:
        step_size: a number, or a function from the number of the step to one.
        gamma: weight of the past in the average.
        eps: is added to the average below the root.

    Returns:
        An `Optimizer`.

    >>> from tracebridge.example_libraries.optimizers import rmsprop
    >>> begin, step, parameters = rmsprop(1.0, gamma=0.75)
    >>> round(float(parameters(step(0, 2.0, begin(3.0)))), 4)
    1.0
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, average = state
        average = gamma * average + (1 - gamma) * tnp.square(g)
        return x - size(i) * g / tnp.sqrt(average + eps), average

    return _beside_zeros, update, _first


@optimizer
def rmsprop_momentum(
    step_size: Any, gamma: Any = 0.9, eps: Any = 1e-8, momentum: Any = 0.9
) -> Rules:
    """`rmsprop` whose steps are a decaying sum.

    Args:
        step_size: a number, or a function from the number of the step to one.
        gamma: weight of the past in the average of squared gradients.
        eps: is added to the average below the root.
        momentum: by which the sum of steps is multiplied before each step.

    Returns:
        An `Optimizer`.

    >>> from tracebridge.example_libraries.optimizers import rmsprop_momentum
    >>> begin, step, parameters = rmsprop_momentum(1.0, gamma=0.75)
    >>> round(float(parameters(step(0, 2.0, begin(3.0)))), 4)
    1.0
    """
    size = make_schedule(step_size)

    def init(x: Any) -> Any:
        return x, tnp.zeros_like(x), tnp.zeros_like(x)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, average, velocity = state
        average = gamma * average + (1 - gamma) * tnp.square(g)
        velocity = momentum * velocity + size(i) * g / tnp.sqrt(average + eps)
        return x - velocity, average, velocity

    return init, update, _first


@optimizer
def adam(step_size: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8) -> Rules:
    """Steps along the average gradient, divided by the root of the average squared gradient.

    Args:
        step_size: a number, or a function from the number of the step to one.
        b1: weight of the past in the average of gradients.
        b2: weight of the past in the average of squared gradients.
        eps: is added to the root.

    Returns:
        An `Optimizer`.

    Source: Kingma, Ba (2015), ICLR.

    >>> from tracebridge.example_libraries.optimizers import adam
    >>> begin, step, parameters = adam(0.5)
    >>> round(float(parameters(step(0, 2.0, begin(3.0)))), 4)
    2.5
    """
    size = make_schedule(step_size)

    def init(x: Any) -> Any:
        return x, tnp.zeros_like(x), tnp.zeros_like(x)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, square = state
        mean = b1 * mean + (1 - b1) * g
        square = b2 * square + (1 - b2) * tnp.square(g)
        step = (mean / _missing(b1, i, mean)) / (tnp.sqrt(square / _missing(b2, i, mean)) + eps)
        return x - size(i) * step, mean, square

    return init, update, _first


@optimizer
def adamax(step_size: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8) -> Rules:
    """`adam` with the largest decayed gradient instead of the root of the average square.

    Args:
        step_size: a number, or a function from the number of the step to one.
        b1: weight of the past in the average of gradients.
        b2: by which the largest gradient is multiplied before each step.
        eps: is added to the largest gradient.

    Returns:
        An `Optimizer`.

    Source: Kingma, Ba (2015), ICLR, section 7.

    >>> from tracebridge.example_libraries.optimizers import adamax
    >>> begin, step, parameters = adamax(0.5)
    >>> round(float(parameters(step(0, 2.0, begin(3.0)))), 4)
    2.5
    """
    size = make_schedule(step_size)

    def init(x: Any) -> Any:
        return x, tnp.zeros_like(x), tnp.zeros_like(x)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, largest = state
        mean = b1 * mean + (1 - b1) * g
        largest = tnp.maximum(b2 * largest, tnp.abs(g))
        step = mean / (largest + eps)
        return x - size(i) / _missing(b1, i, mean) * step, mean, largest

    return init, update, _first


@optimizer
def sm3(step_size: Any, momentum: Any = 0.9) -> Rules:
    """`adagrad` that keeps one vector for each axis instead of an array of squares.

    Args:
        step_size: a number, or a function from the number of the step to one.
        momentum: weight of the last direction in the next one.

    Returns:
        An `Optimizer`, for arrays with at least one axis.

    Source: Anil, Gupta, Koren, Singer (2019), NeurIPS.

    >>> from tracebridge.example_libraries.optimizers import sm3
    >>> import tracebridge.numpy as tnp
    >>> begin, step, parameters = sm3(1.0, momentum=0.0)
    >>> parameters(step(0, tnp.array([2.0]), begin(tnp.array([3.0])))).tolist()
    [2.0]
    """
    size = make_schedule(step_size)

    def init(x: Any) -> Any:
        x = tnp.asarray(x)
        return x, tnp.zeros_like(x), [tnp.zeros(n, x.dtype) for n in x.shape]

    def update(i: Any, g: Any, state: Any) -> Any:
        x, direction, covers = state
        squares = _smallest_cover(covers) + tnp.square(g)
        direction = (1 - momentum) * (g * _inverse_root(squares)) + momentum * direction
        axes = range(squares.ndim)
        covers = [tnp.max(squares, axis=[a for a in axes if a != kept]) for kept in axes]
        return x - size(i) * direction, direction, covers

    return init, update, _first


def _beside_zeros(x: Any) -> Any:
    return x, tnp.zeros_like(x)


def _smallest_cover(covers: Sequence[Any]) -> Any:
    """For each element the smallest of the numbers of its row, its column, ..."""
    smallest, *rest = _along_axes(covers)
    for cover in rest:
        smallest = tnp.minimum(smallest, cover)
    return smallest


def _along_axes(covers: Sequence[Any]) -> list[Any]:
    n = len(covers)
    return [
        cover.reshape([-1 if axis == kept else 1 for axis in range(n)])
        for kept, cover in enumerate(covers)
    ]


def _inverse_root(squares: Any) -> Any:
    """1 / sqrt, 0 for an element that has had no gradient yet."""
    return tnp.where(squares > 0, 1.0 / tnp.sqrt(squares), 0.0)


def _missing(weight: Any, i: Any, like: Any) -> Any:
    """The weights of the first steps do not add up to 1: to what they do."""
    return 1 - tnp.asarray(weight, like.dtype) ** (i + 1)


def l2_norm(tree: Any) -> Any:
    """The root of the sum of the squares of all elements of all arrays of a tree.

    Args:
        tree: a tree of real or complex arrays.

    Returns:
        A real scalar.

    >>> from tracebridge.example_libraries.optimizers import l2_norm
    >>> float(l2_norm({"a": 3.0, "b": 4.0}))
    5.0
    """
    return tnp.sqrt(sum(tnp.vdot(leaf, leaf) for leaf in trees.leaves(tree)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """Gradients, scaled down where their norm is larger than a bound.

    Args:
        grad_tree: a tree of arrays.
        max_norm: the bound of `l2_norm`.

    Returns:
        A tree of the same structure.

    >>> from tracebridge.example_libraries.optimizers import clip_grads
    >>> [float(g) for g in clip_grads([6.0, 8.0], 5.0)]
    [3.0, 4.0]
    """
    norm = l2_norm(grad_tree)
    return trees.map(lambda g: tnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)
