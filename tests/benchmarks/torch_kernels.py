"""Whole kernels seen from torch: ours beside eager torch and torch.compile, tensors in and out.

    python tests/benchmarks/torch_kernels.py [--cores 1] [--rows WORD] [--seconds 1.0]
        [--record docs/kernels.md] [--readme README.md] [--chart docs/kernels.svg]

Forward and backward are timed one after the other in the same call, as in a training step. Each way
runs with one thread of torch and with all, in turns, and the best counts: the threads of torch and
of XLA share the cores. ``--cores`` binds the process to so many. What is recorded replaces the text
between marks.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from tests.benchmarks.kernels import Kernel

TOLERANCE = 1e-3  # of sums over loops in float32
ROUNDS = 5
README_ROWS = (
    "Hessian", "Kalman filter, 500", "neural ODE", "LSTM", "256 per-sample", "cross entropy",
    "layer norm", "attention, 8 heads of 512", "wide network",
)  # fmt: skip


@dataclass
class Timed:
    """Seconds of one way to run a kernel: first call, best forward, best backward."""

    first: float = 0.0
    forward: float = float("inf")
    backward: float = float("inf")


@dataclass(frozen=True)
class Figure:
    """One figure of the table: a kernel in one direction, best times in seconds."""

    kernel: str
    direction: str
    ours: float
    eager: float
    compiled: float | None
    first: float
    compiled_first: float | None

    @property
    def ratio(self) -> float:
        """Our time by the better one of torch."""
        return self.ours / min(t for t in (self.eager, self.compiled) if t is not None)

    @property
    def cells(self) -> list[str]:
        """The row of the table."""
        compiled = "not tried" if self.compiled is None else duration(self.compiled)
        times = [duration(self.ours), duration(self.eager), compiled]
        return [self.kernel, self.direction, *times, f"{self.ratio:.2f}"]


def duration(seconds: float) -> str:
    """A time with its unit."""
    return f"{1e6 * seconds:.3g} us" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"


def step(
    run: Callable[..., Any],
    kernel: Kernel,
    cotangent: torch.Tensor | None,
    best: Timed | None = None,
) -> Any:
    """One forward and one backward pass; their times go into ``best``."""
    import torch

    start = time.perf_counter()
    out = run(*kernel.arguments)
    middle = time.perf_counter()
    gradients = torch.autograd.grad(out, kernel.leaves, cotangent) if kernel.leaves else ()
    end = time.perf_counter()
    if best is not None:
        best.forward = min(best.forward, middle - start)
        best.backward = min(best.backward, end - middle)
    return out, gradients


def measure(kernel: Kernel, seconds: float) -> list[Timed]:
    """Times of ours, eager torch and torch.compile, in turns; their results are compared."""
    import torch

    ways: list[Callable[..., Any]] = [kernel.ours, kernel.torch]
    if kernel.compiles:
        ways.append(torch.compile(kernel.torch))
    cotangent = torch.randn_like(kernel.torch(*kernel.arguments)) if kernel.leaves else None
    times, results = [Timed() for _ in ways], []
    for way, timed in zip(ways, times, strict=True):
        start = time.perf_counter()
        results.append(step(way, kernel, cotangent))
        timed.first = time.perf_counter() - start
    for result in results[1:]:
        torch.testing.assert_close(results[0], result, rtol=TOLERANCE, atol=TOLERANCE)
    del results, result
    threads = torch.get_num_threads()
    for _ in range(ROUNDS):
        for way, timed in zip(ways, times, strict=True):
            for n in {1, threads}:
                torch.set_num_threads(n)
                end = time.perf_counter() + seconds / ROUNDS
                while time.perf_counter() < end:
                    step(way, kernel, cotangent, timed)
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    return times


def figures(kernel: Kernel, seconds: float) -> list[Figure]:
    """One or two figures of a kernel."""
    ours, eager, *rest = measure(kernel, seconds)
    compiled = rest[0] if rest else None
    directions = ["forward", "backward"] if kernel.leaves else ["forward"]
    return [
        Figure(
            kernel.name,
            direction,
            getattr(ours, direction),
            getattr(eager, direction),
            getattr(compiled, direction) if compiled else None,
            ours.first,
            compiled.first if compiled else None,
        )
        for direction in directions
    ]


def as_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def summary(found: Sequence[Figure]) -> str:
    """What the issue of kernels asks for: mean, worst, and compile times."""
    ratios = [f.ratio for f in found]
    firsts = {f.kernel: f.first / f.compiled_first for f in found if f.compiled_first}
    won = sum(ratio < 1 for ratio in ratios)
    text = (
        f"\nAgainst the better of eager and compiled torch: geometric mean "
        f"{geometric_mean(ratios):.2f} over {len(ratios)} figures, {won} won, the worst "
        f"{max(ratios):.2f}."
    )
    if firsts:  # loops are not compiled by torch
        text += (
            f" First call, forward and backward, against torch.compile: geometric mean "
            f"{geometric_mean(firsts.values()):.2f}, the worst {max(firsts.values()):.2f}."
        )
    return text + "\n"


def first_calls(found: Sequence[Figure]) -> str:
    """First calls, tracing and compiling with it: ours beside torch.compile without its caches."""
    rows = [
        [f.kernel, duration(f.first), duration(f.compiled_first), f"{ratio:.2f}"]
        for f in {f.kernel: f for f in found}.values()
        if f.compiled_first and (ratio := f.first / f.compiled_first)
    ]
    return as_table(("kernel", "tracebridge", "torch.compile", "ratio"), rows)


def readme_table(found: Sequence[Figure]) -> str:
    """A choice of rows for readers in a hurry."""
    rows = [f.cells for f in found if f.kernel.startswith(README_ROWS)]
    header = ("kernel", "", "tracebridge", "eager torch", "torch.compile", "ours / better")
    return as_table(header, rows)


def draw(found: Sequence[Figure], path: Path) -> None:
    """A bar chart of the ratios, on a logarithmic scale."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "kernels"
    from matplotlib import pyplot as plt

    shown = list(reversed(found))
    figure, axes = plt.subplots(figsize=(8, 0.24 * len(shown) + 1), layout="constrained")
    speedups = [1 / f.ratio for f in shown]
    colours = ["#2a6f97" if s >= 1 else "#c1666b" for s in speedups]
    axes.barh(
        [f"{f.kernel}, {f.direction}" for f in shown],
        [s - 1 for s in speedups],
        left=1,
        color=colours,
    )
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("times as fast as the better of eager torch and torch.compile")
    figure.savefig(path, metadata={"Date": None})


