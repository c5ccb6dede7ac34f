"""Values of options, global and thread-scoped, and the state of the current thread.

One `ContextVar` holds one immutable `State` (or None): the current trace, the options that a
`with` block has changed for this thread, and the named axes. None means: no trace, no changed
options, no named axes; the cached call of a compiled function tests only that.

A global change (`update`) bumps `global_epoch()` and calls the listeners, so that fast-path
caches can be dropped instead of reading options at each call.
Thread-safety: reads are single dict or ContextVar operations; `update` takes a lock. A new thread
begins with the state None, so that no trace is taken over from another thread; where the
interpreter lets threads inherit the context (an option of Python 3.14), start threads
inside `contextvars.Context().run`.
"""

from __future__ import annotations

import abc
import functools
import threading
from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from threading import get_ident
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar, final

from tracebridge.core.config.options import OPTIONS, TRACING_OPTIONS, Option
from tracebridge.core.config.scope_stack import (
    Change,
    ScopeStack,
    ended_meanwhile,
    finish_step,
    stepper,
)
from tracebridge.core.errors.config_errors import OptionValueError, UnknownOptionError

Overrides = tuple[tuple[str, Any], ...]
P = ParamSpec("P")
R = TypeVar("R")


_NOTHING: tuple[dict[str, Any], Overrides] = ({}, ())
_derived: dict[Overrides, tuple[dict[str, Any], Overrides]] = {}
_MAX_REMEMBERED = 1024


def _derive(overrides: Overrides) -> tuple[dict[str, Any], Overrides]:
    """Return the dict and the tracing-affecting part; remembered, since few sets are in use."""
    found = _derived.get(overrides)
    if found is None:
        key = tuple(pair for pair in overrides if _affects_tracing(pair[0]))
        found = dict(overrides), key
        if len(_derived) >= _MAX_REMEMBERED:
            _derived.clear()
        _derived[overrides] = found
    return found


def _affects_tracing(name: str) -> bool:
    # Contexts that users make (config/user_context.py) are no options.
    return name not in OPTIONS or OPTIONS[name].affects_tracing


class State:
    """What is in force in one thread besides the global options; immutable by convention."""

    __slots__ = (
        *("axis_env", "key", "mesh", "overrides", "trace", "values"),
        *("change", "outer", "seen"),  # set by the stack that it is put into
    )
    change: Change
    outer: State | None
    seen: int

    def __init__(
        self,
        trace: Any,
        overrides: Overrides,
        axis_env: tuple[Any, ...] = (),
        mesh: Any = None,
    ) -> None:
        self.trace = trace
        """The current trace, or None outside all traces. Its meaning belongs to the ir layer."""
        self.overrides = overrides
        """Changed options as sorted (name, value) pairs."""
        self.axis_env = axis_env
        """Named axes, outermost first. Their form belongs to the ir layer."""
        self.mesh = mesh
        """The mesh in force in a block; its form belongs to the sharding layer."""
        self.values, self.key = _derive(overrides) if overrides else _NOTHING
        # values: the overrides as a dict, never changed. key: the part of them that a cache key
        # must contain, as sorted pairs.

    @property
    def plain(self) -> bool:
        """Whether this is no other than outside of all scopes, so that None has its place."""
        return self.trace is None and not self.overrides and not self.axis_env and self.mesh is None

    def copy(self) -> State:
        """A state of its own with the same content."""
        return State(self.trace, self.overrides, self.axis_env, self.mesh)

    def __repr__(self) -> str:
        return f"State(trace={self.trace!r}, {dict(self.overrides)}, axes={self.axis_env})"


STATE: ContextVar[State | None] = ContextVar("tracebridge_state", default=None)
"""The state of the current thread (and asyncio task); None almost always outside traces."""

# Alias of a C method: no Python frame on the hot path.
state: Callable[[], State | None] = STATE.get

# What has the place of a state that is None inside other scopes: a trace hides, say, in a block
# that evaluates at once.
_HIDDEN: ContextVar[State | None] = ContextVar("tracebridge_hidden_state", default=None)
_hidden = _HIDDEN.get


