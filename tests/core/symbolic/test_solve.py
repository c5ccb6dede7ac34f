"""Variables from actual sizes, and the assertions that are left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.symbolic.dim_strategies import SCOPE, environments, expressions
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.symbolic.evaluate import dims_evaluate
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape
from tracebridge.core.symbolic.solve import size_name, solve_dim_variables


def shapes_of(*specs, constraints=()):
    """Shapes of one scope."""
    scope = SymbolicScope(constraints)
    return [symbolic_shape(spec, scope=scope) for spec in specs]


def actual(shapes, env):
    """The shapes at values of the variables."""
    return [tuple(dims_evaluate(d, env) for d in shape) for shape in shapes]


@given(environments, st.lists(expressions, max_size=3))
def test_solving_inverts_evaluation(env, more):
    """Actual sizes give back the variables, whatever other sizes there are."""
    a, b, c = (SCOPE.variable(name) for name in "abc")
    shapes = [(2 * a + b, b, 3), (a * b * c + 1,), tuple(x.dim for x in more)]

    assert env == solve_dim_variables(shapes).evaluate(actual(shapes, env))


@pytest.mark.parametrize(
    ("specs", "sources"),
    [
        (["b"], {"b": (0, 0, "args[0].shape[0]")}),
        (["3, b + 2"], {"b": (0, 1, "args[0].shape[1] - 2")}),
        (["3*b + 1"], {"b": (0, 0, "floordiv(args[0].shape[0] + 2, 3) - 1")}),
        (["-b + 9"], {"b": (0, 0, "- args[0].shape[0] + 9")}),
        # The size with the coefficient 1 is taken, although it comes later.
        (["2*b", "7, b"], {"b": (1, 1, "args[1].shape[1]")}),
        (
            ["a + b, b"],
            {"b": (0, 1, "args[0].shape[1]"), "a": (0, 0, "- b + args[0].shape[0]")},
        ),
        (
            ["a*b, b"],
            {
                "b": (0, 1, "args[0].shape[1]"),
                "a": (0, 0, "floordiv(args[0].shape[0], max(b, 1))"),
            },
        ),
        (["2, 3"], {}),
    ],
)
def test_sources(specs, sources):
    """Each variable comes from a size that is linear in it."""
    solution = solve_dim_variables(shapes_of(*specs))

    assert sources == {
        name: (source.arg, source.axis, str(source.expression))
        for name, source in solution.sources.items()
    }


@pytest.mark.parametrize(
    ("specs", "constraints", "sizes", "words"),
    [
        (["b, b"], [], [(3, 4)], r"args\[0\].shape\[1\] is 4, expected 3, the value of b"),
        (["2*b"], [], [(5,)], r"args\[0\].shape\[0\] is 5, expected 4, the value of 2\*b"),
        (["b"], [], [(0,)], "variable b, computed from args.* is 0, expected at least 1"),
        (["b + 4"], [], [(3,)], "variable b, .* is -1, expected at least 1"),
        (["b"], ["b >= 4"], [(3,)], "the constraint b >= 4 does not hold.* is -1"),
        (["b"], ["mod(b, 8) == 0"], [(12,)], r"constraint mod\(b, 8\) == 0 does not hold.* is 4"),
        (["b, a"], ["a == 2*b"], [(3, 5)], r"shape\[1\] is 5, expected 6, the value of 2\*b"),
        (["a*b, a"], [], [(4, 0)], "variable a, .* is 0, expected at least 1"),
        (["a, b"], ["a > b"], [(3, 3)], "the constraint a > b does not hold"),
    ],
)
def test_assertions(specs, constraints, sizes, words):
    """Sizes that do not fit are named with what was expected."""
    solution = solve_dim_variables(shapes_of(*specs, constraints=constraints))

    with pytest.raises(ShapeMismatchError, match=words):
        solution.evaluate(sizes)


def test_no_assertion_is_superfluous():
    """A size that a variable was computed from exactly is not checked again."""
    (check,) = solve_dim_variables(shapes_of("b + 1, 3")).assertions

    assert (str(check.left), check.relation, check.right) == ("b", ">=", 1)


def test_assumptions_of_the_scope_are_not_used():
    """Actual sizes may break a constraint: the check must not assume it."""
    solution = solve_dim_variables(shapes_of("b, floordiv(b, 4) + 1", constraints=["b < 4"]))

    assert solution.evaluate([(3, 1)]) == {"b": 3}
    with pytest.raises(ShapeMismatchError, match="b < 4"):
        solution.evaluate([(4, 1)])


def test_sizes_can_be_other_values():
    """A lowering binds values of its own."""

    class Text:
        constant = staticmethod(str)
        add = staticmethod(lambda x, y: f"({x} + {y})")
        mul = staticmethod(lambda x, y: f"({x} * {y})")
        floordiv = staticmethod(lambda x, y: f"({x} // {y})")

    solution = solve_dim_variables(shapes_of("2*b + 4"))

    assert {size_name(0, 0): "d", "b": "((d // 2) + -2)"} == solution.bind(
        {size_name(0, 0): "d"}, Text
    )


@pytest.mark.parametrize("spec", ["a*b", "b^2", "floordiv(b, 2)", "max(b, 3)", "a + b"])
def test_variables_that_cannot_be_solved(spec):
    """The message names the variables, the sizes they appear in, and what would do."""
    with pytest.raises(ValueError, match=r"cannot be computed from the sizes args\[0\].shape\[0\]"):
        solve_dim_variables(shapes_of(spec))
