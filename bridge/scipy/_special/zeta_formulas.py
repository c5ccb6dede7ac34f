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
from tracebridge.core.runtime.arrays.array import Array

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

        # Three sums, where there are negative numbers; derivatives are sums of this kind, too.
        return cond(tnp.any(turned), by_both_sides, direct)

    return run


def _zeta(s: Array, q: Array) -> Any:
    return lax.zeta(s, q)


def _polygamma(n: Array, x: Array) -> Any:
    return lax.polygamma(n, x)


zeta = _anywhere(_zeta, 2, 0)
polygamma = _anywhere(_polygamma, 1, 1)
