"""torch in, torch out: a wrapped function beside eager torch and the raw compiled call.

    python tests/benchmarks/torch_calls.py [--record FILE]

``--record`` appends to a file that compare.py has written.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tracebridge as tb
import tracebridge.numpy as tnp

# (name, budget in microseconds or None, budget as a multiple of the row before or None)
Row = tuple[str, float, str]


def best(run: Callable[[], Any], calls: int, samples: int = 9) -> float:
    """Microseconds per call, best of several samples."""
    for _ in range(max(3, calls // 10)):
        run()
    result = float("inf")
    for _ in range(samples):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        result = min(result, (time.perf_counter() - start) / calls)
    return 1e6 * result


def layer(x: Any, w: Any, b: Any) -> Any:
    """tanh(x @ w) + b."""
    return tnp.tanh(x @ w) + b


def chain(x: Any) -> Any:
    """Ten elementwise operations."""
    for _ in range(3):
        x = tnp.maximum(x * 1.01, -0.5) - 0.01
    return x * x


def small_layer() -> list[Row]:
    """A layer of 8x8 on the CPU."""
    wrapped = tb.torch.wrap(layer)
    tensors = [torch.randn(8, 8), torch.randn(8, 8), torch.randn(8)]
    leaves = [t.clone().requires_grad_() for t in tensors]
    seed = torch.ones(8, 8)

    def torch_layer(x: Any, w: Any, b: Any) -> Any:
        return torch.tanh(x @ w) + b

    def both(f: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(f(*leaves), leaves, seed)

    forward = best(lambda: wrapped(*tensors), 2000)
    backward = best(both(wrapped), 500)
    return [
        ("8x8 layer, forward", forward, _budget(forward, 15.0)),
        ("8x8 layer, forward, eager torch", best(lambda: torch_layer(*tensors), 2000), ""),
        ("8x8 layer, forward and backward", backward, _budget(backward, 90.0)),
        ("8x8 layer, forward and backward, eager torch", best(both(torch_layer), 500), ""),
    ]


def large_chain() -> list[Row]:
    """Ten elementwise operations on a million elements."""
    wrapped = tb.torch.wrap(chain)
    compiled = tb.jit(chain)
    x = torch.randn(1_000_000)
    array = tb.numpy.asarray(x)
    raw = best(lambda: compiled(array), 20)
    ours = best(lambda: wrapped(x), 20)
    return [
        ("chain of 10 on 1e6 elements, compiled call on an Array", raw, ""),
        ("chain of 10 on 1e6 elements, torch in and out", ours, _budget(ours, 1.2 * raw)),
    ]


def crossing() -> list[Row]:
    """One tensor in and out, without computing."""
    x = torch.randn(64, 64)
    array = tb.torch.from_torch(x)
    into = best(lambda: tb.torch.from_torch(x), 2000)
    out = best(lambda: tb.torch.to_torch(array), 2000)
    return [
        ("torch tensor to Array", into, _budget(into, 10.0)),
        ("Array to torch tensor", out, _budget(out, 10.0)),
    ]


def _budget(value: float, budget: float) -> str:
    verdict = "met" if value <= budget else f"missed by {value / budget:.2f} times"
    return f"{budget:.4g} us: {verdict}"


def main(argv: list[str]) -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = [*small_layer(), *large_chain(), *crossing()]
    lines = ["### torch in and out", "", "| case | us | budget |", "|---|---|---|"]
    lines += [f"| {name} | {us:.4g} | {budget} |" for name, us, budget in rows]
    text = "\n".join([*lines, "", f"torch {torch.__version__}, one thread.", ""])
    print(text)
    if options.record:
        options.record.write_text(options.record.read_text() + text)


if __name__ == "__main__":
    main(sys.argv[1:])
