"""The search for leaked tracers that option ``check_tracer_leaks`` asks for."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from tracebridge.core.errors.tracer_errors import UnexpectedTracerError, describe_tracer
from tracebridge.core.ir.tracer import Tracer

if TYPE_CHECKING:
    from tracebridge.core.ir.trace import Trace


def check_no_leaks(trace: Trace, function: str = "") -> None:
    """Raise if a tracer of ``trace`` is still referenced.

    Call it when the trace has ended and the caller has dropped its own references.

    Raises:
        UnexpectedTracerError: names the tracer, and the line that made it.
    """
    leaked = _tracer_of(trace)
    if leaked is None:
        return
    # It may be part of a cycle that nobody refers to. Only now: a collection takes long.
    del leaked
    gc.collect()
    leaked = _tracer_of(trace)
    if leaked is not None:
        during = f" of {function}" if function else ""
        raise UnexpectedTracerError(
            f"Leaked tracer: a trace{during} has ended, but {describe_tracer(leaked)} is still "
            "referenced: it has leaked",
            tracer=leaked,
        )


def _tracer_of(trace: Trace) -> Tracer | None:
    """A tracer of ``trace`` that is alive."""
    for found in gc.get_referrers(trace):
        if isinstance(found, Tracer) and found._trace is trace:
            return found
    return None
