"""Scopes: constraints, what follows from them, contradictions."""

from __future__ import annotations

import pickle

import pytest

from tracebridge.core.symbolic.compare import definitely_equal
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape


@pytest.mark.parametrize(
    ("spec", "constraints", "text"),
    [
        ("b", ["b == 4"], "(4,)"),
        ("a, b", ["a == 2*b"], "(2*b, b)"),
        ("a, b", ["2*b == a"], "(2*b, b)"),
        ("a, b", ["a == b + 1", "b == 2"], "(3, 2)"),
        ("a, b", ["b == a", "a == b"], "(a, a)"),
        ("b, mod(b, 2), 2*floordiv(b, 2)", ["mod(b, 2) == 0"], "(b, 0, b)"),
        ("4*c*floordiv(b, 4)", ["mod(b, 4) == 0"], "(b*c,)"),
        ("floordiv(b, 4)", ["floordiv(b, 4) == c"], "(c,)"),
        ("mod(b, 2)", ["mod(b, 2) == 1"], "(1,)"),
        ("max(a, b)", ["a >= b"], "(a,)"),
        ("min(a, b, c)", ["a >= b", "b >= c"], "(c,)"),
        ("floordiv(b, 8)", ["b < 8"], "(0,)"),
        ("mod(b, 8)", ["b < 8"], "(b,)"),
    ],
)
def test_constraints_shape_the_normal_form(spec, constraints, text):
    """Equalities rewrite, inequalities decide."""
    assert text == str(symbolic_shape(spec, constraints=constraints))


@pytest.mark.parametrize(
    "constraints",
    [
        ["b >= 4", "b <= 3"],
        ["b == 0"],
        ["a >= b + 1", "b >= a"],
        ["4 <= 3"],
        ["a == b + 1", "a == b"],
        ["a == b", "a >= b + 1"],
    ],
)
def test_contradictions(constraints):
    """A constraint that no size satisfies is refused, with the others beside it."""
    with pytest.raises(ValueError, match="no sizes of at least 1 satisfy it"):
        SymbolicScope(constraints)


def test_trivial_constraints():
    """Constraints that hold anyway say nothing."""
    scope = SymbolicScope(["3 <= 4", "b >= 1", "b + 1 >= b"])

    assert scope.bounds(scope.variable("b"))[0] == 1
    assert len(scope.constraints) == 3


def test_equality_that_is_no_rewrite():
    """An equality of sums is known, although no normal form shows it."""
    a, b = symbolic_shape("a, b", constraints=["a + b == 10"])

    assert a == 10 - b
    assert hash(a) != hash(10 - b)
    assert definitely_equal(a, 10 - b)
    assert a <= 9


def test_scope_and_constraints_exclude_each_other():
    """Constraints belong to the scope, so that they hold from its beginning."""
    with pytest.raises(ValueError, match="got a scope and constraints"):
        symbolic_shape("b", scope=SymbolicScope(), constraints=["b >= 2"])


def test_contradictions_of_many():
    """What no single constraint excludes may be impossible for all of them."""
    chain = ["a >= c + 1", "c >= 4", "a <= d + 2", "d <= 2"]
    with pytest.raises(ValueError, match="Unsatisfiable constraint d <= 2"):
        SymbolicScope(chain)


def test_scopes_have_their_own_hashes():
    """Tables of the shapes of many scopes need no comparisons."""
    (one,), (other,) = symbolic_shape("b"), symbolic_shape("b")

    assert hash(one) != hash(other)
    assert hash(one) == hash(one + 0)


def test_equality_of_a_negative_remainder():
    """A divisor of -2 divides what 2 divides."""
    (a,) = symbolic_shape("a", constraints=["mod(a, -2) == 0"])

    assert a % 2 == 0
    assert 2 * (a // 2) == a


def test_a_string_is_no_list():
    """A forgotten pair of brackets is found."""
    with pytest.raises(ValueError, match="should be a sequence of strings"):
        SymbolicScope("b >= 2")


def test_shared_scope():
    """Shapes of one scope share variables; shapes of two do not."""
    scope = SymbolicScope()

    assert symbolic_shape("b", scope=scope) == symbolic_shape("b", scope=scope)
    assert symbolic_shape("b") != symbolic_shape("b")


def test_text_and_pickle():
    """A scope is its constraints."""
    scope = SymbolicScope(["b >= 2"])

    assert repr(scope) == "SymbolicScope(['b >= 2'])"
    assert scope.constraints == pickle.loads(pickle.dumps(scope)).constraints
    strict = pickle.loads(pickle.dumps(SymbolicScope(least=2, strict=True)))
    assert repr(strict) == "SymbolicScope([], least=2, strict=True)"


def test_the_memo_is_bounded():
    """Many different questions do not fill the memory."""
    scope = SymbolicScope()
    b = scope.variable("b")
    for i in range(5000):
        assert b + i >= i

    assert len(scope._memo) <= 4096


def test_the_spec_is_a_string():
    """Sizes without names need no scope: a tuple of them is a shape already."""
    with pytest.raises(ValueError, match="shape_spec is 3 of type int"):
        symbolic_shape(3)
