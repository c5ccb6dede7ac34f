"""Kernels on a GPU: wrapped functions beside eager and compiled torch, forward and backward.

    python tests/benchmarks/torch_gpu.py [--calls 200] [--record FILE]

Needs a GPU and jaxlib's plugin for it. The time of a call is that of many in a row, until the GPU
has done them: small calls show the host, large ones the kernels. Matrix products may use TF32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sections import record

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.torch import wrap

HEADING = "### PyTorch on a GPU"
Case = tuple[Callable[..., Any], Callable[..., Any], tuple[torch.Tensor, ...]]


def softmax(x: Any) -> Any:
    """By rows."""
    e = tnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_of_torch(x: Any) -> Any:
    """The same."""
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    """By rows."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * tb.lax.rsqrt(variance + 1e-5) * scale + shift


def attention(q: Any, k: Any, v: Any) -> Any:
    """Of several heads, without a mask."""
    return softmax(q @ k.mT / 8) @ v


def chain(x: Any) -> Any:
    """Elementwise."""
    return tb.nn.gelu(x) * x + tnp.sin(x)


def recurrence(x: Any, w: Any) -> Any:
    """A simple recurrent network."""

    def step(c: Any, t: Any) -> Any:
        c = tnp.tanh(c @ w + t)
        return c, c

    return tb.lax.scan(step, x[0], x)[1]


def recurrence_of_torch(x: Any, w: Any) -> Any:
    """The same, in Python."""
    c, states = x[0], []
    for t in x:
        c = torch.tanh(c @ w + t)
        states.append(c)
    return torch.stack(states)


def cases() -> dict[str, Case]:
    """What is measured: ours, torch's, and the arguments."""
    draw = lambda *shape: torch.randn(*shape, device="cuda")
    functional = torch.nn.functional
    gelu = lambda x: functional.gelu(x, approximate="tanh") * x + torch.sin(x)
    return {
        "add, 8x8": (lambda x: x + 1, lambda x: x + 1, (draw(8, 8),)),
        "softmax, 4096x1000": (softmax, softmax_of_torch, (draw(4096, 1000),)),
        "layer norm, 4096x1024": (
            layer_norm,
            lambda x, g, b: functional.layer_norm(x, (1024,), g, b),
            (draw(4096, 1024), draw(1024), draw(1024)),
        ),
        "attention, 8x8x512x64": (
            attention,
            lambda q, k, v: softmax_of_torch(q @ k.mT / 8) @ v,
            (draw(8, 8, 512, 64),) * 3,
        ),
        "elementwise chain, 4 million": (chain, gelu, (draw(1 << 22),)),
        "recurrence of 128 steps": (
            recurrence,
            recurrence_of_torch,
            (draw(128, 64, 256), draw(256, 256) * 0.05),
        ),
    }


def microseconds(call: Callable[[], Any], n: int) -> float:
    """Of one call, of ``n`` in a row."""
    for _ in range(10):
        call()
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            call()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / n)
    return 1e6 * best


def both_ways(call: Callable[..., Any], args: tuple[torch.Tensor, ...], n: int) -> list[float]:
    """Forward, and forward with backward."""
    leaves = [x.clone().requires_grad_() for x in args]
    return [
        microseconds(lambda: call(*args), n),
        microseconds(lambda: torch.autograd.grad(call(*leaves).sum(), leaves), n // 2),
    ]


def main() -> None:
    """Print the table, and record it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    machine = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    lines = [
        HEADING,
        "",
        f"On one {machine}; microseconds of forward / forward and backward.",
        "",
        "| case | ours | eager | compiled | ratio to the better |",
        "|---|---|---|---|---|",
    ]
    for name, (fun, other, args) in cases().items():
        torch.testing.assert_close(wrap(fun)(*args), other(*args), rtol=2e-2, atol=2e-2)
        ways = [wrap(fun), other, torch.compile(other)]
        n = options.calls // 10 if "steps" in name else options.calls
        ours, eager, compiled = [both_ways(way, args, n) for way in ways]
        ratios = [a / min(b, c) for a, b, c in zip(ours, eager, compiled, strict=True)]
        cells = [" / ".join([f"{x:.0f}" for x in way]) for way in (ours, eager, compiled)]
        lines.append(f"| {name} | {' | '.join(cells)} | {ratios[0]:.2f} / {ratios[1]:.2f} |")
        print(lines[-1], flush=True)
    if options.record:
        record(options.record, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
