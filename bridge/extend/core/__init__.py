"""Primitives, Jaxprs, traces: what code needs that writes on the engine itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._api.programs.missing import missing as _missing
from tracebridge.core.compat.primitive import Primitive
from tracebridge.core.compat.programs import (
    DebugInfo,
    Jaxpr,
    call_impl,
    check_jaxpr,
    eval_jaxpr,
    gensym,
    jaxpr_as_fun,
    jaxprs_in_params,
    mapped_aval,
    new_jaxpr_eqn,
    subjaxprs,
    unmapped_aval,
)
from tracebridge.core.compat.programs import array_types as _array_types
from tracebridge.core.compat.traces import (
    TraceTag,
    concrete_or_error,
    find_top_trace,
    get_opaque_trace_state,
    nonempty_axis_env_DO_NOT_USE,
    set_current_trace,
    take_current_trace,
    unsafe_am_i_under_a_jit_DO_NOT_USE,
    unsafe_am_i_under_a_vmap_DO_NOT_USE,
    unsafe_get_axis_names_DO_NOT_USE,
    valid_jaxtype,
)
from tracebridge.core.control.calls.closed_call import CallPrimitive
from tracebridge.core.dtypes.dtypes import tangent_dtype as primal_dtype_to_tangent_dtype
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.errors.shape_errors import (
    InconclusiveDimensionError as InconclusiveDimensionOperation,
)
from tracebridge.core.errors.transform_errors import JaxprTypeError
from tracebridge.core.ir.atoms import DropVar, JaxprEqn, Var
from tracebridge.core.ir.atoms import LiteralAtom as Literal
from tracebridge.core.ir.effects import Effect, Effects, no_effects
from tracebridge.core.ir.jaxpr import ClosedJaxpr
from tracebridge.extend.core import primitives

array_types = _array_types()

__all__ = [
    "CallPrimitive",
    "ClosedJaxpr",
    "DebugInfo",
    "DropVar",
    "Effect",
    "Effects",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "JaxprTypeError",
    "Literal",
    "Primitive",
    "TraceTag",
    "Var",
    "array_types",
    "call_impl",
    "check_jaxpr",
    "concrete_or_error",
    "eval_jaxpr",
    "find_top_trace",
    "gensym",
    "get_opaque_trace_state",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "mapped_aval",
    "new_jaxpr_eqn",
    "no_effects",
    "nonempty_axis_env_DO_NOT_USE",
    "primal_dtype_to_tangent_dtype",
    "primitives",
    "set_current_trace",
    "subjaxprs",
    "take_current_trace",
    "unmapped_aval",
    "unsafe_am_i_under_a_jit_DO_NOT_USE",
    "unsafe_am_i_under_a_vmap_DO_NOT_USE",
    "unsafe_get_axis_names_DO_NOT_USE",
    "valid_jaxtype",
]

_shield(globals(), __name__)

if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        raise _missing(__name__, name)
