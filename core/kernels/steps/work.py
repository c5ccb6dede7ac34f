"""How long equations take in a kernel, about: whether threads should share them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracebridge.core import lax
from tracebridge.core.ir.cost import Cost
from tracebridge.core.kernels.equations import REDUCTIONS

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application

_FUNCTIONS = frozenset({Cost.EXPENSIVE, Cost.COMPOSED})
_MULTIPLIED, _CHEAP, _DEAR = 1 / 30, 1 / 8, 1.0  # ns, of an element


def work(app: Application) -> float:
    """Nanoseconds of an equation."""
    if app.primitive is lax.dot_general_p:
        return multiplications(app) * _MULTIPLIED
    if app.primitive.is_elementwise:
        return app.out.size * (_DEAR if app.primitive.cost in _FUNCTIONS else _CHEAP)
    return app.avals[0].size * _CHEAP if app.primitive in REDUCTIONS else 0.0


def multiplications(app: Application) -> int:
    """Of numbers, in a matrix product."""
    (summed, _), _ = app.params["dimension_numbers"]
    return math.prod([app.avals[0].shape[i] for i in summed]) * app.out.size
