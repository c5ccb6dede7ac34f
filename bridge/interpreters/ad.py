"""Rules of differentiation: tables by primitive, and the usual ways to make rules."""

from __future__ import annotations

from tracebridge.core.compat.ad import (
    Zero,
    add_jaxvals,
    add_tangents,
    defbilinear,
    defjvp,
    defjvp2,
    deflinear,
    deflinear2,
    get_primitive_transpose,
    instantiate_zeros,
    primitive_jvps,
    primitive_transposes,
    zeros_like_aval,
)
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.interpreters.jvp import JvpTrace as JVPTrace
from tracebridge.core.interpreters.jvp import JvpTracer as JVPTracer
from tracebridge.core.ir.linear_input import LinearInput as UndefinedPrimal
from tracebridge.core.ir.linear_input import is_linear_input as is_undefined_primal
from tracebridge.core.lax.elementwise.arithmetic import add_p as add_jaxvals_p

__all__ = [
    "JVPTrace",
    "JVPTracer",
    "UndefinedPrimal",
    "Zero",
    "add_jaxvals",
    "add_jaxvals_p",
    "add_tangents",
    "defbilinear",
    "defjvp",
    "defjvp2",
    "deflinear",
    "deflinear2",
    "get_primitive_transpose",
    "instantiate_zeros",
    "is_undefined_primal",
    "primitive_jvps",
    "primitive_transposes",
    "zeros_like_aval",
]

_shield(globals(), __name__)
