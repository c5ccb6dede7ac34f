"""Jitted functions as StableHLO programs that other processes and libraries run.

>>> import tracebridge as tb
>>> import tracebridge.numpy as tnp
>>> spec = tb.ShapeDtypeStruct(tb.export.symbolic_shape("batch, 3"), "float32")
>>> exported = tb.export.export(tb.jit(lambda x: tnp.tanh(x).sum()))(spec)
>>> blob = exported.serialize(vjp_order=1)  # to a file, to another machine
>>> tb.grad(tb.export.deserialize(blob).call)(tnp.zeros((2, 3))).shape
(2, 3)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracebridge._api.exports.checks import DisabledSafetyCheck
from tracebridge._api.exports.export import (
    MAXIMUM_VERSION,
    MINIMUM_VERSION,
    default_export_platform,
    export,
)
from tracebridge._api.exports.exported import Exported
from tracebridge._api.exports.serialization import deserialize
from tracebridge._api.exports.trees import (
    register_namedtuple_serialization,
    register_pytree_node_serialization,
)
from tracebridge.core.util.listing import listing as _listing
from tracebridge.symbolic_shapes import (
    SymbolicScope,
    is_symbolic_dim,
    symbolic_args_specs,
    symbolic_shape,
)

__all__ = [
    "DisabledSafetyCheck",
    "Exported",
    "SymbolicScope",
    "default_export_platform",
    "deserialize",
    "export",
    "is_symbolic_dim",
    "maximum_supported_calling_convention_version",
    "minimum_supported_calling_convention_version",
    "register_namedtuple_serialization",
    "register_pytree_node_serialization",
    "symbolic_args_specs",
    "symbolic_shape",
]

__dir__ = _listing(globals())

maximum_supported_calling_convention_version = MAXIMUM_VERSION
minimum_supported_calling_convention_version = MINIMUM_VERSION

if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> Any:
        raise importlib.import_module("tracebridge._api.programs.missing").missing(__name__, name)
