"""Kernels are named by what their text depends on; they are planned and written when compiled."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import is_as_plain, needs_kernels
from tracebridge import lax, nn
from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.kernels import call, waiting
from tracebridge.core.kernels.machine import compile_text
from tracebridge.core.kernels.rows import row_kernel
from tracebridge.core.kernels.steps import batch_kernel, parts, scan_kernel

pytestmark = needs_kernels


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[Callable[[], str]]]]:
    """By name what would write the text, for each time that a kernel is named."""
    tb.clear_caches()
    found: dict[str, list[Callable[[], str]]] = {}
    wait = call.wait_for_program

    def record(name: str, write: Callable[[], str]) -> None:
        found.setdefault(name, []).append(write)
        wait(name, write)

    monkeypatch.setattr(call, "wait_for_program", record)
    yield found
    tb.clear_caches()


def _x(*shape: int) -> Any:
    return tnp.asarray(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def _norm(axes: Any) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        centred = x - x.mean(axes, keepdims=True)
        return centred / tnp.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)

    return f


def _attention(q: Any) -> Any:
    return nn.softmax(q @ q.swapaxes(-1, -2)) @ q


def _filter(x: Any) -> Any:
    def step(c: Any, row: Any) -> Any:
        return 0.9 * c + tnp.tanh(row), c * row

    return lax.scan(step, tnp.zeros(x.shape[1:]), x)[1]


PROGRAMS: list[tuple[Callable[[Any], Any], tuple[int, ...]]] = [
    (nn.softmax, (64, 1024)),
    (lambda x: tb.grad(lambda y: (nn.softmax(y) * y).sum())(x), (64, 1024)),
    (_norm(-1), (256, 256)),
    (_norm((0, 2, 3)), (8, 16, 16, 16)),
    (_norm((2, 3)), (8, 16, 16, 16)),
    (lambda x: _norm(-1)(x.astype(tnp.float16).astype(tnp.float32)), (256, 256)),
    (_attention, (8, 32, 16)),
    (_attention, (8, 2, 16, 16)),
    (_filter, (50, 64)),
    (lambda x: tb.grad(lambda y: _filter(y).sum())(x), (50, 64)),
]


def test_equal_names_stand_for_equal_texts(written: dict[str, list[Callable[[], str]]]) -> None:
    """Of programs of other sizes, too, some of which share kernels."""
    for f, shape in PROGRAMS:
        for n in (1, 2, 3):
            tb.jit(lambda x, f=f: f(x)).lower(_x(n * shape[0], *shape[1:]))

    texts = {name: {write() for write in writers} for name, writers in written.items()}
    assert len(texts) >= len(PROGRAMS)
    assert [1] * len(texts) == [len(some) for some in texts.values()]


def test_batches_of_all_sizes_share_a_kernel(written: dict[str, list[Callable[[], str]]]) -> None:
    """The number of rows, steps or parts is no part of the text."""
    for f, shape in (
        (nn.softmax, (64, 2048)),
        (lambda x: _filter(x) + 1.0, (60, 32)),
        (lambda q: _attention(q) * 2.0, (40, 32, 16)),
    ):
        before = set(written)
        for n in (1, 2, 3):
            tb.jit(lambda x, f=f: f(x)).lower(_x(n * shape[0], *shape[1:]))
        assert 1 == len(set(written) - before)


def test_numbers_tell_kernels_apart(written: dict[str, list[Callable[[], str]]]) -> None:
    """Zeros of both signs too; each program has its own result."""
    x = _x(64, 1024)

    def f(k: float) -> Any:
        return tb.jit(lambda x: nn.softmax(x * k) / (tnp.sign(x * 0.0 + k) + 0.5))

    for k in (0.0, -0.0, 1.0, -1.0):
        e = np.exp(np.asarray(x) * k)
        expected = e / e.sum(-1, keepdims=True) / (np.sign(k) + 0.5)
        np.testing.assert_allclose(expected, f(k)(x), rtol=2e-5)
    assert len(written) >= 4


def test_nothing_is_written_before_a_program_is_compiled(
    written: dict[str, list[Callable[[], str]]],
) -> None:
    """Lowering names a kernel; compiling writes its text once."""
    x = _x(96, 1536)
    lowered = tb.jit(lambda x: nn.softmax(x * 1.0625)).lower(x)
    (name,) = written
    times = []

    def write() -> str:
        times.append(name)
        return written[name][0]()

    assert name in waiting._waiting
    waiting._waiting[name] = write
    compiled = [lowered.compile() for _ in range(2)]
    assert [name] == times
    assert name not in waiting._waiting
    e = np.exp(np.asarray(x) * 1.0625)
    for run in compiled:
        np.testing.assert_allclose(e / e.sum(-1, keepdims=True), run(x), rtol=2e-5)


_SOURCE = """
import numpy as np, tracebridge as tb, tracebridge.numpy as tnp
from tracebridge import lax, nn
x = np.ones((64, 64), np.float32)
def norm(x):
    return x / tnp.sqrt((x * x).mean(-1, keepdims=True) + 0.3)
