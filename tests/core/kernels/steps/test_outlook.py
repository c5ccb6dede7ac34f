"""What is known of kernels of steps before they are planned holds of their plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import needs_kernels
from tracebridge import lax
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.kernels.machine import machine
from tracebridge.core.kernels.steps.arrays import not_cut
from tracebridge.core.kernels.steps.description import lines_of
from tracebridge.core.kernels.steps.outlook import outlook
from tracebridge.core.kernels.steps.plan import Plan

pytestmark = needs_kernels

Step = Callable[..., list[Any]]
_CONSTANT = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)


def _body(step: Step, *shapes: tuple[int, ...], dtype: Any = np.float32) -> Jaxpr:
    """(carry, x) -> (carry, y), without calls."""
    return inline_calls(stage(step, [ShapedArray(s, dtype) for s in shapes]))


def _network(h: Any, w: Any) -> list[Any]:
    h = tnp.tanh(h @ w) * 0.3 + h
    return [h, h @ w.T]


def _gates(h: Any, x: Any) -> list[Any]:
    a, b = tnp.split(x, 2, -1)
    return [lax.logistic(a) * h + (1 - b), tnp.concatenate([a, b * h], -1)]


def _many_functions(h: Any, x: Any) -> list[Any]:
    for _ in range(2):
        h = tnp.exp(-(h**2)) + tnp.log1p(tnp.abs(h)) * tnp.where(x > 0, x, 0.25)
    return [h, h.max(-1)]


def _turned(h: Any, x: Any) -> list[Any]:
    return [h.T @ x @ h.T @ x + h.sum(0), (x.T * 2.0 + h).T]


def _padded(h: Any, x: Any) -> list[Any]:
    wide = tnp.pad(h[1:, 2:], ((0, 1), (1, 1)), constant_values=0.5)
    return [wide * x, (h > x).astype(np.int32)]


def _numbers(h: Any, x: Any) -> list[Any]:
    return [tnp.full_like(h, 0.7), tnp.broadcast_to(x[None, 0], (3, *x.shape[1:]))]


FORESEEN: list[tuple[Step, tuple[tuple[int, ...], ...]]] = [
    (_network, ((16, 32), (32, 32))),
    (_network, ((1, 37), (37, 37))),
    (_gates, ((16, 17), (16, 34))),
    (_gates, ((3, 5, 7), (3, 5, 14))),
    (_many_functions, ((31,), (31,))),
    (_many_functions, ((2, 2), (2, 2))),
    (_turned, ((16, 16), (16, 16))),
    (_turned, ((13, 13), (13, 13))),
    (_padded, ((6, 9), (6, 9))),
    (_numbers, ((4, 6), (4, 6))),
]


@pytest.mark.parametrize(("step", "shapes"), FORESEEN)
def test_a_kernel_that_is_foreseen_can_be_planned(
    step: Step, shapes: tuple[tuple[int, ...], ...]
) -> None:
    """It needs no more memory, and its text is not much longer."""
    body = _body(step, *shapes)

    found = outlook(body)

    assert found is not None
    plan = Plan(body, 0, 1, not_cut(body.in_avals, body.out_avals))
    assert plan.scratch <= found.scratch
    assert lines_of(plan, machine().lanes) <= 2 * found.lines


@pytest.mark.parametrize(
    ("step", "shapes", "dtype"),
    [
        (lambda h, x: [tnp.sort(h), x], ((8,), (8,)), np.float32),
        (lambda h, x: [h * x, x], ((8,), (8,)), np.float16),
        (lambda h, x: [h * x, x], ((0,), (0,)), np.float32),
        (lambda h, x: [h + x * _CONSTANT, x], ((16, 32), (16, 32)), np.float32),
        (lambda h, x: [lax.pad(h, x, ((1, -1, 0),)), x], ((8,), ()), np.float32),
        (lambda h, x: [lax.pad(h, x, ((1, 0, 0),))[1:], x], ((8,), ()), np.float32),
        (lambda h, x: [tnp.roll(h, 1) + x, x], ((4096,), (4096,)), np.float32),
        (lambda h, x: [h**x, x], ((8,), ()), np.float32),
        (lambda h, x: [h.T @ x, x], ((512, 512), (512, 512)), np.float32),
    ],
)
def test_what_is_open_is_planned(step: Step, shapes: Any, dtype: Any) -> None:
    """Other equations and types, numbers of arguments, large arrays in parts."""
    assert outlook(_body(step, *shapes, dtype=dtype)) is None
