"""Stencils on the CPU: two steps per round of the loop give what one step per round does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.scopes import scope

U = np.random.default_rng(0).standard_normal((128, 129)).astype(np.float32)


def around(u: Any) -> Any:
    return tnp.roll(u, 1, 0) + tnp.roll(u, -1, 0) + tnp.roll(u, (2, -3), (0, 1)) - 3 * u


def heat(u: Any, steps: int) -> Any:
    return lax.fori_loop(0, steps, lambda i, u: u + 0.1 * around(u), u)


def waves(u: Any, steps: int) -> Any:
    """Two carries, xs, and a carry that is among the ys twice."""

    def step(carry: Any, x: Any) -> Any:
        u, v = carry
        v = v + 0.1 * around(u) * x
        u = u + v
        return (u, v), (u, u, u[::-1])

    xs = tnp.linspace(0, 1, steps, dtype=np.float32)
    return lax.scan(step, (u, u * 0), xs, reverse=True)


def lowered(f: Any) -> str:
    """The program for a dtype that loops have no kernels for."""
    return tb.jit(f).lower(U.astype(np.float16)).as_text()


@pytest.mark.parametrize("steps", [2, 5])
@pytest.mark.parametrize("program", [heat, waves])
def test_results_and_gradients_are_those_of_single_steps(program: Any, steps: int) -> None:
    """For lengths that are even and odd."""

    def both(u: Any) -> Any:
        out, pull = tb.vjp(lambda u: program(u, steps), u)
        return out, pull(out)

    with scope("platform_rules", False):
        want = tb.jit(lambda u: both(u))(U)

    for a, b in zip(tb.tree.leaves(tb.jit(both)(U)), tb.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)


def test_which_loops_have_two_steps_per_round() -> None:
    """Those that roll large carries and do nothing else that costs."""
    small = lambda u: heat(u[:9], 4)
    products = lambda u: lax.fori_loop(0, 4, lambda i, u: around(u) @ w, u)
    w = np.eye(129, dtype=np.float16)

    assert "stablehlo.if" in lowered(lambda u: heat(u, 4))
    assert "stablehlo.if" not in lowered(small)
    assert "stablehlo.if" not in lowered(products)
    with scope("platform_rules", False):
        assert "stablehlo.if" not in lowered(lambda u: heat(u, 4))
