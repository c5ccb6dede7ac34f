"""What custom_jvp and custom_vjp share: running a user's rule in place of an equation.

A call of such a function is not always one equation. Outside of any trace it just runs. Under
``jvp`` and ``grad`` the rule runs at once, on the trace below, so that it sees numbers where there
are numbers and may close over whatever it likes. Only under jit, vmap and the like the function
is traced and becomes an equation that keeps the rule for later.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.config.state import enter_scope, leave_scope, with_trace
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.errors.transform_errors import ClosedOverValueError, CustomRuleError
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.trace import EAGER, Trace
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.values import Literal
from tracebridge.core.runtime.arrays.transfer import put_literal
from tracebridge.core.tree.tree import PyTreeDef

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


def is_eager_trace(trace: Trace) -> bool:
    """Whether ``trace`` executes at once."""
    return trace is EAGER.trace or trace is EAGER.debug


@contextlib.contextmanager
def below(trace: Any, name: str, current: Trace | None = None) -> Iterator[None]:
    """Run on the parent of ``trace`` (or on ``current``); tracers of ``trace`` are out of reach.

    Without this guard a rule that closes over a differentiated value would give wrong numbers.
    """
    trace.done = True
    try:
        with running_on(trace.parent if current is None else current):
            yield
    except ClosedOverValueError:
        raise
    except UnexpectedTracerError as error:
        msg = (
            f"{name}: the function or its derivative rule closes over a value with respect to "
            "which it is differentiated; custom rules give derivatives for arguments only"
        )
        raise ClosedOverValueError(msg, hint=f"pass that value to {name} as an argument") from error
    finally:
        trace.done = False


@contextlib.contextmanager
def running_on(trace: Trace) -> Iterator[None]:
    """Make ``trace`` current."""
    scope = enter_scope(with_trace, None if is_eager_trace(trace) else trace)
    try:
        yield
    finally:
        leave_scope(scope)


# Functions of users (by id) whose rules are being traced in advance: a rule that calls its own
# function must not start that again.
_IN_ADVANCE: contextvars.ContextVar[frozenset[int]] = contextvars.ContextVar(
    "rules traced in advance", default=frozenset()
)


def is_being_traced(owner: object) -> bool:
    """Whether the rules of ``owner`` are being traced in advance, further out."""
    return id(owner) in _IN_ADVANCE.get()


@contextlib.contextmanager
def tracing_rules_of(owner: object) -> Iterator[None]:
    """Mark that the rules of ``owner`` are being traced in advance."""
    token = _IN_ADVANCE.set(_IN_ADVANCE.get() | {id(owner)})
    try:
        yield
    finally:
        _IN_ADVANCE.reset(token)


def user_value(value: object) -> Any:
    """A value as a rule may hold it: an array or a tracer."""
    if type(value) is Literal:
        return put_literal(value)
    return value


def has_tangent(aval: ShapedArray) -> bool:
    """Whether values of ``aval`` have tangents with elements."""
    return aval.tangent.dtype != float0


def check_closed(jaxpr: Jaxpr, name: str, rule: str) -> Jaxpr:
    """Raise if a rule that was traced late closed over a value of another trace."""
    for const in jaxpr.consts:
        if isinstance(const, Tracer):
            msg = (
                f"{name}: its rule {rule} closes over {const!r}, a value of a function that is "
                "being traced, and is itself traced at another time"
            )
            raise ClosedOverValueError(msg, hint=f"pass that value to {name} as an argument")
    return jaxpr


def batch_call(
    jaxpr: Jaxpr, size: object, axis: object, in_dims: tuple[int | None, ...]
) -> tuple[Jaxpr, tuple[int | None, ...]]:
    """The batched function of an equation with rules; all of its results are batched, or none.

    Rules that have not been traced yet may mix the arguments in other ways than the function. Only
    where no argument is batched (the function uses the axis by name) results need not be.
    """
    if all([d is None for d in in_dims]):
        found = batch_jaxpr(jaxpr, size, axis, in_dims)
        if all([d is None for d in found[1]]):
            return found
    return batch_jaxpr(jaxpr, size, axis, in_dims, True)


def check_unmapped(name: str, dims: Sequence[int | None]) -> None:
    """Raise if a rule gives batched results where those of its function are not."""
    if any([d is not None for d in dims]):
        msg = f"{name}: a result differs along a mapped axis, that of the function does not"
        raise CustomRuleError(msg, hint="compute the same as the function does")


def same_types(got: Sequence[Any], expected: Sequence[ShapedArray]) -> bool:
    """Whether values have the shapes and dtypes of avals."""
    return len(got) == len(expected) and all(
        [
            v.aval.shape == a.shape and v.aval.dtype == a.dtype
            for v, a in zip(got, expected, strict=True)
        ]
    )


def describe(tree: PyTreeDef, avals: Sequence[Any]) -> str:
    """A tree of types, for messages."""
    return str(tree.unflatten([a.str_short() for a in avals])).replace("'", "")


def check_not_closed_over(name: str, tangents: Sequence[Value | None]) -> None:
    """Raise if a value that a custom function closes over has a tangent."""
    if any([t is not None for t in tangents]):
        msg = (
            f"{name}: it closes over a value with respect to which it is differentiated; "
            "custom rules give derivatives for arguments only"
        )
        raise ClosedOverValueError(msg, hint=f"pass that value to {name} as an argument")
