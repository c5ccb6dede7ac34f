"""Values of dimension variables from the shapes of actual arguments, and what must be checked.

A program with symbolic shapes gets arrays of actual sizes. Each variable is computed from one
size that is linear in it; all other sizes and the constraints become assertions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.symbolic.dims import (
    Bound,
    Dim,
    DimExpr,
    common_scope,
    floordiv,
    from_terms,
    max_dim,
    of_factor,
)
from tracebridge.core.symbolic.evaluate import DimOps, PythonOps, dims_evaluate
from tracebridge.core.symbolic.polynomial import VAR, Factor, Terms, add_terms
from tracebridge.core.symbolic.scope import SymbolicScope


@final
class _FreeScope:
    """A scope that assumes nothing: actual sizes may break every promise until it is checked."""

    strict = False

    def bounds(self, dim: Dim) -> tuple[Bound, Bound]:
        return (-math.inf, math.inf) if isinstance(dim, DimExpr) else (dim, dim)

    def rewritten(self, factor: Factor) -> Dim | None:
        return None

    def exact_quotient(self, factor: Factor) -> None:
        return None

    def may_be_zero_only_if_empty(self, dim: DimExpr) -> bool:
        return False

    def variable(self, name: str) -> Dim:
        return of_factor(self, Factor(VAR, (name,)))


_FREE: Final = _FreeScope()


class DimSource(NamedTuple):
    """Where the value of a dimension variable comes from."""

    arg: int
    """Index of the argument."""
    axis: int
    """Axis whose actual size determines the variable."""
    expression: Dim
    """The value, over ``size_name(arg, axis)`` and variables that were solved before."""


class ShapeAssertion(NamedTuple):
    """A condition on actual sizes: ``left == right``, or ``left >= right``."""

    left: Dim
    relation: str
    right: Dim
    message: str
    """Text with the places ``{left}`` and ``{right}`` for the two values."""

    def holds(self, left: Any, right: Any) -> Any:
        """Whether the condition holds of the two values."""
        return left == right if self.relation == "==" else left >= right


class Solution(NamedTuple):
    """How to get all variables from actual shapes, in order, and what to check then."""

    sources: dict[str, DimSource]
    assertions: tuple[ShapeAssertion, ...]

    def evaluate(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The values of all variables for actual shapes.

        Raises:
            ShapeMismatchError: the shapes do not satisfy an assertion.
        """
        env = self.bind(
            {
                size_name(arg, axis): size
                for arg, shape in enumerate(shapes)
                for axis, size in enumerate(shape)
            }
        )
        for assertion in self.assertions:
            left = dims_evaluate(assertion.left, env)
            right = dims_evaluate(assertion.right, env)
            if not assertion.holds(left, right):
                raise ShapeMismatchError(assertion.message.format(left=left, right=right))
        return {name: env[name] for name in self.sources}

    def bind(self, sizes: Mapping[str, Any], ops: object = PythonOps) -> dict[str, Any]:
        """The environment of all sizes and variables, from the sizes by ``size_name``."""
        env = dict(sizes)
        for name, source in self.sources.items():
            env[name] = dims_evaluate(source.expression, env, ops)
        return env


def size_name(arg: int, axis: int) -> str:
    """The variable that stands for an actual size in sources and assertions."""
    return f"args[{arg}].shape[{axis}]"


class _Equation(NamedTuple):
    arg: int
    axis: int
    dim: DimExpr


class _Step(NamedTuple):
    equation: _Equation
    name: str
    coefficient: Dim
    rest: Dim


def solve_dim_variables(shapes: Iterable[Sequence[Any]]) -> Solution:
    """How to compute the dimension variables of argument shapes from actual sizes.

    Args:
        shapes: one shape for each argument, of ints and symbolic dimensions of one scope.

    Returns:
        For each variable its source, and the assertions on all sizes that were not used up.

    Raises:
        ValueError: a variable is not determined, because no size is linear in it.
    """
    equations = [
        _Equation(arg, axis, dim)
        for arg, shape in enumerate(shapes)
        for axis, dim in enumerate(shape)
        if isinstance(dim, DimExpr)
    ]
    if not equations:
        return Solution({}, ())
    scope = common_scope(*[equation.dim for equation in equations])
    sources: dict[str, DimSource] = {}
    exact: list[_Equation] = []
    pending = list(equations)
    while (step := _next_step(pending, sources)) is not None:
        equation = step.equation
        size = _FREE.variable(size_name(equation.arg, equation.axis))
        value = _quotient(size - _free(step.rest), step.coefficient)
        sources[step.name] = DimSource(equation.arg, equation.axis, value)
        pending.remove(equation)
        if step.coefficient in (1, -1):
            exact.append(equation)
    _check_solved(equations, sources)
    checks = [*_variable_checks(scope, sources), *_size_checks(equations, exact)]
    if isinstance(scope, SymbolicScope):
        checks += [*_constraint_checks(scope, sources), *_assumption_checks(scope, sources)]
    return Solution(sources, tuple(checks))


