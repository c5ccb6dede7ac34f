"""Functions with derivative rules of their own, and what their rules may use."""

from __future__ import annotations

from tracebridge._api.custom.custom_gradient import custom_gradient
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge._api.custom.custom_vjp import custom_vjp
from tracebridge.core.control.custom.closure_convert import closure_convert
from tracebridge.core.control.custom.custom_jvp import custom_jvp_call_p
from tracebridge.core.control.custom.custom_vjp import custom_vjp_call_p
from tracebridge.core.control.custom.linear_call import linear_call
from tracebridge.core.control.custom.remat_opt import remat_opt_p
from tracebridge.core.control.custom.symbolic_zeros import (
    CustomVJPPrimal,
    SymbolicZero,
    custom_vjp_primal_tree_values,
    zero_from_primal,
)
from tracebridge.core.errors.filtering import shield as _shield

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_jvp_call_p",
    "custom_vjp",
    "custom_vjp_call_p",
    "custom_vjp_primal_tree_values",
    "linear_call",
    "remat_opt_p",
    "zero_from_primal",
]

_shield(globals(), __name__)
