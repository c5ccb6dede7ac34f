"""Bounds of expressions: correct for all values, tight where that is promised."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given

from tests.core.symbolic.dim_strategies import SCOPE, environments, expressions
from tracebridge.core.symbolic.evaluate import dims_evaluate
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape


@given(expressions, environments)
def test_bounds_are_correct(x, env):
    """No value lies outside of the bounds."""
    low, high = SCOPE.bounds(x.dim)

    assert low <= x.value(env) <= high


CONSTRAINED = SymbolicScope(
    ["a >= b", "c <= 9", "mod(b, 2) == 0", "a + b + c >= 7", "floordiv(a, 3) >= c"]
)
ALLOWED = [
    {"a": a, "b": b, "c": c}
    for a, b, c in itertools.product(range(1, 16), repeat=3)
    if a >= b and c <= 9 and b % 2 == 0 and a + b + c >= 7 and a // 3 >= c
]


@given(expressions)
def test_bounds_are_correct_under_constraints(x):
    """No value that the constraints allow lies outside of the bounds."""
    (dim,) = symbolic_shape(f"({x.dim}),", scope=CONSTRAINED)
    low, high = CONSTRAINED.bounds(dim)

    for env in ALLOWED:
        assert low <= dims_evaluate(dim, env) <= high
        assert x.value(env) == dims_evaluate(dim, env)


@pytest.mark.parametrize(
    ("text", "constraints", "expected"),
    [
        ("b", [], (1, math.inf)),
        ("7", [], (7, 7)),
        ("-2*b + 5", [], (-math.inf, 3)),
        ("a*b - b", [], (0, math.inf)),
        ("mod(b, 4)", [], (0, 3)),
        ("b", ["b >= 4", "b <= 9"], (4, 9)),
        ("b", ["2*b >= 7", "3*b < 30"], (4, 9)),
        ("floordiv(b, 4)", ["b >= 4", "b <= 9"], (1, 2)),
        ("a*b", ["b <= 3", "a <= 5"], (1, 15)),
        ("a - c", ["a >= b", "b >= c + 2"], (2, math.inf)),
        ("max(a, 8)", ["a <= 9"], (8, 9)),
        ("min(a, 8)", ["a >= 3"], (3, 8)),
        ("b", ["floordiv(b, 4) >= 3"], (12, math.inf)),
        ("b^2", ["b <= 4"], (1, 16)),
        ("b - 2*floordiv(b, 2)", [], (0, 1)),
        # A max or min is one of its operands, everywhere in the expression.
        ("a - max(a - 3, 0)", [], (1, 3)),
        ("floordiv(b - max(b - a, 0), 2)", [], (0, math.inf)),
        ("floordiv(max(-1, a - 2) - max(-1, a - 2*b - 2) + 1, 2)", [], (0, math.inf)),
        ("b + 10 - max(min(a, b + 10), b)", [], (0, 10)),
        ("floordiv(max(1 - b, 0), 2)", [], (0, 0)),
        # What is known of several variables says something of each one.
        ("2*b - a", ["2*a + 3*b <= 10"], (-1, 3)),
        ("a - e", ["a >= b", "b >= c", "c >= d", "d >= e"], (0, math.inf)),
        ("floordiv(-11, -a)", [], (0, 11)),
    ],
)
def test_bounds(text, constraints, expected):
    """Intervals, shifts and known inequalities find these bounds exactly."""
    scope = SymbolicScope(constraints)
    (dim,) = symbolic_shape(text, scope=scope)

    assert expected == scope.bounds(dim)
