"""Memory of whole kernels and of modules, forward and backward, beside eager torch.

    python tests/benchmarks/torch_kernels_memory.py [--modules] [--rows WORD] [--record FILE]

The peak of one step above what the process holds before it: residuals, results, gradients and what
the programs need between. Arrays of 64 KB and more are mapped by themselves, so that memory which
was given back does not count.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.kernels import Kernel, kernels
from tests.benchmarks.modules import modules
from tests.benchmarks.torch_kernels import as_table, record, step
from tests.benchmarks.torch_memory import memory_of_process

STEPS = 3
LEAST = 0.5  # MB, below which a kernel is not listed
_TRIM_THRESHOLD, _MAP_THRESHOLD = -1, -3  # of mallopt


def peak(run: Any, kernel: Kernel, cotangent: torch.Tensor | None) -> float:
    """MB of the best of some steps."""
    step(run, kernel, cotangent)
    step(run, kernel, cotangent)
    found: list[float] = []
    for _ in range(STEPS):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        base = memory_of_process("VmRSS")
        step(run, kernel, cotangent)
        found.append(memory_of_process("VmHWM") - base)
    return min(found)


def row(kernel: Kernel) -> list[str]:
    """Name, ours, eager, ratio; nothing for what is too small to be measured."""
    cotangent = torch.randn_like(kernel.torch(*kernel.arguments)) if kernel.leaves else None
    ours, eager = [peak(run, kernel, cotangent) for run in (kernel.ours, kernel.torch)]
    if max(ours, eager) < LEAST:
        return []
    return [kernel.name, f"{ours:.1f} MB", f"{eager:.1f} MB", f"{ours / eager:.2f}"]


def main(argv: list[str]) -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="", help="only kernels whose name has this word")
    parser.add_argument("--modules", action="store_true", help="translated modules of torch")
    parser.add_argument("--record", type=Path, help="the page with the tables: docs/kernels.md")
    options = parser.parse_args(argv)
    for option in (_TRIM_THRESHOLD, _MAP_THRESHOLD):
        ctypes.CDLL(None).mallopt(option, 1 << 16)
    title = "memory of modules" if options.modules else "memory of kernels"
    every = modules() if options.modules else kernels()
    rows = [found for kernel in every if options.rows in kernel.name if (found := row(kernel))]
    text = as_table(("kernel", "tracebridge", "eager torch", "ratio"), rows)
    print(text)
    if options.record:
        record(options.record, title, text)


if __name__ == "__main__":
    main(sys.argv[1:])
