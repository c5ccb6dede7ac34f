"""What the backward program of a recurrent network needs beside what it is given."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap
from tracebridge.torch._crossing import execute

pytestmark = pytest.mark.torch
STEPS, BATCH, WIDTH = 99, 16, 64


def lstm(xp: Any, sigmoid: Any, loop: Any) -> Any:
    """A function that gives all states of an LSTM."""

    def states(x: Any, w: Any, u: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, c = state
            z = x @ w + h @ u
            gates = [z[:, WIDTH * i : WIDTH * (i + 1)] for i in range(4)]
            c = sigmoid(gates[1]) * c + sigmoid(gates[0]) * xp.tanh(gates[2])
            h = sigmoid(gates[3]) * xp.tanh(c)
            return (h, c), h

        zero = xp.zeros((BATCH, WIDTH))
        return loop(step, (zero, zero), x)[1]

    return states


def looped(step: Any, state: Any, xs: torch.Tensor) -> tuple[Any, torch.Tensor]:
    """The loop of torch."""
    ys: list[torch.Tensor] = []
    for x in xs:
        state, y = step(state, x)
        ys.append(y)
    return state, torch.stack(ys)


def gradients(f: Any, inputs: list[torch.Tensor]) -> Any:
    """Gradients of a sum of weighted results."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = f(*leaves)
    weights = torch.linspace(-1.0, 1.0, out.numel()).reshape(out.shape)
    return torch.autograd.grad(out, leaves, weights)


def test_factors_of_all_steps_are_not_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside cotangents of the gates, which one product after the loop needs, little is kept."""
    found: dict[str, int] = {}
    compiling = execute.compile_jaxpr

    def compiled(jaxpr: Any, name: str, *args: Any, **options: Any) -> Any:
        program = compiling(jaxpr, name, *args, **options)
        found[name] = program.executable.get_compiled_memory_stats().temp_size_in_bytes
        return program

    monkeypatch.setattr(execute, "compile_jaxpr", compiled)
    torch.manual_seed(0)
    inputs = [torch.randn(STEPS, BATCH, 32), torch.randn(32, 256) / 6, torch.randn(64, 256) / 8]
    results = gradients(wrap(lstm(tnp, tb.nn.sigmoid, tb.lax.scan)), inputs)
    expected = gradients(lstm(torch, torch.sigmoid, looped), inputs)
    (size,) = [n for name, n in found.items() if name.endswith("backward")]

    assert size < 1.4 * STEPS * BATCH * 4 * WIDTH * 4
    for new, eager in zip(results, expected, strict=True):
        # Sums of 1584 products in float32.
        torch.testing.assert_close(new, eager, rtol=1e-5, atol=1e-5 * float(eager.abs().max()))
