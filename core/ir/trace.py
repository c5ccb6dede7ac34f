"""Traces: who processes an application of a primitive, and which trace is current."""

from __future__ import annotations

import abc
import contextlib
from typing import TYPE_CHECKING, Any

from tracebridge.core.config.scopes import STATE, reset_state, set_state, state, with_trace
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.ir.eager_slot import EAGER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.values import Value


class Trace(abc.ABC):
    """An interpreter of applications; tracers belong to the trace that made them.

    ``done`` is set when the trace is finished: its tracers may not be used any more.
    """

    __slots__ = ("done",)
    done: bool
    # What messages call the transformation and its function, where the trace knows it.
    label: str = ""

    def __init__(self) -> None:
        self.done = False

    @abc.abstractmethod
    def process(self, app: Application, args: Sequence[Value]) -> Any:
        """Apply ``app``; gives one value, or a list where ``app.multiple`` is set."""


def current_trace() -> Trace:
    """The innermost active trace of this thread; the eager trace if there is none."""
    current = state()
    if current is None:
        return EAGER.trace
    return current.trace or EAGER.debug


def is_eager() -> bool:
    """Whether this thread evaluates at once."""
    current = state()
    return current is None or current.trace is None


def scoped(trace: Any) -> Any:
    """``trace`` as ``use_trace`` takes it: None for those that evaluate at once."""
    return None if trace is EAGER.trace or trace is EAGER.debug else trace


@contextlib.contextmanager
def use_trace(trace: Trace | None) -> Iterator[None]:
    """Make ``trace`` current within the block (``None``: evaluate eagerly)."""
    token = set_state(with_trace(STATE.get(), trace))
    try:
        yield
    finally:
        reset_state(token)


def check_not_leaked(tracer: Any) -> None:
    """Raise if the trace of ``tracer`` has ended."""
    if tracer._trace is not None and tracer._trace.done:
        raise UnexpectedTracerError(tracer=tracer)
