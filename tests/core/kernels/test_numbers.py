"""Kernels are planned once for all numbers that programs have in a place, and have their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import is_as_plain, kernels_in, needs_kernels
from tracebridge import lax, nn
from tracebridge.core.kernels.rows import row_kernel

pytestmark = needs_kernels

# Factors near one are moved out of sums, others are not.
NUMBERS = (0.3, 25.0, 1.3)


@pytest.fixture(autouse=True)
def _forget() -> None:
    tb.clear_caches()


def _rows(*shape: int) -> Any:
    return tnp.asarray(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def _norm(k: float) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return k * centred / tnp.sqrt((centred**2).mean(-1, keepdims=True) + 0.1 * abs(k)) - k

    return f


def _filter(k: float) -> Callable[[Any], Any]:
    def step(c: Any, row: Any) -> Any:
        return 0.1 * k * c + tnp.tanh(row) / k, c * k

    return lambda x: lax.scan(step, tnp.zeros(x.shape[1:]), x)


def _attention(k: float) -> Callable[[Any], Any]:
    return lambda q: nn.softmax(q @ q.swapaxes(-1, -2) * (0.1 * k)) @ q - k


def _gradient(f: Callable[[float], Callable[[Any], Any]]) -> Callable[[float], Any]:
    return lambda k: tb.grad(lambda x: sum([(y * y).sum() for y in tb.tree.leaves(f(k)(x))]))


KERNELS: list[tuple[Callable[[float], Any], tuple[int, ...]]] = [
    (_norm, (256, 256)),
    (_gradient(_norm), (256, 256)),
    (_filter, (50, 64)),
    (_gradient(_filter), (50, 64)),
    (_attention, (8, 32, 16)),
    (_gradient(_attention), (8, 32, 16)),
]


@pytest.mark.parametrize(("of", "shape"), KERNELS)
def test_kernels_have_the_numbers_of_their_program(
    of: Callable[[float], Any], shape: tuple[int, ...]
) -> None:
    """Of rows, of loops and of batches: with each number as without kernels."""
    x = _rows(*shape)
    for k in NUMBERS:
        assert kernels_in(of(k), x)
        is_as_plain(of(k), x, tolerance=2e-4)


def test_kernels_are_planned_once_for_all_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two numbers of one kind in a kernel, and in a longer program that has the same kernel."""
    planned: list[Any] = []
    plan = row_kernel._made
    monkeypatch.setattr(row_kernel, "_made", lambda given: planned.append(given) or plan(given))
    x = _rows(256, 256)
    texts = [tb.jit(_norm(k)).lower(x).as_text() for k in (0.3, 0.7)]
    assert 1 == len(planned)
    assert texts[0] != texts[1]

    tb.jit(lambda x: _norm(0.4)(x) @ x).lower(x)
    assert 1 == len(planned)


def test_powers_with_other_exponents_are_other_kernels() -> None:
    """Whole and half exponents are written out; others are XLA's."""
    x = tnp.abs(_rows(256, 256)) + 0.5
    for y in (2.0, 3.0, 0.5, 0.3, 1.7, 3.0):

        def f(x: Any, y: float = y) -> Any:
            p = lax.pow(x, tnp.float32(y))
            return p / p.sum(-1, keepdims=True)

        p = np.asarray(x) ** y
        np.testing.assert_allclose(p / p.sum(-1, keepdims=True), tb.jit(f)(x), rtol=2e-5)


def test_numbers_beyond_float32_are_infinite_without_a_warning() -> None:
    """As in programs without kernels; warnings are errors in tests."""
    x = _rows(2000, 24)
    for k in (1e40, -1e300):

        def rows(x: Any, k: float = k) -> Any:
            return tnp.where(x > 0, k, x) - x.max(-1, keepdims=True)

        def loop(x: Any, k: float = k) -> Any:
            return lax.scan(lambda h, v: (tnp.sin(h) + v, tnp.where(h > 0, k, v)), x[0], x)[1]

        for f in (rows, loop):
            assert kernels_in(f, x)
            is_as_plain(f, x, tolerance=1e-5)
