"""What rewrites put into graphs is what tracing would have found, once each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracebridge.core import lax
from tracebridge.core.collectives.casts import pcast_p
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.lowering.rewrites.emission import Emission

X = ShapedArray((3, 4), np.dtype(np.float32))


def _apps(jaxpr: Any) -> list[Any]:
    return [app for app, _ in jaxpr.equations]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("names", [(), ("i",)])
def test_equations_are_those_of_tracing(dtype: type, names: tuple[str, ...]) -> None:
    """The same applications, of arrays that vary along devices too, and of numbers beside them."""
    x = ShapedArray((3, 4), np.dtype(dtype)).with_vma(frozenset(names))
    graph = Graph()
    to = Emission(graph, graph.inputs([x]))
    summed = to.over(lax.reduce_sum_p, 0, [1, 0])
    spread = to.broadcast(to.reshape(summed, ()), (3, 4), ())
    flag = to.apply(lax.le_p, to.apply(lax.mul_p, spread, 0), to.number(0.5, 0))

    def traced(x: Any) -> Any:
        spread = lax.broadcast_in_dim(lax.reduce_sum(x, (0, 1)), (3, 4), ())
        return [lax.le(lax.mul(spread, x), 0.5)]

    found = graph.program([0], [flag], NO_DEBUG_INFO)

    assert _apps(stage(traced, [x], locate=False)) == _apps(found)
    assert [0.5] == [c.value for c in found.consts]


def test_operands_come_to_vary_along_the_same_axes() -> None:
    """As an operation on tracers lets its operands vary along those of both."""
    avals = [X.with_vma(frozenset(names)) for names in ("i", "j")]
    graph = Graph()
    out = Emission(graph, graph.inputs(avals)).apply(lax.mul_p, 0, 1)
    found = graph.program([0, 1], [out], NO_DEBUG_INFO)

    assert _apps(stage(lambda x, y: [lax.mul(x, y)], avals, locate=False)) == _apps(found)
    assert frozenset("ij") == found.out_avals[0].vma
    assert 2 == len([app for app in _apps(found) if app.primitive is pcast_p])


def test_zeros_of_both_signs_are_two_numbers() -> None:
    """They are equal, and the reciprocals of them are not."""
    graph = Graph()
    to = Emission(graph, graph.inputs([X]))
    numbers = [to.number(v, 0) for v in (0.0, -0.0, 0.0)]
    found = graph.program([0], numbers, NO_DEBUG_INFO)

    assert 2 == len(set(numbers))
    assert [0.0, 1.0] == sorted(float(np.signbit(c.value)) for c in found.consts)


def test_what_is_needed_twice_is_added_once() -> None:
    """A part of a plan that others are made of, and a number beside arrays of one type."""
    graph = Graph()
    to = Emission(graph, graph.inputs([X]))

    def make(to: Emission) -> int:
        return to.apply(lax.neg_p, 0)

    assert to.made(make) == to.made(make)
    assert to.number(2.0, 0) == to.number(2.0, 0)
    assert to.number(2.0, 0) != to.number(3.0, 0)
    assert len(graph.equations) == 1


def test_parts_and_equal_elements_are_those_of_tracing() -> None:
    """Slices without gaps, none of a whole array; arrays of one number, and the number."""
    graph = Graph()
    to = Emission(graph, graph.inputs([X]))
    whole, part = to.slice(0, (0, 0), (3, 4)), to.slice(0, (0, 1), (3, 3))
    full = to.full(ShapedArray((3, 2), X.dtype), float("nan"))
    product = to.apply(lax.mul_p, part, full)
    out = to.apply(lax.add_p, product, to.full(X.update((3, 2)), 2))

    def traced(x: Any) -> Any:
        product = lax.mul(lax.slice(x, (0, 1), (3, 3)), lax.full((3, 2), float("nan"), X.dtype))
        return [lax.add(product, lax.full((3, 2), 2, X.dtype))]

    found = graph.program([0], [out], NO_DEBUG_INFO)
    expected = stage(traced, [X], locate=False)

    assert 0 == whole
    assert _apps(expected) == _apps(found)
    scalar = to.full(X.update(()), 0.5)
    assert 0.5 == graph.consts[scalar].value
