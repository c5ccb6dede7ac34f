"""Symbolic zeros and undefined primals of own rules, as parts of trees."""

from __future__ import annotations

import numpy as np

import tracebridge as tb
from tracebridge.interpreters import ad

X = np.float32([1.0, 2.0, 3.0])


def test_zero_of_a_value():
    """The zero among the tangents of a value has their type; integers have float0 ones."""
    of = tb.custom_derivatives.SymbolicZero.from_primal_value

    assert tb.custom_derivatives.SymbolicZero(tb.typeof(X)) == of(X)
    assert (tb.dtypes.float0, (2,)) == (of(np.arange(2)).dtype, of(np.arange(2)).shape)


def test_primitives_say_whether_they_call():
    """Every primitive tells whether its first operand is a function that it calls or maps."""
    inner = tb.jit(lambda x: 2.0 * x)
    for eqn in tb.make_jaxpr(lambda x: inner(x) + 1.0)(1.0).eqns:
        assert not eqn.primitive.call_primitive
        assert not eqn.primitive.map_primitive


def test_symbolic_zeros_are_structure():
    """Zero and UndefinedPrimal are trees without leaves: rules go through vmap and tree maps."""
    aval = tb.core.ShapedArray((), "float32")
    tree = {"z": ad.Zero(aval), "u": ad.UndefinedPrimal(aval), "x": 1.0}

    doubled = tb.tree_util.tree_map(lambda x: 2 * x, tree)

    assert tb.tree_util.tree_leaves(tree) == [1.0]
    assert (type(doubled["z"]), doubled["z"].aval, doubled["x"]) == (ad.Zero, aval, 2.0)
    assert (type(doubled["u"]), doubled["u"].aval) == (ad.UndefinedPrimal, aval)
    squares, zero = tb.vmap(lambda x: (x * x, ad.Zero(aval)))(X)
    assert squares.tolist() == [1.0, 4.0, 9.0]
    assert type(zero) is ad.Zero
