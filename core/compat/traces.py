"""Traces and tracers that users write, and questions about the traces that are active.

A trace of the engine processes applications (a primitive at types and parameters); ``Trace`` here
is the base of those that want the primitive, the arguments and the parameters.
"""

from __future__ import annotations

import abc
import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.ir.trace as trace_base
import tracebridge.core.ir.tracer as tracer_base
from tracebridge.core.compat.custom_calls import process_custom_call
from tracebridge.core.config.state import axis_env
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.core.interpreters.batching import BatchTrace
from tracebridge.core.interpreters.staging import StagingTrace
from tracebridge.core.ir.atoms import closed_view
from tracebridge.core.ir.eager_slot import EAGER
from tracebridge.core.ir.jaxpr import Jaxpr, constant
from tracebridge.core.ir.trace import current_trace, scoped, use_trace
from tracebridge.core.ir.typeof import is_array_like
from tracebridge.core.ir.values import Literal
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.primitive import Primitive


@public_path("tracebridge.core")
class Trace(trace_base.Trace):
    """Base of traces that users write: a subclass defines ``process_primitive``.

    Make one current by ``set_current_trace``; its arguments are values and tracers of any trace.
    Operations in its methods are evaluated at once, unless another trace is made current there.
    A subclass may define, for functions with rules of their own, whose ``fun``, ``jvp``, ``fwd``
    and ``bwd`` are wrapped functions (``tracebridge.extend.linear_util``) of flat arrays,

    * ``process_custom_jvp_call(primitive, fun, jvp, tracers, *, symbolic_zeros)``: ``jvp`` maps
      arguments and tangents to results and tangents;
    * ``process_custom_vjp_call(primitive, fun, fwd, bwd, tracers, out_trees, symbolic_zeros)``:
      ``fwd`` maps arguments, each followed by a flag, to residuals and results; ``bwd`` maps
      residuals and cotangents to cotangents; ``out_trees()`` gives the structures of the results
      and of the residuals.

    ``primitive.bind_with_trace(trace, values, params)`` with the functions as the parameter
    ``subfuns`` hands such a call on.
    """

    done = False
    # Traces of users may set these themselves.
    main: Any = None
    parent_trace: Any = None

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        """The engine's own traces are instances too."""
        return trace_base.Trace in other.__mro__ if cls is Trace else NotImplemented

    @abc.abstractmethod
    def process_primitive(
        self, primitive: Primitive, tracers: Sequence[object], params: Params
    ) -> Any:
        """Apply a primitive; gives one value, or a list where it has several results."""

    def full_raise(self, x: object) -> Any:
        """The value itself: values of any trace are processed as they are."""
        return x

    def process(self, app: Application, args: Sequence[object]) -> Any:
        """Hand an application to ``process_primitive``, or to the method for such calls."""
        with use_trace(None):
            # Programs hold numbers as literals; code of users takes arrays.
            args = [EAGER.trace.to_array(a) if type(a) is Literal else a for a in args]
            out = process_custom_call(self, app, args)
            if out is NotImplemented:
                params = {name: _shown(value) for name, value in app.params.items()}
                out = self.process_primitive(app.primitive, args, params)
            return list(out) if app.multiple and not isinstance(out, list) else out


def _shown(value: object) -> Any:
    """A parameter as code of users sees it.

    Libraries remember what they made of a program by the id of its closed form, which therefore
    lives as long as the program.
    """
    for program in value if type(value) is tuple else (value,):
        if type(program) is Jaxpr:
            program.cache["shown"] = program.as_closed()
    return closed_view(value)


class _TracerClass(type):
    """Makes the engine's own tracers instances of ``Tracer``."""

    def __instancecheck__(cls, instance: object) -> bool:
        known = tracer_base.Tracer if cls is Tracer else cls
        return known in type(instance).__mro__


@public_path("tracebridge.core")
class Tracer(tracer_base.Tracer, metaclass=_TracerClass):
    """Base of tracers that users write.

    Args:
        trace: the trace that the tracer belongs to.
        aval: its type; a subclass may define a property ``aval`` instead.
    """

    def __init__(self, trace: Any, aval: Any = None) -> None:
        self._trace = trace
        if aval is not None:
            self.aval = aval

    def full_lower(self) -> Any:
        """The simplest value that stands for the tracer: itself."""
        return self


@contextlib.contextmanager
def set_current_trace(trace: object, check_leaks: bool = False) -> Iterator[None]:
    """Let ``trace`` process the operations of a ``with`` block.

    Args:
        trace: a trace; None, or the trace that evaluates, evaluates at once.
        check_leaks: accepted; ``check_tracer_leaks`` looks for leaks.

    >>> import tracebridge as tb
    >>> @tb.jit
    ... def f(x):
    ...     with tb.extend.core.set_current_trace(None):
    ...         return x if bool(tb.lax.sin(3.0) > 0) else -x
    >>> print(f(1.0))
    1.0
    """
    del check_leaks
    with use_trace(scoped(trace)):
        yield


