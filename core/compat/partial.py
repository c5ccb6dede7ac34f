"""Partial evaluation of functions: what depends on known arguments is computed, the rest traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge.core.config.state import enter_scope, leave_scope, with_trace
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.interpreters.split_by_known import unknown_results
from tracebridge.core.interpreters.staging import StagingTrace
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo, name_of
from tracebridge.core.ir.jaxpr import ClosedJaxpr, Jaxpr, constant
from tracebridge.core.ir.trace import Trace, current_trace, use_trace
from tracebridge.core.ir.typeof import as_value, typeof
from tracebridge.core.ir.values import Literal
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.interpreters.partial_eval")
@final
class PartialVal(tuple[Any, Any]):
    """A known value, ``(None, value)``, or the type of an unknown one, ``(aval, None)``.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import partial_eval as pe
    >>> pe.PartialVal.known(2.0), pe.PartialVal.unknown(tb.typeof(2.0)).is_known()
    ((None, 2.0), False)
    """

    __slots__ = ()

    @classmethod
    def known(cls, const: object) -> PartialVal:
        """A known value."""
        return cls((None, const))

    @classmethod
    def unknown(cls, aval: ShapedArray) -> PartialVal:
        """An unknown value of a type."""
        return cls((aval, None))

    def is_known(self) -> bool:
        """Whether the value is known."""
        return self[0] is None

    def get_known(self) -> Any:
        """The value; None if it is not known."""
        return self[1] if self[0] is None else None

    def get_aval(self) -> ShapedArray:
        """The type of the value."""
        return typeof(self[1]) if self[0] is None else self[0]


@final
class PartialTrace(Trace):
    """Gives operations on known values to ``parent``, and records those on others.

    Operations that compute results of both kinds are split, but not their parts again:
    ``whole``.
    """

    __slots__ = ("parent", "staging", "whole")

    def __init__(self, parent: Trace, staging: StagingTrace, *, whole: bool = False) -> None:
        super().__init__()
        self.parent = parent
        self.staging = staging
        self.whole = whole

    def process(self, app: Application, args: Sequence[Any]) -> Any:
        if self.done:
            raise UnexpectedTracerError(tracer=next(a for a in args if a._trace is self.staging))
        unknown = tuple([a._trace is self.staging for a in args])
        if not any(unknown):
            return self.parent.process(app, args)
        if self.whole or all(unknown_results(app, unknown)):
            return self.staging.process(app, args)
        primitive: Any = app.primitive
        with use_trace(PartialTrace(self.parent, self.staging, whole=True)):
            return primitive.split_by_known(unknown, args, **app.params)


def trace_to_jaxpr_nounits(
    fun: Any, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """Trace a flat function of arrays that gives a list, and compute what is known of it.

    Args:
        fun: what ``tracebridge.extend.linear_util.wrap_init`` gives, or a function.
        pvals: known arguments, and the types of unknown ones.
        instantiate: which results the program gives even if they are known; True for all.

    Returns:
        The program from unknown arguments to unknown results, the results, and the values of the
        program's ``constvars``.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import partial_eval as pe
    >>> x = pe.PartialVal.known(3.0)
    >>> y = pe.PartialVal.unknown(tb.core.ShapedArray((), "float32"))
    >>> jaxpr, results, consts = pe.trace_to_jaxpr_nounits(lambda x, y: [2 * x, x * y], [x, y])
    >>> jaxpr
    { lambda ; a:f32[]. let b:f32[] = mul 3.0:f32[] a in (b,) }
    >>> print(results[0].get_known(), results[1].is_known())
    6.0 False
    """
    call: Callable[..., Any] = getattr(fun, "call_wrapped", fun)
    staging = StagingTrace(getattr(fun, "debug_info", None) or DebugInfo(name_of(fun)))
    trace = PartialTrace(current_trace(), staging)
    inputs: list[Any] = []
    values: list[Any] = []
    for aval, known in pvals:
        if aval is None:
            values.append(known)
            continue
        inputs.append(staging.input(aval, len(inputs)))
        values.append(inputs[-1])
    scope = enter_scope(with_trace, trace)
    try:
        results = list(call(*values))
        outs = [as_value(r) for r in results]
        staged = _staged(outs, staging, instantiate)
        for out, is_staged in zip(outs, staged, strict=True):
            if is_staged and out._trace not in (None, staging):
                staging.check_foreign(out)
        wanted = [out for out, is_staged in zip(outs, staged, strict=True) if is_staged]
        jaxpr = staging.finalize(inputs, wanted)
    finally:
        leave_scope(scope)
        trace.done = staging.done = True
        staging.equations = []
    return jaxpr, _results(results, outs, staged), ClosedJaxpr(jaxpr).consts


def _staged(
    outs: Sequence[Any], staging: StagingTrace, instantiate: bool | Sequence[bool]
) -> list[bool]:
    """Which results the program gives."""
    n = len(outs)
    wanted = (instantiate,) * n if isinstance(instantiate, bool) else instantiate
    if len(wanted) != n:
        msg = f"trace_to_jaxpr_nounits: instantiate has {len(wanted)} entries, expected {n}"
        raise ArgumentValueError(msg)
    return [w or out._trace is staging for w, out in zip(wanted, outs, strict=True)]


def _results(
    results: Sequence[Any], outs: Sequence[Any], staged: Sequence[bool]
) -> list[PartialVal]:
    found: list[PartialVal] = []
    for result, out, is_staged in zip(results, outs, staged, strict=True):
        if is_staged:
            found.append(PartialVal.unknown(out.aval))
        else:
            given = constant(out) if type(result) is Literal else result
            found.append(PartialVal.known(given))
    return found
