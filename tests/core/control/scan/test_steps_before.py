"""Carries that a loop gives as results are not stacked twice; matrices are turned before loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import equations_of
from tracebridge import lax
from tracebridge.core.config.scopes import scope

_RNG = np.random.default_rng(0)


def loss(length: int, *, reverse: bool, given: bool) -> Any:
    """A loop that gives its carry, or something else; its inputs, start and weights are given."""

    def value(start: Any, x: Any, w: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = tnp.tanh(h @ w) * h + x
            return h, (h if given else 2 * h)

        last, hs = lax.scan(step, start, x[:length], reverse=reverse)
        return (hs**2).sum() + (last**3).sum()

    return value


def arguments(rows: int = 4, size: int = 32) -> list[Any]:
    shapes = ((rows, size), (9, rows, size), (size, size))
    return [0.3 * _RNG.standard_normal(s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize(("length", "reverse"), [(0, False), (1, True), (9, False), (9, True)])
def test_gradients_are_those_of_stacked_carries(length: int, reverse: bool) -> None:
    """First and second order, under vmap, in one program each way."""

    def everything(start: Any, x: Any, w: Any) -> Any:
        f = loss(length, reverse=reverse, given=True)
        first = tb.grad(f, (0, 1, 2))
        second = tb.jvp(first, (start, x, w), (start, x, w))[1]
        mapped = tb.vmap(first, (0, None, None))(tnp.stack([start, 2 * start]), x, w)
        return first(start, x, w), second, mapped

    args = arguments()
    fast = tb.jit(everything)(*args)
    with scope("platform_rules", False):
        plain = tb.jit(lambda *args: everything(*args))(*args)

    for a, b in zip(tb.tree.leaves(fast), tb.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * max(1.0, float(abs(b).max())))


def test_carries_among_the_results_are_stacked_once() -> None:
    """The forward loop of the gradient has one result for each step less."""

    def stacked(given: bool) -> int:
        program = tb.make_jaxpr(tb.grad(loss(9, reverse=False, given=given), (0, 1, 2)))
        first = equations_of(program(*arguments()), "scan")[0]
        return sum(len(aval.shape) == 3 for aval in first.outs)

    assert stacked(given=True) < stacked(given=False)


@pytest.mark.usefixtures("without_kernels")
def test_matrices_are_turned_before_loops_of_few_rows() -> None:
    """Products agree; with rows, steps and uses for which it does not pay nothing changes."""

    def f(x: Any, w: Any, steps: int = 9, also: bool = False) -> Any:
        def step(c: Any, x: Any) -> Any:
            turned = lax.dot_general(x, w, (((1,), (1,)), ((), ())))
            return c + turned, w[0] if also else None

        return lax.scan(step, tnp.zeros_like(x[0]), x[:steps])[0]

    def is_turned(x: Any, w: Any, **options: Any) -> bool:
        return (
            "stablehlo.transpose" in tb.jit(lambda x, w: f(x, w, **options)).lower(x, w).as_text()
        )

    _, x, w = arguments()
    fast = tb.jit(f)(x, w)
    assert is_turned(x, w)
    with scope("platform_rules", False):
        assert not is_turned(x, w)
        np.testing.assert_allclose(fast, tb.jit(lambda *a: f(*a))(x, w), rtol=1e-5, atol=1e-5)
    assert not is_turned(x, w, steps=3)
    assert not is_turned(x, w, also=True)
    assert not is_turned(x[:, :1], w)


@pytest.mark.usefixtures("without_kernels")
def test_matrices_that_a_body_transposes_are_turned_before_the_loop() -> None:
    """``x @ w.T`` with a fixed ``w``, beside a turned product of it; not if others read it."""

    def f(x: Any, w: Any, kind: str = "") -> Any:
        def step(c: Any, x: Any) -> tuple[Any, Any]:
            c = c + x @ w.T
            if kind == "both ways":
                c = c + tnp.einsum("ab,cb->ac", x, w) * tnp.flip(x @ w.T, 1)
            if kind == "not turned":
                c = c + x @ w
            return c, (w.T[0] if kind == "row" else w.T if kind == "result" else c.sum())

        return lax.scan(step, tnp.zeros_like(x[0]), x)

    def inside(x: Any, w: Any, kind: str) -> bool:
        text = tb.jit(lambda x, w: f(x, w, kind)).lower(x, w).as_text()
        return "stablehlo.transpose" in text[text.index("stablehlo.while") :]

    _, x, w = arguments()
    for kind, stays in (
        ("", False), ("both ways", False), ("not turned", True), ("row", True), ("result", True)
    ):  # fmt: skip
        assert inside(x, w, kind) is stays, kind
        fast = tb.jit(lambda x, w, kind=kind: f(x, w, kind))(x, w)
        with scope("platform_rules", False):
            assert inside(x, w, kind)
            plain = tb.jit(lambda x, w, kind=kind: f(x, w, kind))(x, w)
        for a, b in zip(fast, plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
