"""How calls of functions with rules of their own become equations, whatever the kind of rule."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, final

from tracebridge.core.config.state import axis_env
from tracebridge.core.config.values import tracing_key
from tracebridge.core.control.calls.bodies import names_of_results, positional_names
from tracebridge.core.control.calls.inline_rules import is_being_traced, tracing_rules_of
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.refs.cells import Captures, note_custom
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo, parameter_names, where_is
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.util.caching import BoundedCache


class Call(Protocol):
    """A function with bound arguments, as the modules of the rules describe it."""

    name: str
    fun: Callable[..., Any]
    in_tree: PyTreeDef

    @property
    def memo(self) -> BoundedCache[Any] | None:
        """The traces of the function; None where they are not kept."""
        ...


class DifferentiatedCall(Call, Protocol):
    """One whose rules are told apart by the function object of the user."""

    owner: Any


class DerivativeRule(Protocol):
    """A rule that can be traced before anybody differentiates."""

    def trace_now(self) -> list[Any]:
        """Trace the rule; the values that it closes over."""
        ...


@final
class StagedCall:
    """A traced call: Jaxpr, rule, values that the function closed over (its first arguments)."""

    __slots__ = ("consts", "jaxpr", "out_tree", "rule")

    def __init__(self, jaxpr: Jaxpr, consts: list[Any], rule: Any, out_tree: PyTreeDef) -> None:
        self.jaxpr = jaxpr
        self.consts = consts
        self.rule = rule
        self.out_tree = out_tree


C = TypeVar("C", bound=Call)
S = TypeVar("S", bound=StagedCall | None)


def find_or_trace(
    call: C, avals: tuple[ShapedArray, ...], trace: Callable[[C, tuple[ShapedArray, ...]], S]
) -> S:
    """``trace(call, avals)``, or what it gave before under the same options."""
    key = (call.in_tree, avals, tracing_key(), axis_env())
    known: Any = None if call.memo is None else call.memo.get(key)
    if known is not None:
        return known
    staged = trace(call, avals)
    if staged is not None and call.memo is not None and not _holds_tracers(staged):
        call.memo.set(key, staged)
    return staged


def _holds_tracers(staged: StagedCall) -> bool:
    return any([isinstance(c, Tracer) for c in staged.consts])


def trace_function(
    call: Call, avals: tuple[ShapedArray, ...], captures: Captures | None = None
) -> tuple[Jaxpr, list[Any], PyTreeDef]:
    """The Jaxpr of the function, the values that it closes over, the structure of its result."""
    trees: list[PyTreeDef] = []

    def flat(*args: object) -> list[Any]:
        outs, tree = flatten(call.fun(*call.in_tree.unflatten(args)))
        trees.append(tree)
        return [as_value(o) for o in outs]

    names = functools.partial(positional_names, parameter_names(call.fun), call.in_tree)
    debug = DebugInfo(call.name, where_is(call.fun), names)
    consts: list[Any] = []
    jaxpr = stage(flat, avals, debug, captures=captures, hoisted=consts)
    debug.name_results(functools.partial(names_of_results, trees[:1]))
    return jaxpr, consts, trees[0]


def trace_with_rule(
    call: DifferentiatedCall,
    avals: tuple[ShapedArray, ...],
    rule_of: Callable[..., DerivativeRule],
) -> StagedCall | None:
    """The call with its derivative rule; None if it uses mutable references of the outside."""
    captures = Captures()
    jaxpr, consts, out_tree = trace_function(call, avals, captures)
    if captures.refs or captures.custom:
        return None
    rule = rule_of(call, [c.aval for c in consts], avals, jaxpr.out_avals, out_tree)
    if any([isinstance(c, Tracer) for c in consts]) and not is_being_traced(call.owner):
        # What the function closes over, the rule is likely to close over too: it is traced here
        # and now, and its values become operands.
        more: list[Any] = []
        # A rule that is wrong, or not meant for traced values, matters only where it is used.
        with tracing_rules_of(call.owner), contextlib.suppress(Exception):
            more = rule.trace_now()
        n = len(consts)
        order = [*range(n), *[m.aval for m in more], *range(n, jaxpr.n_in)]
        jaxpr, consts = permute_jaxpr(jaxpr, order), [*consts, *more]
    return StagedCall(jaxpr, consts, rule, out_tree)


def run_in_place(call: Call, values: Sequence[object]) -> tuple[list[Any], PyTreeDef]:
    """The function itself, without its rule: no equation can hold references."""
    note_custom(call.name)
    outs, tree = flatten(call.fun(*call.in_tree.unflatten(values)))
    return [as_value(o) for o in outs], tree
