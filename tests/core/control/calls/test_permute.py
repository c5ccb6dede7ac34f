"""Jaxprs with inputs and results in another order."""

from __future__ import annotations

import pytest

import tracebridge.numpy as tnp
from tracebridge.core.control.calls.permute import permute_jaxpr, reached, used_inputs
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace

ARGS = [tnp.asarray(v) for v in (1.0, 2.0, 3.0)]
AVALS = [a.aval for a in ARGS]


def program():
    return stage(lambda x, y, z: [x - y * 10.0, y], AVALS)


def run(jaxpr, *args):
    return [float(v) for v in eval_jaxpr(jaxpr, current_trace().process, args)]


def test_inputs_and_results_move():
    """New inputs name old ones, or are unused; new results are any slots."""
    x, y, z = ARGS
    jaxpr = program()

    assert run(permute_jaxpr(jaxpr, [1, 2, 0]), y, z, x) == [-19.0, 2.0]
    assert run(permute_jaxpr(jaxpr, [1, 0]), y, x) == [-19.0, 2.0]
    assert run(permute_jaxpr(jaxpr, [0, AVALS[0], 1]), x, z, y) == [-19.0, 2.0]
    assert run(permute_jaxpr(jaxpr, None, [1, 0, jaxpr.outs[0]]), x, y, z) == [2.0, 1.0, -19.0]
    assert permute_jaxpr(jaxpr, [1, 2, 0]).in_avals == (AVALS[1], AVALS[2], AVALS[0])


def test_used_inputs_must_stay():
    """Leaving out an input that a step needs is a mistake of the caller."""
    with pytest.raises(ValueError, match="input 0 is used but was left out"):
        permute_jaxpr(program(), [1, 2])


def test_what_is_used():
    """Inputs of steps and results; inputs that chosen results need."""
    jaxpr = program()

    assert used_inputs(jaxpr) == [True, True, False]
    assert reached(jaxpr, (True, False)) == [True, True, False]
    assert reached(jaxpr, (False, True)) == [False, True, False]
    assert reached(jaxpr, (False, False)) == [False, False, False]
