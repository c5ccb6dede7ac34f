"""Walking through programs."""

from __future__ import annotations

from typing import Any

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.ir.traverse import (
    all_jaxprs,
    applications,
    count_equations,
    primitive_names,
    sub_jaxprs,
)


def test_programs_below_a_program() -> None:
    """Each program counts once, however often it is called."""
    inner = tb.jit(lambda x: lax.cos(lax.sin(x)))

    def f(x: Any) -> Any:
        return lax.tanh(inner(x)) + inner(x)

    jaxpr = tb.make_jaxpr(f)(1.0).jaxpr

    assert 2 == len(list(sub_jaxprs(jaxpr)))
    assert 2 == len(all_jaxprs(jaxpr))
    assert jaxpr is all_jaxprs(jaxpr)[0]
    assert 4 + 2 == count_equations(jaxpr)
    assert {"jit", "sin", "cos", "tanh", "add"} == primitive_names(jaxpr)
    assert 6 == len(list(applications(jaxpr)))
