"""Lowering rules, and what they need to build StableHLO."""

from __future__ import annotations

from typing import Any

from tracebridge.core._jaxlib import mlir as _bindings
from tracebridge.core.compat.attributes import (
    aval_to_ir_type,
    aval_to_ir_types,
    dense_int_array,
    dense_int_elements,
    dtype_to_ir_type,
    i32_attr,
    i64_attr,
    ir_attribute,
    ir_constant,
    ir_constants,
    make_ir_context,
    module_to_bytecode,
    module_to_string,
    shape_tensor,
)
from tracebridge.core.compat.lowering import (
    LoweringRuleContext,
    ModuleContext,
    core_call_lowering,
    emit_python_callback,
    flatten_ir_values,
    jaxpr_subcomp,
    lower_fun,
    register_lowering,
)
from tracebridge.core.errors.filtering import shield as _shield

__all__ = [
    "LoweringRuleContext",
    "ModuleContext",
    "aval_to_ir_type",
    "aval_to_ir_types",
    "core_call_lowering",
    "dense_int_array",
    "dense_int_elements",
    "dtype_to_ir_type",
    "emit_python_callback",
    "flatten_ir_values",
    "i32_attr",
    "i64_attr",
    "ir_attribute",
    "ir_constant",
    "ir_constants",
    "jaxpr_subcomp",
    "lower_fun",
    "make_ir_context",
    "module_to_bytecode",
    "module_to_string",
    "register_lowering",
    "shape_tensor",
]


def __getattr__(name: str) -> Any:
    """``ir``, the MLIR bindings, are loaded at their first use."""
    if name == "ir":
        return _bindings.ir
    msg = f"module 'tracebridge.interpreters.mlir' has no attribute {name!r}"
    raise AttributeError(msg)


_shield(globals(), __name__)
