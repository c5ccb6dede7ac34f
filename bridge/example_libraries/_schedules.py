"""Step sizes that depend on the number of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError

__all__ = [
    "Schedule",
    "constant",
    "exponential_decay",
    "inverse_time_decay",
    "make_schedule",
    "piecewise_constant",
    "polynomial_decay",
]

Schedule = Callable[[Any], Any]
"""From the number of the step, an integer, to the step size."""


def constant(step_size: Any) -> Schedule:
    """The same step size at all steps.

    Args:
        step_size: a number.

    Returns:
        A function of the number of the step.

    >>> from tracebridge.example_libraries.optimizers import constant
    >>> constant(0.5)(7)
    0.5
    """
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """Multiply by a factor every some steps, and smoothly between.

    Args:
        step_size: the first step size.
        decay_steps: after this many steps the factor has been applied once.
        decay_rate: the factor.

    Returns:
        A function of the number of the step.

    >>> from tracebridge.example_libraries.optimizers import exponential_decay
    >>> exponential_decay(1.0, 10, 0.5)(20)
    0.25
    """
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(
    step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False
) -> Schedule:
    """Divide by a number that grows linearly: ``step_size / (1 + decay_rate * i / decay_steps)``.

    Args:
        step_size: the first step size.
        decay_steps: after this many steps the divisor has grown by *decay_rate*.
        decay_rate: how fast the divisor grows.
        staircase: grow by whole *decay_rate* only.

    Returns:
        A function of the number of the step.

    >>> from tracebridge.example_libraries.optimizers import inverse_time_decay
    >>> inverse_time_decay(1.0, 10, 2.0)(5)
    0.5
    """
    if staircase:
        return lambda i: step_size / (1 + decay_rate * tnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(
    step_size: Any, decay_steps: Any, final_step_size: Any, power: Any = 1.0
) -> Schedule:
    """Go from one step size to another along a power of the time that is left.

    Args:
        step_size: the first step size.
        decay_steps: from this step on it is *final_step_size*.
        final_step_size: the last step size.
        power: 1 for a straight line.

    Returns:
        A function of the number of the step.

    >>> from tracebridge.example_libraries.optimizers import polynomial_decay
    >>> float(polynomial_decay(1.0, 10, 0.0)(5))
    0.5
    """

    def schedule(i: Any) -> Any:
        left = 1 - tnp.minimum(i, decay_steps) / decay_steps
        return left**power * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """One step size between each two boundaries.

    Args:
        boundaries: ascending numbers of steps, shape ``(n,)``; a boundary belongs to the interval
            before it.
        values: step sizes, shape ``(n + 1,)``.

    Returns:
        A function of the number of the step.

    Raises:
        ShapeMismatchError: an argument is no vector, or their sizes do not fit.

    >>> from tracebridge.example_libraries.optimizers import piecewise_constant
    >>> schedule = piecewise_constant([10, 20], [1.0, 0.5, 0.1])
    >>> [round(float(schedule(i)), 1) for i in (10, 11, 50)]
    [1.0, 0.5, 0.1]
    """
    bounds, sizes = tnp.array(boundaries), tnp.array(values)
    if bounds.ndim != 1 or sizes.ndim != 1 or sizes.shape[0] != bounds.shape[0] + 1:
        msg = (
            f"piecewise_constant: the shape of `boundaries` is {bounds.shape}, that of `values` "
            f"{sizes.shape}, expected vectors, of one value more than boundaries"
        )
        raise ShapeMismatchError(msg)
    return lambda i: sizes[tnp.sum(i > bounds)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule as it is; a number as the schedule that is always that number.

    Args:
        scalar_or_schedule: a function of the number of the step, or a number.

    Returns:
        A function of the number of the step.

    Raises:
        ArgumentTypeError: it is neither.

    >>> from tracebridge.example_libraries.optimizers import make_schedule
    >>> make_schedule(0.5)(0)
    0.5
    """
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if tnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    msg = (
        "make_schedule: expected a number or a function of the number of the step, got an array "
        f"of shape {tnp.shape(scalar_or_schedule)}"
    )
    raise ArgumentTypeError(msg)
