"""Reduction of Jaxprs, and tracing of flat functions to Jaxprs."""

from __future__ import annotations

from tracebridge.core.extend.reduction import dce_jaxpr, trace_to_jaxpr_dynamic
from tracebridge.core.interpreters.staging import StagedTracer as DynamicJaxprTracer

__all__ = ["DynamicJaxprTracer", "dce_jaxpr", "trace_to_jaxpr_dynamic"]
