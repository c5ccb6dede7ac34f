"""The shortest path of a call: positional tensors of the CPU, a known combination of shapes.

The functions are generated for each number of arguments: loops over three tensors would cost as
much as the guards themselves.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch.autograd import forward_ad

from tracebridge.core.config.state import state
from tracebridge.core.config.values import fast_path_allowed, on_global_change
from tracebridge.core.runtime.backends.clients import on_fork
from tracebridge.core.tree.tree import leaf_treedef
from tracebridge.core.util.caching import BoundedCache, register_cache
from tracebridge.interop.torch_adapter import EXACT, PLAIN_KEYS, keys_of, modes_active
from tracebridge.torch._eager import autograd
from tracebridge.torch._eager.guards import MAX_GUARDS, Check, guard_of
from tracebridge.torch._eager.levels import is_quiet
from tracebridge.torch._eager.visible import function_modes, profiler, run_seen

MAX_ARGUMENTS = 1000
MAX_CALLS = 4096  # of one function; a function that sees more combinations starts over
_FACTORIES: BoundedCache[Any] = BoundedCache("torch entries", 128)


@final
class CallTable:
    """The known combinations of one wrapped function: see ``make_entry``."""

    __slots__ = ("__weakref__", "families", "guarded", "known", "name")

    def __init__(self, name: str) -> None:
        self.name = f"torch calls of {name}"
        self.known: dict[Any, tuple[Any, Any]] = {}
        # The first few of them once more, by the number of tensors (in graphs: by handle): check of
        # such tensors, which of them want gradients (None: no one), then what ``known`` has.
        self.guarded: dict[Any, list[tuple[Check, Any, Any, Any]]] = {}
        # Under torch.func, by the number of tensors: what applies the family, and the family.
        self.families: dict[int, tuple[Callable[..., Any], Any]] = {}
        _TABLES.add(self)
        register_cache(self)

    def add(self, key: Any, call: tuple[Any, Any]) -> None:
        """Remember a call."""
        if len(self.known) >= MAX_CALLS:
            self.clear()
        self.known[key] = call

    def guard(self, which: Any, args: Sequence[torch.Tensor], call: tuple[Any, Any]) -> None:
        """Find a known call of tensors such as ``args`` by one look at them."""
        guarded = self.guarded.setdefault(which, [])
        if len(guarded) < MAX_GUARDS:
            check = guard_of(args)
            wanted = tuple([x.requires_grad for x in args])
            if check is not None:
                guarded.append((check, wanted if any(wanted) else None, *call))

    def clear(self) -> None:
        """Forget all calls."""
        self.known.clear()
        for guarded in list(self.guarded.values()):
            guarded.clear()

    def __len__(self) -> int:
        return len(self.known)


_TABLES: weakref.WeakSet[CallTable] = weakref.WeakSet()

MAX_STRUCTURES = 256  # of the arguments of one function
MISSED: Any = object()


@final
class TreeCalls:
    """The known combinations of calls with keywords, trees or static arguments, by structure."""

    __slots__ = ("entries", "name", "tables")

    def __init__(self, name: str) -> None:
        self.name = name
        # structure -> the function that takes the leaves, and the table that it looks in
        self.entries: dict[Any, Callable[..., Any]] = {}
        self.tables: dict[Any, CallTable] = {}

    def table(self, structure: Any, n: int) -> CallTable:
        """The table for calls of ``n`` tensors in a structure."""
        table = self.tables.get(structure)
        if table is None:
            if len(self.tables) >= MAX_STRUCTURES:
                self.entries.clear()
                self.tables.clear()
            table = self.tables[structure] = CallTable(self.name)
            self.entries[structure] = make_entry(n, table, _missed)
        return table


def _missed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del args, kwargs
    return MISSED


def may_remember() -> bool:
    """Whether the calls of this thread are those that tables may know."""
    return state() is None and fast_path_allowed()


def clear_tables() -> None:
    """Empty the shortest path of every wrapped function."""
    for table in list(_TABLES):
        table.clear()


on_fork(clear_tables)


@on_global_change
def _option_changed(name: str, value: Any) -> None:
    del name, value
    clear_tables()


def make_entry(
    n: int, table: CallTable, general: Callable[[tuple[Any, ...], dict[str, Any]], Any]
) -> Callable[..., Any]:
    """``entry(*args)`` that finds its executable in ``table``, else does ``general(args, {})``.

    The table maps (dtype, shape, dtype, shape, ...) to the compiled family and the function that
    makes the tree of results of their list (None: there is one result, and no tree).
    """
    if not 0 < n <= MAX_ARGUMENTS:
        return lambda *args: general(args, {})
    factory = _FACTORIES.get(n)
    if factory is None:
        factory = _compile_factory(n)
        _FACTORIES.set(n, factory)
    return factory(table, general)


def _in_levels(
    anywhere: Callable[..., Sequence[torch.Tensor]], family: Any, args: tuple[torch.Tensor, ...]
) -> Any:
    """The results of a family under torch.func, in the structure that the function gave them."""
    outs = anywhere(*args)
    tree = family.only_tree
    if tree is leaf_treedef:
        return outs[0]
    return (family.tree_for(args, len(outs)) if tree is None else tree).unflatten(outs)


_SCOPE: dict[str, Any] = {
    "EXACT": EXACT,
    "PLAIN_KEYS": PLAIN_KEYS,
    "keys_of": keys_of,
    "transforms_active": autograd.transforms_active,
    "modes_active": modes_active,
    "function_modes": function_modes,
    "is_quiet": is_quiet,
    "in_levels": _in_levels,
    "profiler": profiler,
    "run_seen": run_seen,
    "forward_ad": forward_ad,
    "grad_enabled": torch.is_grad_enabled,
    "state": state,
    "apply_node": autograd.apply_node,
}


def _compile_factory(n: int) -> Any:
    names = [f"a{i}" for i in range(n)]
    tensors = " and ".join([f"type({a}) in EXACT" for a in names])
    key = ", ".join([f"{a}.dtype, {a}.shape" for a in names])
    # Before anything else is asked: sparse tensors have no layout in memory.
    plain = " and ".join([f"keys_of({a}).raw_repr() in PLAIN_KEYS" for a in names])
    dense = " and ".join([f"{a}.is_contiguous()" for a in names])
    nested = " or ".join([f"{a}.is_nested" for a in names])
    wants = " or ".join([f"{a}.requires_grad" for a in names])
    arguments = ", ".join(names)
    mask = ", ".join([f"{a}.requires_grad" for a in names])
    source = f"""