def _quotient(numerator: Dim, coefficient: Dim) -> Dim:
    if isinstance(coefficient, int):
        return floordiv(numerator, coefficient)
    if coefficient.scope.bounds(coefficient)[1] < 0:
        numerator, coefficient = -numerator, -coefficient
    # Actual sizes may make the divisor 0: an assertion reports that, not a division by zero.
    return floordiv(numerator, max_dim(_free(coefficient), 1))


def _next_step(pending: list[_Equation], solved: Mapping[str, Any]) -> _Step | None:
    """The best equation to solve next: with the coefficient 1 if there is one."""
    steps = [step for e in pending if (step := _linear_in_one(e, solved)) is not None]
    return min(steps, key=lambda step: step.coefficient not in (1, -1), default=None)


def _linear_in_one(equation: _Equation, solved: Mapping[str, Any]) -> _Step | None:
    """The equation as ``coefficient * name + rest`` with only ``name`` unknown."""
    unknown = equation.dim.variables() - solved.keys()
    if len(unknown) != 1:
        return None
    (name,) = unknown
    scope = equation.dim.scope
    coefficient: Terms = {}
    other_terms: Terms = {}
    for monomial, c in equation.dim.terms:
        powers = {factor: power for factor, power in monomial if name in _variables(factor)}
        if not powers:
            other_terms[monomial] = c
            continue
        ((factor, power),) = list(powers.items())[:1]
        if len(powers) > 1 or power > 1 or factor.kind != VAR:
            return None
        others = tuple(pair for pair in monomial if pair[0] != factor)
        coefficient = add_terms(coefficient, {others: c}, 1)
    coefficient_dim = from_terms(scope, coefficient)
    low, high = scope.bounds(coefficient_dim)
    if low <= 0 <= high:
        return None
    return _Step(equation, name, coefficient_dim, from_terms(scope, other_terms))


def _variables(factor: Factor) -> frozenset[str]:
    if factor.kind == VAR:
        return frozenset({factor.text})
    names: set[str] = set()
    for operand in factor.operands:
        names |= operand.variables() if isinstance(operand, DimExpr) else set()
    return frozenset(names)


def _free(dim: Dim) -> Dim:
    """The expression without the assumptions of its scope."""
    if not isinstance(dim, DimExpr):
        return dim
    return dims_evaluate(dim, {name: _FREE.variable(name) for name in dim.variables()}, DimOps)


def _check_solved(equations: list[_Equation], sources: Mapping[str, DimSource]) -> None:
    missing = sorted(frozenset().union(*(e.dim.variables() for e in equations)) - sources.keys())
    if not missing:
        return
    used = [
        f"{size_name(e.arg, e.axis)} = {e.dim}"
        for e in equations
        if e.dim.variables() & set(missing)
    ]
    msg = (
        f"symbolic shapes: the dimension variables {', '.join(missing)} cannot be computed from "
        f"the sizes {', '.join(used)}; each variable needs one size that is linear in it, such "
        f"as {missing[0]} or 2*{missing[0]} + 1. Pass an argument that has such a size"
    )
    raise ArgumentValueError(msg)


def _variable_checks(scope: object, sources: Mapping[str, DimSource]) -> Iterable[ShapeAssertion]:
    least, note = getattr(scope, "least", 1), getattr(scope, "note", "")
    for name, source in sources.items():
        at = size_name(source.arg, source.axis)
        if least == 0 and source.expression == _FREE.variable(at):
            continue  # no array has less
        text = (
            f"the dimension variable {name}, computed from {at}, is {{left}}, "
            f"expected at least {least}{note}"
        )
        yield ShapeAssertion(_FREE.variable(name), ">=", least, text)


def _size_checks(equations: list[_Equation], exact: list[_Equation]) -> Iterable[ShapeAssertion]:
    for equation in equations:
        if equation not in exact:
            at = size_name(equation.arg, equation.axis)
            yield ShapeAssertion(
                _FREE.variable(at),
                "==",
                _free(equation.dim),
                f"{at} is {{left}}, expected {{right}}, the value of {equation.dim}",
            )


def _constraint_checks(
    scope: SymbolicScope, sources: Mapping[str, DimSource]
) -> Iterable[ShapeAssertion]:
    for condition in scope.conditions:
        if condition.difference.variables() <= sources.keys():
            text = (
                f"the constraint {condition.text} does not hold: the difference of its sides "
                f"is {{left}}"
            )
            relation = "==" if condition.is_equality else ">="
            yield ShapeAssertion(_free(condition.difference), relation, 0, text)


def _assumption_checks(
    scope: SymbolicScope, sources: Mapping[str, DimSource]
) -> Iterable[ShapeAssertion]:
    for difference, needed in scope.assumed.items():
        names = sorted(difference.variables())
        if not set(names) <= sources.keys():
            continue
        where = [f"{n} = {size_name(sources[n].arg, sources[n].axis)}" for n in names]
        text = (
            f"the program needs {needed}, where {', '.join(where)}, but {difference} is {{left}}. "
            "Give such sizes a program of their own, with the sizes in its signature"
        )
        yield ShapeAssertion(_free(difference), ">=", 0, text)
