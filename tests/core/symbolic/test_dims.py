"""Dimension expressions: arithmetic, normal form, decisions, conversion errors."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.symbolic.dim_strategies import (
    OPERATIONS,
    SCOPE,
    combine,
    divisors,
    environments,
    expressions,
)
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError
from tracebridge.core.symbolic.dims import (
    DimExpr,
    is_static,
    is_symbolic_dim,
    max_dim,
    min_dim,
)
from tracebridge.core.symbolic.evaluate import dims_evaluate
from tracebridge.core.symbolic.parse import parse_dim
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape

a, b = (SCOPE.variable(name) for name in "ab")


@given(expressions, environments)
def test_evaluation_gives_what_the_expression_means(x, env):
    """Normal forms have the values of the operations that made them."""
    assert x.value(env) == dims_evaluate(x.dim, env)


@given(st.sampled_from(["+", "-", "*", "max", "min"]), expressions, expressions, environments)
def test_evaluation_is_a_homomorphism(symbol, x, y, env):
    """The value of an operation is the operation on values."""
    of_dims, of_ints = OPERATIONS[symbol]
    left, right = dims_evaluate(x.dim, env), dims_evaluate(y.dim, env)

    assert of_ints(left, right) == dims_evaluate(of_dims(x.dim, y.dim), env)


@given(expressions, divisors, environments)
def test_division_is_that_of_python(x, y, env):
    """Quotient and remainder round like Python's, and belong together."""
    quotient, remainder = combine("//", x, y), combine("%", x, y)
    value = dims_evaluate(quotient.dim, env) * y.value(env) + dims_evaluate(remainder.dim, env)

    assert quotient.value(env) == dims_evaluate(quotient.dim, env)
    assert remainder.value(env) == dims_evaluate(remainder.dim, env)
    assert x.value(env) == value


@given(expressions, expressions, expressions)
def test_ring_laws_hold_structurally(x, y, z):
    """Expressions that are equal in the ring have one normal form, and one hash."""
    for left, right in [
        (x.dim + y.dim, y.dim + x.dim),
        (x.dim * y.dim, y.dim * x.dim),
        ((x.dim + y.dim) + z.dim, x.dim + (y.dim + z.dim)),
        ((x.dim * y.dim) * z.dim, x.dim * (y.dim * z.dim)),
        (x.dim * (y.dim + z.dim), x.dim * y.dim + x.dim * z.dim),
        (x.dim - x.dim, 0),
        (0 - (0 - x.dim), x.dim),
        (x.dim * 1, x.dim),
        (x.dim * 0, 0),
    ]:
        assert left == right
        assert hash(left) == hash(right)


@given(expressions)
def test_constants_are_ints(x):
    """An expression is never a constant: those are ints."""
    if isinstance(x.dim, DimExpr):
        assert x.dim.variables()
    else:
        assert type(x.dim) is int


@given(expressions, st.integers(2, 6))
def test_exact_multiples_divide_out(x, n):
    """n*x // n is x, and leaves no remainder."""
    assert x.dim == (n * x.dim) // n
    assert (n * x.dim) % n == 0


@given(expressions)
def test_text_round_trip(x):
    """The printed form parses to the same expression."""
    assert x.dim == parse_dim(str(x.dim), SCOPE.variable)


@given(expressions)
def test_copies_are_equal(x):
    """Expressions can be copied; the scope stays the same object."""
    assert x.dim == copy.copy(x.dim)
    assert x.dim == copy.deepcopy(x.dim)


