"""What is in force in the current thread: the trace, changed options, named axes and the mesh.

One `ContextVar` holds one immutable `State` (or None): the current trace, the options that a
`with` block has changed for this thread, and the named axes. None means: no trace, no changed
options, no named axes; the cached call of a compiled function tests only that.

A new thread begins with the state None, so that no trace is taken over from another thread; where
the interpreter lets threads inherit the context (an option of Python 3.14), start threads inside
`contextvars.Context().run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from threading import get_ident
from typing import Any, NamedTuple, final

from tracebridge.core.config.options import OPTIONS
from tracebridge.core.config.scope_stack import (
    Change,
    ScopeStack,
    ended_meanwhile,
    finish_step,
    stepper,
)
from tracebridge.core.util.caching import register_table

Overrides = tuple[tuple[str, Any], ...]

_NOTHING: tuple[dict[str, Any], Overrides] = ({}, ())
_derived: dict[Overrides, tuple[dict[str, Any], Overrides]] = register_table("options set", {})
MAX_REMEMBERED = 1024


def _derive(overrides: Overrides) -> tuple[dict[str, Any], Overrides]:
    """Return the dict and the tracing-affecting part; remembered, since few sets are in use."""
    found = _derived.get(overrides)
    if found is None:
        key = tuple(pair for pair in overrides if _affects_tracing(pair[0]))
        found = dict(overrides), key
        if len(_derived) >= MAX_REMEMBERED:
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
NO_MESH = object()


class EnteredMesh(NamedTuple):
    """A mesh that names shardings in a block, and says nothing about where computations run."""

    mesh: Any


def with_mesh(current: State | None, mesh: Any) -> State | None:
    """Return `current` with another mesh in force, or none.

    Computations on uncommitted arguments run on its devices.
    """
    given = NO_MESH if mesh is None else mesh
    if current is None:
        return State(None, (), (), given)
    return State(current.trace, current.overrides, current.axis_env, given)


def with_entered_mesh(current: State | None, mesh: Any) -> State | None:
    """The same with a mesh that says nothing about where computations run."""
    return with_mesh(current, EnteredMesh(mesh))


def axis_env() -> tuple[Any, ...]:
    """Return the named axes in force, outermost first."""
    current = settled_state()
    return () if current is None else current.axis_env
