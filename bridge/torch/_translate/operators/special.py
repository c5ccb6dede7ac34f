"""Special functions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
import tracebridge.scipy.special as special
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import Operator, cast, promoted, wide


def _of_one(fun: Operator) -> Operator:
    """A function of floats, computed with 32 bits at least."""

    def run(x: Value) -> Any:
        (x,) = promoted(x, floats=True)
        return cast(fun(wide(x)), x.dtype)

    return run


def _of_two(fun: Operator) -> Operator:
    def run(x: Value, y: Value) -> Any:
        x, y = promoted(x, y, floats=True)
        return cast(fun(*tnp.broadcast_arrays(wide(x), wide(y))), x.dtype)

    return run


def _polygamma(n: int, x: Value) -> Any:
    if n == 0:  # whose derivative knows negative numbers
        return _of_one(special.digamma)(x)
    (x,) = promoted(x, floats=True)
    exact = wide(x)
    return cast(special.polygamma(tnp.full_like(exact, n), exact), x.dtype)


def _ignoring_nan(fun: Operator) -> Operator:
    """An extremum that is the other number where one is none."""

    def run(x: Value, y: Value) -> Any:
        x, y = tnp.broadcast_arrays(*promoted(x, y))
        if x.dtype.kind in "biu":
            return fun(x, y)
        first = (x >= y) if fun is tnp.maximum else (x <= y)
        # At ties torch gives the derivative to the first one.
        return tnp.where(first | lax.ne(y, y), x, y)

    return run


def _ldexp(x: Value, y: Value) -> Any:
    x, power = promoted(x, y, floats=True)
    return x * tnp.exp2(power)


def _frexp(x: Value) -> tuple[Any, Any]:
    mantissa, exponent = tnp.frexp(lax.stop_gradient(x))
    scale = tnp.exp2(cast(-exponent, x.dtype))
    # Of the mantissa torch gives the derivative, of the exponent there is none.
    slope = x * scale
    return mantissa + (slope - lax.stop_gradient(slope)), cast(exponent, np.dtype(np.int32))


ROWS: Final[dict[str, Operator]] = {
    "fmax.default": _ignoring_nan(tnp.maximum),
    "fmin.default": _ignoring_nan(tnp.minimum),
    "frexp.Tensor": _frexp,
    "i0.default": _of_one(special.i0),
    "igamma.default": _of_two(special.gammainc),
    "igammac.default": _of_two(special.gammaincc),
    "lcm.default": lambda x, y: tnp.lcm(*promoted(x, y)),
    "ldexp.Tensor": _ldexp,
    "polygamma.default": _polygamma,
    "special_erfcx.default": _of_one(special.erfcx),
    "special_i0e.default": _of_one(special.i0e),
    "special_i1.default": _of_one(special.i1),
    "special_i1e.default": _of_one(special.i1e),
    "special_modified_bessel_i0.default": _of_one(special.i0),
    "special_modified_bessel_i1.default": _of_one(special.i1),
    # Torch's parts have no derivative where the one that is not taken overflows.
    "special_log_ndtr.default": _of_one(special.log_ndtr),
    "special_ndtri.default": _of_one(special.ndtri),
    "special_zeta.default": _of_two(special.zeta),
}
