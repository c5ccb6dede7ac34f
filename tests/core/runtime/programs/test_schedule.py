"""Programs for the CPU run in the order that needs least memory, unless somebody chose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering.module import lower_module
from tracebridge.core.runtime.programs import schedule
from tracebridge.core.runtime.programs.schedule import with_schedule

FLAG = "xla_cpu_scheduler_type"
LEAST = (FLAG, "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED")


def test_other_choices_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of the caller, other platforms, the option for platform rules, XLA's variable."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert (("a", 1), LEAST) == with_schedule((("a", 1),), "cpu")
    assert () == with_schedule((), "cuda")
    chosen = ((FLAG, "CPU_SCHEDULER_TYPE_DEFAULT"),)
    assert chosen == with_schedule(chosen, "cpu")
    with scope("platform_rules", False):
        assert () == with_schedule((), "cpu")
    monkeypatch.setenv("XLA_FLAGS", f"--{FLAG}=CPU_SCHEDULER_TYPE_DEFAULT")
    assert () == with_schedule((), "cpu")


def test_no_memory_is_held_across_what_does_not_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of two layers: what was read last makes room for what comes next."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)

    def gradients(x: tb.Array, h: tb.Array, v: tb.Array, ct: tb.Array) -> tuple[tb.Array, ...]:
        return x.T @ ((ct @ v.T) * (1 - h**2)), h.T @ ct

    x = tnp.linspace(0.0, 1.0, 64 * 256).reshape(64, 256)
    arguments = (x, x, tnp.ones((256, 256)), x)
    lowered = tb.jit(gradients).lower(*arguments)
    least, default = lowered.compile(), lowered.compile({FLAG: "CPU_SCHEDULER_TYPE_DEFAULT"})
    sizes = [p.memory_analysis().temp_size_in_bytes for p in (least, default)]

    assert sizes[0] < sizes[1]
    for a, b in zip(least(*arguments), default(*arguments), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def gradients_of_layers(weights: list[tb.Array], results: list[tb.Array], ct: tb.Array) -> Any:
    """The backward pass of a network with ``relu``, from the results of its layers."""
    found = []
    for w, before, after in zip(weights[::-1], results[3::-1], results[:0:-1], strict=True):
        ct = tnp.where(after > 0, ct, 0)
        found.append(before.T @ ct)
        ct = ct @ w.T
    return found, ct


def test_cotangents_of_many_layers_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gradients of weights free the cotangents that they read, one layer after the other."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    x = tnp.linspace(-1.0, 1.0, 4096 * 512).reshape(4096, 512)
    weights, results = [tnp.eye(512)] * 4, [x] * 5
    lowered = tb.jit(gradients_of_layers).lower(weights, results, x)
    least, deepest = lowered.compile(), lowered.compile(dict([LEAST]))
    sizes = [p.memory_analysis().temp_size_in_bytes for p in (least, deepest)]

    assert sizes[0] < 3 * x.nbytes < sizes[1]
    for a, b in zip(*[p(weights, results, x)[0] for p in (least, deepest)], strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_large_programs_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second compilation of them takes longer than anybody wants to wait."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(schedule, "_MOST_COMPILED_TWICE", 100)
    x = tnp.linspace(-1.0, 1.0, 4096 * 500).reshape(4096, 500)
    lowered = tb.jit(gradients_of_layers).lower([tnp.eye(500)] * 4, [x] * 5, x)

    assert lowered.compile().memory_analysis().temp_size_in_bytes > 3 * x.nbytes


def test_what_kernels_hold_is_no_large_value() -> None:
    """Scores of attention are in no memory, and keep no program from a second compilation."""
    q = tnp.ones((8, 256, 32))

    def attention(q: tb.Array, k: tb.Array, v: tb.Array) -> tb.Array:
        return tb.nn.softmax(q @ k.swapaxes(1, 2)) @ v

    program = tb.make_jaxpr(attention)(q, q, q).jaxpr
    scores = 8 * 256 * 256 * 4
    with scope("platform_rules", True):
        assert lower_module(program, "attention", "cpu").largest < scores
    with scope("platform_rules", False):
        assert lower_module(program, "attention", "cpu").largest > scores
