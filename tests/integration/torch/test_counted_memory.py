"""What a step allocates, counted in a process of its own."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from tests.benchmarks.allocations import with_counter

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or shutil.which("cc") is None,
        reason="needs glibc and a C compiler, for the library that counts allocations",
    ),
]

PROGRAM = """
import gc, json, sys
import torch
from tests.benchmarks import kernel_programs as programs
from tests.benchmarks.allocations import most_allocated
from tracebridge.torch import wrap

# Two operands and their sum, 600 kB; then the sum and another, 500 kB.
known = most_allocated(lambda: (bytearray(300_000) + bytearray(100), bytearray(200_000)))
qkv = [torch.randn(8, 64, 32, requires_grad=True) for _ in range(3)]
ct = torch.randn(8, 64, 32)


def step(f):
    out = f(*qkv)
    return out, torch.autograd.grad(out, qkv, ct)


def peak(f):
    for _ in range(3):
        step(f)
    gc.collect()
    return min([most_allocated(lambda: step(f)) for _ in range(5)])


peaks = peak(wrap(programs.attention)), peak(programs.torch_attention)
with open(sys.argv[1], "w") as file:
    json.dump([known, *peaks], file)
"""


def test_small_steps_take_the_bytes_of_eager_torch(tmp_path):
    """Forward and backward of a small attention: at most 1.05 times the bytes of torch's own."""
    found = tmp_path / "found"
    status = with_counter([sys.executable, "-c", PROGRAM, str(found)], tmp_path)

    assert status == 0
    known, ours, eager = json.loads(found.read_text())
    assert 600_000 <= known < 610_000
    assert eager >= 6 * 65_536
    assert ours <= 1.05 * eager
