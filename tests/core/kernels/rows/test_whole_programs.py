"""Programs that compute elements of large arrays and sums of all of them are kernels as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import nn
from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.config.option_scopes import enable_x64

pytestmark = needs_kernels

_SPECIAL = np.resize(np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e-30], "f4"), (70, 300))


def _squared_error(x: Any, y: Any) -> Any:
    return tnp.mean((x - y) ** 2)


def _huber(x: Any, y: Any) -> Any:
    d = tnp.abs(x - y)
    return tnp.where(d < 1, 0.5 * d * d, d - 0.5).mean()


_ELEMENTS = [nn.relu, nn.leaky_relu, nn.hard_swish, lambda x: x**3, lambda x: (x > 0.5) & (x < 1)]
_LOSSES = [_squared_error, _huber, lambda x, y: tnp.sum(x * y) * 2 - tnp.sum(tnp.abs(y))]


@pytest.mark.parametrize("f", _ELEMENTS)
@pytest.mark.parametrize("shape", [(3000,), (70, 300), (4, 8, 16, 16)])
def test_elements_are_one_kernel(f: Any, shape: tuple[int, ...]) -> None:
    x = array(*shape)
    assert kernels_in(f, x) == 1
    is_as_plain(f, x)
    is_as_plain(f, np.resize(_SPECIAL, shape))


@pytest.mark.parametrize("f", _LOSSES)
def test_sums_of_all_are_two_kernels_and_their_gradients_one(f: Any) -> None:
    """One leaves a sum of each row, the other one adds these up and does what comes after."""
    x, y = array(70, 300), array(70, 300)
    assert kernels_in(f, x, y) == 2
    is_as_plain(f, x, y, tolerance=1e-5)
    is_as_plain(f, _SPECIAL, y)

    def gradient(x: Any, y: Any, ct: Any) -> Any:
        return tb.vjp(f, x, y)[1](ct)

    assert kernels_in(gradient, x, y, np.float32(0.3)) == 1
    is_as_plain(gradient, x, y, np.float32(0.3))
    is_as_plain(gradient, _SPECIAL, y, np.float32(0.3))


@pytest.mark.parametrize("f", _LOSSES)
def test_float64(f: Any) -> None:
    with enable_x64(new_val=True):
        x, y = [array(70, 300).astype(np.float64) for _ in range(2)]
        assert kernels_in(f, x, y) == 2
        is_as_plain(f, x, y, tolerance=1e-13)
        gradient = tb.grad(lambda x, y: f(x, y), (0, 1))
        assert kernels_in(gradient, x, y) == 1
        is_as_plain(gradient, x, y, tolerance=1e-14)


def test_numbers_for_all_are_computed_within() -> None:
    """A step of an optimizer: what is made of the rate is no program of its own."""
    x, g = array(70, 300), array(70, 300)

    def step(x: Any, g: Any, rate: Any) -> Any:
        return x - g * (rate / (1 + rate))

    assert kernels_in(step, x, g, np.float32(0.1)) == 1
    is_as_plain(step, x, g, np.float32(0.1))


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: x * 2, (0, 300)),
        (tnp.mean, (2000,)),
        (lambda x: x * 2, (40, 50)),
        (lambda x: tnp.max(x * 2), (70, 300)),
        (lambda x: tnp.sum(x * 2, 0), (70, 300)),
        (lambda x: x[1:] * 2, (70, 300)),
        (lambda x: (x * 2).astype(tnp.int32), (70, 300)),
    ],
)
def test_other_programs_are_not(f: Any, shape: tuple[int, ...]) -> None:
    """Nothing to do, little to do, or something else besides."""
    x = array(*shape)
    assert kernels_in(f, x) == 0
    is_as_plain(f, x, tolerance=1e-6)


def test_arguments_that_are_given_away_are_written_over() -> None:
    """A kernel would need memory of its own; costly functions are worth it."""
    x, g = array(70, 300), array(70, 300)

    def step(x: Any, g: Any) -> Any:
        return x - 0.1 * g

    assert KERNEL in tb.jit(step).lower(x, g).as_text()
    assert KERNEL not in tb.jit(step, donate_argnums=0).lower(x, g).as_text()
    large = array(300, 300)
    program = tb.jit(lambda x: x - 0.1 * tnp.exp(x), donate_argnums=0)
    assert KERNEL in program.lower(large).as_text()


def test_only_the_outermost_program_is_whole() -> None:
    """The same function is fused with what is around it where another program calls it."""
    x = array(128, 512)
    f = tb.jit(lambda x: tnp.maximum(x, 0.25) * 2.0)

    def over(xs: Any) -> Any:
        return tb.lax.scan(lambda c, x: (f(c) + x, f(x)), xs[0], xs)

    for _ in range(2):  # in either order
        assert kernels_in(f, x) == 1
        assert kernels_in(over, array(5, 128, 512)) == 0
        assert kernels_in(lambda x: f(x) @ tnp.ones((512, 3)), x) == 0
    is_as_plain(f, x)
    is_as_plain(lambda x: tnp.maximum(x, 0.75) * 3.0, x)  # the same program with other numbers
