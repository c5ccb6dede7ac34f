"""The text form of dimensions, constraints and shapes."""

from __future__ import annotations

import pytest

from tracebridge.core.symbolic.parse import parse_constraint, parse_dim
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape

SCOPE = SymbolicScope()
a, b = SCOPE.variable("a"), SCOPE.variable("b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", 12),
        ("b", b),
        ("2*b + 1", 2 * b + 1),
        ("-1*b+3", 3 - b),
        ("--b", b),
        ("b - 1 - 1", b - 2),
        ("b * (a + 2)", a * b + 2 * b),
        ("b^2 * a", a * b * b),
        ("b**2", b * b),
        ("b // 2 % 3", b // 2 % 3),
        ("floordiv(b, 2)", b // 2),
        ("mod(b + a, 3)", (a + b) % 3),
        ("max(a, b, 1, 7) - max(7, b, a)", 0),
        ("min(a, 3)", parse_dim("min(3, a)", SCOPE.variable)),
        ("non_negative(b - 2)", parse_dim("max(b - 2, 0)", SCOPE.variable)),
        ("max", SCOPE.variable("max")),
        ("b_1x", SCOPE.variable("b_1x")),
    ],
)
def test_dims(text, expected):
    """Names, ints, operators by the precedence of Python, and functions."""
    assert expected == parse_dim(text, SCOPE.variable)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("b +", "column 4: got the end, expected a number, a name"),
        ("b + * 2", r"column 5: got '\* 2'"),
        ("2 b", "column 3: got 'b', expected the end"),
        ("(b", r"expected '\)'"),
        ("2b", "^.*: syntax error in symbolic shape '2b' at column 2"),
        ("max(a)", "max with two operands"),
        ("non_negative(a, b)", "non_negative with one operand"),
        ("mod(a, b, 2)", "mod with two operands"),
        ("b ^ a", "a constant power"),
        ("b $ 2", "column 2: got ' \\$ 2'"),
        ("_", "placeholder"),
        ("", "column 1: got the end"),
    ],
)
def test_syntax_errors(text, words):
    """The message has the text, the column, what is there and what was expected."""
    with pytest.raises(ValueError, match=words):
        parse_dim(text, SCOPE.variable)


def test_constraints():
    """Two dimensions and a relation."""
    assert (b, ">=", 4) == parse_constraint("b >= 4", SCOPE.variable)
    assert (b % 2, "==", 0) == parse_constraint("mod(b, 2) == 0", SCOPE.variable)
    assert (b, "<", a + 1) == parse_constraint("b<a+1", SCOPE.variable)
    with pytest.raises(ValueError, match="'b' must contain one of '==' or '>='"):
        parse_constraint("b", SCOPE.variable)
    with pytest.raises(ValueError, match="expected the end"):
        parse_constraint("b >= 4 >= 3", SCOPE.variable)


@pytest.mark.parametrize(
    ("spec", "like", "expected"),
    [
        ("", None, ()),
        ("()", None, ()),
        ("b", None, (b,)),
        ("b,", None, (b,)),
        ("(b,)", None, (b,)),
        ("(b, 2*b)", None, (b, 2 * b)),
        ("(b + 1)*2, 3", None, (2 * b + 2, 3)),
        ("((b + 1)*2, 3)", None, (2 * b + 2, 3)),
        ("b, _", (None, 3), (b, 3)),
        ("b, ...", (None, 3, 4), (b, 3, 4)),
        ("b, ...", (None,), (b,)),
        ("...", (2, 3), (2, 3)),
        ("_, 3", (b, 3), (b, 3)),
        (None, (2, b), (2, b)),
    ],
)
def test_shapes(spec, like, expected):
    """Entries, placeholders and the rest of a shape."""
    assert expected == symbolic_shape(spec, scope=SCOPE, like=like)


def test_like_an_array():
    """Sizes may come from anything with a shape."""

    class Array:
        shape = (5, 6)

    assert (b, 6) == symbolic_shape("b, _", scope=SCOPE, like=Array())


@pytest.mark.parametrize(
    ("spec", "like", "words"),
    [
        ("b, _", None, "no 'like' shape was given for the placeholder _ at entry 1"),
        ("_", (None,), "has no size for the placeholder _ at entry 0"),
        ("b, ...", None, r"no 'like' shape was given for the placeholder \.\.\."),
        ("...", (2, None), r"no size for the placeholder \.\.\."),
        ("..., b", (2, 3), "expected ',' or the end"),
        ("b, 3", (4, 4), "got '3', expected no different size than 4, which like"),
        ("b, 3", (4,), "has 2 dimensions, like=.* has 1"),
        ("b; 3", None, "column 2"),
        ("(b, 3", None, "expected"),
        (None, None, "no 'like' shape was given for the placeholder"),
    ],
)
def test_shape_errors(spec, like, words):
    """Placeholders need sizes, and sizes must agree."""
    with pytest.raises(ValueError, match=words):
        symbolic_shape(spec, scope=SCOPE, like=like)
