"""Equal programs are rewritten once, and each keeps its own places in the user's files."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.lowering.rewrites import by_content as module
from tracebridge.core.lowering.rewrites.by_content import by_content

X = tnp.ones((64, 1024))


@pytest.fixture(autouse=True)
def _forget() -> None:
    tb.clear_caches()


def counting() -> tuple[list[Jaxpr], Callable[[Jaxpr], Jaxpr | None]]:
    """A rewrite that keeps the first equation only, and the programs that it was asked for."""
    asked: list[Jaxpr] = []

    def rewrite(jaxpr: Jaxpr) -> Jaxpr | None:
        asked.append(jaxpr)
        (app, _), *_ = jaxpr.equations
        sources = jaxpr.sources and jaxpr.sources[:1]
        outs = [jaxpr.n_in + len(jaxpr.consts)]
        return Jaxpr(
            jaxpr.in_avals, jaxpr.consts, jaxpr.equations[:1], outs, app.outs, sources, jaxpr.debug
        )

    return asked, rewrite


def traced(f: Callable[..., Any], *args: Any) -> Jaxpr:
    """The program of a new function object."""
    return tb.make_jaxpr(lambda *xs: f(*xs))(*args).jaxpr


def test_equal_programs_are_rewritten_once() -> None:
    """The second one gets the same equations, with its own sources and names."""
    asked, rewrite = counting()
    first = traced(lambda x: tnp.sin(x) * 2.0, X)
    second = traced(lambda x: tnp.sin(x) * 2.0, X)
    one, two = by_content(first, rewrite), by_content(second, rewrite)

    assert 1 == len(asked)
    assert one is not None
    assert two is not None
    assert one.equations == two.equations
    assert first.sources is not None
    assert second.sources is not None
    assert first.sources[0] is one.sources[0]
    assert second.sources[0] is two.sources[0]
    assert second.debug is two.debug


def test_other_programs_are_not_taken_for_equal() -> None:
    """Numbers, signs of zeros, shapes, options and inputs that are not read tell them apart."""
    asked, rewrite = counting()
    for zero in (0.0, -0.0, 0, 1.0):
        by_content(traced(lambda x, zero=zero: tnp.sin(x) + zero, X), rewrite)
    by_content(traced(lambda x: tnp.sin(x) + 1.0, X[:1]), rewrite)
    by_content(traced(lambda x, y: tnp.sin(x) + 1.0, X, X), rewrite)
    with tb.enable_x64(True):
        by_content(traced(lambda x: tnp.sin(x) + 1.0, X), rewrite)

    assert len(asked) >= 6


def test_arrays_and_functions_are_not_kept_alive() -> None:
    """Programs that hold others are rewritten once; each form has the arrays of its program."""
    asked, rewrite = counting()
    arrays = [tnp.asarray(np.arange(3000.0, dtype=np.float32) + i) for i in range(2)]

    def form(host: Any) -> Jaxpr | None:
        return by_content(traced(lambda x: (tnp.sin(x) + host[:1024]) * 2.0, X), rewrite)

    forms = [form(host) for host in arrays]
    assert 1 == len(asked)
    assert forms[0] is not None
    assert forms[1] is not None
    assert arrays[0] is forms[0].consts[0]
    assert arrays[1] is forms[1].consts[0]

    def rule() -> Any:
        f = tb.custom_jvp(lambda x: tnp.sin(x) * 3.0)
        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
        return f

    functions = [rule() for _ in range(2)]
    for f in functions:
        by_content(traced(lambda x, f=f: f(x) * 2.0, X), rewrite)
    assert 2 == len(asked)

    held = [weakref.ref(x) for x in (*arrays, *functions)]
    del arrays, functions, forms, f
    asked.clear()
    gc.collect()
    assert [None] * 4 == [reference() for reference in held]


def test_each_program_computes_with_its_own_arrays() -> None:
    """Constants that come after numbers, in other orders, and twice."""
    rows = np.random.default_rng(0).standard_normal((2, 64, 1024)).astype(np.float32)
    for a, b in ((rows[0], rows[1]), (rows[1], rows[0]), (rows[0], rows[0])):
        one, other = tnp.asarray(a), tnp.asarray(b)

        def f(x: Any, one: Any = one, other: Any = other) -> Any:
            e = tnp.exp(2.0 * x + one - (x - other).max(-1, keepdims=True))
            return e / e.sum(-1, keepdims=True) + one * other

        e = np.exp(2.0 + a - (1 - b).max(-1, keepdims=True))
        np.testing.assert_allclose(
            e / e.sum(-1, keepdims=True) + a * b, tb.jit(f)(X), rtol=2e-5, atol=1e-6
        )


def test_rules_within_loops_and_calls_are_left_out() -> None:
    """Programs with functions deep inside of them are equal, too, and run as they did."""
    asked, rewrite = counting()

    def program() -> Any:
        f = tb.custom_vjp(lambda x: tnp.sin(x))
        f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct,))
        inner = tb.jit(lambda x: f(x) + 1.0)

        def body(c: Any, _: Any) -> Any:
            return inner(c), None

        return lambda x: tb.lax.scan(body, x, None, length=3)[0]

    programs = [program() for _ in range(2)]
    for one in programs:
        by_content(traced(one, X), rewrite)
    assert 1 == len(asked)

    expected = np.ones((64, 1024), np.float32)
    for _ in range(3):
        expected = np.sin(expected) + 1
    for one in programs:
        np.testing.assert_allclose(expected, tb.jit(one)(X), rtol=1e-6)


def test_scopes_of_a_program_are_kept() -> None:
    """Two programs that differ in the names of scopes only: each text has its own."""

    def text(name: str) -> str:
        def softmax(x: Any) -> Any:
            with tb.named_scope(name):
                e = tnp.exp(x - x.max(-1, keepdims=True))
                return (e / e.sum(-1, keepdims=True)) @ tnp.ones((1024, 8))

        return tb.jit(softmax).lower(X).as_text(debug_info=True)

    for name in ("first", "second", "first"):
        assert f"{name}/" in text(name)


def test_a_marked_program_is_no_other() -> None:
    """What a rewrite has made, and marks as it is, is not what a user wrote."""
    asked, rewrite = counting()
    jaxpr = traced(lambda x: tnp.sin(x) * 2.0, X)
    jaxpr.cache["rewritten"] = None
    by_content(jaxpr, rewrite)
    by_content(traced(lambda x: tnp.sin(x) * 2.0, X), rewrite)

    assert [jaxpr] == asked[:1]
    assert 2 == len(asked)


def test_lowered_texts_have_their_own_lines() -> None:
    """Of two equal functions, one after the other, each is found where it stands."""

    def softmax(x: Any) -> Any:
        e = tnp.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def same(x: Any) -> Any:
        e = tnp.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    texts = [tb.jit(f).lower(X).as_text(debug_info=True) for f in (softmax, same)]
    plain = [tb.jit(f, inline=True).lower(X).as_text() for f in (softmax, same)]

    assert "softmax" in texts[0]
    assert "softmax" not in texts[1]
    assert "same" in texts[1]
    assert plain[0].replace("softmax", "same") == plain[1]
    assert 1 <= len(module._KNOWN)


def test_programs_with_new_ones_inside_are_not_kept() -> None:
    """Bodies of checkpoints with policies made anew are, too: programs equal to none before."""

    def lowered() -> str:
        nothing = lambda *_, **__: False
        inner = tb.checkpoint(lambda x: tnp.sin(tnp.cos(x)), policy=nothing)
        return tb.jit(tb.grad(lambda x: tnp.tanh(inner(x)).sum())).lower(X).as_text()

    texts = [lowered()]
    kept = len(module._KNOWN)
    texts += [lowered() for _ in range(3)]

    assert 1 == len(set(texts))
    assert kept == len(module._KNOWN)


def test_the_first_form_is_that_of_all() -> None:
    """A program that is met first has the kernels that it has when it is known."""
    called = tb.jit(lambda x: tnp.exp(x - 0.3) * 0.3)

    def text() -> str:
        def f(x: Any) -> Any:
            y = called(x) + 0.3
            return y / y.sum(-1, keepdims=True)

        return tb.jit(f).lower(X).as_text()

    assert 1 == len({text() for _ in range(3)})
