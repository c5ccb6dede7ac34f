"""jit: trace once, compile once, then call the executable.

``make_jit`` gives the Python callable. Under a trace a call becomes one ``jit`` equation.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.config.scopes import option, state, tracing_key
from tracebridge.core.control.closed_call import CallPrimitive
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.interpreters.staging import close_jaxpr, stage
from tracebridge.core.ir.debug_info import DebugInfo, name_of, where_is
from tracebridge.core.ir.flat_fun import FlatFun
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.array import Array
from tracebridge.core.runtime.compile import Program, compile_jaxpr
from tracebridge.core.runtime.debug import check_finite, wants_checks
from tracebridge.core.runtime.dispatch import raise_for, to_array
from tracebridge.core.runtime.donation import check_donation, mark_donated, owned
from tracebridge.core.runtime.execute import SINGLE, TREE, make_run
from tracebridge.core.runtime.fastpath import MAX_ENTRIES, CallCache, make_cached_call
from tracebridge.core.runtime.placement import all_at, choose_placement
from tracebridge.core.runtime.transfer import move
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import flatten, leaf_treedef, leaves_with_path
from tracebridge.core.util.caching import BoundedCache, WeakIdCache

logger = logging.getLogger("tracebridge.jit")


@final
class Jit(CallPrimitive):
    """A compiled function: params ``jaxpr, name, donated, inline``."""

    name = "jit"

    def with_jaxpr(self, params: dict[str, Any], jaxpr: Jaxpr, suffix: str) -> dict[str, Any]:
        name = f"{suffix}({params['name']})" if suffix in ("jvp", "vmap", "transpose") else None
        changed = {**params, "jaxpr": jaxpr, "donated": ()}
        return changed if name is None else {**changed, "name": name}


jit_p = Jit()


@final
class JitOptions:
    """Resolved arguments of ``jit``. Positions and names are sorted tuples."""

    __slots__ = (
        "donate_argnames",
        "donate_argnums",
        "inline",
        "keep_unused",
        "placement",
        "static_argnames",
        "static_argnums",
    )

    def __init__(
        self,
        static_argnums: tuple[int, ...] = (),
        static_argnames: tuple[str, ...] = (),
        donate_argnums: tuple[int, ...] = (),
        donate_argnames: tuple[str, ...] = (),
        keep_unused: bool = False,
        inline: bool = False,
        placement: Any = None,
    ) -> None:
        self.static_argnums = static_argnums
        self.static_argnames = static_argnames
        self.donate_argnums = donate_argnums
        self.donate_argnames = donate_argnames
        self.keep_unused = keep_unused
        self.inline = inline
        # Callable that gives the placement of option ``device`` or ``backend``, or None.
        self.placement = placement


@final
class TracedCall:
    """A function traced at avals: Jaxpr, structure of the results, closed-over values."""

    __slots__ = ("hoisted", "jaxpr", "out_tree", "whole")

    def __init__(self, whole: Jaxpr, out_tree: Any) -> None:
        self.whole = whole
        self.out_tree = out_tree
        # The form in which it becomes an equation: array constants are operands.
        self.jaxpr, self.hoisted = close_jaxpr(whole)

    def has_tracers(self) -> bool:
        """Whether the function closed over values of an enclosing trace."""
        return any([isinstance(h, Tracer) for h in self.hoisted])


_TRACED: WeakIdCache[TracedCall] = WeakIdCache("traced functions")


@final
class Arguments:
    """Flat arguments of one call: leaves, structure, statics, donated leaves."""

    __slots__ = ("donated", "fun", "leaves", "static_key", "tree")

    def __init__(
        self, fun: Any, leaves: list[Any], tree: Any, static_key: Any, donated: tuple[int, ...]
    ) -> None:
        self.fun = fun
        self.leaves = leaves
        self.tree = tree
        self.static_key = static_key
        self.donated = donated


def trace_call(fun: Any, args: Arguments, avals: tuple[Any, ...], cache_on: Any) -> TracedCall:
    """Trace ``args.fun`` at ``avals``; remembered on ``cache_on`` while that function lives."""
    current = state()
    axes = () if current is None else current.axis_env
    key = (avals, args.tree, args.static_key, tracing_key(), axes)
    found = _TRACED.get(cache_on, key)
    if found is not None:
        return found
    start = time.perf_counter()
    name = name_of(fun)
    debug = DebugInfo(name, where_is(fun), argument_names(args))
    flat_fun = FlatFun(args.fun, args.tree, name)
    trees: list[Any] = []

    def flat(*xs: Any) -> list[Any]:
        outs, out_tree = flat_fun.call(*xs)
        trees.append(out_tree)
        return outs

    traced = TracedCall(stage(flat, avals, debug), trees[0])
    if not traced.has_tracers():
        _TRACED.set(cache_on, key, traced)
    if option("log_compiles"):
        logger.warning("traced %s in %.1f ms", name, 1e3 * (time.perf_counter() - start))
    return traced


def argument_names(args: Arguments) -> tuple[str, ...]:
    """Names of the leaves for messages, such as ``args[0]['w']``."""
    tree = args.tree.unflatten(range(len(args.leaves)))
    positional, keywords = tree
    names = [f"args{keystr(path)}" for path, _ in leaves_with_path(positional)]
    return (*names, *[f"kwargs{keystr(path)}" for path, _ in leaves_with_path(keywords)])


def leaf_values(args: Arguments, name: str) -> list[Any]:
    """The leaves as values; names the argument that is none."""
    values: list[Any] = []
    for i, leaf in enumerate(args.leaves):
        if type(leaf) is Array:
            values.append(leaf)
            continue
        try:
            values.append(as_value(leaf))
        except UnsupportedDtypeError as error:
            msg = (
                f"{name}: {argument_names(args)[i]} is {leaf!r} of type {type(leaf).__name__}; "
                "arguments are arrays, numbers, and trees of them"
            )
            raise UnsupportedDtypeError(
                msg, hint="mark it static (static_argnums, static_argnames) if it is a constant"
            ) from error
    return values


@final
class Jitted:
    """What one ``jit(fun)`` remembers; the callable is made by ``make_jit``."""

    __slots__ = ("cache", "fun", "name", "options", "resolve", "runs")

    def __init__(
        self,
        fun: Any,
        options: JitOptions,
        resolve: Callable[[Any, tuple[Any, ...], dict[str, Any]], Arguments],
    ) -> None:
        self.fun = fun
        self.name = name_of(fun)
        self.options = options
        self.resolve = resolve
        self.cache = CallCache()
        self.runs: BoundedCache[Any] = BoundedCache(f"calls of {self.name}", MAX_ENTRIES)

    def miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Everything that the fast path does not do."""
        if option("disable_jit"):
            return self.fun(*args, **kwargs)
        call = self.resolve(self, args, kwargs)
        values = leaf_values(call, self.name)
        current = state()
        if (current is not None and current.trace is not None) or any(
            [isinstance(v, Tracer) for v in values]
        ):
            return self.bind(call, values)
        arrays = [to_array(v) for v in values]
        entry = self.entry(call, arrays)
        out = entry.call(arrays)
        if current is None and not call.static_key and not kwargs and not entry.donated:
            self.remember(args, call, arrays, entry)
        return out

    def bind(self, call: Arguments, values: list[Any]) -> Any:
        """Under a trace: one equation (or its equations, with ``inline``)."""
        traced = trace_call(self.fun, call, tuple([v.aval for v in values]), self.fun)
        operands = [*traced.hoisted, *values]
        if self.options.inline:
            outs = eval_jaxpr(traced.jaxpr, current_trace().process, operands)
        else:
            outs = jit_p.bind(
                *operands, jaxpr=traced.jaxpr, name=self.name, donated=call.donated, inline=False
            )
        return traced.out_tree.unflatten(outs)

    def entry(self, call: Arguments, arrays: list[Array]) -> CallEntry:
        """The executable for these arguments."""
        sigs = tuple([a.sig for a in arrays])
        donated = owned(arrays, call.donated)
        placed = None if self.options.placement is None else self.options.placement()
        key = (call.tree, call.static_key, sigs, donated, tracing_key(), placed)
        key = (*key, option("default_device"))
        found = self.runs.get(key)
        if found is None:
            traced = trace_call(self.fun, call, tuple([s.aval for s in sigs]), self.fun)
            placement, committed = choose_placement(sigs, self.name, placed)
            program = compile_jaxpr(
                traced.whole,
                self.name,
                placement,
                keep_unused=self.options.keep_unused,
                donated=donated,
            )
            found = CallEntry(self.name, program, traced.out_tree, committed, call.donated, sigs)
            self.runs.set(key, found)
        return found

    def remember(
        self, args: tuple[Any, ...], call: Arguments, arrays: list[Array], entry: CallEntry
    ) -> None:
        """Put a signature on the fast path."""
        cache = self.cache
        if len(cache) >= MAX_ENTRIES:
            cache.clear()
        sigs = [a.sig for a in arrays]
        flat = len(args) == len(arrays) and all(
            [hasattr(a, "aval") or not _is_tree(a) for a in args]
        )
        if flat and not cache.trees:
            run = entry.run(star=False)
            if len(args) == 1:
                cache.one[sigs[0]] = run
            cache.many[tuple(sigs)] = run
        else:
            cache.one.clear()
            cache.many.clear()
            treedef = flatten(args)[1]
            cache.trees[treedef, *sigs] = entry.run(star=True)

    def clear(self) -> None:
        """Forget traces and executables."""
        self.cache.clear()
        self.runs.clear()
        _TRACED.discard(self.fun)


