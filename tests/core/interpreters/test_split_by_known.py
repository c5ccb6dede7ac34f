"""Equations that mix known and unknown arguments are taken apart."""

from __future__ import annotations

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.split_by_known import split_by_known, unknown_outs
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace

ARGS = [tnp.asarray(np.float32(v)) for v in (2.0, 3.0)]


def run(jaxpr, *args):
    return [float(v) for v in eval_jaxpr(jaxpr, current_trace().process, args)]


@tb.jit
def mixed(x, y):
    return tnp.sin(x), tnp.sin(x) * y


def calls_mixed(x, y):
    a, b = mixed(x, y)
    return [a, b, tnp.cos(a)]


def test_a_call_is_split():
    """The known result of a jitted function does not wait for its unknown argument."""
    jaxpr = stage(calls_mixed, [a.aval for a in ARGS])
    split = split_by_known(jaxpr, (False, True))

    assert primitives_in(jaxpr) == ["jit", "cos"]
    assert primitives_in(split) == ["jit", "jit", "cos"]
    assert unknown_outs(jaxpr, (False, True)) == (False, True, False)
    assert run(split, *ARGS) == run(jaxpr, *ARGS)


def test_nothing_to_split():
    """A program without mixed equations stays the same object."""
    jaxpr = stage(calls_mixed, [a.aval for a in ARGS])

    assert split_by_known(jaxpr, (True, True)) is jaxpr
    assert split_by_known(jaxpr, (True, False)) is jaxpr
    assert split_by_known(jaxpr, (False, False)) is jaxpr


def test_partial_evaluation_of_calls():
    """The known part of a call is computed ahead, at any depth."""
    nested = tb.jit(lambda x, y: calls_mixed(x, y))
    jaxpr = stage(lambda x, y: list(nested(x, y)), [a.aval for a in ARGS])
    parts = partial_eval_jaxpr(jaxpr, (False, True))
    known = eval_jaxpr(parts.known, current_trace().process, ARGS[:1])

    assert parts.unknown_out == (False, True, False)
    assert [float(k) for k in known[:2]] == [run(jaxpr, *ARGS)[i] for i in (0, 2)]
    assert run(parts.unknown, *known[2:], ARGS[1]) == run(jaxpr, *ARGS)[1:2]


def test_linear_transpose_of_a_mixed_call():
    """The linear part of a call that also computes something else can be transposed."""

    def f(y):
        a, b = mixed(ARGS[0], y)
        return b * a

    pullback = tb.linear_transpose(f, ARGS[1])

    assert np.allclose(float(pullback(1.0)[0]), np.sin(2.0) ** 2, rtol=1e-6)
