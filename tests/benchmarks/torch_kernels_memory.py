"""Memory of whole kernels and of modules, forward and backward, beside eager torch.

    python tests/benchmarks/torch_kernels_memory.py [--modules] [--rows WORD] [--record FILE]

The peak of what one step has allocated at a time: residuals, results, gradients, what the programs
need between, and the nodes of graphs. Allocations are counted (``allocations.py``), not pages.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.allocations import most_allocated, start_again
from tests.benchmarks.kernels import Kernel, kernels
from tests.benchmarks.modules import modules
from tests.benchmarks.torch_kernels import as_table, record, step

WARM, STEPS = 3, 5
LEAST = 0.25  # MB, below which a kernel is not listed


def peak(run: Any, kernel: Kernel, cotangent: torch.Tensor | None) -> float:
    """MB of the best of some steps."""
    for _ in range(WARM):
        step(run, kernel, cotangent)
    found: list[int] = []
    for _ in range(STEPS):
        gc.collect()
        found.append(most_allocated(lambda: step(run, kernel, cotangent)))
    return min(found) / (1 << 20)


def row(kernel: Kernel) -> list[str]:
    """Name, ours, eager, ratio; nothing for what is too small to be measured."""
    cotangent = torch.randn_like(kernel.torch(*kernel.arguments)) if kernel.leaves else None
    ours, eager = [peak(run, kernel, cotangent) for run in (kernel.ours, kernel.torch)]
    if max(ours, eager) < LEAST:
        return []
    return [kernel.name, f"{ours:.2f} MB", f"{eager:.2f} MB", f"{ours / eager:.2f}"]


def main(argv: list[str]) -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="", help="only kernels whose name has this word")
    parser.add_argument("--modules", action="store_true", help="translated modules of torch")
    parser.add_argument("--record", type=Path, help="the page with the tables: docs/kernels.md")
    options = parser.parse_args(argv)
    start_again()
    title = "memory of modules" if options.modules else "memory of kernels"
    every = modules() if options.modules else kernels()
    rows = [found for kernel in every if options.rows in kernel.name if (found := row(kernel))]
    text = as_table(("kernel", "tracebridge", "eager torch", "ratio"), rows)
    print(text)
    if options.record:
        record(options.record, title, text)


if __name__ == "__main__":
    main(sys.argv[1:])
