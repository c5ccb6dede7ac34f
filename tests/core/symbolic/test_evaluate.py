"""Evaluation at ints, at other values, and by substitution."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given

from tests.core.symbolic.dim_strategies import NAMES, SCOPE, environments, expressions
from tracebridge.core.symbolic.evaluate import DimOps, dims_evaluate


class Recorder:
    """Operations on pairs of (text, int), as a lowering would have on values of its own."""

    calls = 0

    @staticmethod
    def constant(n):
        return (str(n), n)

    @staticmethod
    def _binary(function, symbol):
        def operation(x, y):
            Recorder.calls += 1
            return (f"({x[0]}{symbol}{y[0]})", function(x[1], y[1]))

        return operation


for name, function, symbol in [
    ("add", operator.add, "+"),
    ("mul", operator.mul, "*"),
    ("floordiv", operator.floordiv, "//"),
    ("mod", operator.mod, "%"),
    ("max", max, "^"),
    ("min", min, "v"),
]:
    setattr(Recorder, name, staticmethod(Recorder._binary(function, symbol)))


@given(expressions, environments)
def test_other_values(x, env):
    """An adapter computes with values of its own, and gets the same numbers."""
    values = {name: (name, n) for name, n in env.items()}

    assert x.value(env) == dims_evaluate(x.dim, values, Recorder)[1]


def test_operations_of_an_adapter():
    """A term costs one multiplication per factor, a sum one addition per term."""
    a, b = SCOPE.variable("a"), SCOPE.variable("b")
    text, value = dims_evaluate(3 * a * b + b // 2 - 1, {"a": ("a", 5), "b": ("b", 4)}, Recorder)

    assert text == "(((3*(a*b))+(b//2))+-1)"
    assert value == 61


@given(expressions)
def test_substitution_of_variables_by_themselves(x):
    """Evaluating with dimensions normalises again, to the same expression."""
    assert x.dim == dims_evaluate(x.dim, {name: SCOPE.variable(name) for name in NAMES}, DimOps)


def test_missing_variable():
    """A variable without a value is named."""
    with pytest.raises(KeyError, match="a"):
        dims_evaluate(SCOPE.variable("a") + 1, {"b": 2})
