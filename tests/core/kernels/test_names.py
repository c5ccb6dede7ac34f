"""Kernels are named by what their text depends on, and written when a program is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import needs_kernels
from tracebridge import lax, nn
from tracebridge.core.kernels import call, waiting

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
    """Names tell how many rows, steps or parts there are; the text does not."""
    for f, shape in (
        (nn.softmax, (64, 2048)),
        (lambda x: _filter(x) + 1.0, (60, 32)),
        (lambda q: _attention(q) * 2.0, (40, 32, 16)),
    ):
        before = set(written)
        for n in (1, 2, 3):
            tb.jit(lambda x, f=f: f(x)).lower(_x(n * shape[0], *shape[1:]))
        names = set(written) - before
        assert 1 == len({written[name][0]() for name in names})


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
