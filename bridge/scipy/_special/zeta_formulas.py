"""Hurwitz' zeta function and the derivatives of digamma, also of negative numbers.

Sums over all whole numbers do not change when their argument moves by one: they lead from a
negative argument to its distances from the whole numbers beside it.

Source: NIST DLMF 25.11 and 5.15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.control.branches.switch import cond
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.scipy._special.elementwise import with_slopes

Function = Callable[[Any, Any], Any]


def _anywhere(function: Function, least: int, even: int) -> Function:
    """``function(order, x)`` of orders from ``least`` on, where it is right for positive ``x``.

    ``even`` says for which orders, those with this rest modulo 2, terms are as large on both sides.
    """

    def run(order: Array, x: Array) -> Any:
        whole = (order == tnp.floor(order)) & (order >= least)
        turned = whole & (x < 0) & (x != tnp.floor(x))

        def direct() -> Any:
            return function(order, x)

        def by_both_sides() -> Any:
            above, below = x - tnp.floor(x), tnp.ceil(x) - x
            here = function(order, tnp.where(turned, above, x))
            near, far = (function(order, tnp.where(turned, v, 1)) for v in (below, 1 - x))
            same = order - 2 * tnp.floor(order / 2) == even
            return tnp.where(turned, here + tnp.where(same, near - far, far - near), here)

        # Three sums, where there are negative numbers.
        return cond(tnp.any(turned), by_both_sides, direct)

    return run


def _none(name: str) -> Callable[..., Any]:
    def slope(*_: Any) -> Any:
        message = f"{name} has no derivative in its first argument"
        raise MissingRuleError(name, "jvp", message=message)

    return slope


def _zeta(s: Array, q: Array) -> Any:
    return lax.zeta(s, q)


def _polygamma(n: Array, x: Array) -> Any:
    return lax.polygamma(n, x)


zeta = with_slopes(_anywhere(_zeta, 2, 0), _none("zeta"), lambda _, s, q: -s * zeta(s + 1, q))
polygamma = with_slopes(
    _anywhere(_polygamma, 1, 1), _none("polygamma"), lambda _, n, x: polygamma(n + 1, x)
)
