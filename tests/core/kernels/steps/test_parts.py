"""Loops whose rows threads share: which axis is cut, and the numbers of the plain form."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, needs_kernels, texts_of
from tracebridge import lax, nn
from tracebridge.core.kernels.steps import parts, scan_kernel

pytestmark = needs_kernels

RNG = np.random.default_rng(0)
_COUNT = re.compile(r"store i64 (\d+), ptr %blocks.at")


@pytest.fixture(autouse=True, params=[2, 5])
def n_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """As if the machine had so many cores, and any work were worth sharing."""
    monkeypatch.setattr(parts, "_LEAST", 1e-9)
    monkeypatch.setattr(scan_kernel, "n_threads", lambda: request.param)
    return request.param


def parts_in(f: Any, *args: Any) -> list[int]:
    """Of each loop of a program that is a kernel the number of its parts."""
    found = [_COUNT.search(text) for text in texts_of(f, *args)]
    return [1 if count is None else int(count[1]) for count in found]


def check(f: Callable[..., Any], *args: Any, expected: list[int]) -> None:
    """``f`` has kernels of so many parts, and the numbers of its plain form."""
    assert parts_in(f, *args) == expected
    is_as_plain(f, *args, tolerance=2e-6)


def over(step: Any, **options: Any) -> Callable[..., Any]:
    """A scan as a function of its carry and xs."""
    return lambda carry, xs: lax.scan(step, carry, xs, **options)


def test_rows_of_a_network(n_threads: int) -> None:
    """Rows of the carry, of xs and ys; the weights are read by all."""
    w, b = array(12, 12) / 4, array(12)

    def step(h: Any, x: Any) -> Any:
        h = tnp.tanh(h @ w + x * b)
        return h, (h, h[:, :3], h.max(1), h > 0)

    check(over(step), array(20, 12), array(6, 20, 12), expected=[n_threads])
    check(over(step, reverse=True), array(20, 12), array(6, 20, 12), expected=[n_threads])


def test_gradients_of_rows(n_threads: int) -> None:
    """The backward loop is shared as well."""

    def energy(w: Any, xs: Any) -> Any:
        return (lax.scan(lambda h, x: (nn.sigmoid(h @ w + x),) * 2, xs[0], xs)[1] ** 2).sum()

    check(tb.grad(energy, (0, 1)), array(9, 9) / 3, array(7, 20, 9), expected=[n_threads] * 2)


def test_an_axis_that_is_not_the_first(n_threads: int) -> None:
    """Columns: matrices from the left, slices of xs and ys that are not contiguous."""
    w = array(5, 5) / 3

    def step(h: Any, x: Any) -> Any:
        h = tnp.cos(w @ h) + x
        return h, (h, h.T, h.sum(0), h[1:4], tnp.concatenate([h, x], 0))

    check(over(step), array(5, 160), array(6, 5, 160), expected=[n_threads])


def test_an_axis_in_the_middle(n_threads: int) -> None:
    """Of arrays of three axes; a reshape and a pad leave it alone."""

    def step(h: Any, x: Any) -> Any:
        h = tnp.sin(h * x + h.mean(2, keepdims=True))
        y = tnp.pad(h, ((1, 2), (0, 0), (0, 1)))
        return h, (y, h.transpose(1, 0, 2).reshape(20, 6), tnp.stack([h, x], 0))

    check(over(step), array(2, 20, 3), array(5, 2, 20, 3), expected=[n_threads])


def test_what_has_no_axis_of_the_kind(n_threads: int) -> None:
    """Counters and what depends on them are the same for all parts."""

    def step(carry: Any, x: Any) -> Any:
        h, n, a = carry
        h = tnp.tanh(h * x + a)
        return (h, n + 1, tnp.where(n > 5, a * 0.5, a)), (h, n, a)

    carry = array(20, 7), np.int32(3), np.float32(0.25)
    check(over(step), carry, array(6, 20, 7), expected=[n_threads])


@pytest.mark.parametrize(
    "mixed",
    [
        lambda h: h - h.mean(0),
        lambda h: h + h[:1],
        lambda h: tnp.concatenate([h[4:], h[:4]], 0),
        lambda h: h @ h.T @ h / 90,
        lambda h: h.reshape(4, 15).sum(1).mean() / 15 + h,
    ],
)
def test_rows_that_need_each_other(mixed: Callable[[Any], Any]) -> None:
    """One thread does all of it."""
    check(
        over(lambda h, x: (tnp.tanh(mixed(h) + x),) * 2),
        array(20, 3),
        array(5, 20, 3),
        expected=[1],
    )


def test_a_size_that_cannot_be_shared_equally() -> None:
    """Parts are equal, and have some rows each."""
    for rows, expected in ((7, 1), (3, 1), (13, 1)):
        f = over(lambda h, x: (tnp.tanh(h @ x),) * 2)
        check(f, array(rows, 3), array(5, 3, 3), expected=[expected])


def test_an_axis_twice() -> None:
    """The outer product of rows has their axis twice, so rows cannot be cut, but columns can."""

    def step(h: Any, x: Any) -> Any:
        return h + x, h @ x.T

    assert parts_in(over(step), array(20, 20), array(5, 20, 20)) == [1]


def test_little_work_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """To wake a thread takes longer."""
    monkeypatch.undo()
    f = over(lambda h, x: (tnp.tanh(h * x),) * 2)
    assert parts_in(f, array(32, 2), array(5, 32, 2)) == [1]


def test_callers_in_several_threads() -> None:
    """Each call has its own parts and memory."""
    w = array(32, 32) / 6
    f = tb.jit(over(lambda h, x: (tnp.tanh(h @ w + x),) * 2))
    inputs = [(array(20, 32), array(40, 20, 32)) for _ in range(4)]
    expected = [np.asarray(f(*args)[1]) for args in inputs]
    wrong: list[int] = []

    def run(k: int) -> None:
        for _ in range(30):
            if not np.array_equal(np.asarray(f(*inputs[k])[1]), expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_loops_of_several_lengths_share_code() -> None:
    """The number of steps is given by the call."""
    f = tb.jit(over(lambda h, x: (tnp.tanh(h * 0.5 + x),) * 2))
    for length in (4, 9, 30):
        h, xs = array(20, 8), array(length, 20, 8)
        state = h
        for x in xs:
            state = np.tanh(state * np.float32(0.5) + x)
        np.testing.assert_allclose(np.asarray(f(h, xs)[0]), state, rtol=1e-5, atol=1e-6)
