"""Whole kernels seen from torch: ours beside eager torch and torch.compile, tensors in and out.

    python tests/benchmarks/torch_kernels.py [--record README.md] [--seconds 1.0]

Each way runs with one thread of torch and with all, and the better counts: the threads of torch and
of XLA share the cores. ``--record`` replaces the table between the marks in a file.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.kernels import Kernel, kernels

MARKS = re.compile(r"(<!-- kernels: start -->\n).*?(<!-- kernels: end -->)", re.DOTALL)
TOLERANCE = 1e-3  # of sums over loops in float32
LONG = 1e6  # microseconds: a first call that takes longer is shown


def best(run: Callable[[], Any], seconds: float) -> float:
    """Microseconds of the best call, over the numbers of threads of torch."""
    threads, found = torch.get_num_threads(), float("inf")
    for n in {1, threads}:
        torch.set_num_threads(n)
        run()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            run()
            found = min(found, time.perf_counter() - start)
    torch.set_num_threads(threads)
    return 1e6 * found


def measure(kernel: Kernel, seconds: float) -> tuple[list[float], list[float]]:
    """Times of ours, eager torch and torch.compile, best and first; the results are compared."""
    ways: list[Any] = [kernel.ours, kernel.torch]
    if kernel.compiles:
        ways.append(torch.compile(kernel.torch))
    times, firsts, results = [], [], []
    for way in ways:
        start = time.perf_counter()
        results.append(way(*kernel.arguments))
        firsts.append(1e6 * (time.perf_counter() - start))
        times.append(best(lambda way=way: way(*kernel.arguments), seconds))
    for result in results[1:]:
        torch.testing.assert_close(results[0], result, rtol=TOLERANCE, atol=TOLERANCE)
    return times, firsts


def short(us: float, first: float) -> str:
    """A time with its unit, and the time of the first call if somebody waits for it."""
    text = f"{us:.3g} us" if us < 1e3 else f"{us / 1e3:.3g} ms"
    return f"{text} ({first / 1e6:.0f} s)" if first >= LONG else text


def main(argv: list[str]) -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args(argv)
    lines = [
        "| kernel | tracebridge | eager torch | torch.compile | against the better |",
        "|---|---|---|---|---|",
    ]
    for kernel in kernels():
        times, firsts = measure(kernel, options.seconds)
        ratio = min(times[1:]) / times[0]
        verdict = f"{ratio:.2g}x faster" if ratio >= 1 else f"{1 / ratio:.2g}x slower"
        cells = [short(us, first) for us, first in zip(times, firsts, strict=True)]
        cells += ["not tried"] * (3 - len(cells))
        lines.append("| " + " | ".join([kernel.name, *cells, verdict]) + " |")
        print(lines[-1], flush=True)
        torch._dynamo.reset()
    if options.record:
        table = "\n".join(lines) + "\n"
        text, count = MARKS.subn(lambda m: f"{m[1]}{table}{m[2]}", options.record.read_text())
        assert count == 1, f"{options.record} has no place for the table"
        options.record.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
