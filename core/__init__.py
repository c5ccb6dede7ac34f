"""The engine: tracers, Jaxprs, transformations, lowering to StableHLO, dispatch to XLA.

The names below are for code that writes on the engine itself; they are loaded at their first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracebridge.core.compat.evaluation import (
        ensure_compile_time_eval as ensure_compile_time_eval,
    )
    from tracebridge.core.compat.evaluation import eval_context as eval_context
    from tracebridge.core.compat.primitive import Primitive as Primitive
    from tracebridge.core.compat.programs import AbstractValue as AbstractValue
    from tracebridge.core.compat.programs import DebugInfo as DebugInfo
    from tracebridge.core.compat.programs import Jaxpr as Jaxpr
    from tracebridge.core.compat.programs import ParamDict as ParamDict
    from tracebridge.core.compat.programs import Value as Value
    from tracebridge.core.compat.programs import check_jaxpr as check_jaxpr
    from tracebridge.core.compat.programs import eval_jaxpr as eval_jaxpr
    from tracebridge.core.compat.programs import gensym as gensym
    from tracebridge.core.compat.programs import is_constant_dim as is_constant_dim
    from tracebridge.core.compat.programs import is_constant_shape as is_constant_shape
    from tracebridge.core.compat.programs import jaxpr_as_fun as jaxpr_as_fun
    from tracebridge.core.compat.programs import jaxprs_in_params as jaxprs_in_params
    from tracebridge.core.compat.programs import new_jaxpr_eqn as new_jaxpr_eqn
    from tracebridge.core.compat.programs import subjaxprs as subjaxprs
    from tracebridge.core.compat.traces import Trace as Trace
    from tracebridge.core.compat.traces import Tracer as Tracer
    from tracebridge.core.compat.traces import concrete_or_error as concrete_or_error
    from tracebridge.core.compat.traces import find_top_trace as find_top_trace
    from tracebridge.core.compat.traces import get_opaque_trace_state as get_opaque_trace_state
    from tracebridge.core.compat.traces import is_concrete as is_concrete
    from tracebridge.core.compat.traces import (
        nonempty_axis_env_DO_NOT_USE as nonempty_axis_env_DO_NOT_USE,
    )
    from tracebridge.core.compat.traces import set_current_trace as set_current_trace
    from tracebridge.core.compat.traces import take_current_trace as take_current_trace
    from tracebridge.core.compat.traces import (
        unsafe_am_i_under_a_jit_DO_NOT_USE as unsafe_am_i_under_a_jit_DO_NOT_USE,
    )
    from tracebridge.core.compat.traces import (
        unsafe_am_i_under_a_vmap_DO_NOT_USE as unsafe_am_i_under_a_vmap_DO_NOT_USE,
    )
    from tracebridge.core.compat.traces import (
        unsafe_get_axis_names_DO_NOT_USE as unsafe_get_axis_names_DO_NOT_USE,
    )
    from tracebridge.core.compat.traces import valid_jaxtype as valid_jaxtype
    from tracebridge.core.compat.value_types import pytype_aval_mappings as pytype_aval_mappings
    from tracebridge.core.control.calls.closed_call import CallPrimitive as CallPrimitive
    from tracebridge.core.dtypes import dtypes as _dtypes
    from tracebridge.core.ir import atoms as _atoms
    from tracebridge.core.ir import typeof as _typeof
    from tracebridge.core.ir.atoms import Atom as Atom
    from tracebridge.core.ir.atoms import DropVar as DropVar
    from tracebridge.core.ir.atoms import JaxprEqn as JaxprEqn
    from tracebridge.core.ir.atoms import Var as Var
    from tracebridge.core.ir.aval import ShapedArray as ShapedArray
    from tracebridge.core.ir.effects import Effect as Effect
    from tracebridge.core.ir.effects import Effects as Effects
    from tracebridge.core.ir.effects import no_effects as no_effects
    from tracebridge.core.ir.jaxpr import ClosedJaxpr as ClosedJaxpr
    from tracebridge.core.symbolic.dims import max_dim as max_dim
    from tracebridge.core.symbolic.dims import min_dim as min_dim

    Literal = _atoms.LiteralAtom
    get_aval = _typeof.typeof
    primal_dtype_to_tangent_dtype = _dtypes.tangent_dtype

# Module below this package -> the names that come from it, "public=name" where they differ.
_NAMES_BY_MODULE = {
    "control.calls.closed_call": "CallPrimitive",
    "dtypes.dtypes": "primal_dtype_to_tangent_dtype=tangent_dtype",
    "errors.shape_errors": "InconclusiveDimensionOperation=InconclusiveDimensionError",
    "errors.transform_errors": "JaxprTypeError",
    "compat.evaluation": "ensure_compile_time_eval eval_context",
    "compat.primitive": "Primitive",
    "compat.programs": (
        "AbstractValue DebugInfo Jaxpr ParamDict Value check_jaxpr eval_jaxpr gensym jaxpr_as_fun "
        "is_constant_dim is_constant_shape jaxprs_in_params new_jaxpr_eqn subjaxprs"
    ),
    "compat.traces": (
        "Trace Tracer concrete_or_error find_top_trace get_opaque_trace_state is_concrete "
        "nonempty_axis_env_DO_NOT_USE set_current_trace take_current_trace "
        "unsafe_am_i_under_a_jit_DO_NOT_USE unsafe_am_i_under_a_vmap_DO_NOT_USE "
        "unsafe_get_axis_names_DO_NOT_USE valid_jaxtype"
    ),
    "compat.value_types": "pytype_aval_mappings",
    "ir.effects": "Effect Effects no_effects",
    "ir.atoms": "Atom DropVar JaxprEqn Literal=LiteralAtom Var",
    "ir.aval": "ShapedArray",
    "ir.jaxpr": "ClosedJaxpr",
    "ir.typeof": "get_aval=typeof",
    "symbolic.dims": "max_dim min_dim",
}
_SOURCE_OF = {
    public: (f"tracebridge.core.{module}", name or public)
    for module, names in _NAMES_BY_MODULE.items()
    for public, _, name in [entry.partition("=") for entry in names.split()]
}


if not TYPE_CHECKING:  # a type checker knows the names above, and finds misspelt ones

    def __getattr__(name: str) -> Any:
        """Load a name at its first use and keep it."""
        if name not in _SOURCE_OF:
            msg = f"module 'tracebridge.core' has no attribute {name!r}"
            raise AttributeError(msg)
        module, own = _SOURCE_OF[name]
        value = getattr(importlib.import_module(module), own)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_SOURCE_OF})
