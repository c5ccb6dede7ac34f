"""What loops, branches and checkpoints cost: tracings, equations, memory of compiled programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.ad_checkpoint import checkpoint_name
from tracebridge.core.interpreters.staging import StagingTrace
from tracebridge.core.lowering.module import lower_module

lax, P = tb.lax, tb.checkpoint_policies
N, K, STEPS = 256, 64, 32


class Counted:
    """A function of one value that counts how often Python runs it."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun
        self.calls = 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self.fun(*args)


def programs() -> dict[str, tuple[list[Counted], Callable[[Any], Any]]]:
    """Per kind of control flow: the functions inside, each with one sine, and the program."""
    sine = [Counted(tnp.sin) for _ in range(5)]
    small = Counted(lambda c: tnp.sin(c[1]) + c[0] < 3.0)
    step = Counted(lambda c: (c[0] + 1, tnp.sin(c[1])))
    body = Counted(lambda c, x: (tnp.sin(c) * x, c))
    turn = Counted(lambda i, c: tnp.sin(c) * i)
    one = Counted(lambda x: tnp.sin(x) * 2.0)
    rows = tnp.arange(1.0, 4.0)
    return {
        "cond": (sine[:2], lambda x: lax.cond(x > 0, sine[0], sine[1], x)),
        "switch": (sine[2:], lambda x: lax.switch(x.astype("int32"), sine[2:], x)),
        "while_loop": ([small, step], lambda x: lax.while_loop(small, step, (0.0, x))[1]),
        "fori_loop": ([turn], lambda x: lax.fori_loop(1, 4, turn, x)),
        "scan": ([body], lambda x: lax.scan(body, x, rows)[0]),
        "map": ([one], lambda x: lax.map(one, rows * x).sum()),
        "checkpoint": ([one], tb.checkpoint(one)),
    }


KINDS = ["cond", "switch", "while_loop", "fori_loop", "scan", "map", "checkpoint"]


@pytest.mark.parametrize("kind", KINDS)
def test_functions_inside_are_traced_once(kind: str) -> None:
    """By every transformation and again by compilation: Python runs each function once."""
    inside, f = programs()[kind]
    x, xs = tnp.asarray(np.float32(0.5)), tnp.asarray([0.5, 1.5])
    compiled = tb.jit(f).lower(x).compile()
    compiled(x)
    tb.jvp(f, (x,), (x,))
    tb.jit(tb.vmap(f))(xs)
    if kind != "while_loop":
        tb.grad(f)(x)
        tb.jit(tb.vmap(tb.grad(f)))(xs)
        tb.grad(tb.grad(f))(x)

    assert [1] * len(inside) == [g.calls for g in inside]


@pytest.mark.parametrize("kind", KINDS)
def test_lowered_in_one_pass(kind: str) -> None:
    """The text of a program has each function inside once."""
    inside, f = programs()[kind]
    jaxpr = tb.make_jaxpr(f)(tnp.asarray(0.5)).jaxpr

    assert len(inside) == lower_module(jaxpr, "f", "cpu").as_text().count("stablehlo.sine")


def staged_by(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any]) -> int:
    """The number of equations that ``make`` stages."""
    count = [0]
    process = StagingTrace.process

    def counted(self: Any, app: Any, args: Any) -> Any:
        count[0] += 1
        return process(self, app, args)

    with monkeypatch.context() as patch:
        patch.setattr(StagingTrace, "process", counted)
        make()
    return count[0]


