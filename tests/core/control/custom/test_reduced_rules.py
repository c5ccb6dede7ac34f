"""Calls of functions with rules of their own, of which only some results are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import equations_of
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace

X, Y = 0.1, -1.3


@tb.custom_jvp
def pushed(x: Any, y: Any) -> Any:
    """Its rule gives twice the derivative of the first result."""
    return tnp.sin(x), x + tnp.cos(y)


@pushed.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return pushed(x, y), (2 * tnp.cos(x) * dx, 3 * dx - tnp.sin(y) * dy)


@tb.custom_vjp
def pulled(x: Any, y: Any) -> Any:
    """Has the derivatives of ``pushed``."""
    return tnp.sin(x), x + tnp.cos(y)


pulled.defvjp(
    lambda x, y: (pulled(x, y), (tnp.cos(x), tnp.sin(y))),
    lambda res, ct: (2 * res[0] * ct[0] + 3 * ct[1], -res[1] * ct[1]),
)


def only(f: Callable[..., Any], used: tuple[bool, ...], *args: Any) -> Callable[..., Any]:
    """``f`` as a program that has lost the results that are not used."""
    smaller, _ = dce_jaxpr(tb.make_jaxpr(f)(*args).jaxpr, used, keep_in=True)
    return lambda *xs: eval_jaxpr(smaller, current_trace().process, [tnp.asarray(x) for x in xs])[0]


@pytest.mark.parametrize("f", [pushed, pulled])
@pytest.mark.parametrize(("used", "kept"), [((True, False), "sin"), ((False, True), "cos")])
def test_nothing_else_is_computed(f: Any, used: tuple[bool, bool], kept: str) -> None:
    """The equation stays, and its body shrinks."""
    smaller, _ = dce_jaxpr(tb.make_jaxpr(f)(X, Y).jaxpr, used)
    ((call, _),) = smaller.equations
    body = call.params["call_jaxpr"]

    assert 1 == len(body.outs)
    assert {"sin": kept == "sin", "cos": kept == "cos"} == {
        name: bool(equations_of(body, name)) for name in ("sin", "cos")
    }


@pytest.mark.parametrize("f", [pushed, pulled])
def test_the_rule_still_says_what_the_derivative_is(f: Any) -> None:
    """Of what is left, also of mapped calls."""
    x, y = np.float32(X), np.float32(Y)
    first, second = (only(f, used, x, y) for used in ((True, False), (False, True)))
    close = lambda a, b: np.testing.assert_allclose(tnp.stack(a), b, rtol=1e-5, atol=1e-6)

    close(tb.grad(first, (0, 1))(x, y), [2 * np.cos(x), 0.0])
    close(tb.grad(second, (0, 1))(x, y), [3.0, -np.sin(y)])
    xs = tnp.asarray([x, y])
    mapped = lambda x, y: tnp.sum(only(tb.vmap(f), (True, False), xs, xs)(x, y))
    np.testing.assert_allclose(tb.grad(mapped)(xs, xs), 2 * np.cos(xs), rtol=1e-5)