@final
class _StateStack(ScopeStack):
    """What made the state: states are the nodes, except where they are None."""

    __slots__ = ()

    def get(self) -> State | None:
        current = state()
        return _hidden() if current is None else current

    def install(self, node: State | None) -> None:
        if node is None or node.plain:
            if _hidden() is not node:
                _HIDDEN.set(node)
            node = None
        STATE.set(node)

    def node(self, outer: State | None, change: Change) -> State:
        made = change.function(outer, *change.args)
        if made is None or made is outer:
            made = State(None, ()) if made is None else made.copy()
        made.outer = outer
        made.change = change
        made.seen = self.lost
        return made

    # The two as above, flat: each trace comes here.

    def enter(self, function: Callable[..., State | None], *args: Any) -> Change:
        outer = state()
        if stepper[0] or (_hidden() is not None if outer is None else outer.seen != self.lost):
            return super().enter(function, *args)
        stepper[0] = get_ident()
        try:
            made = function(outer, *args)
            change = Change(function, args)
            if made is not None and made is not outer:
                made.outer = outer
                made.change = change
                made.seen = self.lost
                STATE.set(made)
            else:
                self.install(self.node(outer, change))
        finally:
            stepper[0] = 0
        if ended_meanwhile:
            finish_step()
        return change

    def leave(self, change: Change) -> None:
        node = state()
        if (
            node is None
            or node.change is not change
            or node.seen != self.lost
            or stepper[0]
            or _hidden() is not None
        ):
            super().leave(change)
            if change.function in _BY_TRACES:
                change.lost = True
            return
        stepper[0] = get_ident()
        try:
            STATE.set(node.outer)
        finally:
            stepper[0] = 0
        if change.function in _BY_TRACES:
            change.lost = True
        if ended_meanwhile:
            finish_step()


SCOPES = _StateStack()
"""The open blocks and the traces at work in each thread."""

enter_scope = SCOPES.enter
"""``change = enter_scope(with_trace, trace)``: begin a block with another state."""
leave_scope = SCOPES.leave
"""``leave_scope(change)``: end that block, and no other."""


def settled_state() -> State | None:
    """Return the state in force, without blocks that another thread has ended.

    Such a block is a suspended generator's that the garbage collector closed there. Nor with a
    trace that has ended: callbacks and tasks of asyncio that a traced function has scheduled run
    in copies of its context, when there is nothing left to record.
    """
    current = state()
    if current is not None:
        if current.seen != SCOPES.lost:
            SCOPES.refresh()
            current = state()
        elif current.trace is not None and getattr(current.trace, "done", False):
            SCOPES.refresh(thoroughly=True)
            current = state()
    return current


def _make(trace: Any, overrides: Overrides, axis_env: tuple[Any, ...], mesh: Any) -> State | None:
    if trace is None and not overrides and not axis_env and mesh is None:
        return None
    return State(trace, overrides, axis_env, mesh)


def with_trace(current: State | None, trace: Any) -> State | None:
    """Return `current` with another trace; `None` as the trace means eager."""
    if current is None:
        return None if trace is None else State(trace, ())
    if trace is None:
        return _make(None, current.overrides, current.axis_env, current.mesh)
    return State(trace, current.overrides, current.axis_env, current.mesh)


def with_axis_env(current: State | None, axis_env: tuple[Any, ...]) -> State | None:
    """Return `current` with other named axes."""
    if current is None:
        return State(None, (), axis_env) if axis_env else None
    return _make(current.trace, current.overrides, axis_env, current.mesh)


def with_axes(current: State | None, axes: Iterable[tuple[Any, Any]]) -> State | None:
    """Return `current` with more named axes, outermost first."""
    for name, size in axes:
        current = with_axis(current, name, size)
    return current


def with_mapped_trace(current: State | None, trace: Any, name: Any, size: Any) -> State | None:
    """Return `current` with a trace that maps over an axis, which may have a name."""
    return with_trace(with_axis(current, name, size), trace)


def outside_of_traces(current: State | None) -> State | None:
    """Return `current` without its trace and its named axes."""
    return with_axis_env(with_trace(current, None), ())


def with_axis(current: State | None, name: Any, size: Any) -> State | None:
    """Return `current` with one more named axis inside the others; unchanged if `name` is None."""
    if name is None:
        return current
    outer = () if current is None else current.axis_env
    return with_axis_env(current, (*outer, (name, size)))


def with_override(current: State | None, name: str, value: Any) -> State | None:
    """Return `current` with one option changed for this thread."""
    return with_value(current, name, OPTIONS[name].check(value))


def with_value(current: State | None, name: str, checked: Any) -> State | None:
    """Return `current` with an option, or a context that a user made, at a valid value."""
    if current is None or not current.overrides:
        overrides: Overrides = ((name, checked),)
    else:
        values = {**current.values, name: checked}
        overrides = tuple(sorted(values.items(), key=lambda pair: pair[0]))
    if current is None:
        return State(None, overrides)
    return State(current.trace, overrides, current.axis_env, current.mesh)


# What puts traces in force. They end everywhere, while options stay as they are in copies of the
# context in which they were changed.
_BY_TRACES = frozenset([with_trace, with_mapped_trace])

# Stands for "none" in a block, where a mesh may be in force for the process.
_NO_MESH = object()
_GLOBAL_MESH: list[Any] = [None]