def factory(table, general):
    calls, guard = table.known, table.guard
    guarded = table.guarded.setdefault({n}, [])
    families = table.families
    def entry({arguments}):
        if transforms_active():
            found = families.get({n})
            if found is not None and {tensors} and is_quiet() and not ({nested}):
                return in_levels(*found, ({arguments},))
        elif (
            not modes_active() and not function_modes()
            and forward_ad._current_level < 0 and state() is None
            and {tensors} and not ({nested})
        ):
            for check, wanted, compiled, unflatten in guarded:
                if check({arguments}):
                    if wanted is not None and grad_enabled():
                        outs = apply_node(compiled, wanted, ({arguments},))
                    elif profiler._is_profiler_enabled:
                        outs = run_seen(compiled.family.name, compiled.run, ({arguments},))
                    else:
                        outs = compiled.run(({arguments},))
                    return outs[0] if unflatten is None else unflatten(outs)
            if {plain}:
                found = calls.get(({key},))
                if found is not None and {dense}:
                    guard({n}, ({arguments},), found)
                    compiled, unflatten = found
                    if ({wants}) and grad_enabled():
                        outs = apply_node(compiled, ({mask},), ({arguments},))
                    elif profiler._is_profiler_enabled:
                        outs = run_seen(compiled.family.name, compiled.run, ({arguments},))
                    else:
                        outs = compiled.run(({arguments},))
                    return outs[0] if unflatten is None else unflatten(outs)
        return general(({arguments},), {{}})
    return entry
"""
    scope = dict(_SCOPE)
    exec(compile(source, "<tracebridge call>", "exec"), scope)  # noqa: S102 (the source is made of an integer)
    return scope["factory"]
