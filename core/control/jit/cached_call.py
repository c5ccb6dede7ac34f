"""The cached call of jit: what one call of a jitted function goes through.

A call takes the first of these paths that has its executable. ``make_cached_call`` of
``core/runtime/calls/fastpath.py`` looks into the tables of the first column; the rest is ``miss``::

    f(*args, **kwargs)
     |
     |-- no keywords, and the thread has no option, mesh or axis of its own
     |     |-- trees, if not empty ...... [treedef, *signatures]     -> run(leaves)
     |     |-- else, one argument: one .. [signature]               -> execute, wrap one array
     |     `-- else: many .............. [(*signatures)]            -> run(*arrays)
     |
     |-- keywords, or static arguments (which always come this way)
     |     |-- keyed_trees, if not empty  [(treedef, statics), *signatures] -> run(leaves)
     |     `-- else: keyed .............. [(names, statics), *signatures]   -> run(arrays)
     |
     `-- miss: no signature of these in the table
           |-- converted .. numbers and ndarrays become arrays, then the tables above
           |-- scoped ..... arrays, where blocks have changed options: [(options, *signatures)]
           |-- disabled ... disable_jit: the Python function
           |-- references . a mutable reference among the arguments or closed over
           |-- traced ..... a Tracer among the arguments: one equation of the outer program
           `-- entry ...... the program of these signatures, traced and compiled if there is none
                 |-- checked: an option or a mesh in force has to be looked at by every call
                 `-- else run it and remember it in the table where the next call will look

One entry for a tree moves all calls to the tables for trees: a tree and an array are told apart by
``flatten`` alone, and to look into both tables would cost the commonest call its speed. An option
that changes for all threads empties the tables (``on_global_change``). ``f.cache_info()`` has the
signatures of the tables and the calls of ``miss``; see ``core/control/calls/cache_info.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.config.state import SCOPES, State, settled_state, state
from tracebridge.core.config.values import fast_path_allowed, option
from tracebridge.core.control.calls.cache_info import WHY, CacheInfo
from tracebridge.core.control.calls.entry import CallEntry
from tracebridge.core.control.calls.traced_call import Arguments, leaf_values
from tracebridge.core.control.jit.contents import MAX_KINDS, call_with_contents
from tracebridge.core.control.jit.jit import JitOptions, JitPrograms
from tracebridge.core.control.jit.rerun import explained
from tracebridge.core.control.refs.ref import has_refs
from tracebridge.core.control.refs.views import show_views
from tracebridge.core.ir.float0 import has_float0
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.user_type import CLASSES, is_mutable, is_user_type
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.lent import Room, give_back, run_on_loan
from tracebridge.core.runtime.calls.dispatch import raise_for, to_array
from tracebridge.core.runtime.calls.fastpath import (
    MAX_ENTRIES,
    PLAIN_KEYS,
    CallCache,
    KeyFunctions,
    comparison_error,
    make_cached_call,
    make_keyed_call,
)
from tracebridge.core.runtime.calls.host_arguments import converted, is_convertible
from tracebridge.core.tree.tree import flatten, leaf_treedef
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


@final
class Jitted(JitPrograms):
    """What one ``jit(fun)`` remembers; the callable is made by ``make_jit``."""

    __slots__ = ("cache", "keys", "kinds")

    def __init__(
        self,
        fun: Any,
        options: JitOptions,
        resolve: Callable[[Any, tuple[Any, ...], dict[str, Any]], Arguments],
        keys: KeyFunctions = PLAIN_KEYS,
    ) -> None:
        super().__init__(fun, options, resolve)
        self.keys = keys
        self.cache = CallCache()
        # Of calls with objects that change, the functions of their contents.
        self.kinds: BoundedCache[Any] = BoundedCache(f"contents of {self.name}", MAX_KINDS)

    def miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Everything that the fast path does not do."""
        cache, current = self.cache, state()
        if (cache.keyed or cache.keyed_trees) if current is None else cache.scoped:
            taken: list[Room] = []
            if current is None:
                why, entry_and_arguments = "converted", self.find_converted(args, kwargs, taken)
            else:
                why, entry_and_arguments = "checked", self.find_scoped(current, args, kwargs)
            if entry_and_arguments is not None:
                run, arrays = entry_and_arguments
                self.counts.left(why)
                try:
                    return run_on_loan(run, arrays, taken, star=True)
                except XlaRuntimeError as error:
                    raise_for(arrays, self.name, error)
                    raise
            give_back(taken)
        if option("disable_jit"):
            self.counts.left("disabled")
            return self.fun(*args, **kwargs)
        call = self.resolve(self, args, kwargs)
        if has_float0(call.leaves):
            call.hide_float0()
        if CLASSES and any(map(is_mutable, call.leaves)):
            return call_with_contents(lambda fun: make_jit(fun, JitOptions())[0], self.kinds, call)
        if has_refs(call.leaves):
            show_views(call)
            self.counts.left("references")
            return self.call_with_refs(call)
        values = leaf_values(call, self.name)
        current = settled_state()
        if (current is not None and current.trace is not None) or any(
            [isinstance(v, Tracer) for v in values]
        ):
            self.counts.left("traced")
            return self.bind(call, values)
        if self.high or any([is_user_type(v.aval) for v in values]):
            return self.bind(call, values)
        arrays = [to_array(v) for v in values]
        entry = self.entry(call, arrays)
        if entry is None and self.high:
            return self.bind(call, values)
        if entry is None:
            self.counts.left("references")
            return self.call_with_refs(call)
        if fast_path_allowed():
            if current is None:
                out = entry.call(arrays)
                self.remember(args, kwargs, call, arrays, entry)
                return out
            self.remember_scoped(current, args, kwargs, call, entry)
        self.counts.left("checked")
        run = functools.partial(entry.call, arrays)
        return explained(run, call, arrays, entry.program.lowered.effects)

    def find_converted(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], taken: list[Room]
    ) -> tuple[Callable[..., Any], list[Any]] | None:
        """The fast path for calls with Python numbers or ndarrays, and their arrays.

        ``taken`` as in ``operand``.
        """
        cache = self.cache
        try:
            if cache.keyed_trees:
                table = cache.keyed_trees
                arguments, key = self.keys.tree(args, kwargs)
            else:
                table = cache.keyed
                arguments, key = self.keys.flat(args, kwargs)
            flat = [x if type(x) is Array else converted(x, taken) for x in arguments]
            whole = (key, *[leaf._sig for leaf in flat])
        except (KeyError, AttributeError, TypeError):
            return None
        try:
            return table[whole], flat
        except (KeyError, TypeError):
            return None
        except Exception as error:
            raise comparison_error(self.name, error, key) from error

    def find_scoped(
        self, current: State, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """The fast path for calls with arrays in blocks that change options and nothing else."""
        if kwargs or not _has_only_options(current):
            return None
        try:
            # None where an object could forward ``sig`` to an array of its own.
            sigs = [a._sig if type(a) is Array else None for a in args]
            run = self.cache.scoped[(current.overrides, *sigs)]
        except (KeyError, AttributeError, TypeError):
            return None
        return run, args

    def remember_scoped(
        self,
        current: State,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: Arguments,
        entry: CallEntry,
    ) -> None:
        """Put a signature on the fast path of the options in force."""
        if kwargs or call.static_key or not _has_only_options(current):
            return
        if any([type(x) is not Array for x in args]):
            return
        if len(self.cache) >= MAX_ENTRIES:
            self.cache.clear()
        self.cache.scoped[(current.overrides, *[x._sig for x in args])] = entry.run(star=True)

    def remember(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: Arguments,
        arrays: list[Array],
        entry: CallEntry,
    ) -> None:
        """Put a signature on the fast path."""
        cache = self.cache
        if len(cache) >= MAX_ENTRIES:
            cache.clear()
        sigs = [a._sig for a in arrays]
        flat = len(args) == len(arrays) and all(
            [issubclass(type(a), EngineValue) or not _is_tree(a) for a in args]
        )
        flat = flat and not cache.trees
        given = [x for x in call.leaves if type(x) is not Array]
        is_found = all(map(is_convertible, given))
        if kwargs or call.static_key or not is_found:
            self.remember_keyed(args, kwargs, call, arrays, entry)
        elif flat:
            run = entry.run(star=False)
            if len(args) == 1:
                cache.one[sigs[0]] = entry.one_to_one(run)
            cache.many[tuple(sigs)] = run
        else:
            cache.one.clear()
            cache.many.clear()
            treedef = flatten(args)[1]
            cache.trees[treedef, *sigs] = entry.run(star=True)

    def remember_keyed(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: Arguments,
        arrays: list[Array],
        entry: CallEntry,
    ) -> None:
        """The same for calls with keywords, static arguments, numbers or ndarrays."""
        cache = self.cache
        run = entry.run(star=True)
        arguments, key = self.keys.flat(args, kwargs)
        if (
            cache.keyed_trees
            or len(arguments) != len(arrays)
            or any([_is_tree(x) for x in arguments])
        ):
            cache.keyed.clear()
            cache.keyed_trees[(call.tree, call.static_key), *[a._sig for a in arrays]] = run
            return
        # Leaves have the keywords in sorted order, a call as they were written.
        names = list(call.tree.children()[1].node_data()[1])
        written = [name for name in kwargs if name in names]
        n = len(arguments) - len(names)
        places = [*range(n), *[n + names.index(name) for name in written]]
        sigs = [arrays[i]._sig for i in places]
        if places != list(range(len(places))):
            run = _reordered(run, places)
        cache.keyed[key, *sigs] = run

    def cache_info(self) -> CacheInfo:
        """Which paths calls take, how often the function was compiled, and why."""
        counts = self.counts
        return CacheInfo(
            self.name,
            self.cache.signatures(),
            {path: counts.slow.get(path, 0) for path in WHY},
            counts.traces,
            counts.compilations,
            len(self.runs),
            self.why_missed(),
            WHY[list(counts.slow)[-1]] if counts.slow else None,
        )

    def clear(self) -> None:
        """Forget traces and executables."""
        self.cache.clear()
        self.kinds.clear()
        super().clear()


def _reordered(run: Callable[..., Any], places: Sequence[int]) -> Callable[..., Any]:
    """``run`` of arrays given in the order ``places``."""
    order = [places.index(i) for i in range(len(places))]

    def run_reordered(arrays: Sequence[Any]) -> Any:
        return run([arrays[i] for i in order])

    return run_reordered


def _has_only_options(current: State) -> bool:
    """Whether blocks have changed options, and neither trace nor mesh nor named axes."""
    only = current.trace is None and current.mesh is None and not current.axis_env
    return only and current.seen == SCOPES.lost


def _is_tree(x: Value) -> bool:
    return flatten(x)[1] != leaf_treedef


def plain_arguments(jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Arguments of a function without static or donated ones."""
    leaves, tree = flatten((args, kwargs))
    return Arguments(jitted.fun, leaves, tree, parameters=jitted.parameters)


def make_jit(
    fun: Any,
    options: JitOptions,
    resolve: Callable[[Any, tuple[Any, ...], dict[str, Any]], Arguments] | None = None,
    keys: KeyFunctions | None = None,
) -> tuple[Callable[..., Any], Jitted]:
    """The compiled form of ``fun`` and its state.

    ``resolve`` finds static and donated arguments. ``keys`` is needed where arguments are static;
    its function ``tree`` gives the leaves and ``(tree, static_key)`` that ``resolve`` gives.
    """
    jitted = Jitted(fun, options, resolve or plain_arguments, keys or PLAIN_KEYS)
    if keys is not None:
        return make_keyed_call(jitted.miss, jitted.cache, jitted.name, keys), jitted
    left = jitted.counts.left
    return make_cached_call(jitted.miss, jitted.cache, jitted.name, left), jitted
