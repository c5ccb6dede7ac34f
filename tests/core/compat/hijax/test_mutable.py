"""Objects of users that change, in and out of compiled functions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.experimental.hijax import (
    AvalQDD,
    HiPrimitive,
    MutableHiType,
    register_hitype,
)


@dataclasses.dataclass(frozen=True)
class Content:
    leaf: Any


class CellType(MutableHiType):
    def __hash__(self):
        return hash(CellType)

    def __eq__(self, other):
        return isinstance(other, CellType)

    def lo_ty_qdd(self, state):
        return [state.leaf]

    def new_from_loval(self, state, value):
        return Cell(value)

    def read_loval(self, state, cell):
        return [cell.value]

    def update_from_loval(self, state, cell, value):
        cell.value = value


class Cell:
    def __init__(self, value):
        self.value = value

    def cur_qdd(self):
        return Content(tb.typeof(self.value))


register_hitype(Cell, lambda cell: CellType())


class Get(HiPrimitive):
    def abstract_eval(self, cell):
        return cell, set()

    def to_lojax(self, cell):
        return cell.value


class Set(HiPrimitive):
    multiple_results = True

    def abstract_eval(self, cell, x):
        return [], set()

    def to_lojax(self, cell, x):
        cell.value = x
        return []


get, put = Get("cell_get").bind, Set("cell_set").bind


def test_compiled_function_changes_its_argument():
    """The object of the caller has the last content; results that are the object are the object."""
    traces = []

    @tb.jit
    def add(cell, x):
        traces.append(1)
        put(cell, get(cell) + x)
        return cell, Cell(x), get(cell) * 2

    cell = Cell(tnp.float32(1.0))
    add(cell, 2.0)
    known, made, twice = add(cell, 3.0)

    assert (6.0, 3.0, 12.0) == (float(cell.value), float(made.value), float(twice))
    assert known is cell
    assert 1 == len(traces)


def test_one_object_twice():
    """An object that is given twice is one object inside."""

    @tb.jit
    def add(one, two):
        put(one, get(one) + 1)
        put(two, get(two) * 10)

    cell = Cell(tnp.float32(1.0))
    add(cell, cell)

    assert 20.0 == float(cell.value)


def test_contents_change_their_type():
    """A content of another type is another program."""

    @tb.jit
    def double(cell):
        put(cell, tnp.concatenate([get(cell), get(cell)]))

    cell = Cell(tnp.ones(2))
    double(cell)
    double(cell)

    assert (8,) == cell.value.shape


def test_derivatives_through_contents():
    """Contents are differentiated as arrays are, also of calls inside calls."""

    @tb.jit
    def scale(cell, x):
        tb.jit(lambda c: put(c, get(c) * x))(cell)

    def loss(x):
        cell = Cell(x * x)
        scale(cell, x)
        return get(cell)

    assert 12.0 == float(tb.grad(loss)(2.0))


class New(HiPrimitive):
    def abstract_eval(self, content):
        return AvalQDD(CellType(), Content(content)), set()

    def to_lojax(self, content):
        return Cell(content)


new = New("cell_new").bind


def test_objects_hold_references_and_types():
    """An object can be made of what no program computes with: it holds it as it is."""
    reference = tb.new_ref(tnp.ones(2))
    struct = tb.ShapeDtypeStruct((2,), "float32")

    assert new(reference).value is reference
    assert new(struct).value is struct
    assert 2.0 == float(tb.jit(lambda x: get(new(x)) * 2)(1.0))


class Shown(Cell):
    """An object that changes and stands for the array of its content."""

    def __jax_array__(self):
        return self.value


class ShownType(CellType):
    def new_from_loval(self, state, value):
        return Shown(value)


register_hitype(Shown, lambda cell: ShownType())


@pytest.mark.parametrize(
    "operation",
    [
        lambda x, c: x @ c,
        tnp.matmul,
        lambda x, c: x + c,
        lambda x, c: x * tnp.sin(c),
        lambda x, c: tnp.sum(c) + x,
        lambda x, c: tnp.dot(x, c) + tnp.zeros_like(c),
        lambda x, c: tb.lax.add(x, c),
        lambda x, c: tnp.where(x > 0, c, x),
        lambda x, c: tnp.stack([x, c]),
        lambda x, c: x + tnp.asarray(c)[0],
        lambda x, c: tnp.array(c, "float16") + tnp.copy(c),
        lambda x, c: x.at[:].set(c),
    ],
)
@pytest.mark.parametrize("transform", [lambda f: f, tb.jit])
def test_objects_stand_for_the_array_of_their_content(operation, transform):
    """Operations on arrays take that array, eagerly and traced."""
    x, y = tnp.arange(4.0).reshape(2, 2), tnp.ones((2, 2)) / 3
    expected = operation(x, y)

    np.testing.assert_allclose(transform(operation)(x, Shown(y)), expected, rtol=1e-6)


def test_objects_that_are_no_arrays():
    """They are refused by operations on arrays."""
    with pytest.raises(TypeError, match="Cell"):
        tnp.sin(Cell(tnp.ones(2)))


def test_shapes_of_functions_of_objects():
    """Contents have shapes; the object of the caller keeps its content."""
    y = tnp.ones(2)
    cell = Shown(y)

    def double(cell, x):
        put(cell, tnp.concatenate([get(cell), get(cell)]))
        return {"sum": cell + x, "known": cell, "twice": [x, x], "made": Cell(x)}

    found = tb.eval_shape(double, cell, tb.ShapeDtypeStruct((3, 1), "float32"))

    assert (3, 4) == found["sum"].shape
    assert found["known"] is cell
    assert cell.value is y
    assert [(3, 1), (3, 1)] == [s.shape for s in found["twice"]]
    assert (3, 1) == found["made"].value.shape
