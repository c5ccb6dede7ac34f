"""Reduction of Jaxprs, tracing of flat functions to Jaxprs, and partial evaluation."""

from __future__ import annotations

from tracebridge.core.compat.partial import PartialVal, trace_to_jaxpr_nounits
from tracebridge.core.compat.reduction import dce_jaxpr, dce_jaxpr_consts, trace_to_jaxpr_dynamic
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.interpreters.staging import StagedTracer as DynamicJaxprTracer

# What partial evaluation does not know is recorded as what `jit` traces is.
JaxprTracer = DynamicJaxprTracer

__all__ = [
    "DynamicJaxprTracer",
    "JaxprTracer",
    "PartialVal",
    "dce_jaxpr",
    "dce_jaxpr_consts",
    "trace_to_jaxpr_dynamic",
    "trace_to_jaxpr_nounits",
]

_shield(globals(), __name__)
