"""The arguments of a call, flat, and the trace of a function for them."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.config.state import state
from tracebridge.core.config.values import option, tracing_key
from tracebridge.core.control.calls.bodies import shared
from tracebridge.core.control.calls.cache_info import Counts
from tracebridge.core.control.calls.explain import Names, why_again, why_first
from tracebridge.core.control.refs.calls import RefUses
from tracebridge.core.control.refs.cells import Captures, refuse_captures
from tracebridge.core.control.refs.ref import outer_refs
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.foreign import way_out_of
from tracebridge.core.errors.shown import shown
from tracebridge.core.interpreters.specialize import specialize_jaxpr
from tracebridge.core.interpreters.staging import close_jaxpr, stage
from tracebridge.core.ir.debug_info import (
    DebugInfo,
    Parameters,
    callees,
    name_of,
    parameter_names,
    where_is,
)
from tracebridge.core.ir.flat_fun import FlatFun
from tracebridge.core.ir.float0 import hide_float0, is_float0
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.backends.guards import check_tracing
from tracebridge.core.runtime.backends.monitoring import TRACE, finished
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.treedefs import leaf_paths
from tracebridge.core.util.caching import WeakIdCache

logger = logging.getLogger("tracebridge.jit")


@final
class TracedCall:
    """A function traced at avals: Jaxpr, structure of the results, closed-over values.

    ``refs``: what it does with mutable references, None if it uses none.
    """

    __slots__ = ("hoisted", "jaxpr", "out_tree", "refs", "whole")

    def __init__(self, whole: Jaxpr, out_tree: Any, refs: RefUses | None = None) -> None:
        self.whole = whole
        self.out_tree = out_tree
        self.refs = refs
        # The form in which it becomes an equation: array constants are operands.
        self.jaxpr, self.hoisted = close_jaxpr(whole)

    @property
    def out_avals(self) -> Sequence[Any]:
        """The types of the results; behind them those of the references that it writes."""
        return self.whole.out_avals

    def has_tracers(self) -> bool:
        """Whether the function closed over values of an enclosing trace."""
        return any([isinstance(h, Tracer) for h in self.hoisted])

    def at_sizes(self, sizes: dict[str, int]) -> TracedCall:
        """The same with sizes for the dimension variables."""
        return TracedCall(specialize_jaxpr(self.whole, sizes), self.out_tree, self.refs)


_TRACED: WeakIdCache[TracedCall] = WeakIdCache("traced functions")
# What a traced function was given to, where nobody says otherwise.
_JIT = "jit"


@final
class Arguments:
    """Flat arguments of one call: leaves, structure, statics, donated leaves.

    ``parameters``: names of the dynamic positional arguments, as far as they are known. ``refs``:
    which leaves are mutable references.
    """

    __slots__ = ("donated", "fun", "leaves", "parameters", "refs", "static_key", "tree")

    def __init__(
        self,
        fun: Any,
        leaves: list[Any],
        tree: Any,
        static_key: Any = (),
        donated: tuple[int, ...] = (),
        parameters: tuple[str, ...] = (),
    ) -> None:
        self.fun = fun
        self.leaves = leaves
        self.tree = tree
        self.static_key = static_key
        self.donated = donated
        self.parameters = parameters
        self.refs: tuple[int, ...] = ()

    def hide_float0(self) -> None:
        """Make float0 arrays part of the structure: they are no arguments of a program."""
        kept = [i for i, leaf in enumerate(self.leaves) if not is_float0(leaf)]
        self.leaves, self.tree = hide_float0(self.leaves, self.tree)
        self.donated = tuple([kept.index(i) for i in self.donated if i in kept])


def trace_call(
    fun: object,
    args: Arguments,
    avals: tuple[Any, ...],
    cache_on: object,
    *,
    refs: bool = False,
    known: Sequence[Any] | None = None,
    static_nums: Sequence[int] | None = None,
    counts: Counts | None = None,
    parts: bool = False,
    again: bool = False,
    role: str = _JIT,
) -> TracedCall:
    """Trace ``args.fun`` at ``avals``; remembered on ``cache_on`` while that function lives.

    ``refs``: the caller handles ``TracedCall.refs``; without it references are an error.
    ``known``: the arrays of the arguments, if Python code may ask for numbers; such a trace holds
    for these numbers only and is not remembered.
    ``static_nums``: positions of static arguments of a jitted function, whose traces are explained;
    ``counts``: what it counts. ``parts``: whether results are parts of larger arrays. ``again``:
    functions that are made anew for each call are one program, if they trace to the same.
    ``role``: what the function was given to, for messages.
    """
    current = state()
    axes = () if current is None else current.axis_env
    key = (avals, args.tree, args.static_key, tracing_key(), axes, args.refs, parts, role)
    cached = _TRACED.get(cache_on, key) if known is None else None
    if cached is not None:
        if cached.refs is not None and not refs:
            raise refuse_captures(name_of(fun))
        return cached
    start = time.perf_counter()
    name = name_of(fun)
    check_tracing(name, where_is(fun))
    if counts is not None:
        counts.traces += 1
        if not is_eager():  # others are explained when they compile
            _note_trace(fun, args, key, static_nums or (), counts)
    # Must not refer to the function: the remembered trace would keep it alive.
    names = functools.partial(argument_names, args.tree, args.parameters)
    debug = DebugInfo(name, where_is(fun), names, traced_for=role)
    flat_fun = FlatFun(args.fun, args.tree, name, parts=parts)
    trees: list[Any] = []
    captures = Captures()
    uses = RefUses(captures, args.refs) if args.refs else None

    def flat(*xs: object) -> list[Any]:
        outs, out_tree = flat_fun.call(*(xs if uses is None else uses.enter(xs)))
        trees.append(out_tree)
        return outs if uses is None else uses.leave(outs)

    whole = stage(flat, avals, debug, captures=captures, known=known)
    if uses is None and (captures.refs or captures.custom):
        uses = RefUses(captures, ())
    if uses is not None and not refs:
        raise refuse_captures(name)
    debug.name_results(functools.partial(result_names, trees[0]))
    traced = TracedCall(whole, trees[0], uses)
    if again:
        traced.jaxpr = shared(traced.jaxpr, (args.tree, *trees), (args.parameters, callees(fun)))
    if known is None and not traced.has_tracers() and outer_refs(captures.refs):
        _TRACED.set(cache_on, key, traced)
    finished(TRACE, name, start, logger)
    return traced


def result_names(out_tree: Any) -> tuple[str, ...]:
    """What the flat results of a function are called: result['key'][0]."""
    return tuple(["result" + keystr(path) for path in leaf_paths(out_tree)])


def forget_traces(fun: object) -> None:
    """Drop what ``fun`` was traced to."""
    _TRACED.discard(fun)


def _note_trace(
    fun: Any, args: Arguments, key: tuple[Any, ...], static_nums: Sequence[int], counts: Counts
) -> None:
    """Note, or say, why a call within another trace is traced."""
    seen = _keys_of_jit(fun)
    first = None if seen else why_first(fun, "traced")
    counts.note("traced", first, args.parameters)
    if option("explain_cache_misses"):
        why = first or why_traced(fun, [*seen, key], static_nums, args.parameters)
        logger.warning("jit(%s): %s", name_of(fun), why)


def _keys_of_jit(fun: Any) -> list[Any]:
    """The keys of the kept traces of calls of jit; what else got the function has its own."""
    keys: list[Any] = list(_TRACED.keys(fun))
    return [key for key in keys if key[-1] == _JIT]


def why_traced(
    fun: Any,
    keys: Sequence[Any] | None,
    static_nums: Sequence[int],
    parameters: tuple[str, ...],
) -> str:
    """How the last one of ``keys`` of traces (by default all that are kept) differs from others."""

    def comparable(key: Any) -> tuple[Any, ...]:
        avals, tree, static, options, axes, refs, _, _ = key
        return tree, static, avals, (), options, None, None, refs, dict(axes)

    *seen, key = [comparable(k) for k in (_keys_of_jit(fun) if keys is None else keys)]
    names = Names(argument_names(key[0], parameters), parameters, parameter_names(fun), static_nums)
    return why_again(key, seen, names, "traced")


def argument_names(tree: Any, parameters: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Names of the leaves of ``(args, kwargs)`` for messages, such as ``params['w']``.

    Positional arguments without a known parameter are called ``args[2]``, and so on.
    """
    known = parameters if isinstance(parameters, Parameters) else Parameters(parameters)
    names: list[str] = []
    for path in leaf_paths(tree):
        in_keywords, first, *rest = path
        name = known.keyword(str(first.key)) if in_keywords.idx else known.at(first.idx)
        names.append(name + keystr(rest))
    return tuple(names)


def leaf_values(args: Arguments, name: str, call: str = "") -> list[Any]:
    """The leaves as values; names the argument that is none.

    ``call``: what messages call a function that is no ``jit`` and has no static arguments.
    """
    values: list[Any] = []
    for i, leaf in enumerate(args.leaves):
        if type(leaf) is Array:
            values.append(leaf)
            continue
        try:
            values.append(as_value(leaf))
        except UnsupportedDtypeError as error:
            msg = (
                f"{call or f'jit({name})'}: argument "
                f"{argument_names(args.tree, args.parameters)[i]} is "
                f"{shown(leaf)} of type {type(leaf).__name__}; expected arrays, numbers, and trees "
                "of them"
            )
            raise UnsupportedDtypeError(
                msg,
                hint=way_out_of(
                    leaf,
                    "bind constants with functools.partial"
                    if call
                    else "mark it static (static_argnums, static_argnames) if it is a constant",
                ),
            ) from error
    return values
