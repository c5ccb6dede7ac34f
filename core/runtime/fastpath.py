"""The cached call: one flat function from Python arguments to results.

Written for its number of bytecodes (a ``try`` costs nothing unless it catches): a hit does one ContextVar read, one dict lookup on interned
signatures and the execution. Everything else is in ``miss``. The measurements behind each line
are in docs/decisions/0003-dispatch-in-python.md; benchmarks guard it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, final

from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.config.scopes import on_global_change, state
from tracebridge.core.runtime.array import Array
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.runtime.backends import on_fork
from tracebridge.core.runtime.dispatch import raise_for
from tracebridge.core.tree.tree import flatten

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class CallCache:
    """Executables of one jitted function by signature.

    ``one``: ``(execute, handlers, signature of the result, run)`` by the signature of the only
    argument; ``execute`` is None unless the result is one array. ``many``: by the tuple of
    signatures of positional arrays. ``trees``: by ``(treedef, *signatures)`` of all arguments, if an argument
    is a tree. ``keyed``: by ``(treedef of args and kwargs, key of statics, *signatures)``, for
    calls with keywords or static arguments.
    """

    __slots__ = ("__weakref__", "keyed", "many", "one", "trees")

    def __init__(self) -> None:
        self.one: dict[Any, Any] = {}
        self.many: dict[Any, Any] = {}
        self.trees: dict[Any, Any] = {}
        self.keyed: dict[Any, Any] = {}
        _ALL.add(self)

    def clear(self) -> None:
        """Forget all executables of the fast path."""
        self.one.clear()
        self.many.clear()
        self.trees.clear()
        self.keyed.clear()

    def __len__(self) -> int:
        return len(self.one) + len(self.many) + len(self.trees) + len(self.keyed)


_ALL: weakref.WeakSet[CallCache] = weakref.WeakSet()
MAX_ENTRIES = 4096  # of one function; a function that sees more signatures starts over


def make_cached_call(
    miss: Callable[[tuple[Any, ...], dict[str, Any]], Any], cache: CallCache, name: str
) -> Callable[..., Any]:
    """``call(*args, **kwargs)`` that tries the fast path and else calls ``miss(args, kwargs)``."""
    one, many, trees = cache.one, cache.many, cache.trees
    keyed = make_keyed_call(miss, cache, name, _key_of_keywords)
    new = object.__new__
    array_class = Array

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if kwargs or state() is not None:
                return keyed(*args, **kwargs)
            if trees:
                try:
                    flat, treedef = flatten(args)
                    run = trees[treedef, *[leaf.sig for leaf in flat]]
                except (KeyError, AttributeError, TypeError):
                    run = None
                # Outside the handler, so that errors of the slow path have no KeyError as context.
                if run is None:
                    return miss(args, kwargs)
                try:
                    return run(flat)
                except XlaRuntimeError as error:
                    raise_for(flat, name, error)
                    raise
            try:
                if len(args) == 1:
                    execute, handlers, sig, run = one[args[0].sig]
                else:
                    run = many[tuple([a.sig for a in args])]
                    execute = None
            except (KeyError, AttributeError, TypeError):
                run = None
            if run is None:
                return miss(args, kwargs)
            try:
                if execute is None:
                    return run(*args)
                # One array in, one array out: the commonest call is worth its lines.
                (buf,) = execute([args[0].buf]).consume_with_handlers(handlers)
            except XlaRuntimeError as error:
                raise_for(args, name, error)
                raise
            result = new(array_class)
            result.sig = sig
            result.buf = buf
            return result
        except Exception as error:
            hide_internal_frames(error)
            raise

    return call


def _key_of_keywords(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
    flat, treedef = flatten((args, kwargs))
    return flat, (treedef, ())


def make_keyed_call(
    miss: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    cache: CallCache,
    name: str,
    key_of: Callable[[tuple[Any, ...], dict[str, Any]], tuple[list[Any], Any]],
) -> Callable[..., Any]:
    """The cached call of functions with static arguments, or of calls with keywords.

    ``key_of(args, kwargs)`` gives the flat dynamic arguments and a hashable key of the rest.
    """
    keyed = cache.keyed

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if state() is not None:
                return miss(args, kwargs)
            try:
                flat, key = key_of(args, kwargs)
                run = keyed[key, *[leaf.sig for leaf in flat]]
            except (KeyError, AttributeError, TypeError):
                run, flat = None, args
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

    return call


def clear_fast_paths() -> None:
    """Empty the fast path of every jitted function."""
    for cache in list(_ALL):
        cache.clear()


on_fork(clear_fast_paths)


@on_global_change
def _option_changed(name: str, value: Any) -> None:
    del name, value
    clear_fast_paths()
