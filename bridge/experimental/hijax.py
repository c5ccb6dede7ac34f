"""Types of values and operations that programs define, with rules for every transformation.

``HiType`` is a type whose values are objects of a class of yours, made of arrays; programs pass
them on as they pass arrays. ``HiPrimitive`` and ``VJPHiPrimitive`` are operations on them, or on
arrays, whose derivatives and batches are what their methods say.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracebridge.core.compat.ad import Zero, instantiate_zeros
from tracebridge.core.compat.ad import is_linear_input as is_undefined_primal
from tracebridge.core.compat.hijax.mutable import (
    AvalMutableQDD,
    AvalQDD,
    MutableHiType,
    control_flow_allowed_effects,
)
from tracebridge.core.compat.hijax.operation import VJPHiPrimitive
from tracebridge.core.compat.hijax.primitive import HiPrimitive
from tracebridge.core.compat.hijax.types import (
    HiType,
    aval_method,
    aval_property,
    register_hitype,
)
from tracebridge.core.compat.programs import AbstractValue
from tracebridge.core.control.refs.cells import AbstractRef
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.user_type import MappingSpec

__all__ = [
    "AbstractRef",
    "AbstractValue",
    "AvalMutableQDD",
    "AvalQDD",
    "HiPrimitive",
    "HiType",
    "MappingSpec",
    "MutableHiType",
    "ShapedArray",
    "VJPHiPrimitive",
    "Zero",
    "aval_method",
    "aval_property",
    "control_flow_allowed_effects",
    "instantiate_zeros",
    "is_undefined_primal",
    "register_hitype",
]

_shield(globals(), __name__)

if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> Any:
        raise importlib.import_module("tracebridge._api.programs.missing").missing(__name__, name)