def test_gradient_of_scan_costs_that_of_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equations staged for the gradient of a loop do not depend on its length, and are few."""

    def body(k: float) -> Callable[..., Any]:
        def step(c: Any, x: Any) -> Any:
            y = c
            for i in range(20):
                y = tnp.sin(y * (k + i)) + x
            return y, y

        return step

    def loop(k: float, n: int) -> int:
        f = lambda c: lax.scan(body(k), c, tnp.ones(n))[0]
        return staged_by(monkeypatch, lambda: tb.make_jaxpr(tb.grad(f))(0.5))

    once = staged_by(
        monkeypatch, lambda: tb.make_jaxpr(tb.grad(lambda c: body(0.5)(c, 1.0)[0]))(0.5)
    )
    loop(0.125, 5)
    few, many = loop(0.25, 10), loop(0.75, 1000)

    assert few == many
    assert many < 5 * once


@pytest.mark.parametrize("kind", ["scan", "cond", "jit", "checkpoint", "checkpointed scan"])
def test_nests_are_traced_in_linear_time(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Twenty levels stage less than twice the equations of twelve: gradients and batches."""

    def nest(depth: int) -> Callable[[Any], Any]:
        if depth == 0:
            return tnp.sin
        f = nest(depth - 1)
        k = 0.1 * depth
        return {
            "scan": lambda x: lax.scan(lambda c, _: (f(c) * k, c), x, None, length=3)[0],
            "cond": lambda x: lax.cond(x > k, lambda x: f(x) * k, lambda x: x, x),
            "jit": tb.jit(lambda x: f(x) * k),
            "checkpoint": tb.checkpoint(lambda x: tnp.sin(f(x)) * k),
            "checkpointed scan": lambda x: lax.scan(
                tb.checkpoint(lambda c, _: (f(c) * k, c)), x, None, length=3
            )[0],
        }[kind]

    def cost(depth: int) -> int:
        return staged_by(monkeypatch, lambda: tb.make_jaxpr(tb.jit(tb.grad(nest(depth))))(0.3))

    def mapped(depth: int) -> int:
        f = tb.vmap(nest(depth))
        return staged_by(monkeypatch, lambda: tb.make_jaxpr(tb.jit(f))(tnp.ones(2)))

    for count in (cost, mapped):
        count(4)
        small, large = count(12), count(20)

        assert large < 2 * small


# memory ------------------------------------------------------------------------------------------


def temporary_bytes(loss: Callable[..., Any], *args: Any) -> int:
    """Memory for intermediate values of the compiled gradient."""
    stats = tb.jit(tb.grad(loss)).lower(*args).compile().memory_analysis()
    return stats.temp_size_in_bytes


def test_values_that_steps_share_are_kept_once() -> None:
    """A residual made of constants is not stacked; one per step is, and no more than that."""
    w = tnp.ones((K, K)) * 0.01

    def loop(steps: int) -> Callable[[Any], Any]:
        def loss(w: Any) -> Any:
            def step(c: Any, _: Any) -> Any:
                return tnp.tanh(tnp.exp(w) @ c), None

            return lax.scan(step, tnp.ones((K, N)), None, length=steps)[0].sum()

        return loss

    few, many = temporary_bytes(loop(STEPS), w), temporary_bytes(loop(2 * STEPS), w)
    carry = K * N * 4
    per_step = (many - few) / STEPS

    # The derivative of tanh needs its result, that of the product the carry, which is one of them.
    assert carry <= per_step < 2.2 * carry


def layers(wrap: Callable[..., Any]) -> Callable[[Any], Any]:
    """The sum after a loop whose steps make more than they take."""

    def step(c: Any, _: Any) -> Any:
        y = checkpoint_name(tnp.sin(c), "first")
        y = checkpoint_name(tnp.cos(y * 2.0), "second")
        y = checkpoint_name(tnp.sin(y * 3.0), "third")
        return tnp.cos(y), None

    return lambda x: lax.scan(wrap(step), x, None, length=STEPS)[0].sum()


def test_policies_order_the_memory_of_a_loop() -> None:
    """Of each step is kept: its carry alone, one value more, or all."""
    x = tnp.ones((N, K))
    wraps = {
        "nothing": tb.checkpoint,
        "one": lambda f: tb.checkpoint(f, policy=P.save_only_these_names("second")),
        "two": lambda f: tb.checkpoint(f, policy=P.save_any_names_but_these("third")),
        "all": lambda f: tb.checkpoint(f, policy=P.everything_saveable),
    }
    sizes = {name: temporary_bytes(layers(wrap), x) for name, wrap in wraps.items()}
    stacked = STEPS * x.size * 4
    kept = {name: round((size - sizes["nothing"]) / stacked) for name, size in sizes.items()}

    assert stacked <= sizes["nothing"] < 1.5 * stacked
    assert (kept["one"], kept["two"]) == (1, 2)
    assert kept["all"] >= 3
    expected = tb.grad(layers(lambda f: f))(x)
    for wrap in wraps.values():
        np.testing.assert_allclose(
            np.asarray(tb.grad(layers(wrap))(x)), np.asarray(expected), rtol=1e-5, atol=1e-6
        )


def test_checkpoint_of_a_whole_loop_keeps_its_start() -> None:
    """Around the loop, the forward pass keeps the start, not one value per step."""
    x = tnp.ones((N, K))
    f = layers(lambda step: step)
    held = lambda f: sum([aval.size for aval, _ in tb.ad_checkpoint.saved_residuals(f, x)])

    assert held(tb.checkpoint(f)) == x.size
    assert held(f) >= STEPS * x.size