@contextlib.contextmanager
def take_current_trace() -> Iterator[Any]:
    """Give the current trace to a ``with`` block, in which operations are evaluated at once.

    >>> import tracebridge as tb
    >>> with tb.extend.core.take_current_trace() as trace:
    ...     print(type(trace).__name__)
    EagerTrace
    """
    trace = current_trace()
    with use_trace(None):
        yield trace


def find_top_trace(_: object = None) -> Any:
    """The current trace.

    >>> import tracebridge as tb
    >>> type(tb.extend.core.find_top_trace(1.0)).__name__
    'EagerTrace'
    """
    return current_trace()


@final
class OpaqueTraceState:
    """Says whether two moments are inside the same traces; keeps none of them alive."""

    __slots__ = ("_axes", "_trace")

    def __init__(self) -> None:
        # None where operations are evaluated at once, whatever options are in force.
        trace = scoped(current_trace())
        self._trace = weakref.ref(trace) if hasattr(trace, "__weakref__") else trace
        self._axes = axis_env()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, OpaqueTraceState)
            and self._trace == other._trace
            and self._axes == other._axes
        )

    __hash__ = None  # type: ignore[assignment]  # states end


def get_opaque_trace_state(convention: object = None) -> OpaqueTraceState:
    """An object that is equal to those got inside the same traces.

    Args:
        convention: accepted.

    >>> import tracebridge as tb
    >>> state = tb.extend.core.get_opaque_trace_state()
    >>> state == tb.extend.core.get_opaque_trace_state()
    True
    >>> seen = []
    >>> _ = tb.jit(lambda x: seen.append(tb.extend.core.get_opaque_trace_state()))(1.0)
    >>> seen[0] == state
    False
    """
    del convention
    return OpaqueTraceState()


def active_traces() -> list[Any]:
    """The current trace and those that it hands its work to, innermost first."""
    found: list[Any] = []
    trace: Any = current_trace()
    while trace is not None and trace not in found:
        found.append(trace)
        trace = getattr(trace, "parent", None)
    return found


def unsafe_am_i_under_a_jit_DO_NOT_USE() -> bool:
    """Whether a program is being recorded.

    >>> import tracebridge as tb
    >>> tb.extend.core.unsafe_am_i_under_a_jit_DO_NOT_USE()
    False
    """
    return any([isinstance(t, StagingTrace) for t in active_traces()])


def unsafe_am_i_under_a_vmap_DO_NOT_USE() -> bool:
    """Whether a batch is being traced.

    >>> import tracebridge as tb
    >>> tb.extend.core.unsafe_am_i_under_a_vmap_DO_NOT_USE()
    False
    """
    return any([isinstance(t, BatchTrace) for t in active_traces()])


def nonempty_axis_env_DO_NOT_USE() -> bool:
    """Whether a named axis is in scope.

    >>> import tracebridge as tb
    >>> tb.extend.core.nonempty_axis_env_DO_NOT_USE()
    False
    """
    return bool(axis_env())


def unsafe_get_axis_names_DO_NOT_USE() -> list[Any]:
    """The named axes in scope.

    >>> import tracebridge as tb
    >>> tb.extend.core.unsafe_get_axis_names_DO_NOT_USE()
    []
    """
    return [name for name, *_ in axis_env()]


def concrete_or_error(force: Any, val: Any, context: str = "") -> Any:
    """``force(val)`` of a value that is known; all of it where ``force`` is None.

    Args:
        force: function of the value, such as ``int``; None for the value itself.
        val: a number, an array or a tracer.
        context: what messages say about the purpose.

    Raises:
        ConcretizationTypeError: the value is traced; differentiated ones may be known.

    >>> import tracebridge as tb
    >>> tb.extend.core.concrete_or_error(int, 3.5)
    3
    """
    if isinstance(val, tracer_base.Tracer):
        known = val.known()
        if known is None:
            raise ConcretizationTypeError(val, context)
        val = constant(known)
    return val if force is None else force(val)


def is_concrete(x: object) -> bool:
    """Whether the value of an operand is known.

    Args:
        x: a number, an array or a tracer.

    >>> import tracebridge as tb
    >>> tb.core.is_concrete(1.0)
    True
    """
    return not isinstance(x, tracer_base.Tracer) or x.known() is not None


def valid_jaxtype(x: object) -> bool:
    """Whether an object can be an operand.

    Args:
        x: any object.

    >>> import tracebridge as tb
    >>> tb.extend.core.valid_jaxtype(1.0), tb.extend.core.valid_jaxtype("one")
    (True, False)
    """
    return is_array_like(x)


@public_path("tracebridge.extend.core")
@final
class TraceTag:
    """A mark by which traces of one transformation know each other; compared by identity."""

    __slots__ = ("__weakref__",)
