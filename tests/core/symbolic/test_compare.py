"""Equality for all values, sizes of shapes, exact division."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.core.symbolic.dim_strategies import SCOPE, environments, expressions
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError
from tracebridge.core.symbolic.compare import (
    definitely_equal,
    definitely_equal_shapes,
    dim_equal,
    dim_size_product,
    divide_exactly,
    whole_quotient,
)
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape

a, b = (SCOPE.variable(name) for name in "ab")


@given(expressions, expressions, environments)
def test_answers_hold_for_all_values(x, y, env):
    """Definite equality and inequality are true of every environment."""
    if definitely_equal(x.dim, y.dim):
        assert x.value(env) == y.value(env)
    try:
        answer = dim_equal(x.dim, y.dim)
    except InconclusiveDimensionError:
        return
    assert answer == (x.value(env) == y.value(env))


def test_definitely_equal():
    """Equality that follows from what operations mean, not only from the normal form."""
    assert definitely_equal(b // 2 * 2 + b % 2, b)
    assert definitely_equal(3, 3)
    assert not definitely_equal(3, 4)
    assert not definitely_equal(b, 4)
    assert not definitely_equal(b, SymbolicScope().variable("b"))


def test_shapes():
    """Shapes are equal dimension by dimension."""
    assert definitely_equal_shapes((b, 3), [b + 0, 3])
    assert not definitely_equal_shapes((b, 3), (b,))
    assert not definitely_equal_shapes((b, 3), (3, b))


def test_dim_equal():
    """True, false, or an error that asks for a constraint."""
    assert dim_equal(2 * b, b + b)
    assert not dim_equal(b, b + 1)
    assert not dim_equal(b, 0)
    assert not dim_equal(3, 4)
    with pytest.raises(
        InconclusiveDimensionError, match=r'(?s)b == 4 is inconclusive.*constraints=\["b == 4"'
    ):
        dim_equal(b, 4)


def test_size_product():
    """The number of elements, 1 for a scalar."""
    assert dim_size_product(()) == 1
    assert dim_size_product((2, 3)) == 6
    assert 6 * a * b == dim_size_product((2, b, 3 * a))


def test_whole_quotient():
    """A polynomial that multiplies back, also where sizes may be 0; None if there is none."""
    a, b = map(SymbolicScope(least=0).variable, "ab")

    assert 6 * a == whole_quotient(6 * a * b, b)
    assert a - 2 == whole_quotient(a * b - 2 * b, b)
    assert whole_quotient(a * b + 1, b) is None
    assert whole_quotient(a, b) is None
    assert whole_quotient(a, 2) is None


def test_divide_exactly():
    """A quotient only where the division leaves nothing for all values."""
    (c,) = symbolic_shape("c", constraints=["mod(c, 8) == 0"])

    assert 2 * a == divide_exactly(2 * a * b, b)
    assert divide_exactly(6, 3) == 2
    assert divide_exactly(c, 8) * 8 == c
    with pytest.raises(InconclusiveDimensionError, match=r"(?s)a\*b / 3: .*mod\(a\*b, 3\) == 0"):
        divide_exactly(a * b, 3)
