"""Calls of functions with rules of their own where interpreters of users hand on functions."""

from __future__ import annotations

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.control.custom.custom_jvp import custom_jvp_call_p
from tracebridge.core.control.custom.custom_vjp import custom_vjp_call_p
from tracebridge.core.control.custom.rule_functions import flat_structure
from tracebridge.extend import core
from tracebridge.extend import linear_util as lu

X = tnp.array([0.5, 2.0])


@tb.custom_jvp
def threefold(x):
    return 3 * x


threefold.defjvp(lambda primals, tangents: (threefold(*primals), 7 * tangents[0]))


@tb.custom_vjp
def fivefold(x):
    return 5 * x


fivefold.defvjp(lambda x: (fivefold(x), x + 1), lambda kept, ct: (kept * ct,))


class Held(tb.core.Tracer):
    """A value that a ``Handing`` trace follows."""

    def __init__(self, trace, value):
        super().__init__(trace, tb.typeof(value))
        self.value = value


class Handing(tb.core.Trace):
    """Hands every operation, and calls of functions with rules, on to the trace below."""

    def __init__(self, parent):
        super().__init__()
        self.parent = parent

    def values(self, tracers):
        return [t.value if isinstance(t, Held) and t._trace is self else t for t in tracers]

    def process_primitive(self, primitive, tracers, params):
        out = primitive.bind_with_trace(self.parent, self.values(tracers), params)
        return [Held(self, o) for o in out] if primitive.multiple_results else Held(self, out)

    def process_custom_jvp_call(self, primitive, fun, jvp, tracers, *, symbolic_zeros):
        params = {"subfuns": (fun, jvp), "symbolic_zeros": symbolic_zeros}
        values = self.values(tracers)
        avals = tuple(tb.typeof(v) for v in values)
        outs = primitive.bind_with_trace(self.parent, values, avals, params)
        return [Held(self, o) for o in outs]

    def process_custom_vjp_call(self, primitive, fun, fwd, bwd, tracers, out_trees, symbolic_zeros):
        params = {"out_trees": out_trees, "symbolic_zeros": symbolic_zeros}
        values = [fun, fwd, bwd, *self.values(tracers)]
        outs = primitive.bind_with_trace(self.parent, values, params)
        return [Held(self, o) for o in outs]


def handed(fun):
    """``fun`` under a trace of one's own."""

    def run(x):
        with core.take_current_trace() as parent:
            trace = Handing(parent)
            with core.set_current_trace(trace):
                out = fun(Held(trace, x))
        return out.value

    return run


@pytest.mark.parametrize("around", [lambda f: f, tb.jit], ids=["plain", "jit"])
@pytest.mark.parametrize("fun", [threefold, fivefold], ids=["jvp", "vjp"])
def test_rules_handed_on_are_used_below(fun, around):
    """Calls of functions with rules, bound to the functions again, keep their derivatives."""
    below = around(handed(fun))

    assert float(fun(2.0)) == float(below(2.0))
    assert float(tb.grad(fun)(2.0)) == float(tb.grad(below)(2.0))
    assert fun(X).tolist() == tb.vmap(below)(X).tolist()
    assert tb.vmap(tb.grad(fun))(X).tolist() == tb.vmap(tb.grad(below))(X).tolist()
    assert fun(X).tolist() == tb.lax.map(below, X).tolist()


def test_functions_in_one_row():
    """The primitive takes wrapped functions, then the values; rules take and give rows."""
    fun = lu.wrap_init(lambda x, y: (x * y, x))
    jvp = lu.wrap_init(lambda x, y, dx, dy: (x * y, x, 10 * dx + dy, dx))

    def f(x, y):
        return custom_jvp_call_p.bind(fun, jvp, x, y, symbolic_zeros=False)

    outs, tangents = tb.jvp(f, (2.0, 3.0), (1.0, 1.0))

    assert [6.0, 2.0, 11.0, 1.0] == [float(o) for o in (*outs, *tangents)]
    assert [6.0, 2.0] == [float(o) for o in tb.jit(f)(2.0, 3.0)]


@pytest.mark.parametrize("symbolic_zeros", [False, True])
def test_backward_rules_in_one_row(symbolic_zeros):
    """The forward rule gets a flag after each argument, and gives residuals, then results."""
    flags = []

    def fwd(x, x_flag, y, y_flag):
        flags.append((x_flag, y_flag))
        return x, y, x * y

    functions = [
        lu.wrap_init(lambda x, y: [x * y]),
        lu.wrap_init(fwd),
        lu.wrap_init(lambda x, y, ct: (10 * y * ct, 100 * x * ct)),
    ]

    def f(x, y):
        (out,) = custom_vjp_call_p.bind(
            *functions,
            x,
            y,
            out_trees=lambda: (flat_structure(1), flat_structure(2), [None, None]),
            symbolic_zeros=symbolic_zeros,
        )
        return out

    assert 30.0 == float(tb.grad(f)(2.0, 3.0))
    assert [(True, not symbolic_zeros)] == flags
    assert [30.0, 200.0] == [float(g) for g in tb.jit(tb.grad(f, (0, 1)))(2.0, 3.0)]


@pytest.mark.parametrize("primitive", [custom_jvp_call_p, custom_vjp_call_p])
def test_neither_functions_nor_a_program(primitive):
    """The message names what is expected."""
    with pytest.raises(TypeError, match=r"_call\.bind: there is no call_jaxpr among"):
        primitive.bind(1.0, 2.0, symbolic_zeros=False)
