"""What elementwise functions share: promotion to floats, one shape, rules of derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge.core.control.custom.symbolic_zeros import SymbolicZero
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import (
    broadcast_operands,
    broadcast_shape,
    promote_inexact,
    widened,
)
from tracebridge.numpy._promote import broadcast_to as _to


def floats(
    name: str, implementation: Callable[..., Any], *, full: bool = False, complexes: bool = False
) -> StagedFunction:
    """A staged function of values of one floating or complex dtype and one shape.

    Narrow floats are computed in float32 and rounded once.

    Args:
        name: what messages call it.
        implementation: function of values.
        full: whether scalars are repeated as well.
        complexes: whether the function is defined for complex numbers.
    """

    def run(*xs: Any) -> Any:
        xs = tuple(promote_inexact(*xs))
        if is_complex(xs[0].aval.dtype) and not complexes:
            msg = f"{name}: got {xs[0].aval.str_short()}, expected real numbers"
            raise UnsupportedDtypeError(msg)
        xs = tuple(broadcast_operands(name, *xs))
        if full:
            shape = broadcast_shape(name, [x.aval.shape for x in xs])
            xs = tuple([_to(x, shape) for x in xs])
        return widened(implementation)(*xs)

    return StagedFunction(run, name)


def with_slopes(function: Callable[..., Any], *slopes: Callable[..., Any] | None) -> Any:
    """``function`` with the derivatives ``slopes(ans, *xs)`` of its arguments; None is zero."""
    wrapped = custom_jvp(function)

    def jvp(primals: tuple[Array, ...], tangents: tuple[Array | SymbolicZero, ...]) -> Any:
        ans = wrapped(*primals)
        total = tnp.zeros_like(ans)  # a product with 0 would be NaN where the value is infinite
        for slope, t in zip(slopes, tangents, strict=True):
            # No product with the 0 of a constant: a slope may be infinite.
            if slope is not None and not isinstance(t, SymbolicZero):
                total = total + slope(ans, *primals) * t
        return ans, total

    wrapped.defjvp(jvp, symbolic_zeros=True)
    return wrapped
