"""Loops of small steps as one kernel: where programs get one, and the numbers of the plain form."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import export, lax, nn
from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.config.scopes import scope

pytestmark = needs_kernels

RNG = np.random.default_rng(0)


def check(f: Callable[..., Any], *args: Any, kernels: int = 1, tolerance: float = 1e-6) -> None:
    """``f`` has so many kernels, and the numbers of its plain form."""
    assert kernels_in(f, *args) == kernels
    is_as_plain(f, *args, tolerance=tolerance)


def lstm(xs: Any, w: Any, u: Any, b: Any) -> Any:
    """The hidden states of an LSTM."""

    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, o, z = tnp.split(x @ w.T + h @ u.T + b, 4, axis=-1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * tnp.tanh(z)
        h = nn.sigmoid(o) * tnp.tanh(c)
        return (h, c), h

    start = tnp.zeros((xs.shape[1], u.shape[1]), xs.dtype)
    return lax.scan(step, (start, start), xs)[1]


def over(step: Any, **options: Any) -> Callable[..., Any]:
    """A scan as a function of its carry and xs."""
    return lambda carry, xs: lax.scan(step, carry, xs, **options)


SIZES = [(3, 5, 7), (16, 32, 64), (1, 1, 1), (4, 33, 17)]


@pytest.mark.parametrize(("rows", "inputs", "hidden"), SIZES)
def test_recurrent_networks(rows: int, inputs: int, hidden: int) -> None:
    """Products of all sizes, parts of an array, functions."""
    args = array(6, rows, inputs), array(4 * hidden, inputs), array(4 * hidden, hidden) / 8
    check(lstm, *args, array(4 * hidden), tolerance=3e-6)


def test_gradients_of_a_recurrent_network() -> None:
    """Loops forward and backward, with factors that the backward loop makes itself."""
    args = array(20, 5, 8), array(24, 8), array(24, 6) / 4, array(24)
    gradient = tb.grad(lambda *xs: (lstm(*xs) ** 2).sum(), argnums=(0, 1, 2, 3))
    check(gradient, *args, kernels=2, tolerance=3e-6)
    tangents = [0.1 * a for a in args]
    check(lambda *xs: tb.jvp(lstm, xs, tuple(tangents)), *args, tolerance=3e-6)
    check(tb.vmap(lstm, (0, None, None, None)), array(3, 9, 4, 8), *args[1:], tolerance=3e-6)


def test_second_derivatives() -> None:
    """Of a small filter."""

    def energy(a: Any, xs: Any) -> Any:
        _, ys = lax.scan(lambda y, x: (tnp.tanh(a[0] * y + a[1] * x),) * 2, xs[0] * 0, xs)
        return (ys**2).sum()

    # Its own numbers: a feedback above 1 makes differences of the last digit large ones.
    a, xs = (
        np.array([0.7, -1.1], np.float32),
        np.sin(np.arange(108, dtype=np.float32)).reshape(12, 9),
    )
    found = tb.jit(tb.hessian(energy))(a, xs)
    with scope("platform_rules", False):
        expected = tb.jit(tb.hessian(lambda a, xs: energy(a, xs)))(a, xs)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_carries_that_change_places() -> None:
    """A new carry may be an old one, a slice, a number, or one of the results."""

    def step(carry: Any, x: Any) -> Any:
        a, b, c, d = carry
        return (b, a + x, x, tnp.full_like(d, 2.5)), (a, b, c, x, d, a + x)

    carry = array(3), array(3), array(3), array(2, 1)
    for reverse in (False, True):
        check(over(step, reverse=reverse), carry, array(7, 3))


def test_moves() -> None:
    """Slices, transposes, reshapes, broadcasts, joins and pads, one after another."""

    def step(c: Any, x: Any) -> Any:
        y = tnp.concatenate([c[:, ::2], x.T[:, 1:], c[:, :1]], axis=1)
        z = tnp.pad(y, ((1, 0), (0, 2)), constant_values=0.5)
        flat = z.reshape(-1)[: c.size].reshape(c.shape)
        wide = tnp.broadcast_to(c[:, None, :1], (4, 2, 3))
        return flat * 0.5, (
            tnp.transpose(wide, (2, 0, 1)),
            y,
            z,
        )

    check(over(step), array(4, 6), array(5, 5, 4))


REDUCTIONS: list[tuple[str, Any]] = [
    (name, axes)
    for name in ("sum", "max", "min")
    for axes in ((0,), (2,), (1,), (0, 2), (1, 2), (0, 1), (0, 1, 2))
]


@pytest.mark.parametrize(("name", "axes"), REDUCTIONS)
def test_reductions(name: str, axes: tuple[int, ...]) -> None:
    """Over any axes, with a NaN where there is one."""

    def step(c: Any, x: Any) -> Any:
        y = x * c
        return c + 1, (getattr(y, name)(axes), getattr(y.transpose(2, 0, 1), name)(axes))

    xs = array(5, 3, 4, 19)
    xs[2, 1, 1, 7], xs[3, 0, 0, 0] = np.nan, np.inf
    check(over(step), array(3, 4, 19), xs, tolerance=2e-6)


DIMENSIONS = [
    (((1,), (0,)), ((), ()), (3, 5), (5, 7)),
    (((0,), (1,)), ((), ()), (5, 3), (7, 5)),
    (((1,), (1,)), ((), ()), (9, 40), (33, 40)),
    (((1,), (0,)), ((), ()), (6, 5), (5,)),
    (((0,), (0,)), ((), ()), (5,), (5, 6)),
    (((0,), (0,)), ((), ()), (5,), (5,)),
    (((), ()), ((), ()), (3,), (20,)),
    (((2,), (1,)), ((0,), (0,)), (2, 3, 5), (2, 5, 18)),
    (((1,), (2,)), ((0,), (1,)), (2, 5, 3), (4, 2, 5)),
    (((2, 1), (1, 0)), ((), ()), (3, 4, 5), (4, 5, 6)),
    (((1, 2), (0, 1)), ((), ()), (3, 4, 5), (4, 5, 6)),
]


@pytest.mark.parametrize(("contracted", "batch", "left", "right"), DIMENSIONS)
@pytest.mark.parametrize("changes", ["left", "right"])
def test_products(contracted: Any, batch: Any, left: Any, right: Any, changes: str) -> None:
    """All ways to multiply; one of the two is the same in all steps."""
    x, y = array(*left), array(*right)
    xs = array(5, *(left if changes == "left" else right))

    def f(fixed: Any, xs: Any) -> Any:
        def step(c: Any, z: Any) -> Any:
            a, b = (z, fixed) if changes == "left" else (fixed, z)
            return c + 1, lax.dot_general(a, b, (contracted, batch)) * c

        return lax.scan(step, np.float32(1), xs)

    check(f, y if changes == "left" else x, xs, tolerance=2e-6)


def test_masks_and_integers() -> None:
    """Comparisons, choices, conversions; exact where nothing is rounded."""

    def step(c: Any, x: Any) -> Any:
        n, flag = c
        larger = x > 0.25
        n = n + larger.astype(np.int32) * 3
        y = tnp.where(larger & flag, x, n.astype(np.float32))
        return (n, ~flag), (y, larger, n)

    carry = np.arange(5, dtype=np.int32), np.array([True, False, True, True, False])
    check(over(step), carry, array(8, 5), tolerance=0)


def test_special_numbers() -> None:
    """Infinities, NaN, signed zeros and subnormal numbers, as in the plain form."""
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -88.5, 89.0, 1e30, -3], np.float32)

    def step(c: Any, x: Any) -> Any:
        values = tnp.tanh(x), nn.sigmoid(x), tnp.exp(x), tnp.maximum(x, c), tnp.minimum(c, x)
        return tnp.where(tnp.isfinite(x), x, c), values

    check(over(step), array(10), np.stack([x, -x, x[::-1], x + 1]), tolerance=4e-7)


def test_what_no_step_changes() -> None:
    """Is computed before the loop, and written to all slices of results."""

    def f(w: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            scale = tnp.exp(w).sum(0)
            return c * 0.5 + scale, (scale, tnp.exp(w).T, x * scale, tnp.ones(3, np.float32))

        return lax.scan(step, xs[0], xs)

    check(f, array(4, 6), array(5, 6))


def test_factors_that_only_the_loop_reads() -> None:
    """What is elementwise in all steps is done within them; others may read its sources."""

    def f(a: Any, b: Any, s: Any) -> Any:
        p, q = tnp.split(tnp.tanh(a) * s, 2, axis=-1)
        r = nn.sigmoid(b)

        def step(c: Any, x: Any) -> Any:
            p, q, r, a = x
            return c * p + q * r, (c, a.sum())

        return *lax.scan(step, b[0] * 0, (p, q, r, a)), r.sum(), a[3]

    check(f, array(9, 4, 12), array(9, 4, 6), np.float32(0.5), tolerance=2e-6)


def test_one_machine_code_for_all_lengths() -> None:
    """The number of steps is a number of the call."""

    def names(n: int) -> set[str]:
        text = tb.jit(lstm).lower(array(n, 2, 3), array(8, 3), array(8, 2), array(8)).as_text()
        return {word for word in text.replace("(", " ").split() if KERNEL in word}

    assert names(5) == names(50) != set()


def test_other_programs_have_none() -> None:
    """Large steps, float64, effects, short and symbolic loops, and options."""
    small = array(6, 3)
    assert kernels_in(over(lambda c, x: (c * x, c)), array(3), small) == 1
    assert kernels_in(over(lambda c, x: (c * x, c)), array(300, 300), array(6, 300, 300)) == 0
    assert kernels_in(over(lambda c, x: (c * x, c)), array(3), array(2, 3)) == 0
    assert kernels_in(over(lambda c, x: (tnp.sort(c * x), c)), array(3), small) == 0

    def says(c: Any, x: Any) -> Any:
        tb.debug.callback(lambda _: None, x)
        return c * x, c

    assert kernels_in(over(says), array(3), small) == 0
    with scope("platform_rules", False):
        assert kernels_in(over(lambda c, x: (c * x, x)), array(3), small) == 0
    exported = export.export(tb.jit(over(lambda c, x: (c * x, c))))(array(3), small)
    assert KERNEL not in exported.mlir_module()


def test_calls_from_several_threads() -> None:
    """Each has memory of its own."""
    arrays = [array(50, 4, 6) for _ in range(4)]
    w, u, b = array(20, 6), array(20, 5), array(20)
    f = tb.jit(lstm)
    expected = [np.asarray(f(x, w, u, b)) for x in arrays]
    wrong: list[int] = []

    def run(k: int) -> None:
        for _ in range(40):
            if not (np.asarray(f(arrays[k], w, u, b)) == expected[k]).all():
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong


def test_given_memory() -> None:
    """Carries and xs whose memory the results may take."""
    f = tb.jit(over(lambda c, x: (c + x, c * x)), donate_argnums=(0, 1))
    carry, xs = array(8), array(6, 8)
    last, ys = f(tnp.array(carry), tnp.array(xs))
    sums = np.cumsum(np.concatenate([carry[None], xs]), axis=0, dtype=np.float32)
    np.testing.assert_allclose(last, sums[-1], rtol=1e-6)
    np.testing.assert_allclose(ys, sums[:-1] * xs, rtol=1e-5, atol=1e-6)


def test_costs_are_counted() -> None:
    """XLA's cost analysis has the multiplications of all steps."""
    args = array(10, 4, 8), array(24, 8), array(24, 6), array(24)
    costs = tb.jit(lstm).lower(*args).compile().cost_analysis()
    assert costs["flops"] >= 10 * 2 * 4 * 24 * (8 + 6)


@pytest.mark.parametrize("n", range(1, 10))
def test_states_of_a_few_numbers(n: int) -> None:
    """Parts written one by one and read together give the numbers of NumPy, for each size."""
    start = np.linspace(0.1, 0.9, n).astype("f")

    def step(s: Any, _: None) -> Any:
        turned = tnp.stack([s[(i + 1) % n] - 0.3 * s[i] for i in range(n)])
        s = s + 0.01 * (tnp.concatenate([turned[n // 2 :], turned[: n // 2]]) + tnp.tanh(s))
        return s, s

    expected, rows = start.astype(np.float64), []
    for _ in range(20):
        turned = np.roll(expected, -1) - 0.3 * expected
        expected = expected + 0.01 * (np.roll(turned, -(n // 2)) + np.tanh(expected))
        rows.append(expected)

    found = tb.jit(lambda s: tb.lax.scan(step, s, None, length=20)[1])(start)

    np.testing.assert_allclose(np.asarray(found), rows, rtol=1e-5)
