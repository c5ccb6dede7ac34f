"""Kernels are compiled while XLA compiles the programs that call them, each once."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import needs_kernels
from tracebridge import nn
from tracebridge.core.kernels import waiting
from tracebridge.core.kernels.machine import compile_text

pytestmark = needs_kernels

_X = tnp.asarray(np.random.default_rng(0).standard_normal((48, 1024)).astype(np.float32))
_NUMBERS = itertools.count(1)


def _softmax() -> tuple[Callable[[Any], Any], Any]:
    """A program whose kernel no other test has, and its result."""
    k = 1.0 + next(_NUMBERS) / 1024
    e = np.exp(np.asarray(_X) * np.float32(k))
    return tb.jit(lambda x: nn.softmax(x * k)), e / e.sum(-1, keepdims=True)


def _compiling(monkeypatch: pytest.MonkeyPatch, before: Callable[[], None]) -> list[str]:
    """What compiles a kernel does something else before; the texts that are compiled."""
    texts: list[str] = []

    def compile_later(text: str, entries: Any) -> Any:
        before()
        texts.append(text)
        return compile_text(text, entries)

    monkeypatch.setattr(waiting, "compile_text", compile_later)
    return texts


def test_programs_run_when_their_kernels_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM takes longer than XLA."""
    monkeypatch.setenv("NPROC", "2")
    texts = _compiling(monkeypatch, lambda: time.sleep(1.0))
    f, expected = _softmax()

    np.testing.assert_allclose(expected, f(_X), rtol=2e-5)
    assert len(texts) == 1


def test_one_core_compiles_kernels_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread is started that the one core would have to do as well."""
    monkeypatch.setenv("NPROC", "1")
    threads: list[str] = []
    _compiling(monkeypatch, lambda: threads.append(threading.current_thread().name))
    f, expected = _softmax()

    np.testing.assert_allclose(expected, f(_X), rtol=2e-5)
    assert [threading.current_thread().name] == threads


@pytest.mark.parametrize("cores", ["1", "2"])
def test_a_kernel_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch, cores: str) -> None:
    """Whoever compiles the program hears of it, and no one else."""
    monkeypatch.setenv("NPROC", cores)
    failures = [OSError("no memory for a kernel")]

    def fail() -> None:
        if failures:
            raise failures.pop()

    texts = _compiling(monkeypatch, fail)
    f, expected = _softmax()
    g, expected_of_g = _softmax()

    with pytest.raises(OSError, match="no memory for a kernel"):
        f(_X)
    np.testing.assert_allclose(expected_of_g, g(_X), rtol=2e-5)
    np.testing.assert_allclose(expected, f(_X), rtol=2e-5)
    assert len(texts) == 2


def test_a_kernel_that_xla_does_not_take_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what nothing compiles any more."""
    monkeypatch.setenv("NPROC", "1")
    f, expected = _softmax()

    def refuse(*_: Any) -> None:
        raise ValueError("no such kernel")

    with monkeypatch.context() as patched:
        patched.setattr(waiting, "register_kernel", refuse)
        with pytest.raises(ValueError, match="no such kernel"):
            f(_X)

    assert {} == waiting._running
    np.testing.assert_allclose(expected, f(_X), rtol=2e-5)


def test_threads_that_want_one_kernel_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled once; neither program runs before."""
    monkeypatch.setenv("NPROC", "2")
    texts = _compiling(monkeypatch, lambda: time.sleep(0.5))
    f, expected = _softmax()
    lowered = [f.lower(_X), tb.jit(lambda x: (f(x), x @ x.T)).lower(_X)]
    found: list[Any] = [None, None]

    def run(i: int) -> None:
        found[i] = tb.tree_util.tree_leaves(lowered[i].compile()(_X))[0]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(texts) == 1
    for result in found:
        np.testing.assert_allclose(expected, result, rtol=2e-5)


def test_a_kernel_that_is_called_without_xla_is_one_for_xla_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it is compiled for the one, XLA gets a function that goes on to it."""
    monkeypatch.setenv("NPROC", "2")
    is_begun = threading.Event()

    def begin() -> None:
        is_begun.set()
        time.sleep(0.5)

    texts = _compiling(monkeypatch, begin)
    f, expected = _softmax()
    before = set(waiting._waiting)
    lowered = f.lower(_X)
    (name,) = set(waiting._waiting) - before
    addresses: list[int | None] = []
    thread = threading.Thread(target=lambda: addresses.append(waiting.direct_address(name)))
    thread.start()
    assert is_begun.wait(30)

    np.testing.assert_allclose(expected, lowered.compile()(_X), rtol=2e-5)
    thread.join()
    assert len(texts) == 1
    assert addresses == [waiting.direct_address(name)]
    assert addresses[0]
