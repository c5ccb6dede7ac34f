"""Effect classes: equality, order, where they may stand."""

from __future__ import annotations

from typing import Any

import pytest

import tracebridge as tb
from tests.core.interpreters.effectful import Noise, noisy_p
from tracebridge import errors, lax
from tracebridge.core.ir.effects import (
    DebugEffect,
    Effect,
    IOEffect,
    OrderedDebugEffect,
    OrderedIOEffect,
    check_effects,
    ordered_effects,
)
from tracebridge.experimental import io_callback


def test_effects_of_one_class_are_equal() -> None:
    """Sets hold each class once."""
    assert {IOEffect(), IOEffect(), OrderedIOEffect()} == {IOEffect(), OrderedIOEffect()}
    assert IOEffect() != OrderedIOEffect()
    assert IOEffect() != "IOEffect"
    assert repr(DebugEffect()) == "DebugEffect"


def test_ordered_effects() -> None:
    """Only ordered ones, in an order that does not depend on hashes."""
    assert ordered_effects(frozenset()) == []
    every = frozenset((IOEffect(), DebugEffect(), OrderedIOEffect(), OrderedDebugEffect()))
    assert ordered_effects(every) == [OrderedDebugEffect(), OrderedIOEffect()]


def test_jaxprs_have_the_effects_of_their_equations() -> None:
    """Also those of programs inside; pure callbacks have none."""

    def f(x: Any) -> Any:
        tb.debug.print("{}", x)
        y = tb.pure_callback(lambda v: v, tb.ShapeDtypeStruct((), "float32"), x)
        lax.fori_loop(0, 2, lambda i, _: io_callback(lambda _: None, None, i, ordered=True), None)
        return tb.jit(lambda x: (tb.debug.print("{}", x, ordered=True), x)[1])(y)

    jaxpr = tb.make_jaxpr(f)(1.0)
    assert jaxpr.effects == {DebugEffect(), OrderedDebugEffect(), OrderedIOEffect()}
    assert tb.make_jaxpr(lambda x: x + 1)(1.0).effects == frozenset()


def test_printed_programs_show_callbacks() -> None:
    """Equations without results stand without a left side; functions by their names."""

    def look(x: Any) -> None:
        del x

    text = str(tb.make_jaxpr(lambda x: tb.debug.callback(look, x, ordered=True))(1.0))
    assert "debug_callback[callback=look" in text.replace("\n      ", "")
    assert "ordered=True" in text
    assert "_ =" not in text


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("in_control_flow", "loop or a branch"),
        ("in_custom_rules", "custom derivative rules"),
        ("in_checkpoint", "checkpoint"),
        ("in_batched_choice", "predicate differs"),
    ],
)
def test_refusals(place: str, words: str) -> None:
    """A refused effect is named with the place and the function."""

    class Shy(Effect):
        """Allowed nowhere."""

        __slots__ = ()
        in_control_flow = False
        in_custom_rules = False

    check_effects([DebugEffect()], place, "f")
    with pytest.raises(errors.EffectError, match=f"f: Shy cannot stand in .*{words}"):
        check_effects([DebugEffect(), Shy()], place, "f")


def test_control_flow_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops, branches and functions with rules check the effects inside."""

    def noisy(x: Any) -> Any:
        return noisy_p.bind(tb.lax.add(x, 0.0))

    programs = {
        "in_control_flow": [
            lambda x: lax.cond(x > 0, noisy, lambda x: x, x),
            lambda x: lax.while_loop(lambda c: c < 0, noisy, x),
            lambda x: lax.scan(lambda c, _: (noisy(c), None), x, None, length=2),
        ],
        "in_custom_rules": [tb.custom_jvp(noisy), tb.custom_vjp(noisy)],
    }
    for place, functions in programs.items():
        for fun in functions:
            if place == "in_custom_rules":
                fun.defjvp(noisy) if hasattr(fun, "defjvps") else fun.defvjp(noisy, noisy)
            assert tb.make_jaxpr(fun)(1.0).effects == {Noise()}
        monkeypatch.setattr(Noise, place, False, raising=False)
        tb.clear_caches()
        for fun in functions:
            with pytest.raises(errors.EffectError, match="Noise cannot stand in"):
                tb.make_jaxpr(lambda x, fun=fun: fun(x * 2))(1.0)
