"""Which equations kernels can have, whatever is around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge.core import lax
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.functions import handles
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.primitive import Primitive

_HANDLED: BoundedCache[bool] = BoundedCache("equations that kernels can have", 4096)
_OF_DOUBLES: BoundedCache[bool] = BoundedCache("equations that kernels of float64 can have", 4096)

REDUCTIONS: dict[Primitive, str] = {
    lax.reduce_sum_p: "sum",
    lax.reduce_max_p: "max",
    lax.reduce_min_p: "min",
}


def is_handled(app: Application, doubles: bool = False) -> bool:
    """Whether kernels can compute an elementwise equation; ``doubles``: those of float64."""
    if not app.primitive.is_elementwise and app.primitive is not lax.stop_gradient_p:
        return False
    handled = _OF_DOUBLES if doubles else _HANDLED
    known = handled.get(app)
    if known is None:
        known = _handles(app, doubles)
        handled.set(app, known)
    return known


def _handles(app: Application, doubles: bool) -> bool:
    dtypes = [a.dtype for a in app.avals]
    return handles(app.primitive.name, app.params, dtypes, app.out.dtype, doubles)


def exponent_of(jaxpr: Jaxpr, variable: int) -> float | None:
    """The number that a variable is, if it stands in the program; None of open numbers."""
    i = variable - jaxpr.n_in
    if not 0 <= i < len(jaxpr.consts):
        return None
    const = jaxpr.consts[i]
    value = const.value if isinstance(const, Literal) and not const.aval.ndim else None
    return float(value) if isinstance(value, (int, float)) else None
