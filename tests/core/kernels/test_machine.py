"""What kernels know of the processor before LLVM is loaded."""

from __future__ import annotations

import importlib
import platform
import subprocess
import sys

import pytest

from tests.core.kernels.plain_form import needs_kernels
from tracebridge.core.kernels import machine
from tracebridge.core.util import processor

pytestmark = needs_kernels

_LOWERED = """
import sys
import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax, nn

def rows(x):
    return nn.softmax(x)

def steps(x):
    return lax.scan(lambda c, v: (tnp.sin(c + v), c), x[0], x)

x = tnp.ones((512, 256))
for f in (rows, steps):
    lowered = tb.jit(f).lower(x[:, :8] if f is steps else x)
    assert "kernel" in lowered.as_text(), f
assert "llvmlite.binding" not in sys.modules
lowered.compile()
assert "llvmlite.binding" in sys.modules
"""


def test_lowering_loads_no_llvm() -> None:
    """It takes as long as lowering a hundred programs; XLA compiles beside it."""
    subprocess.run([sys.executable, "-c", _LOWERED], check=True)


@pytest.fixture
def asked_anew() -> None:
    machine.machine.cache_clear()


def _by_llvm() -> tuple[int, bool]:
    features = importlib.import_module("llvmlite.binding").get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8 if features.get("avx2") else 4
    return lanes, platform.machine() != "x86_64" or bool(features.get("fma"))


def test_the_system_says_what_llvm_says() -> None:
    found = machine.machine()
    assert (found.lanes, found.fuses) == _by_llvm()
    assert "llvmlite" in found.description


@pytest.mark.parametrize("lines", [None, [], ["model name\t: One without a list"]])
@pytest.mark.usefixtures("asked_anew")
def test_a_system_that_says_nothing(
    monkeypatch: pytest.MonkeyPatch, lines: list[str] | None
) -> None:
    """Then LLVM tells, and its list is a part of the names of kernels."""
    monkeypatch.setattr(machine, "processor_lines", lambda of_all_cores: lines)
    try:
        found = machine.machine()
    finally:
        machine.machine.cache_clear()
    assert (found.lanes, found.fuses) == _by_llvm()
    assert "fma" in found.description or platform.machine() != "x86_64"


@pytest.mark.usefixtures("asked_anew")
def test_a_processor_without_long_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["flags\t\t: fpu sse4_2 fma avx avx2 bmi2"]
    monkeypatch.setattr(machine, "processor_lines", lambda of_all_cores: lines)
    try:
        found = machine.machine()
    finally:
        machine.machine.cache_clear()
    assert found.lanes == 8
    assert lines[0] in found.description


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has the file")
def test_lines_of_the_first_core_are_among_those_of_all() -> None:
    of_one = processor.processor_lines(of_all_cores=False)
    of_all = processor.processor_lines(of_all_cores=True)
    assert of_one
    assert of_all
    assert set(of_one) <= set(of_all)
