"""The cached call: one flat function from Python arguments to results.

Written for its number of bytecodes (a ``try`` costs nothing unless it catches): a hit does one
ContextVar read, one dict lookup on interned signatures and the execution. Everything else is in
``miss``. The measurements behind each line are in docs/decisions/0003-dispatch-in-python.md;
benchmarks guard it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from tracebridge.core._jaxlib.xla import XlaRuntimeError, collect_garbage
from tracebridge.core.config.state import state
from tracebridge.core.config.values import on_global_change
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.filtering import api_boundary, hide_internal_frames
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.backends.clients import on_fork
from tracebridge.core.runtime.calls.dispatch import raise_for
from tracebridge.core.runtime.calls.host_arguments import kinds_of, make_host_run
from tracebridge.core.tree.registry import on_forwarding_node
from tracebridge.core.tree.tree import flatten
from tracebridge.core.util.caching import register_cache

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    KeyFunction = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Sequence[Any], Any]]


# Libraries tell transformed functions from others by this name among the globals of their code.
_RECOGNISED_BY = api_boundary


@final
class CallCache:
    """Executables of one jitted function by signature.

    ``one``: ``(execute, handlers, signature of the result, run)`` by the signature of the only
    argument; ``execute`` is None unless the result is one array. ``many``: by the tuple of
    signatures of positional arrays. ``hosts``: by the kinds of positional arguments some of which
    are numbers or ndarrays, for programs that ``many`` has as well. ``trees``: by ``(treedef,
    *signatures)`` of all arguments, if an argument is a tree; ``tree_hosts`` is to it what
    ``hosts`` is to ``many``. ``keyed`` and ``keyed_trees``: by
    ``(key, *signatures)``, for calls with keywords, static arguments, Python numbers or ndarrays;
    see ``KeyFunctions``. The tables for trees take over from the others once they have an entry.
    ``scoped``: by ``(options, *signatures)`` of positional arrays, where blocks have changed
    options of the thread.

    The calls that find their executable here are not counted: a counter in C would cost the
    commonest of them 1.5 %.
    """

    __slots__ = (
        "__weakref__",
        "hosts",
        "keyed",
        "keyed_trees",
        "many",
        "one",
        "scoped",
        "tree_hosts",
        "trees",
    )

    def __init__(self) -> None:
        self.one: dict[Any, Any] = {}
        self.many: dict[Any, Any] = {}
        self.hosts: dict[Any, Any] = {}
        self.trees: dict[Any, Any] = {}
        self.tree_hosts: dict[Any, Any] = {}
        self.keyed: dict[Any, Any] = {}
        self.keyed_trees: dict[Any, Any] = {}
        self.scoped: dict[Any, Any] = {}
        _ALL.add(self)
        if _FORWARDING[0]:
            self.trees[_NEVER] = self.keyed_trees[_NEVER] = None

    def clear(self) -> None:
        """Forget all executables of the fast path."""
        self.one.clear()
        self.many.clear()
        self.hosts.clear()
        self.trees.clear()
        self.tree_hosts.clear()
        self.keyed.clear()
        self.keyed_trees.clear()
        self.scoped.clear()
        if _FORWARDING[0]:
            self.trees[_NEVER] = self.keyed_trees[_NEVER] = None

    def signatures(self) -> dict[str, int]:
        """How many signatures each path knows."""
        one, never = len(self.one), _NEVER in self.trees
        return {
            "one": one,
            "many": len(self.many) - one,
            "trees": len(self.trees) - never,
            "keyed": len(self.keyed) + len(self.keyed_trees) - never,
        }

    def __len__(self) -> int:
        tables = (self.one, self.many, self.trees, self.keyed, self.keyed_trees, self.scoped)
        return sum([len(table) for table in (*tables, self.hosts, self.tree_hosts)])


_ALL: weakref.WeakSet[CallCache] = weakref.WeakSet()
# Whether some trees look like the array inside of them, so that asking for signatures does not
# tell trees from arrays: then all calls go by the tables for trees, which this key fills.
_FORWARDING = [False]
_NEVER = "no call has this key"
# Code of the functions that ``make_keyed_call`` makes: all share it.
_KEYED_CODES: set[Any] = set()
MAX_ENTRIES = 4096  # of one function; a function that sees more signatures starts over


Miss = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def _plain(miss: Miss) -> Callable[..., Any]:
    return lambda args, kwargs, *_: miss(args, kwargs)


def _converting(
    miss: Miss, cache: CallCache, name: str, left: Callable[[str], None]
) -> Callable[..., Any]:
    """``miss``, unless the tables have a program for numbers and ndarrays as arrays."""
    many, trees, hosts, tree_hosts = cache.many, cache.trees, cache.hosts, cache.tree_hosts

    def other(
        args: tuple[Any, ...], kwargs: dict[str, Any], flat: Any = None, treedef: object = None
    ) -> Any:
        if flat:
            run = make_host_run(flat, trees, left, name, treedef)
            if run is not None:
                if len(tree_hosts) >= MAX_ENTRIES:
                    tree_hosts.clear()
                tree_hosts[treedef, *kinds_of(flat)] = run
                return run(flat)
        elif many:
            run = make_host_run(args, many, left, name)
            if run is not None:
                hosts[kinds_of(args)] = run
                return run(args)
        return miss(args, kwargs)

    return other


def make_cached_call(
    miss: Miss, cache: CallCache, name: str, left: Callable[[str], None] | None = None
) -> Callable[..., Any]:
    """``call(*args, **kwargs)`` that tries the fast path and else calls ``miss(args, kwargs)``.

    With ``left``, numbers and ndarrays become arrays on the way; ``left("converted")`` notes that.
    """
    one, many, trees, hosts = cache.one, cache.many, cache.trees, cache.hosts
    tree_hosts, new, collect, kind = cache.tree_hosts, object.__new__, collect_garbage, Array
    keyed = make_keyed_call(miss, cache, name, PLAIN_KEYS)
    other = _converting(miss, cache, name, left) if left else _plain(miss)

    def call(*args: Any, **kwargs: object) -> Any:
        try:
            if kwargs or state() is not None:
                return keyed(*args, **kwargs)
            if trees:
                flat: Any = None
                treedef = None
                try:
                    flat, treedef = flatten(args)
                    run = tree_hosts.get((treedef, *kinds_of(flat))) if tree_hosts else None
                    run = run or trees[treedef, *[leaf._sig for leaf in flat]]
                except (KeyError, AttributeError, TypeError):
                    run = None
                if run is None:  # outside the handler: else errors have a KeyError as context
                    return other(args, kwargs, flat, treedef)
                try:
                    return run(flat)
                except XlaRuntimeError as error:
                    raise_for(flat, name, error)
                    raise
            if hosts and (found := hosts.get(kinds_of(args))):
                return found(args)
            try:
                if len(args) == 1:
                    execute, handlers, sig, run = one[args[0]._sig]
                elif len(args) == 2:
                    run = many[args[0]._sig, args[1]._sig]
                    execute = handlers = sig = None
                else:
                    run = many[tuple([a._sig for a in args])]
                    execute = handlers = sig = None
            except (KeyError, AttributeError, TypeError):
                execute = handlers = sig = run = None
            if run is None:
                return other(args, kwargs)
            try:
                if execute is None:
                    return run(*args)
                (buf,) = execute([args[0]._buf]).consume_with_handlers(handlers)
                collect()
            except XlaRuntimeError as error:
                raise_for(args, name, error)
                raise
        except Exception as error:
            hide_internal_frames(error)
            raise
        result = new(kind)
        result._sig = sig  # pyright: ignore[reportAttributeAccessIssue] - it comes with `execute`
        result._buf = buf
        return result

    return call


@final
class KeyFunctions:
    """How calls with keywords or static arguments become keys.

    ``flat(args, kwargs)``: the dynamic arguments as they are given, and a hashable key of the
    rest; for calls in which no dynamic argument is a tree. ``tree(args, kwargs)``: the leaves of
    the dynamic arguments, and a pair of the structure of ``(args, kwargs)`` and of a key.
    """

    __slots__ = ("flat", "tree")

    def __init__(self, flat: KeyFunction, tree: KeyFunction) -> None:
        self.flat = flat
        self.tree = tree


def _flat_key(args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Sequence[Any], Any]:
    return [*args, *kwargs.values()], (len(args), *kwargs)


def _tree_key(args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Sequence[Any], Any]:
    flat, treedef = flatten((args, kwargs))
    return flat, (treedef, ())


PLAIN_KEYS = KeyFunctions(_flat_key, _tree_key)
"""Those of functions without static arguments."""


def make_keyed_call(
    miss: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    cache: CallCache,
    name: str,
    keys: KeyFunctions,
) -> Callable[..., Any]:
    """The cached call of functions with static arguments, or of calls with keywords."""
    keyed, keyed_trees = cache.keyed, cache.keyed_trees
    flat_key, tree_key = keys.flat, keys.tree

    def call(*args: object, **kwargs: object) -> Any:
        try:
            if state() is not None:
                return miss(args, kwargs)
            try:
                if keyed_trees:
                    flat, key = tree_key(args, kwargs)
                    run = keyed_trees[key, *[leaf._sig for leaf in flat]]
                else:
                    flat, key = flat_key(args, kwargs)
                    run = keyed[key, *[leaf._sig for leaf in flat]]
            except (KeyError, AttributeError, TypeError, SystemError):
                # SystemError: a tree that is too deep, which the other path explains.
                run, flat = None, args
            except Exception as error:
                raise comparison_error(name, error, flat_key(args, kwargs)[1]) from error
            if run is None:
                return miss(args, kwargs)
            try:
                return run(flat)
            except XlaRuntimeError as error:
                raise_for(flat, name, error)
                raise
        except Exception as error:
            hide_internal_frames(error)
            raise

    _KEYED_CODES.add(call.__code__)
    return call


def has_statics(fun: object) -> bool:
    """Whether ``fun`` is a jitted function with static arguments (and no wrapper around one)."""
    return getattr(fun, "__code__", None) in _KEYED_CODES


def comparison_error(name: str, error: Exception, key: object) -> Exception:
    """What to raise where the lookup of ``key`` raised: it compares static arguments."""
    try:
        hash(key)
    except Exception as in_hash:  # noqa: BLE001 - whatever the user's __hash__ raises
        return in_hash
    return ArgumentValueError(
        call=f"jit({name})",
        got=f"static arguments whose comparison raises {type(error).__name__}: {error}",
        expected="an __eq__ that returns a bool for all values of the type",
    )


def clear_fast_paths() -> None:
    """Empty the fast path of every jitted function."""
    for cache in list(_ALL):
        cache.clear()


@final
class _FastPaths:
    """All fast paths, as the registry of caches sees them."""

    __slots__ = ("__weakref__",)
    name = "fast paths of jitted functions"

    def clear(self) -> None:
        """Forget everything."""
        clear_fast_paths()

    def __len__(self) -> int:
        return sum([len(cache) for cache in list(_ALL)])


_REGISTERED = _FastPaths()  # the registry holds it weakly
register_cache(_REGISTERED)
on_fork(clear_fast_paths)


@on_forwarding_node
def _by_trees() -> None:
    if not _FORWARDING[0]:
        _FORWARDING[0] = True
        clear_fast_paths()


@on_global_change
def _option_changed(name: str, value: object) -> None:
    del name, value
    clear_fast_paths()