def test_pickle_keeps_expressions_of_one_scope_together():
    """A shape survives pickling with one scope and its constraints."""
    one, two = pickle.loads(pickle.dumps(symbolic_shape("x, 2*x", constraints=["x >= 3"])))

    assert two == 2 * one
    assert one >= 3


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (4 * b // 4, "b"),
        ((4 * b + 6) // 4, "b + 1"),
        ((2 * b + 1) // 4, "floordiv(b, 2)"),
        (b // 2 // 3, "floordiv(b, 6)"),
        (5 * b // 4, "floordiv(b, 4) + b"),
        ((b - 1) // 2, "floordiv(b + 1, 2) - 1"),
        ((a * b + b) // b, "a + 1"),
        ((a * a - b * b) // (a + b), "- b + a"),
        (b // a, "floordiv(b, a)"),
        ((2 * b + 3) % 2, "1"),
        (b % 2, "mod(b, 2)"),
        (b % 6 % 3, "mod(b, 3)"),
        (4 * b % 6, "2*mod(2*b, 3)"),
        ((-b) % 3, "mod(2*b, 3)"),
        (b % -2, "- mod(b, 2)"),
        (7 // b, "floordiv(7, b)"),
        (7 % b, "mod(7, b)"),
        ((b + 1) ** 2, "b^2 + 2*b + 1"),
        (b**0, "1"),
        (1 - b, "- b + 1"),
        (a + b, "b + a"),
        (a * b * b - 2 * a * a * b, "a*b^2 - 2*a^2*b"),
        (b * (a // 2) - a % 2 + 3, "b*floordiv(a, 2) - mod(a, 2) + 3"),
        (max_dim(b - 2, 0), "max(b - 2, 0)"),
        (a // (-b - 1), "floordiv(- a, b + 1)"),
        (a % (-b - 1), "- mod(- a, b + 1)"),
        (abs(3 - 4 * b), "4*b - 3"),
        (3 * a * b - 2 + a**2, "3*a*b + a^2 - 2"),
        (max_dim(b, 1), "b"),
        (max_dim(a, b, a + 1), "max(a + 1, b)"),
        (min_dim(a, b, a + 1), "min(a, b)"),
        (max_dim(a, max_dim(b, 4)), "max(a, b, 4)"),
        (max_dim(3, 4), "4"),
        (b + np.int64(2), "b + 2"),
        (np.int32(3) * b, "3*b"),
        (b + True, "b + 1"),
        (+b, "b"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_normal_form(dim, text):
    """Terms are ordered by size, the last names first; divisions are in lowest terms."""
    assert text == str(dim)


def test_divmod():
    """Both parts at once, also with an int on the left."""
    assert divmod(b, 2) == (b // 2, b % 2)
    assert divmod(7, b) == (7 // b, 7 % b)


def test_equality_outside_of_programs():
    """== says what holds for all sizes, and else False: a hash is that of the normal form."""
    other = SymbolicScope().variable("b")

    assert b + b == 2 * b
    assert b != 4
    assert b != a
    assert b != other
    assert b != "b"
    assert {(b, 3): 1}[(b + 0, 3)] == 1


@given(expressions, expressions, environments)
def test_decisions_hold_for_all_values(x, y, env):
    """A comparison that has an answer has it for every environment."""
    for symbol, of_ints in [
        (lambda p, q: p >= q, lambda p, q: p >= q),
        (lambda p, q: p <= q, lambda p, q: p <= q),
        (lambda p, q: p > q, lambda p, q: p > q),
        (lambda p, q: p < q, lambda p, q: p < q),
    ]:
        try:
            answer = symbol(x.dim, y.dim)
        except InconclusiveDimensionError:
            continue
        assert answer == of_ints(x.value(env), y.value(env))


@pytest.mark.parametrize(
    "fact",
    [
        lambda: b >= 1,
        lambda: b > 0,
        lambda: 2 * b > b,
        lambda: not b < 1,
        lambda: b - 1 >= 0,
        lambda: a + b >= 2,
        lambda: a * b >= b,
        lambda: a * b + 1 > a,
        lambda: b // 2 <= b,
        lambda: b // 2 >= 0,
        lambda: b % 4 < 4,
        lambda: b % 4 <= b,
        lambda: (b + 3) // 4 * 4 >= b,
        lambda: (b + 7) // 8 * 8 - b <= 7,
        lambda: a // b * b <= a,
        lambda: a // 2 + a // 3 <= a,
        lambda: max_dim(b, 5) >= 5,
        lambda: max_dim(a, b) >= a,
        lambda: min_dim(b, 8) <= 8,
        lambda: min_dim(a, b) <= b,
        lambda: bool(b),
        lambda: bool(-b),
        lambda: max(b, 1) == b,
    ],
)
def test_facts_that_are_decided(fact):
    """What follows from sizes of at least 1 is known."""
    assert fact()


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            lambda: b > 1,
            '.b. > .1. is inconclusive: the answer depends.* values of b.*constraints=."b > 1"',
        ),
        (lambda: a >= b, r"'a' >= 'b' is inconclusive: .* a, b"),
        (lambda: max(a, b), "b > a"),
        (lambda: sorted([a, b]), "b < a"),
        (lambda: bool(b - 1), r"bool\(b - 1\): the symbolic dimension may be 0"),
    ],
)
def test_undecided_questions(question, words):
    """The error says what is not known, and how to state it."""
    with pytest.raises(InconclusiveDimensionError, match=f"(?s){words}"):
        question()


@pytest.mark.parametrize("convert", [int, float, range, "abc".__getitem__, np.zeros])
def test_a_dimension_is_no_int(convert):
    """Using a dimension as a constant says that it has no constant value."""
    with pytest.raises(InconclusiveDimensionError, match=r"b.* has no constant value"):
        convert(2 * b)


@pytest.mark.parametrize(
    "operation",
    [
        lambda: b * 1.5,
        lambda: 1.5 + b,
        lambda: b - np.float32(1),
        lambda: b / 2,
        lambda: 2 / b,
        lambda: a / b,
        lambda: 2.0 % b,
        lambda: b + 1j,
        lambda: b**0.5,
        lambda: np.arange(3) + b,
    ],
)
def test_arrays_of_dimensions_need_a_program(operation):
    """What is no dimension is an array, and sizes have values inside traced programs only."""
    with pytest.raises(InconclusiveDimensionError, match="value only inside a function"):
        operation()


def test_integers_of_numpy_are_sizes():
    """Integer scalars of NumPy, also as arrays of rank 0, give dimensions."""
    for two in (np.int32(2), np.array(2, np.int64)):
        assert (b + 2, 2 * b, 2 - b) == (b + two, two * b, two - b)


def test_other_operands_decide_themselves():
    """Arithmetic with objects of other classes is left to those classes."""

    class Traced:
        def __radd__(self, other):
            return ("radd", other)

        __rmul__ = __rfloordiv__ = __rmod__ = __rtruediv__ = __radd__

    for operation in (
        lambda x: b + x,
        lambda x: b * x,
        lambda x: b // x,
        lambda x: b % x,
        lambda x: b / x,
    ):
        assert operation(Traced()) == ("radd", b)
    with pytest.raises(TypeError):
        b + "text"
    with pytest.raises(TypeError):
        assert b < "text"
    with pytest.raises(TypeError):
        b ** (-1)


def test_division_by_zero():
    """Dividing by the constant 0 is the error of ints."""
    for operation in (lambda: b // 0, lambda: b % 0):
        with pytest.raises(ZeroDivisionError, match="b"):
            operation()


def test_scopes_do_not_mix():
    """The same name in two scopes may be two sizes."""
    other = SymbolicScope().variable("b")

    with pytest.raises(
        ValueError, match=r"mixing of symbolic scopes: expected one, got b and found b"
    ):
        b + other


def test_predicates():
    """Symbolic dimensions and static shapes are recognised."""
    assert is_symbolic_dim(b)
    assert not is_symbolic_dim(3)
    assert is_static((2, 3))
    assert is_static(())
    assert not is_static((2, b))
    assert DimExpr.is_symbolic_dim


def test_variables():
    """The names of an expression, inside of operations too."""
    assert frozenset({"a", "b"}) == (max_dim(a, 3) + (b + 1) // 2).variables()