def step(c, row):
    return 0.9 * c + tnp.tanh(row), c * row
for f, args in (
    (nn.softmax, (np.ones((64, 1024), np.float32),)),
    (tb.grad(lambda x: norm(x).sum()), (np.ones((256, 256), np.float32),)),
    (lambda x: lax.scan(step, x[0], x), (x,)),
    (lambda q: nn.softmax(q @ q.swapaxes(-1, -2)) @ q, (np.ones((8, 32, 16), np.float32),)),
):
    print(tb.jit(f).lower(*args).as_text())
"""


def test_names_are_the_same_in_each_process() -> None:
    """Sets in an order of their own, and objects at other places, are no part of names."""
    found = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", _SOURCE]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(re.findall(rf"{KERNEL}[0-9a-f]+", ran.stdout))
    assert found[0] == found[1]
    assert len(found[0]) >= 4


def _names(f: Callable[[Any], Any], x: Any) -> set[str]:
    text = tb.jit(lambda x: f(x)).lower(x).as_text()
    return set(re.findall(rf"{KERNEL}[0-9a-f]+", text))


def test_names_differ_where_programs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """In equations, parameters, order, numbers, types, directions and parts for threads."""
    rows, long, batch = _x(256, 256), _x(60, 32), _x(8, 32, 16)
    half = rows.astype(tnp.float16)

    def scan(step: Any, **options: Any) -> Callable[[Any], Any]:
        return lambda x: lax.scan(step, x[0], x, **options)

    def some(c: Any, row: Any) -> Any:
        return 0.9 * c + tnp.tanh(row), c * row

    def others(c: Any, row: Any) -> Any:
        return 0.9 * c + tnp.tanh(row), row * c - c

    programs: list[tuple[Callable[[Any], Any], Any]] = [
        (nn.softmax, rows),
        (nn.log_softmax, rows),
        (lambda x: nn.softmax(x) * 0.3, rows),
        (lambda x: nn.softmax(x) * 0.7, rows),
        (lambda x: nn.softmax(x) ** 2, rows),
        (lambda x: nn.softmax(x) ** 3, rows),
        (lambda x: nn.softmax(x.astype(tnp.float32)), half),
        (nn.softmax, _x(256, 512)),
        (lambda x: nn.softmax(x, axis=0), rows),
        (scan(some), long),
        (scan(some, reverse=True), long),
        (scan(others), long),
        (scan(some), _x(60, 48)),
        (_attention, batch),
        (lambda q: _attention(q) * 0.3, batch),
        (lambda q: _attention(q) * 0.7, batch),
        (lambda q: nn.softmax(q @ q.swapaxes(-1, -2)) @ (q + q), batch),
    ]
    seen: set[str] = set()
    for f, x in programs:
        names = _names(f, x)
        assert names
        assert seen.isdisjoint(names)
        seen |= names

    monkeypatch.setattr(parts, "_LEAST", 1e-9)
    for n in (1, 2, 4):
        tb.clear_caches()
        monkeypatch.setattr(scan_kernel, "n_threads", lambda n=n: n)
        names = _names(scan(some), _x(60, 64))
        assert seen.isdisjoint(names)
        seen |= names


def test_nothing_is_planned_before_a_program_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows, loops and batches."""
    tb.clear_caches()
    planned: list[str] = []

    def counted(module: Any, name: str) -> None:
        made = getattr(module, name)

        def make(*args: Any) -> Any:
            planned.append(name)
            return made(*args)

        monkeypatch.setattr(module, name, make)

    counted(row_kernel, "RowProgram")
    counted(scan_kernel, "Plan")
    counted(batch_kernel, "Plan")
    for f, shape in ((nn.softmax, (72, 1280)), (_filter, (52, 72)), (_attention, (8, 24, 24))):
        lowered = tb.jit(lambda x, f=f: f(x) * 0.37).lower(_x(*shape))
        assert [] == planned
        lowered.compile()
        assert planned
        planned.clear()