class _Entered(NamedTuple):
    """A mesh that names shardings in a block, and says nothing about where computations run."""

    mesh: Any


def with_mesh(current: State | None, mesh: Any) -> State | None:
    """Return `current` with another mesh in force, or none.

    Computations on uncommitted arguments run on its devices.
    """
    given = _NO_MESH if mesh is None else mesh
    if current is None:
        return State(None, (), (), given)
    return State(current.trace, current.overrides, current.axis_env, given)


def with_entered_mesh(current: State | None, mesh: Any) -> State | None:
    """The same with a mesh that says nothing about where computations run."""
    return with_mesh(current, _Entered(mesh))


def mesh_in_force() -> Any:
    """Return the mesh of the innermost block, else that of the process, else None."""
    current = state()
    if current is not None and current.seen != SCOPES.lost:
        current = settled_state()
    if current is None or current.mesh is None:
        return _GLOBAL_MESH[0]
    found = current.mesh
    if found is _NO_MESH:
        return None
    return found.mesh if type(found) is _Entered else found


def mesh_of_computations() -> Any:
    """Return the mesh in force if computations are to run on its devices, else None."""
    current = state()
    if current is not None and current.seen != SCOPES.lost:
        current = settled_state()
    if current is None or current.mesh is None:
        return _GLOBAL_MESH[0]
    found = current.mesh
    return None if found is _NO_MESH or type(found) is _Entered else found


def axis_env() -> tuple[Any, ...]:
    """Return the named axes in force, outermost first."""
    current = settled_state()
    return () if current is None else current.axis_env


# --- global values ---------------------------------------------------------------------------

_lock = threading.RLock()
_global: dict[str, Any] = {name: row.initial() for name, row in OPTIONS.items()}
_updated: set[str] = set()  # options that the program has chosen
_listeners: list[Callable[[str, Any], None]] = []
_checks: list[Callable[[str, Any], None]] = []
_epoch = 0
_effective: dict[Overrides, tuple[Any, ...]] = {}


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


def update(name: str, value: Any) -> None:
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


def set_global_mesh(mesh: Any) -> Any:
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
        found = _global_key
    else:
        found = _effective.get(current.key)
        if found is None:
            changed = current.values
            found = tuple(
                changed[name] if name in changed else _global[name] for name in TRACING_OPTIONS
            )
            own = [pair for pair in current.key if pair[0] not in OPTIONS]
            found = (*own, *found, _GLOBAL_MESH[0])
            if len(_effective) >= _MAX_REMEMBERED:
                _effective.clear()
            _effective[current.key] = found
    if current is None or current.mesh is None:
        return found
    own = current.mesh
    return (*found[:-1], None if own is _NO_MESH else own)


def fast_path_allowed() -> bool:
    """Return whether compiled calls may skip the checks that debugging options ask for."""
    current = state()
    if current is not None and current.seen != SCOPES.lost:
        current = settled_state()
    if current is None or not current.overrides:
        return _global_fast
    return not any(
        option(name) != row.default for name, row in OPTIONS.items() if row.leaves_fast_path
    )


# --- scopes ----------------------------------------------------------------------------------


class Decorating(abc.ABC):
    """A `with` block that can also decorate functions: each call runs in a block of its own."""

    __slots__ = ()

    @abc.abstractmethod
    def again(self) -> AbstractContextManager[None]:
        """A new block of the same kind, since several threads may call at once."""

    def __call__(self, fun: Callable[P, R]) -> Callable[P, R]:
        """Run `fun` inside the block."""

        @functools.wraps(fun)
        def within(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.again():
                return fun(*args, **kwargs)

        return within


class StateScope(Decorating):
    """A `with` block in which the thread has another state; may be entered again."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[Change] = []

    @abc.abstractmethod
    def changed(self, current: State | None) -> State | None:
        """The state inside the block, where `current` is in force outside of it."""

    def __enter__(self) -> None:
        self._open.append(enter_scope(self.changed))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        SCOPES.leave_one_of(self._open)


class Scope(StateScope):
    """A `with` block that changes one option for the current thread."""

    __slots__ = ("_name", "_value")

    def __init__(self, name: str, value: Any) -> None:
        super().__init__()
        row = lookup(name)
        if not row.scoped:
            raise OptionValueError(
                f"option {name} cannot be changed for one thread",
                hint=f"use tb.config.update({name!r}, ...)",
            )
        self._name = name
        self._value = row.check(value)

    def again(self) -> Scope:
        return Scope(self._name, self._value)

    def changed(self, current: State | None) -> State | None:
        return with_value(current, self._name, self._value)


def scope(name: str, value: Any) -> Scope:
    """Return a `with` block that changes an option for the current thread."""
    return Scope(name, value)