def record(path: Path, mark: str, text: str) -> None:
    """Replace what stands between the marks of that name in a file."""
    marks = re.compile(rf"(<!-- {mark}: start -->\n).*?(<!-- {mark}: end -->)", re.DOTALL)
    new, count = marks.subn(lambda m: f"{m[1]}{text}{m[2]}", path.read_text())
    assert count == 1, f"{path} has no place for {mark}"
    path.write_text(new)


def main(argv: list[str]) -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int)
    parser.add_argument("--rows", default="", help="only kernels whose name has this word")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--readme", type=Path)
    parser.add_argument("--chart", type=Path)
    options = parser.parse_args(argv)
    # First calls are those of a new program, not of one that Inductor has on its disk.
    os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    if options.cores:  # before the pools of threads are made
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    from tests.benchmarks.kernels import kernels

    found: list[Figure] = []
    header = ("kernel", "direction", "tracebridge", "eager torch", "torch.compile", "ratio")
    print(as_table(header, []), end="", flush=True)
    for kernel in kernels():
        if options.rows in kernel.name:
            for figure in figures(kernel, options.seconds):
                found.append(figure)
                print("| " + " | ".join(figure.cells) + " |", flush=True)
    print(summary(found))
    if options.record:
        text = as_table(header, [f.cells for f in found]) + summary(found)
        record(options.record, f"kernels on {options.cores or 'all'} cores", text)
        if not options.cores:
            record(options.record, "first calls of kernels", first_calls(found))
    if options.readme:
        record(options.readme, "kernels", readme_table(found))
    if options.chart:
        draw(found, options.chart)


if __name__ == "__main__":
    main(sys.argv[1:])
