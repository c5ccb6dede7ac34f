"""Kernels of small loops: what was wrong once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import is_as_plain, needs_kernels
from tracebridge import lax
from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering.rewrites import steps

pytestmark = needs_kernels


def kernels_in(f: Any, *args: Any) -> int:
    """How many kernels the program of a function calls."""
    return tb.jit(f).lower(*args).as_text().count(f"@{KERNEL}")


def of_steps(f: Any, xs: Any) -> Any:
    """``f`` of each row, by a kernel."""

    def run(xs: Any) -> Any:
        return lax.scan(lambda c, x: (c, f(x)), np.float32(0), xs)[1]

    assert kernels_in(run, xs) == 1
    return tb.jit(run)(xs)


def test_tanh_keeps_the_sign_of_zero() -> None:
    """Large arguments give exactly 1, and signs are those of the arguments."""
    x = np.array([[0.0, -0.0, 20.0, -20.0]] * 4, np.float32)
    y = np.asarray(of_steps(lax.tanh, x))
    np.testing.assert_array_equal(y, np.sign(x))
    np.testing.assert_array_equal(np.signbit(y), np.signbit(x))


@pytest.mark.usefixtures("own_rewrites")
@pytest.mark.parametrize(("most", "kernels"), [(8192, 1), (1000, 0)])
def test_no_kernel_of_a_long_text(most: int, kernels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM would take seconds for what XLA compiles in a fraction of one."""

    def step(c: Any, x: Any) -> Any:
        for _ in range(20):
            c = tnp.tanh(c @ x) * 1000
        return c, None

    c, xs = np.ones((3, 3), np.float32), np.ones((4, 3, 3), np.float32)
    monkeypatch.setattr(steps, "_MOST_LINES", most)
    assert kernels_in(lambda c, xs: lax.scan(step, c, xs)[0], c, xs) == kernels


@pytest.mark.usefixtures("own_rewrites")
def test_many_loops_are_rewritten_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite for each would take time by the square, and recursion has a limit."""
    looked: list[Any] = []
    first = steps.Readings
    monkeypatch.setattr(steps, "Readings", lambda jaxpr: looked.append(jaxpr) or first(jaxpr))

    def run(c: Any, xs: Any) -> Any:
        for _ in range(3):  # their xs are made within the loops
            c, ys = lax.scan(lambda c, x: (c * 0.5 + x, c), c, xs * 2.0)
            xs = ys - 1.0
        return c, xs

    args = np.ones(3, np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)
    assert kernels_in(run, *args) == 3
    assert len(looked) == 1
    with scope("platform_rules", False):
        plain = tb.jit(lambda c, xs: run(c, xs))(*args)
    for a, b in zip(tb.jit(run)(*args), plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("n", [32, 133])
def test_products_of_rows_that_lie_as_the_vector_does(n: int) -> None:
    """They are summed up along the rows, where a matrix would have to be transposed."""
    rng = np.random.default_rng(n)

    def step(c: Any, xs: Any) -> Any:
        x, y, many = xs
        sums = lax.dot_general(many, y, (((2,), (1,)), ((0,), (0,))))
        return c, (x @ c, c @ x.T, c @ c, c @ x[3], sums, x[::2] @ c)

    c = rng.standard_normal(n).astype(np.float32)
    shapes = [(4, 7, n), (4, 2, n), (4, 2, 5, n)]
    xs = tuple([rng.standard_normal(s).astype(np.float32) for s in shapes])

    def run(c: Any, xs: Any) -> Any:
        return lax.scan(step, c, xs)[1]

    assert kernels_in(run, c, xs) == 1
    found = tb.jit(run)(c, xs)
    x, y, many = xs
    wanted = [x @ c, x @ c, [c @ c] * 4, x[:, 3] @ c, np.einsum("sbk,sbik->sbi", y, many)]
    for a, b in zip(found, [*wanted, x[:, ::2] @ c], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


def test_costs() -> None:
    """XLA knows nothing of what kernels do."""

    def run(c: Any, w: Any, xs: Any) -> Any:
        return lax.scan(lambda c, x: (tnp.tanh(c @ w + x), None), c, xs)[0]

    args = [np.ones(s, np.float32) for s in ((3, 8), (8, 8), (6, 3, 8))]
    costs = tb.jit(run).lower(*args).compile().cost_analysis()
    assert costs["flops"] == 6 * (2 * 3 * 8 * 8 + 3 * 8)
    assert costs["transcendentals"] == 6 * 3 * 8
    assert costs["bytes accessed"] == 4 * (2 * 3 * 8 + 8 * 8 + 6 * 3 * 8)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 7, 12])
def test_small_arrays_that_are_written_over_others(n: int) -> None:
    """Each element is computed once, from what was there; flags lie closer than numbers."""

    def step(c: Any, x: Any) -> Any:
        more = x > c.sum()
        total = tnp.where(more, x, 0).sum()
        y = more * total
        mean = (c @ x) / 12
        squares = (c * (y + total)).reshape(n, 1) @ tnp.ones((1, 1), np.float32)
        for _ in range(2):
            squares = (squares * 0.5 + mean) @ tnp.ones((1, 1), np.float32)
        return 0.9 * c + lax.tanh(x) * mean, (y * c, squares, y.mean())

    def run(xs: Any) -> Any:
        return lax.scan(step, np.full(n, 0.1, np.float32), xs)

    xs = np.random.default_rng(0).standard_normal((9, n)).astype(np.float32)
    assert kernels_in(run, xs) == 1
    is_as_plain(run, xs)
