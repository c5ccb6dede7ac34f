"""Rules that users add for primitives: series as derivatives, not as Taylor coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge.core.errors.transform_errors import CustomRuleError
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.transforms.jet.series import Series, filled, is_constant, scaled
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.experimental.jet")
@final
class ZeroSeries:
    """Stands for the series of something that does not change."""

    def __repr__(self) -> str:
        return "zero_series"


@public_path("tracebridge.experimental.jet")
@final
class ZeroTerm:
    """Stands for a term of a series that is zero."""

    def __repr__(self) -> str:
        return "zero_term"


zero_series = ZeroSeries()
zero_term = ZeroTerm()

jet_rules: dict[Any, Callable[..., Any]] = {}
"""Primitive -> ``rule(primals, series, **params)``, which gives ``(result, its derivatives)``.

``series`` has, for each argument, the list of its derivatives along the curve; where the primitive
has several results, so have both parts of what the rule gives.
"""


def fact(n: int) -> float:
    """The factorial of ``n``.

    >>> from tracebridge.experimental import jet
    >>> jet.fact(4)
    24.0
    """
    return float(math.factorial(n))


def derivatives(x: Series) -> list[Any]:
    """Coefficients as derivatives."""
    return [scaled(c, fact(k)) for k, c in enumerate(filled(x)[1:], 1)]


def from_derivatives(value: object, terms: Any, order: int) -> Series:
    """Derivatives as coefficients."""
    if isinstance(terms, ZeroSeries):
        return [value, *[None] * order]
    found = [None if isinstance(t, ZeroTerm) else as_value(t) for t in terms]
    return [value, *[scaled(c, 1.0 / fact(k)) for k, c in enumerate(found, 1)]]


def user_rule(
    primitive: Primitive,
) -> Callable[[Application, list[Series], int], list[Series]] | None:
    """The rule of a user for a primitive, in terms of coefficients."""
    rule = jet_rules.get(primitive)
    if rule is None:
        return None

    def apply(app: Application, args: list[Series], order: int) -> list[Series]:
        values = [x[0] for x in args]
        terms = [
            [zero_term] * order if is_constant(x) and x[0].aval.tangent.dtype != x[0].aval.dtype
            else derivatives(x)
            for x in args
        ]  # fmt: skip
        result = rule(values, terms, **app.params)
        if not isinstance(result, tuple | list) or len(result) != 2:
            msg = f"jet: the rule of {primitive.name} returned a {type(result).__name__}"
            raise CustomRuleError(msg, expected="a pair (result, its derivatives)")
        outs, series = result if app.multiple else ([result[0]], [result[1]])
        return _checked(primitive, outs, series, order)

    return apply


def _checked(
    primitive: Primitive, outs: Sequence[Any], series: Sequence[Any], order: int
) -> list[Series]:
    found: list[Series] = []
    for out, terms in zip(outs, series, strict=True):
        if not isinstance(terms, ZeroSeries) and len(terms) != order:
            msg = f"jet: the rule of {primitive.name} returned {len(terms)} derivatives"
            raise CustomRuleError(msg, expected=str(order))
        found.append(from_derivatives(as_value(out), terms, order))
    return found
