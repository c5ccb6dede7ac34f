"""How gamma numbers depend on their shape: the derivative that sampling by rejection lacks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_float
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.ir.cost import Cost
from tracebridge.core.lax.families import Elementwise
from tracebridge.core.special.incomplete_gamma import random_gamma_grad

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value


@final
class RandomGamma(Elementwise):
    """Gives gamma numbers ``x`` as they are; their tangent is that of their shape ``a``.

    Where a number moves with the shape so that its probability stays, expectations have the
    derivatives of the distribution. With ``log_space`` the numbers are logarithms.
    """

    name = "random_gamma"
    cost = Cost.FREE
    makes_nan = False
    accepts = staticmethod(is_float)
    accepts_text = "floats"

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        return xs[0]

    def jvp(self, primals: Any, tangents: Any, **params: Any) -> Any:
        x, a = primals
        ans = self.bind(x, a, **params)
        # The numbers are drawn from a constant shape and have no tangent of their own.
        t = tangents[1]
        return ans, None if t is None else lax.mul(t, _slope(x, a, params["log_space"]))


def _slope(x: Value, a: Value, log_space: bool) -> Any:
    if not log_space:
        return random_gamma_grad(a, x)
    kind = finfo(x.aval.dtype)
    tiny, most = float(kind.tiny), float(kind.max)
    # Rounding of the largest logarithms gives infinite numbers.
    number = lax.max(lax.min(lax.exp(x), most), tiny)
    # Small numbers have the probability x**a / gamma(a + 1), also where they are no more than
    # their logarithms. Slopes that overflow meet factors 0, which are to win.
    small = lax.div(lax.sub(lax.digamma(lax.add(a, 1.0)), x), a)
    small = lax.max(lax.min(small, most), -most)
    is_small = lax.lt(x, math.log(tiny))
    return lax.select(is_small, small, lax.div(random_gamma_grad(a, number), number))


random_gamma_p = RandomGamma()
