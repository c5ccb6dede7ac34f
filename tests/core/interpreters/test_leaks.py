"""The search for leaked tracers: cycles that nobody refers to are no leaks, and it is cheap."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import UnexpectedTracerError


def transforms(f: Any) -> None:
    """``f`` under one transformation of each kind."""
    tb.grad(f)(1.0)
    tb.vmap(f)(tnp.ones(2))
    tb.jit(f)(1.0)
    tb.make_jaxpr(f)(1.0)


def test_cycles_that_nobody_refers_to_pass() -> None:
    """A tracer in garbage that the collector has not seen yet."""

    def f(x: Any) -> Any:
        cycle: list[Any] = [x * 2]
        cycle.append(cycle)
        return 3 * x

    with tb.checking_leaks():
        transforms(f)


def test_cycles_that_somebody_refers_to_are_found() -> None:
    """The tracer is named."""
    kept: list[Any] = []

    def f(x: Any) -> Any:
        cycle: list[Any] = [x * 2]
        cycle.append(cycle)
        kept.append(cycle)
        return 3 * x

    for transform in (tb.grad, tb.jit, tb.make_jaxpr):
        with (
            tb.checking_leaks(),
            pytest.raises(UnexpectedTracerError, match="is still referenced: it has leaked"),
        ):
            transform(f)(1.0)


def test_nothing_is_collected_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection takes a tenth of a second: only tracers that are found alive are worth one."""
    calls: list[int] = []
    collect = gc.collect
    monkeypatch.setattr(gc, "collect", lambda *args: calls.append(1) or collect(*args))

    with tb.checking_leaks():
        transforms(lambda x: tnp.sin(x) * x)

    assert not calls
