"""Questions about dimensions that must hold for all values of their variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracebridge.core.errors.shape_errors import InconclusiveDimensionError
from tracebridge.core.symbolic.answers import constraint_hint, decide_equal, undecided
from tracebridge.core.symbolic.dims import (
    Dim,
    DimExpr,
    common_scope,
    floordiv,
    from_terms,
    max_dim,
    terms_of,
)
from tracebridge.core.symbolic.polynomial import divide_terms


def definitely_equal(a: Any, b: Any) -> bool:
    """Whether two dimensions are equal for all values of their variables."""
    if not isinstance(a, DimExpr) and not isinstance(b, DimExpr):
        return a == b
    if a == b:
        return True
    if isinstance(a, DimExpr) and isinstance(b, DimExpr) and a.scope is not b.scope:
        return False
    difference = a - b
    if isinstance(difference, int):
        return difference == 0
    return difference.scope.bounds(difference) == (0, 0)


def definitely_equal_shapes(a: Iterable[Any], b: Iterable[Any]) -> bool:
    """Whether two shapes are equal for all values of their variables."""
    one, two = tuple(a), tuple(b)
    return len(one) == len(two) and all(map(definitely_equal, one, two))


def dim_equal(a: Any, b: Any) -> bool:
    """Whether two dimensions are equal, where that is the same for all values.

    Raises:
        InconclusiveDimensionError: equal for some values and different for others.
    """
    answer = decide_equal(a, b)
    if answer is None:
        raise undecided(f"{a} == {b}", a - b)
    return answer


def is_empty(size: object) -> bool:
    """Whether an axis of this size has no elements.

    Raises:
        InconclusiveDimensionError: that depends, in a scope that allows it. Elsewhere sizes count
            as at least 1.
    """
    if not isinstance(size, DimExpr):
        return size == 0
    return allows_empty(size) and not size


def is_negative(size: object) -> bool:
    """Whether an expression is below 0 for all values of its variables."""
    return isinstance(size, DimExpr) and size.scope.bounds(size)[1] < 0


def allows_empty(size: object) -> bool:
    """Whether a size is an expression in a scope where sizes may be 0."""
    return isinstance(size, DimExpr) and getattr(size.scope, "least", 1) == 0


def at_least(size: object, least: int) -> Any:
    """``size``, or ``least`` where that is more: of ints, and of expressions."""
    return max(size, least) if type(size) is int else max_dim(size, least)


def assume_at_least(a: Any, b: Any) -> None:
    """Have programs for these sizes check ``a >= b``, which nobody can say, when they run."""
    difference = a - b
    if not isinstance(difference, DimExpr) or difference.scope.bounds(difference)[0] >= 0:
        return
    assume = getattr(difference.scope, "assume", None)
    if assume is not None:
        assume(difference, f"{b} <= {a}")


def dim_size_product(shape: Iterable[Any]) -> Dim:
    """The number of elements of a shape."""
    result: Dim = 1
    for d in shape:
        result = result * d
    return result


def whole_quotient(a: Any, b: Any) -> Dim | None:
    """The polynomial ``q`` with ``a == q * b`` for all values, also where ``b`` is 0, or None."""
    if not (isinstance(a, DimExpr) and isinstance(b, DimExpr)):
        return None
    quotient, remainder = divide_terms(terms_of(a), terms_of(b))
    return None if remainder else from_terms(common_scope(a, b), quotient)


def divide_exactly(a: Any, b: Any) -> Dim:
    """The quotient of sizes where the divisor divides for all values, as in ``reshape(-1)``.

    Raises:
        InconclusiveDimensionError: that cannot be shown.
    """
    quotient = floordiv(a, b)
    if definitely_equal(quotient * b, a):
        return quotient
    raise InconclusiveDimensionError(
        f"{a} / {b}: the size cannot be shown to be divisible",
        hint=constraint_hint(f"mod({a}, {b}) == 0", common_scope(a, b)),
    )
