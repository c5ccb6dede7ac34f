"""jit: compiled functions, and switches for all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tracebridge._api.argnums import check_callable, check_disjoint, resolve
from tracebridge._api.statics import Splitter
from tracebridge.core.control.jit import Arguments, Jitted, JitOptions, make_jit
from tracebridge.core.runtime.fastpath import clear_fast_paths
from tracebridge.core.tree.tree import flatten
from tracebridge.core.util.caching import clear_all


class _Unspecified:
    """Type of the default of the sharding arguments, for which None is a value."""

    def __repr__(self) -> str:
        return "<unspecified>"


UNSPECIFIED = _Unspecified()


def jit(
    fun: Any = UNSPECIFIED,
    /,
    *,
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    check_callable("jit", fun)
    static = resolve("jit", fun, "static", static_argnums, static_argnames)
    donated = resolve("jit", fun, "donate", donate_argnums, donate_argnames)
    check_disjoint("jit", static, donated)
    options = JitOptions(
        *static, *donated, keep_unused=keep_unused, inline=inline
    )
    resolver = None
    if any(static) or any(donated):
        resolver = _resolver(fun, options)
    call, jitted = make_jit(fun, options, resolver)
    functools.update_wrapper(call, fun)
    return call


def _resolver(fun: Any, options: JitOptions) -> Callable[..., Arguments]:
    splitter = Splitter("jit", fun, options.static_argnums, options.static_argnames)

    def resolve_call(jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        del jitted
        bound, dynamic, rest, key = splitter.split(args, kwargs)
        leaves, tree = flatten((dynamic, rest))
        return Arguments(bound, leaves, tree, key, ())

    return resolve_call


def clear_caches() -> None:
    """Forget all traces and compiled programs.

    >>> import tracebridge as tb
    >>> tb.clear_caches()
    """
    clear_all()
    clear_fast_paths()
