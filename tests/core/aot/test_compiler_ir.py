"""XLA computations of lowered programs."""

from __future__ import annotations

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.aot.compiler_ir import MAX_UNTUPLED, computation_of


def computation(n: int, tuple_args: bool | None) -> str:
    """The program shape of a function of ``n`` numbers."""
    jaxpr = tb.make_jaxpr(lambda *xs: sum(xs))(*[1.0] * n).jaxpr
    return str(computation_of(jaxpr, "f", "cpu", tuple_args=tuple_args).program_shape())


def test_arguments_may_be_one_tuple() -> None:
    """On request, or where there are many."""
    assert "(p0: f32[], p1: f32[]) -> (f32[])" == computation(2, False)
    assert "((f32[], f32[])) -> (f32[])" == computation(2, True).replace("p0: ", "").replace(
        "arg_tuple.1: ", ""
    )
    assert 1 + MAX_UNTUPLED == computation(1 + MAX_UNTUPLED, False).count(": f32[]")
    assert computation(1 + MAX_UNTUPLED, True) == computation(1 + MAX_UNTUPLED, None)
    assert computation(MAX_UNTUPLED, False) == computation(MAX_UNTUPLED, None)


def test_constants_stand_in_the_program() -> None:
    """Also large ones: the computation has no other arguments than the function."""
    jaxpr = tb.make_jaxpr(lambda x: x + tnp.ones(1000))(1.0).jaxpr

    found = computation_of(jaxpr, "f", "cpu")

    assert "(p0: f32[]) -> (f32[1000])" == str(found.program_shape())
    assert found.as_hlo_text().startswith("HloModule f")