def _is_tree(x: Any) -> bool:
    return flatten(x)[1] != leaf_treedef


@final
class CallEntry:
    """One executable of a jitted function, with how to call it."""

    __slots__ = (
        "committed",
        "donated",
        "moved",
        "name",
        "out_tree",
        "program",
        "run_list",
        "sigs",
    )

    def __init__(
        self,
        name: str,
        program: Program,
        out_tree: Any,
        committed: bool,
        donated: tuple[int, ...],
        sigs: Sequence[Any],
    ) -> None:
        self.name = name
        self.program = program
        self.out_tree = out_tree
        self.committed = committed
        self.donated = donated
        self.sigs = sigs
        self.moved = not all_at(sigs, program.placement)
        self.run_list = self.run(star=True)

    def run(self, *, star: bool) -> Callable[..., Any]:
        """A function of positional arrays, or with ``star`` of one sequence of arrays."""
        single = self.out_tree == leaf_treedef
        run = make_run(
            self.program,
            len(self.sigs),
            SINGLE if single else TREE,
            committed=self.committed,
            unflatten=None if single else self.out_tree.unflatten,
            star=star,
        )
        if not self.moved:
            return run
        placement = self.program.placement

        def run_moved(*args: Any) -> Any:
            given = args[0] if star else args
            here = [move(a, placement, committed=a.sig.committed) for a in given]
            return run(here) if star else run(*here)

        return run_moved

    def call(self, arrays: list[Array]) -> Any:
        """Run, with checks that donation and debugging options need."""
        if self.donated:
            check_donation(arrays, self.donated, self.name)
        try:
            out = self.run_list(arrays)
        except XlaRuntimeError as error:
            raise_for(arrays, self.name, error)
            raise
        if self.donated:
            mark_donated(arrays, owned(arrays, self.donated), self.name)
        if wants_checks():
            check_finite(flatten(out)[0], self.name)
        return out


def plain_arguments(jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Arguments of a function without static or donated ones."""
    leaves, tree = flatten((args, kwargs))
    return Arguments(jitted.fun, leaves, tree, (), ())


def make_jit(
    fun: Any,
    options: JitOptions,
    resolve: Callable[[Any, tuple[Any, ...], dict[str, Any]], Arguments] | None = None,
) -> tuple[Callable[..., Any], Jitted]:
    """The compiled form of ``fun`` and its state. ``resolve`` splits static arguments off."""
    jitted = Jitted(fun, options, resolve or plain_arguments)
    return make_cached_call(jitted.miss, jitted.cache, jitted.name), jitted
