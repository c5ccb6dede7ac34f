"""Graphs: equations between numbered values, and the programs that are taken out of them."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.jaxpr import Jaxpr

VECTOR = ShapedArray((3,), np.dtype("float32"))


def run(jaxpr: Jaxpr, *args: tb.Array) -> list[tb.Array]:
    return tb.core.jaxpr_as_fun(tb.core.ClosedJaxpr(jaxpr))(*args)


def chain() -> tuple[Graph, range, list[int]]:
    """A graph of ``y = sin(x); z = y * x; w = cos(x)``: its input, and y, z, w."""
    jaxpr = tb.make_jaxpr(lambda x: [y := tnp.sin(x), y * x, tnp.cos(x)])(tnp.ones(3)).jaxpr
    graph = Graph()
    inputs = graph.inputs(jaxpr.in_avals)
    return graph, inputs, graph.inline(jaxpr, inputs)


def test_a_program_has_what_its_results_need() -> None:
    """Equations that no result needs are left out."""
    graph, inputs, (_, z, w) = chain()
    assert ["sin", "mul"] == primitives_in(graph.program(inputs, [z], NO_DEBUG_INFO))
    assert ["cos"] == primitives_in(graph.program(inputs, [w], NO_DEBUG_INFO))


def test_results_of_equations_can_be_inputs() -> None:
    """A value that is an input of a program is not computed in it."""
    graph, (x,), (y, z, _) = chain()
    program = graph.program([y, x], [z], NO_DEBUG_INFO)
    assert ["mul"] == primitives_in(program)
    (out,) = run(program, tnp.full(3, 5.0), tnp.full(3, 2.0))
    assert [10.0, 10.0, 10.0] == out.tolist()


def test_programs_compute_what_the_graph_says() -> None:
    """Slots are numbered anew, in the order of the inputs that are asked for."""
    graph, inputs, (y, z, w) = chain()
    x = np.linspace(0.0, 1.0, 3, dtype=np.float32)
    results = run(graph.program(inputs, [w, z, y], NO_DEBUG_INFO), tnp.asarray(x))
    for expected, result in zip([np.cos(x), np.sin(x) * x, np.sin(x)], results, strict=True):
        np.testing.assert_allclose(expected, np.asarray(result), rtol=1e-6)


def test_constants_have_one_number_each() -> None:
    """The same object is one constant of the program."""
    graph = Graph()
    array = tnp.ones(3)
    assert graph.constant(array) == graph.constant(array)
    number = graph.add(lax.add_p.application((VECTOR, VECTOR), {}), [graph.constant(array)] * 2)
    program = graph.program([], [number], NO_DEBUG_INFO)
    assert 1 == len(program.consts)
    assert [2.0, 2.0, 2.0] == run(program)[0].tolist()


def test_zeros() -> None:
    """Zeros of any shape and dtype."""
    graph = Graph()
    avals = [VECTOR, ShapedArray((), np.dtype("int32")), ShapedArray((2, 0), np.dtype("bool"))]
    program = graph.program([], [graph.zeros(a) for a in avals], NO_DEBUG_INFO)
    assert tuple(avals) == program.out_avals
    assert [[0.0, 0.0, 0.0], 0, [[], []]] == [r.tolist() for r in run(program)]


@pytest.mark.parametrize("keep", [True, False])
def test_effects_stay_unless_told_otherwise(keep: bool) -> None:
    """Equations with effects belong to a program though no result needs them."""

    def shout(x: tb.Array) -> tb.Array:
        tb.debug.print("{}", x)
        return x * 2

    jaxpr = tb.make_jaxpr(shout)(tnp.ones(3)).jaxpr
    graph = Graph()
    inputs = graph.inputs(jaxpr.in_avals)
    outs = graph.inline(jaxpr, inputs)
    program = graph.program(inputs, outs, NO_DEBUG_INFO, keep_effects=keep)
    assert (2 if keep else 1) == len(program.equations)
    assert keep == bool(program.effects)


def test_one_of_several_results_as_an_input() -> None:
    """An equation of several results runs for the others though one of them is given."""
    jaxpr = tb.make_jaxpr(lambda x: tb.jit(lambda y: (tnp.sin(y), tnp.cos(y)))(x))(0.5).jaxpr
    graph = Graph()
    (x,) = graph.inputs(jaxpr.in_avals)
    sin, cos = graph.inline(jaxpr, [x])
    total = graph.add(lax.add_p.application((graph.avals[sin], graph.avals[cos]), {}), [sin, cos])
    program = graph.program([x, sin], [total], NO_DEBUG_INFO)
    (out,) = run(program, tnp.asarray(0.0), tnp.asarray(10.0))
    assert 11.0 == float(out)
