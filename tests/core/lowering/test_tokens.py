"""Tokens in modules and between calls: what orders effects."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.control.jit.cached_call import make_jit
from tracebridge.core.control.jit.jit import JitOptions
from tracebridge.core.ir.effects import OrderedDebugEffect, OrderedIOEffect, ordered_effects
from tracebridge.core.runtime.calls import fastpath
from tracebridge.core.runtime.effects import tokens
from tracebridge.experimental import io_callback


def note(x: Any) -> None:
    """An ordered callback."""
    io_callback(lambda _: None, None, x, ordered=True)


def text_of(fun: Any, *args: Any) -> str:
    """The StableHLO of a function."""
    return tb.jit(fun).lower(*args).as_text()


def test_programs_without_effects_have_no_tokens() -> None:
    """Nothing is added for unordered effects or none."""
    for fun in (tnp.sin, lambda x: (tb.debug.print("{}", x), x)[1]):
        assert "token" not in text_of(fun, 1.0)


def test_boundary_of_main() -> None:
    """main takes an empty array per ordered effect first and gives one last."""

    def f(x: Any) -> Any:
        note(x)
        tb.debug.print("{}", x, ordered=True)
        return x + 1, x

    text = text_of(f, 1.0)
    assert "@main(%arg0: tensor<0xi1>, %arg1: tensor<0xi1>, %arg2: tensor<f32>)" in text
    assert "(tensor<f32>, tensor<f32>, tensor<0xi1>, tensor<0xi1>)" in text
    assert text.count("stablehlo.create_token") == 2


def test_each_effect_has_its_own_chain() -> None:
    """Effects of different classes do not wait for each other; equal ones are one."""
    effects = frozenset((OrderedIOEffect(), OrderedDebugEffect(), OrderedIOEffect()))
    assert ordered_effects(effects) == [OrderedDebugEffect(), OrderedIOEffect()]


def test_loops_branches_and_functions_carry_tokens() -> None:
    """Every form of control flow threads the token through."""

    @tb.jit
    def called(x: Any) -> Any:
        note(x)
        return x

    def f(x: Any) -> Any:
        x = lax.fori_loop(0, 3, lambda _, c: (note(c), c + 1)[1], x)
        x = lax.while_loop(lambda c: (note(c), c < 9)[1], lambda c: c + 1, x)
        x = lax.cond(x > 0, called, lambda x: x, x)
        return called(x)

    text = text_of(f, 1.0)
    loops = [line for line in text.splitlines() if "stablehlo.while" in line]
    assert len(loops) == 2
    assert all(["!stablehlo.token" in line for line in loops])
    # A branch without the effect gives the token on.
    assert text.count("@called(%arg0: !stablehlo.token") == 1
    assert "}) : (tensor<i32>) -> (!stablehlo.token, tensor<f32>)" in text


def test_symbolic_sizes_stand_before_tokens() -> None:
    """Functions take sizes, then tokens, then their inputs."""

    @tb.jit
    def called(x: Any) -> Any:
        note(tnp.sum(x))
        return tnp.concatenate([x, x])

    spec = tb.ShapeDtypeStruct((3,), "float32")
    assert tb.jit(called).lower(spec).compile()(tnp.ones(3)).shape == (6,)


def test_dead_results_keep_the_effect() -> None:
    """A call whose results nobody needs runs for its effect."""
    seen: list[int] = []

    @tb.jit
    def called(x: Any) -> Any:
        io_callback(lambda v: seen.append(int(v)), None, x, ordered=True)
        return x * 2

    @tb.jit
    def f(x: Any) -> Any:
        called(x)
        lax.fori_loop(0, 2, lambda i, c: (called(i), c + 1)[1], 0)
        lax.cond(x > 0, lambda: called(10), lambda: called(20))
        return 0

    f(5)
    assert seen == [5, 0, 1, 10]


# between calls -----------------------------------------------------------------------------------


def test_runtime_tokens_are_kept_per_effect_and_device() -> None:
    """A program with an ordered effect leaves a token for the next one."""
    tb.jit(note)(1)
    device = tb.devices()[0]
    buffer = tokens._TOKENS.ordered[OrderedIOEffect(), device]
    assert buffer.aval.shape == (0,)
    tb.jit(note)(1)
    assert tokens._TOKENS.ordered[OrderedIOEffect(), device] is not buffer


def test_threads_have_their_own_tokens() -> None:
    """Order is within a thread; the barrier waits for all."""
    seen: list[tuple[int, int]] = []

    def run(k: int) -> None:
        f = tb.jit(lambda x: io_callback(lambda v: seen.append((k, int(v))), None, x, ordered=True))
        for i in range(10):
            f(i)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tb.effects_barrier()
    for k in range(3):
        assert [i for j, i in seen if j == k] == list(range(10))


def test_pending_tokens_do_not_pile_up() -> None:
    """Programs that nobody waits for leave a bounded number of tokens."""
    f = tb.jit(lambda x: tb.debug.callback(lambda _: None, x))
    for k in range(100):
        f(np.float32(k))
    assert len(tokens._TOKENS.pending) <= tokens.MAX_PENDING
    tb.effects_barrier()
    assert not tokens._TOKENS.pending


ASYNC = """
import time, numpy as np, tracebridge as tb
tb.config.update("cpu_async_dispatch", True)
from tracebridge.experimental import io_callback
seen = []
def slow(v):
    time.sleep(0.02 * float(v))
    seen.append(int(v))
f = tb.jit(lambda x: io_callback(slow, None, x, ordered=True))
g = tb.jit(lambda x: tb.debug.callback(lambda v: (time.sleep(0.05), seen.append(-1)), x))
for k in (5, 3, 1):
    f(k)
g(1)
io_callback(slow, None, 0, ordered=True)
assert seen[:3] == [5, 3, 1], seen
tb.effects_barrier()
assert sorted(seen) == [-1, 0, 1, 3, 5], seen
print("ok")
"""


def test_asynchronous_programs(run_alone: Callable[[str], str]) -> None:
    """With asynchronous dispatch order holds too, and the barrier waits."""
    assert "ok" == run_alone(ASYNC).strip()


def test_cached_calls_of_programs_without_effects_are_untouched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fast path of a function without effects holds jaxlib's own executable."""
    # Classes of other tests may have turned off the table that is looked at here.
    monkeypatch.setattr(fastpath, "_FORWARDING", [False])
    x = tnp.ones(3)
    kinds: list[str] = []
    for fun in (tnp.negative, lambda x: (tb.debug.callback(lambda _: None, x), x + 1)[1]):
        call, jitted = make_jit(fun, JitOptions())
        call(x)
        ((execute, *_),) = jitted.cache.one.values()
        kinds.append(type(execute.__self__).__name__)
    assert kinds == ["LoadedExecutable", "EffectfulExecutable"]
