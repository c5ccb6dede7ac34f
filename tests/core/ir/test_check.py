"""The type checker of Jaxprs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.control.calls.closed_call import closed_call_p
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.check import check_jaxpr
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.elementwise.arithmetic import mul_p
from tracebridge.core.lax.elementwise.trig import sin_p
from tracebridge.errors import JaxprTypeError

F32 = ShapedArray((), np.float32)
VECTOR = ShapedArray((3,), np.float32)
SIN = sin_p.application((F32,), {})
MUL = mul_p.application((F32, F32), {})


def good(**changes: Any) -> Jaxpr:
    """A well-formed program, with parts replaced."""
    parts: dict[str, Any] = {
        "in_avals": (F32,),
        "consts": (literal(2.0, np.float32),),
        "equations": ((SIN, (0,)), (MUL, (2, 1))),
        "outs": (3,),
        "out_avals": (F32,),
    }
    return Jaxpr(**{**parts, **changes})


def test_good_programs_pass() -> None:
    """Programs of all transformations are well formed."""
    check_jaxpr(good())

    def f(x: Any) -> Any:
        return lax.sin(x) * x

    for g in (f, tb.jit(f), tb.grad(f), tb.jit(tb.grad(tb.jit(f))), tb.hessian(f)):
        check_jaxpr(tb.make_jaxpr(g)(1.0).jaxpr)
        check_jaxpr(tb.make_jaxpr(tb.vmap(g))(np.ones(2, np.float32)).jaxpr)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outs": (4,)}, "result 0 is slot 4 of 4"),
        ({"outs": (-1,)}, "result 0 is slot -1"),
        ({"outs": (3, 3)}, "2 results, but 1 types"),
        ({"out_avals": (VECTOR,)}, "result 0 is f32[], declared f32[3]"),
        ({"equations": ((MUL, (2, 1)), (SIN, (0,)))}, "(mul): argument 0 is slot 2, only 2"),
        (
            {"equations": ((SIN, (0, 1)), (SIN, (0,)))},
            "equation 0 (sin) has 2 arguments, expected 1",
        ),
        ({"in_avals": (VECTOR,)}, "(sin): argument 0 is f32[3], expected f32[]"),
        ({"consts": (2.0,)}, "the constant 2.0 is no value"),
        ({"in_avals": ("f32",)}, "input 0 has the type 'f32'"),
        ({"sources": (None,)}, "1 source locations for 2 equations"),
    ],
)
def test_bad_programs_are_found(changes: dict[str, Any], words: str) -> None:
    """The message names the equation and the position."""
    with pytest.raises(JaxprTypeError) as caught:
        check_jaxpr(good_or_broken(changes))

    assert words in str(caught.value)


def good_or_broken(changes: dict[str, Any]) -> Jaxpr:
    """The program with its parts replaced after the fact, where the constructor needs avals."""
    jaxpr = good()
    for name, value in changes.items():
        setattr(jaxpr, name, value)
    return jaxpr


def test_programs_in_parameters_are_checked() -> None:
    """Also below calls; the call's types must be those of its program."""
    inner = good_or_broken({"outs": (9,)})
    with pytest.raises(JaxprTypeError, match="result 0 is slot 9"):
        check_jaxpr(_calling(inner, (F32,)))
    with pytest.raises(JaxprTypeError, match=r"arguments \(f32\[3\]\), its program has \(f32\[\]"):
        check_jaxpr(_calling(good(), (VECTOR,)))


def _calling(inner: Jaxpr, avals: tuple[ShapedArray, ...]) -> Jaxpr:
    app = closed_call_p.application(avals, {"jaxpr": inner})
    return Jaxpr(avals, (), ((app, (0,)),), (1,), app.outs)


def test_option_checks_every_program() -> None:
    """What a wrong rule would stage is found at the end of the trace."""

    def f(x: Any) -> Any:
        y = lax.sin(x)
        y.aval = VECTOR
        return y

    with tb.enable_checks(), pytest.raises(JaxprTypeError, match=r"f32\[\], declared f32\[3\]"):
        tb.make_jaxpr(f)(1.0)
