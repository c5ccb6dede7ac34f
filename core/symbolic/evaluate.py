"""Values of dimension expressions, at ints or at whatever else can be added and multiplied."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from tracebridge.core.symbolic.dims import DimExpr, floordiv, max_dim, min_dim, mod
from tracebridge.core.symbolic.polynomial import VAR, Factor


class PythonOps:
    """Arithmetic of ``dims_evaluate`` on Python ints; adapters for other values look alike."""

    constant = staticmethod(int)
    add = staticmethod(operator.add)
    mul = staticmethod(operator.mul)
    floordiv = staticmethod(operator.floordiv)
    mod = staticmethod(operator.mod)
    max = staticmethod(max)
    min = staticmethod(min)


class DimOps:
    """Arithmetic of ``dims_evaluate`` on dimensions: substitutes and normalises again."""

    constant = staticmethod(int)
    add = staticmethod(operator.add)
    mul = staticmethod(operator.mul)
    floordiv = staticmethod(floordiv)
    mod = staticmethod(mod)
    max = staticmethod(max_dim)
    min = staticmethod(min_dim)


def dims_evaluate(dim: Any, env: Mapping[str, Any], ops: Any = PythonOps) -> Any:
    """The value of a dimension at values of its variables.

    Args:
        dim: an int or an expression.
        env: a value for each variable: ints, or whatever ``ops`` computes with.
        ops: has ``constant(int)`` and the binary ``add, mul, floordiv, mod, max, min``.

    Raises:
        KeyError: a variable has no value.
    """
    if not isinstance(dim, DimExpr):
        return ops.constant(dim)
    total: Any = None
    for monomial, coefficient in dim.terms:
        value: Any = None
        for factor, power in monomial:
            one = _evaluate_factor(factor, env, ops)
            for _ in range(power):
                value = one if value is None else ops.mul(value, one)
        if value is None:
            value = ops.constant(coefficient)
        elif coefficient != 1:
            value = ops.mul(ops.constant(coefficient), value)
        total = value if total is None else ops.add(total, value)
    return total


def _evaluate_factor(factor: Factor, env: Mapping[str, Any], ops: object) -> Any:
    if factor.kind == VAR:
        return env[factor.text]
    values = [dims_evaluate(operand, env, ops) for operand in factor.operands]
    function = getattr(ops, factor.kind)
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result
