"""What LLVM does with the texts of kernels, and the functions that they share."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, needs_kernels
from tracebridge import nn
from tracebridge.core.kernels import entries, machine, waiting
from tracebridge.core.kernels.sharing import EXPORTED, LIBRARY
from tracebridge.core.kernels.text import TWICE

pytestmark = needs_kernels

_PLAIN = "define i32 @answer() {\nret i32 42\n}"


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What LLVM compiles from now on, as in a process that has compiled nothing."""
    found: list[str] = []
    compiled = machine._compiled

    def compile_and_tell(text: str, names: Sequence[str]) -> list[int]:
        found.append(text)
        return compiled(text, names)

    monkeypatch.setattr(machine, "_compiled", compile_and_tell)
    machine._load_library.cache_clear()
    return found


def test_the_library_is_compiled_before_the_first_kernel_and_once(texts: list[str]) -> None:
    machine.compile_text(_PLAIN, ["answer"])
    machine.compile_text(_PLAIN, ["answer"])
    assert texts == [LIBRARY, _PLAIN, _PLAIN]


def test_kernels_have_no_functions_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """They call it: LLVM would take as long for these as for most kernels."""
    written: list[str] = []

    def compile_and_tell(text: str, names: Any) -> list[int]:
        written.append(text)
        return machine.compile_text(text, names)

    monkeypatch.setattr(waiting, "compile_text", compile_and_tell)
    x, q = array(600, 1024), array(8, 64, 32)
    tb.jit(lambda x: nn.softmax(x * 1.03125))(x)
    tb.jit(lambda q: nn.softmax(q @ q.swapaxes(1, 2) * 1.03125) @ q)(tnp.asarray(q))

    assert len(written) > 1
    for text in written:
        defined = [line for line in text.splitlines() if line.startswith("define")]
        assert not [line for line in defined for name in EXPORTED if f"@{name}(" in line]
        assert any([f"@{name}(" in text for name in EXPORTED])


def test_what_xla_finds_at_once_waits_for_no_library(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """XLA's compilation waits for it; the library is compiled beside that."""
    monkeypatch.setattr(entries, "_free", [])
    assert len(entries.new_entries(2)) == 2
    assert len(texts) == 1
    assert texts != [LIBRARY]


def test_a_library_that_failed_is_compiled_with_the_next_kernel(
    monkeypatch: pytest.MonkeyPatch, texts: list[str]
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no memory for code")

    with monkeypatch.context() as patched:
        patched.setattr(machine, "_run_passes", fail)
        with pytest.raises(OSError, match="no memory for code"):
            machine.compile_text(_PLAIN, ["answer"])
    machine.compile_text(_PLAIN, ["answer"])
    assert texts == [LIBRARY, LIBRARY, _PLAIN]


def test_threads_that_compile_their_first_kernels(texts: list[str]) -> None:
    """One of them compiles the library, and all kernels find it."""
    x = array(300, 1024)
    results: dict[int, Any] = {}
    barrier = threading.Barrier(4)

    def run(k: int) -> None:
        f = tb.jit(lambda x: nn.softmax(x * (1.0 + k / 8192)))
        barrier.wait()
        results[k] = np.asarray(f(x))

    threads = [threading.Thread(target=run, args=(k,)) for k in (1, 3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert texts.count(LIBRARY) == 1
    assert len(results) == len(threads)
    for k, result in results.items():
        e = np.exp(x * np.float64(np.float32(1.0 + k / 8192)))
        np.testing.assert_allclose(result, e / e.sum(-1, keepdims=True), rtol=2e-5)


def test_kernels_of_the_library_before_go_on(texts: list[str]) -> None:
    """Code that calls the first one keeps it, where a second one is loaded."""
    x = array(600, 1024)
    f = tb.jit(lambda x: nn.log_softmax(x * 1.046875))
    expected = np.asarray(f(x))
    machine._load_library.cache_clear()
    np.asarray(tb.jit(lambda x: nn.log_softmax(x * 1.0478515625))(x))
    assert texts.count(LIBRARY) == 2
    np.testing.assert_array_equal(expected, f(x))


_SAME_TWICE = """
define double @both(double %x, i1 %flag) {
entry:
  %a = fdiv double %x, 7.0
  br i1 %flag, label %more, label %end
more:
  %b = fdiv double %x, 7.0
  br label %end
end:
  %c = phi double [1.0, %entry], [%b, %more]
  %d = fadd double %a, %c
  ret double %d
}
"""


@pytest.mark.parametrize(("line", "divisions"), [("", 2), (f"\n{TWICE}\n", 1)])
def test_what_is_there_twice_is_computed_once_where_the_text_says_so(
    line: str, divisions: int
) -> None:
    binding = importlib.import_module("llvmlite.binding")
    text = line + _SAME_TWICE
    with machine._LOCK, binding.parse_assembly(text) as module:
        machine._run_passes(binding, module, text)
        assert str(module).count("fdiv") == divisions


_IN_MEMORY = """
define internal double @half(double %x) alwaysinline {
  %y = fmul double %x, 0.5
  ret double %y
}

define double @quarter(double %x) {
entry:
  %at = alloca double
  %y = call double @half(double %x)
  store double %y, ptr %at
  %z = load double, ptr %at
  %half = call double @half(double %z)
  ret double %half
}
"""


def test_memory_of_a_function_becomes_registers() -> None:
    binding = importlib.import_module("llvmlite.binding")
    with machine._LOCK, binding.parse_assembly(_IN_MEMORY) as module:
        machine._run_passes(binding, module, _IN_MEMORY)
        made = str(module)
    assert "alloca" not in made
    assert "call" not in made


@pytest.mark.parametrize(
    ("function", "is_twice"),
    [(tnp.sin, True), (tnp.cos, True), (tnp.exp, False), (nn.gelu, False)],
)
def test_kernels_of_waves_say_so(
    function: Any, is_twice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sine and a cosine of one value begin alike."""
    written: list[str] = []

    def compile_and_tell(text: str, names: Any) -> list[int]:
        written.append(text)
        return machine.compile_text(text, names)

    monkeypatch.setattr(waiting, "compile_text", compile_and_tell)
    x = array(600, 1024)
    tb.jit(lambda x: nn.softmax(function(x) * 1.0625))(x)
    assert [TWICE in text for text in written] == [is_twice]
