"""Random programs with ordered callbacks: no transformation loses, repeats or reorders one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.control.calls.closed_call import closed_call
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.experimental import io_callback

Program = list[Any]
STEPS = st.recursive(
    st.lists(st.just("note") | st.just("debug") | st.just("compute"), min_size=1, max_size=3),
    lambda inner: st.lists(
        st.just("note")
        | st.just("compute")
        | st.tuples(st.sampled_from(["jit", "scan", "while", "cond", "vjp"]), inner),
        min_size=1,
        max_size=3,
    ),
    max_leaves=6,
)


class Recorder:
    """Builds functions of programs; ``logs`` have what the callbacks of each effect saw."""

    def __init__(self) -> None:
        self.logs: dict[str, list[tuple[int, float]]] = {}
        self._count = 0

    def function(self, program: Program) -> Callable[[Any], Any]:
        """``x -> x`` with the effects of the program; most of its results are not used."""
        steps = [self._step(s) for s in program]

        def run(x: Any) -> Any:
            for step in steps:
                x = step(x)
            return x

        return run

    def _step(self, step: Any) -> Callable[[Any], Any]:
        self._count += 1
        number = self._count
        if step == "compute":
            return lambda x: x + 1
        if isinstance(step, str):
            return lambda x: self._noted(step, number, x)
        kind, inner = step
        body = self.function(inner)
        if kind == "jit":
            return tb.jit(body)
        if kind == "scan":
            return lambda x: lax.scan(lambda c, _: (body(c), c), x, None, length=2)[0]
        if kind == "while":
            return lambda x: lax.fori_loop(0, np.int32(2), lambda _, c: body(c), x)
        if kind == "cond":
            return lambda x: (lax.cond(x > 0, body, lambda x: x - 1, x), x)[1]
        rule = tb.custom_vjp(body)
        rule.defvjp(lambda x: (body(x), None), lambda _, ct: (ct,))
        return rule

    def _noted(self, kind: str, number: int, x: Any) -> Any:
        def note(v: Any) -> None:
            self.logs.setdefault(kind, []).append((number, float(v)))

        given = lax.stop_gradient(x)
        if kind == "debug":
            tb.debug.callback(note, given, ordered=True)
        else:
            io_callback(note, None, given, ordered=True)
        return x

    def of(self, run: Callable[[], Any]) -> dict[str, list[tuple[int, float]]]:
        """What callbacks saw during ``run``; effects of two classes have no order."""
        self.logs = {}
        run()
        tb.effects_barrier()
        return self.logs


X = np.float32(1.0)


@given(STEPS)
def test_jit_and_grad_keep_effects(program: Program) -> None:
    """Eagerly, compiled, and differentiated, callbacks of each kind come in the same order."""
    recorder = Recorder()
    f = recorder.function(program)
    expected = recorder.of(lambda: f(X))

    assert recorder.of(lambda: tb.jit(f)(X)) == expected
    assert recorder.of(lambda: tb.jit(tb.grad(f))(X)) == expected
    assert recorder.of(lambda: tb.grad(tb.jit(f))(X)) == expected


@given(STEPS, st.booleans())
def test_dce_and_partial_evaluation_keep_effects(program: Program, used: bool) -> None:
    """A program without its unused results has all effects of the whole one."""
    recorder = Recorder()
    f = recorder.function(program)
    jaxpr = tb.make_jaxpr(lambda x: [f(x), x * 3])(X).jaxpr
    expected = recorder.of(lambda: f(X))
    smaller, kept = dce_jaxpr(jaxpr, (used, False))
    again, kept_again = dce_jaxpr(smaller, (False,) * len(smaller.outs))

    args = [v for v, k in zip([tb.numpy.asarray(X)], kept, strict=True) if k]
    assert recorder.of(lambda: closed_call(smaller, *args)) == expected
    args = [v for v, k in zip(args, kept_again, strict=True) if k]
    assert recorder.of(lambda: closed_call(again, *args)) == expected
    assert smaller.effects == jaxpr.effects

    parts = partial_eval_jaxpr(jaxpr, (False,))
    known = recorder.of(lambda: closed_call(parts.known, tb.numpy.asarray(X)))
    assert known == expected
    assert not parts.unknown.effects
