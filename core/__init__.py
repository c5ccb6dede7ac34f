"""The engine: tracers, Jaxprs, transformations, lowering to StableHLO, dispatch to XLA.

The names below are for code that writes on the engine itself; they are loaded at their first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracebridge.core.extend.evaluation import (
        ensure_compile_time_eval as ensure_compile_time_eval,
    )
    from tracebridge.core.extend.evaluation import eval_context as eval_context
    from tracebridge.core.extend.primitive import Primitive as Primitive
    from tracebridge.core.extend.programs import AbstractValue as AbstractValue
    from tracebridge.core.extend.programs import Jaxpr as Jaxpr
    from tracebridge.core.extend.programs import ParamDict as ParamDict
    from tracebridge.core.extend.programs import Value as Value
    from tracebridge.core.extend.programs import check_jaxpr as check_jaxpr
    from tracebridge.core.extend.programs import eval_jaxpr as eval_jaxpr
    from tracebridge.core.extend.programs import gensym as gensym
    from tracebridge.core.extend.programs import jaxpr_as_fun as jaxpr_as_fun
    from tracebridge.core.extend.programs import jaxprs_in_params as jaxprs_in_params
    from tracebridge.core.extend.programs import new_jaxpr_eqn as new_jaxpr_eqn
    from tracebridge.core.extend.programs import subjaxprs as subjaxprs
    from tracebridge.core.extend.traces import Trace as Trace
    from tracebridge.core.extend.traces import Tracer as Tracer
    from tracebridge.core.extend.traces import concrete_or_error as concrete_or_error
    from tracebridge.core.extend.traces import set_current_trace as set_current_trace
    from tracebridge.core.extend.traces import take_current_trace as take_current_trace
    from tracebridge.core.ir import atoms as _atoms
    from tracebridge.core.ir import typeof as _typeof
    from tracebridge.core.ir.atoms import Atom as Atom
    from tracebridge.core.ir.atoms import DropVar as DropVar
    from tracebridge.core.ir.atoms import JaxprEqn as JaxprEqn
    from tracebridge.core.ir.atoms import Var as Var
    from tracebridge.core.ir.aval import ShapedArray as ShapedArray
    from tracebridge.core.ir.jaxpr import ClosedJaxpr as ClosedJaxpr
    from tracebridge.core.symbolic.dims import max_dim as max_dim
    from tracebridge.core.symbolic.dims import min_dim as min_dim

    Literal = _atoms.LiteralAtom
    get_aval = _typeof.typeof

# Module below this package -> the names that come from it, "public=name" where they differ.
_NAMES_BY_MODULE = {
    "errors.shape_errors": "InconclusiveDimensionOperation=InconclusiveDimensionError",
    "errors.transform_errors": "JaxprTypeError",
    "extend.evaluation": "ensure_compile_time_eval eval_context",
    "extend.primitive": "Primitive",
    "extend.programs": (
        "AbstractValue Jaxpr ParamDict Value check_jaxpr eval_jaxpr gensym jaxpr_as_fun "
        "jaxprs_in_params new_jaxpr_eqn subjaxprs"
    ),
    "extend.traces": "Trace Tracer concrete_or_error set_current_trace take_current_trace",
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
