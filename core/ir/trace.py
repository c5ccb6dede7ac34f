"""Traces: who processes an application of a primitive, and which trace is current."""

from __future__ import annotations

import abc
import contextlib
import itertools
import math
import threading
from typing import TYPE_CHECKING, Any

from tracebridge.core.config.state import enter_scope, leave_scope, settled_state, state, with_trace
from tracebridge.core.ir.eager_slot import EAGER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.values import Value

    Process = Callable[[Application, Sequence[Any]], Any]
    """What applies something to values: ``Trace.process``."""

_ORDER = itertools.count()


class Trace(abc.ABC):
    """An interpreter of applications; tracers belong to the trace that made them.

    ``done`` is set when the trace is finished: its tracers may not be used any more. ``order``
    grows with time: of two traces that are not done, the later one is inside the earlier one.
    """

    __slots__ = ("done", "order", "thread")
    done: bool
    order: int
    thread: int
    # What messages call the transformation and its function, where the trace knows it.
    label: str = ""
    # What the names of scopes inside of the transformation call it: jvp(layer).
    scope_kind: str | None = None

    def __init__(self) -> None:
        self.done = False
        self.order = next(_ORDER)
        self.thread = threading.get_ident()

    @property
    def main(self) -> Any:
        """What the tracers of one call of a transformation have in common: the trace itself."""
        return self

    @property
    def level(self) -> int:
        """A number of its own: libraries tell by it whether they are in the same trace."""
        return self.order

    @property
    def parent_trace(self) -> Any:
        """The trace that this one hands its work to; None where there is none."""
        return getattr(self, "parent", None)

    @abc.abstractmethod
    def process(self, app: Application, args: Sequence[Value]) -> Any:
        """Apply ``app``; gives one value, or a list where ``app.multiple`` is set."""


def current_trace() -> Trace:
    """The innermost active trace of this thread; the eager trace if there is none."""
    current = state()
    if current is None:
        return EAGER.trace
    trace = current.trace
    if trace is None:
        return EAGER.debug
    return _instead_of(trace) if trace.done else trace


def _instead_of(ended: Trace) -> Trace:
    """The trace in force where a copy of a context has one that has ended."""
    current = settled_state()
    if current is None:
        return EAGER.trace
    return ended if current.trace is ended else current.trace or EAGER.debug


def trace_for(values: Sequence[object]) -> Trace:
    """Who applies something to ``values``: the current trace, or that of traced values.

    Where operations are evaluated at once, those of traced values belong to the innermost of the
    traces that made them.
    """
    trace = current_trace()
    if trace is not EAGER.trace and trace is not EAGER.debug:
        return trace
    return innermost(values) or trace


def innermost(values: Sequence[object]) -> Trace | None:
    """The trace, among those of ``values``, that is inside the others; None if one has ended.

    None as well if one is that of another thread: traces take their operations in order.
    """
    traces = [t for t in [getattr(v, "_trace", None) for v in values] if t is not None]
    here = threading.get_ident()
    if not traces or any([t.done or getattr(t, "thread", here) != here for t in traces]):
        return None
    return max(traces, key=_order)


def _order(trace: Trace) -> float:
    # Traces of users need not know it.
    return getattr(trace, "order", math.inf)


def is_eager() -> bool:
    """Whether this thread evaluates at once."""
    current = settled_state()
    return current is None or current.trace is None


def scoped(trace: object) -> Any:
    """``trace`` as ``use_trace`` takes it: None for those that evaluate at once."""
    return None if trace is EAGER.trace or trace is EAGER.debug else trace


@contextlib.contextmanager
def use_trace(trace: Trace | None) -> Iterator[None]:
    """Make ``trace`` current within the block (``None``: evaluate eagerly)."""
    scope = enter_scope(with_trace, trace)
    try:
        yield
    finally:
        leave_scope(scope)
