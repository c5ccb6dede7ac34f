"""Values of options: global ones, and those in force in the current thread.

A global change (`update`) bumps `global_epoch()` and calls the listeners, so that fast-path
caches can be dropped instead of reading options at each call.
Thread-safety: reads are single dict or ContextVar operations; `update` takes a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

from tracebridge.core.config.options import OPTIONS, TRACING_OPTIONS, Option
from tracebridge.core.config.state import (
    MAX_REMEMBERED,
    NO_MESH,
    SCOPES,
    EnteredMesh,
    Overrides,
    settled_state,
    state,
)
from tracebridge.core.errors.config_errors import UnknownOptionError
from tracebridge.core.util.caching import register_table

_GLOBAL_MESH: list[Any] = [None]
_lock = threading.RLock()
_global: dict[str, Any] = {name: row.initial() for name, row in OPTIONS.items()}
_updated: set[str] = set()  # options that the program has chosen
_listeners: list[Callable[[str, Any], None]] = []
_checks: list[Callable[[str, Any], None]] = []
_epoch = 0
_effective: dict[Overrides, tuple[Any, ...]] = register_table("options in force", {})


def _compute_global() -> tuple[tuple[Any, ...], bool]:
    key = (*[_global[name] for name in TRACING_OPTIONS], _GLOBAL_MESH[0])
    fast = not any(
        _global[name] != row.default for name, row in OPTIONS.items() if row.leaves_fast_path
    )
    return key, fast


_global_key, _global_fast = _compute_global()


def lookup(name: str) -> Option:
    """Return the row of the option `name`.

    Raises:
        UnknownOptionError: if there is none.
    """
    found = OPTIONS.get(name)
    if found is None:
        raise UnknownOptionError(
            f"there is no option {name!r}", hint=f"the options are {', '.join(OPTIONS)}"
        )
    return found


def option(name: str) -> Any:
    """Return the value in force in this thread."""
    # Here and below: `settled_state` is not called where it would give what `state` does.
    current = state()
    if current is None:
        return _global[name]
    if current.seen != SCOPES.lost:
        current = settled_state()
    return current.values[name] if current is not None and name in current.values else _global[name]


def global_value(name: str) -> Any:
    """Return the global value, without the changes of this thread."""
    return _global[name]


def update(name: str, value: object) -> None:
    """Change an option for all threads.

    Raises:
        UnknownOptionError, OptionValueError: if the name or the value is wrong.
        OptionFrozenError: if it is too late for this option.
    """
    global _epoch, _global_key, _global_fast  # noqa: PLW0603 - the global values live in this module
    checked = lookup(name).check(value)
    for refuse in _checks:
        refuse(name, checked)
    with _lock:
        _global[name] = checked
        _updated.add(name)
        _epoch += 1
        _effective.clear()
        _global_key, _global_fast = _compute_global()
        listeners = tuple(_listeners)
    for listener in listeners:
        listener(name, checked)


def read_environment_again(name: str) -> Any:
    """Return the global value of an option that does not affect tracing, at its first use.

    Unless `update` has chosen one it follows the environment as it is now, not as it was when the
    package was imported.
    """
    with _lock:
        if name not in _updated:
            _global[name] = lookup(name).initial()
        return _global[name]


def global_mesh() -> Any:
    """Return the mesh in force for the process, or None."""
    return _GLOBAL_MESH[0]


def set_global_mesh(mesh: object) -> Any:
    """Put a mesh, or none, in force for the process; gives the one before."""
    global _epoch, _global_key, _global_fast  # noqa: PLW0603 - the global values live in this module
    with _lock:
        before, _GLOBAL_MESH[0] = _GLOBAL_MESH[0], mesh
        _epoch += 1
        _effective.clear()
        _global_key, _global_fast = _compute_global()
        listeners = tuple(_listeners)
    for listener in listeners:
        listener("mesh", mesh)
    return before


def before_global_change(fn: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
    """Call `fn(name, value)` before each global change, which it may refuse; returns `fn`."""
    _checks.append(fn)
    return fn


def on_global_change(fn: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
    """Call `fn(name, value)` after each global change; returns `fn`, for use as a decorator."""
    _listeners.append(fn)
    return fn


def global_epoch() -> int:
    """Return a number that grows with every global change."""
    return _epoch


def tracing_key() -> Hashable:
    """Return the values in force of all options that affect tracing; part of every cache key.

    Equal values give equal keys, whether they were set globally or by a `with` block. The named
    axes are not in it: they belong to the caches of functions that may use collectives.
    """
    current = state()
    if current is not None and current.seen != SCOPES.lost:
        current = settled_state()
    if current is None or not current.key:
        effective = _global_key
    else:
        effective = _effective.get(current.key)
        if effective is None:
            changed = current.values
            effective = tuple(
                changed[name] if name in changed else _global[name] for name in TRACING_OPTIONS
            )
            own = [pair for pair in current.key if pair[0] not in OPTIONS]
            effective = (*own, *effective, _GLOBAL_MESH[0])
            if len(_effective) >= MAX_REMEMBERED:
                _effective.clear()
            _effective[current.key] = effective
    if current is None or current.mesh is None:
        return effective
    own = current.mesh
    return (*effective[:-1], None if own is NO_MESH else own)


_LEAVING = [(name, row.default) for name, row in OPTIONS.items() if row.leaves_fast_path]


def fast_path_allowed() -> bool:
    """Return whether compiled calls may skip the checks that debugging options ask for."""
    current = state()
    if current is not None and current.seen != SCOPES.lost:
        current = settled_state()
    if current is None or not current.overrides:
        return _global_fast
    changed = current.values
    return not any(
        [
            (changed[name] if name in changed else _global[name]) != default
            for name, default in _LEAVING
        ]
    )


def mesh_in_force() -> Any:
    """Return the mesh of the innermost block, else that of the process, else None."""
    current = state()
    if current is not None and current.seen != SCOPES.lost:
        current = settled_state()
    if current is None or current.mesh is None:
        return _GLOBAL_MESH[0]
    found = current.mesh
    if found is NO_MESH:
        return None
    return found.mesh if type(found) is EnteredMesh else found


def entered_mesh() -> Any:
    """Return the mesh of the innermost block if that is ``with mesh``, else None."""
    current = settled_state()
    found = None if current is None else current.mesh
    return found.mesh if type(found) is EnteredMesh else None


def mesh_of_computations() -> Any:
    """Return the mesh in force if computations are to run on its devices, else None."""
    current = state()
    if current is not None and current.seen != SCOPES.lost:
        current = settled_state()
    if current is None or current.mesh is None:
        return _GLOBAL_MESH[0]
    found = current.mesh
    return None if found is NO_MESH or type(found) is EnteredMesh else found
