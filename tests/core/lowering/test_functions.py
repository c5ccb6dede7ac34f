"""Functions of lowering rules are copied from module to module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core import lax
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering import context

SHAPE = tb.ShapeDtypeStruct((1 << 16,), np.float32)


def _text(fun: Any) -> str:
    return tb.jit(lambda x: fun(x)).lower(SHAPE).as_text()


@pytest.mark.usefixtures("without_kernels")
def test_copies_read_as_what_was_emitted() -> None:
    """The first module emits, the second one leaves a copy, the others have it."""
    tb.clear_caches()
    first, *others = [_text(lambda x: tnp.sin(x) + tnp.arctan(x)) for _ in range(4)]
    assert "func.call" in first
    assert others == [first] * 3


def test_copies_have_names_of_their_own() -> None:
    """A function of the program has the name that the copy had in its module."""
    for _ in range(3):
        _text(tnp.arctan)

    def atan(x: Any) -> Any:
        return tnp.arctan(x) + 1

    x = np.linspace(-2, 2, SHAPE.shape[0], dtype=np.float32)
    np.testing.assert_allclose(tb.jit(lambda x: tb.jit(atan)(x))(x), np.arctan(x) + 1, atol=1e-6)


def test_copies_go_with_the_option_and_with_new_rules() -> None:
    """Without the rules of the platform, the plain operation; with another rule, that one."""
    for _ in range(3):
        _text(tnp.arctan)
    with scope("platform_rules", False):
        assert "func.call" not in _text(lax.sin)
    for _ in range(3):
        before = _text(tnp.arctan)
    key = lax.abs_p, "cpu"
    own = context._PLATFORM_RULES.get(key)
    try:
        context.register_platform_lowering(
            lax.abs_p, "cpu", lambda ctx, x: ctx.op1("stablehlo.negate", [x], ctx.aval_out)
        )
        assert _text(tnp.arctan) != before
    finally:
        context._PLATFORM_RULES.pop(key, None)
        if own is not None:
            context._PLATFORM_RULES[key] = own
        context.forget_copies()
    assert _text(tnp.arctan) == before


def test_remembered_functions_tell_numbers_apart() -> None:
    """Parameters that are equal in Python, but not the same."""
    found = [context._staged(_filled, (), {"value": v})[0] for v in (0.0, -0.0, 0, False, 0.0)]
    assert [str(j.out_avals[0].dtype) for j in found[:4]] == ["float32"] * 2 + ["int32", "bool"]
    assert found[0] is found[4]
    assert found[0] is not found[1]


def _filled(*, value: Any) -> Any:
    return lax.full((2,), value)
