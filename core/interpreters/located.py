"""Traces that remember which user line made each of their tracers, for transformations run eagerly.

Under jit the staged values inside the tracers know it already. A traceback is stored for each
tracer (0.1 to 0.8 us, next to an execution) and resolved only in an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib.xla import Traceback
from tracebridge.core.config.values import option
from tracebridge.core.ir.source_info import describe_line
from tracebridge.core.ir.trace import is_eager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.trace import Trace
    from tracebridge.core.ir.tracer import Tracer
    from tracebridge.core.ir.values import Value

get_traceback = Traceback.get_traceback


class Located:
    """Mixin of a trace class, before it; a subclass has the slots ``label`` and ``source``."""

    __slots__ = ()
    label: str
    source: Any

    def process(self, app: Application, args: Sequence[Value]) -> Any:
        """As the trace does, with a traceback in each tracer."""
        out = super().process(app, args)  # type: ignore[misc]  # the trace class comes next
        source = None
        for o in out if app.multiple else (out,):
            if o._trace is self:
                if source is None:
                    source = get_traceback()
                o.source = source
        return out


def located(trace: Any, label: str) -> Any:
    """A new trace of a subclass of Located, with its label and the place that began it."""
    trace.label = label
    trace.source = get_traceback()
    return trace


def wants_location(label: str) -> bool:
    """Whether a transformation called ``label`` ("" for one of the engine) is to be located."""
    return bool(label) and is_eager() and bool(option("source_locations"))


def origin_of(tracer: Tracer, inner: object) -> Any:
    """Where a tracer around ``inner`` comes from: its own line, that of ``inner``, or the call."""
    source = getattr(tracer, "source", None)
    if source is not None:
        return describe_line(source) or None
    found = getattr(inner, "origin", None) or getattr(
        getattr(tracer, "tangent", None), "origin", None
    )
    trace: Trace = tracer._trace
    source = getattr(trace, "source", None)
    if found is not None or source is None:
        return found
    line = describe_line(source)
    return f"an argument of {trace.label}, called at {line}" if line else None