def test_equal_texts_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels with several names, as of shapes in which one size is two, have machine code once."""
    texts: list[str] = []

    def compile_it(text: str, entries: Any) -> Any:
        texts.append(text)
        return compile_text(text, entries)

    monkeypatch.setattr(waiting, "compile_text", compile_it)
    names: set[str] = set()
    for n in (832, 416):  # the size of a row, and another one
        x = _x(n, 832)
        is_as_plain(lambda x: nn.softmax(x) - 0.125, x, tolerance=2e-6)
        names |= _names(lambda x: nn.softmax(x) - 0.125, x)
    assert 2 == len(names)
    assert 1 == len(texts)


@pytest.mark.parametrize("cores", ["1", "2"])
@pytest.mark.parametrize(
    ("module", "f", "shape"),
    [
        (row_kernel, nn.softmax, (80, 1100)),
        (scan_kernel, _filter, (51, 80)),
        (batch_kernel, _attention, (8, 20, 20)),
    ],
)
def test_who_compiles_hears_what_writing_has_raised(
    monkeypatch: pytest.MonkeyPatch,
    cores: str,
    module: Any,
    f: Callable[[Any], Any],
    shape: tuple[int, ...],
) -> None:
    """Nobody waits for the kernel; the next one who compiles the program tries again."""
    monkeypatch.setenv("NPROC", cores)
    tb.clear_caches()
    x = _x(*shape[:-1], shape[-1] + int(cores))
    lowered = tb.jit(lambda x: f(x)).lower(x)

    def fail(*_: Any) -> Any:
        raise RuntimeError("no plan for a kernel")

    with monkeypatch.context() as patched:
        patched.setattr(module, "_text", fail)
        with pytest.raises(RuntimeError, match="no plan for a kernel"):
            lowered.compile()
    assert {} == waiting._running

    is_as_plain(lambda x: f(x), x, tolerance=1e-5)
    lowered.compile()(x)


def test_caches_may_be_cleared_before_a_program_is_compiled() -> None:
    """What waits keeps what it is made of."""
    for f, shape in ((nn.softmax, (88, 1200)), (_filter, (53, 88)), (_attention, (8, 28, 28))):
        x = _x(*shape)
        lowered = tb.jit(lambda x, f=f: f(x) * 0.43).lower(x)
        tb.clear_caches()
        compiled = lowered.compile()
        tb.clear_caches()
        np.testing.assert_allclose(f(x) * 0.43, compiled(x), rtol=1e-4, atol=1e-6)


def test_threads_lower_and_compile_the_same_kernels() -> None:
    """Each has its results; options of the thread that lowers are none of the one that plans."""
    tb.clear_caches()
    cases = [(nn.softmax, _x(96, 1300)), (_filter, _x(54, 96)), (_attention, _x(8, 36, 36))]
    expected = [f(x) * 0.57 for f, x in cases]
    failures: list[BaseException] = []

    def run(wide: bool) -> None:
        try:
            with tb.enable_x64(wide):
                for (f, x), y in zip(cases, expected, strict=True):
                    found = tb.jit(lambda x, f=f: f(x) * 0.57).lower(x).compile()(x)
                    np.testing.assert_allclose(y, found, rtol=1e-4, atol=1e-6)
        except BaseException as failure:  # noqa: BLE001 - the test raises it
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(k % 2 == 0,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == failures
