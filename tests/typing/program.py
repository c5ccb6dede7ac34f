"""A typed program of a user: it has to pass pyright and mypy without an error or an exemption.

Checked by test_typing.py, and run there too.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.typing import ArrayLike, DTypeLike


class Parameters(TypedDict):
    """Weights and offsets of a model with one hidden layer."""

    hidden: tb.Array
    offset: tb.Array
    out: tb.Array


def initial(width: int, dtype: DTypeLike = "float32") -> Parameters:
    """Parameters that break the symmetry of the units."""
    ramp = tnp.linspace(-1.0, 1.0, 2 * width, dtype=dtype)
    return {
        "hidden": tnp.reshape(ramp, (2, width)),
        "offset": tnp.zeros(width, dtype),
        "out": tnp.ones((width,), dtype=dtype) / width,
    }


def predict(parameters: Parameters, x: tb.Array) -> tb.Array:
    """The prediction for one example."""
    inner = tnp.tanh(tnp.dot(x, parameters["hidden"]) + parameters["offset"])
    return tnp.sum(inner * parameters["out"], axis=-1)


def loss(parameters: Parameters, x: tb.Array, y: tb.Array) -> tb.Array:
    """The mean of squared errors over a batch."""

    def one(row: tb.Array) -> tb.Array:
        return predict(parameters, row)

    error = tb.vmap(one)(x) - y
    return tnp.mean(tnp.square(error), axis=(0,))


@tb.jit
def step(parameters: Parameters, x: tb.Array, y: tb.Array) -> tuple[tb.Array, Parameters]:
    """One step of gradient descent: the loss before it, and the parameters after it."""
    value, slope = tb.value_and_grad(loss)(parameters, x, y)
    new: Parameters = {
        "hidden": parameters["hidden"] - 0.1 * slope["hidden"],
        "offset": parameters["offset"] - 0.1 * slope["offset"],
        "out": parameters["out"] - 0.1 * slope["out"],
    }
    return value, new


def clipped(x: ArrayLike, limit: ArrayLike = 1.0) -> tb.Array:
    """Arrays, NumPy arrays and numbers are array-like."""
    return tnp.minimum(tnp.maximum(x, tnp.negative(limit)), limit)


def power(x: tb.Array, n: int) -> tb.Array:
    """A loop of the engine."""

    def body(i: tb.Array, total: tb.Array) -> tb.Array:
        return total * x

    result: tb.Array = lax.fori_loop(0, n, body, tnp.ones_like(x))
    return result


def main() -> list[float]:
    """Losses of a short training."""
    x = tnp.asarray(np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], np.float32))
    y = tnp.where(x[:, 0] > 0, clipped(x[:, 1] * 2), power(x[:, 1], 2))
    parameters = initial(4)
    losses: list[float] = []
    for _ in range(5):
        value, parameters = step(parameters, x, y)
        losses.append(float(value))
    slope = tb.grad(power)(tnp.float32(2.0), 3)
    assert slope.shape == ()
    return losses


if __name__ == "__main__":
    found = main()
    assert found[-1] < found[0], found
