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
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from tracebridge.core.config.guard_levels import (
    DIRECTIONS,
    LEVELS,
    guard_levels,
    joined_levels,
)
from tracebridge.core.config.options import OPTIONS, TRACING_OPTIONS, Option
from tracebridge.core.errors.config_errors import OptionValueError, UnknownOptionError

Overrides = tuple[tuple[str, Any], ...]
P = ParamSpec("P")
R = TypeVar("R")


_derived: dict[Overrides, tuple[dict[str, Any], Overrides]] = {(): ({}, ())}
_MAX_REMEMBERED = 1024


def _derive(overrides: Overrides) -> tuple[dict[str, Any], Overrides]:
    """Return the dict and the tracing-affecting part; remembered, since few sets are in use."""
    found = _derived.get(overrides)
    if found is None:
        key = tuple(pair for pair in overrides if _affects_tracing(pair[0]))
        found = dict(overrides), key
        if len(_derived) >= _MAX_REMEMBERED:
            _derived.clear()
            _derived[()] = ({}, ())
        _derived[overrides] = found
    return found


def _affects_tracing(name: str) -> bool:
    # Contexts that users make (config/user_context.py) are no options.
    return name not in OPTIONS or OPTIONS[name].affects_tracing


class State:
    """What is in force in one thread besides the global options; immutable by convention."""

    __slots__ = ("axis_env", "key", "mesh", "overrides", "trace", "values")

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
        self.values, self.key = _derive(overrides)
        # values: the overrides as a dict, never changed. key: the part of them that a cache key
        # must contain, as sorted pairs.

    def __repr__(self) -> str:
        return f"State(trace={self.trace!r}, {dict(self.overrides)}, axes={self.axis_env})"


STATE: ContextVar[State | None] = ContextVar("tracebridge_state", default=None)
"""The state of the current thread (and asyncio task); None almost always outside traces."""

# Aliases of C methods: no Python frame on the hot path.
state: Callable[[], State | None] = STATE.get
get_state: Callable[[], State | None] = STATE.get
set_state: Callable[[State | None], Token[State | None]] = STATE.set
reset_state: Callable[[Token[State | None]], None] = STATE.reset


def _make(trace: Any, overrides: Overrides, axis_env: tuple[Any, ...], mesh: Any) -> State | None:
    if trace is None and not overrides and not axis_env and mesh is None:
        return None
    return State(trace, overrides, axis_env, mesh)


def with_trace(current: State | None, trace: Any) -> State | None:
    """Return `current` with another trace; `None` as the trace means eager."""
    if current is None:
        return None if trace is None else State(trace, ())
    return _make(trace, current.overrides, current.axis_env, current.mesh)


def with_axis_env(current: State | None, axis_env: tuple[Any, ...]) -> State | None:
    """Return `current` with other named axes."""
    if current is None:
        return State(None, (), axis_env) if axis_env else None
    return _make(current.trace, current.overrides, axis_env, current.mesh)


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


# Stands for "none" in a block, where a mesh may be in force for the process.
_NO_MESH = object()
_GLOBAL_MESH: list[Any] = [None]


class _Entered(NamedTuple):
    """A mesh that names shardings in a block, and says nothing about where computations run."""

    mesh: Any


def with_mesh(current: State | None, mesh: Any, *, places: bool = True) -> State | None:
    """Return `current` with another mesh in force, or none.

    `places`: computations on uncommitted arguments run on its devices.
    """
    given = _NO_MESH if mesh is None else mesh if places else _Entered(mesh)
    if current is None:
        return State(None, (), (), given)
    return State(current.trace, current.overrides, current.axis_env, given)


def mesh_in_force() -> Any:
    """Return the mesh of the innermost block, else that of the process, else None."""
    current = state()
    if current is None or current.mesh is None:
        return _GLOBAL_MESH[0]
    found = current.mesh
    if found is _NO_MESH:
        return None
    return found.mesh if type(found) is _Entered else found


def mesh_of_computations() -> Any:
    """Return the mesh in force if computations are to run on its devices, else None."""
    current = state()
    if current is None or current.mesh is None:
        return _GLOBAL_MESH[0]
    found = current.mesh
    return None if found is _NO_MESH or type(found) is _Entered else found


def axis_env() -> tuple[Any, ...]:
    """Return the named axes in force, outermost first."""
    current = state()
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
    current = state()
    if current is not None and name in current.values:
        return current.values[name]
    return _global[name]


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


class Scope(Decorating):
    """A `with` block that changes one option for the current thread; may be entered again."""

    __slots__ = ("_name", "_tokens", "_value")

    def __init__(self, name: str, value: Any) -> None:
        row = lookup(name)
        if not row.scoped:
            raise OptionValueError(
                f"option {name} cannot be changed for one thread",
                hint=f"use tb.config.update({name!r}, ...)",
            )
        self._name = name
        self._value = row.check(value)
        self._tokens: list[Token[State | None]] = []

    def again(self) -> Scope:
        return Scope(self._name, self._value)

    def __enter__(self) -> None:
        self._tokens.append(set_state(with_override(state(), self._name, self._value)))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        reset_state(self._tokens.pop())


def scope(name: str, value: Any) -> Scope:
    """Return a `with` block that changes an option for the current thread."""
    return Scope(name, value)


def enable_x64(new_val: bool = True) -> Scope:
    """Keep 64-bit dtypes inside the block.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> with tb.enable_x64():
    ...     tnp.arange(3.0).dtype
    dtype('float64')
    """
    return Scope("enable_x64", new_val)


def explicit_x64_dtypes(new_val: str) -> Scope:
    """Set what happens to explicit 64-bit dtypes: 'allow', 'warn' or 'error'.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> with tb.explicit_x64_dtypes('allow'):
    ...     tnp.zeros(3, 'float64').dtype
    dtype('float64')
    """
    return Scope("explicit_x64_dtypes", new_val)


def numpy_dtype_promotion(new_val: str) -> Scope:
    """Set dtype promotion: 'standard' or 'strict'.

    >>> import tracebridge as tb
    >>> with tb.numpy_dtype_promotion('strict'):
    ...     tb.config.numpy_dtype_promotion
    'strict'
    """
    return Scope("numpy_dtype_promotion", new_val)


def numpy_rank_promotion(new_val: str) -> Scope:
    """Set rank promotion: 'allow', 'warn' or 'raise'.

    >>> import tracebridge as tb
    >>> with tb.numpy_rank_promotion('raise'):
    ...     tb.config.numpy_rank_promotion
    'raise'
    """
    return Scope("numpy_rank_promotion", new_val)


def default_matmul_precision(new_val: str | None) -> Scope:
    """Set the precision of products that name none.

    >>> import tracebridge as tb
    >>> with tb.default_matmul_precision('float32'):
    ...     tb.config.default_matmul_precision
    'float32'
    """
    return Scope("default_matmul_precision", new_val)


def default_device(new_val: Any) -> Scope:
    """Set the device of arrays and computations that name none.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> with tb.default_device(tb.devices('cpu')[0]):
    ...     tnp.ones(3).device.platform
    'cpu'
    """
    return Scope("default_device", new_val)


def disable_jit(disable: bool = True) -> Scope:
    """Run jit and control flow step by step inside the block."""
    return Scope("disable_jit", disable)


def debug_nans(new_val: bool = True) -> Scope:
    """Raise when a computation returns a NaN.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> with tb.debug_nans():
    ...     tnp.log(-1.0)
    Traceback (most recent call last):
        ...
    tracebridge.core.errors.runtime_errors.NonFiniteError: ...
    """
    return Scope("debug_nans", new_val)


def debug_infs(new_val: bool = True) -> Scope:
    """Raise when a computation returns an infinity.

    >>> import tracebridge as tb
    >>> with tb.debug_infs():
    ...     tb.config.debug_infs
    True
    """
    return Scope("debug_infs", new_val)


def checking_leaks(new_val: bool = True) -> Scope:
    """Look for leaked tracers at the end of every trace.

    >>> import tracebridge as tb
    >>> with tb.checking_leaks():
    ...     print(tb.jit(lambda x: x * 2)(1.0))
    2.0
    """
    return Scope("check_tracer_leaks", new_val)


check_tracer_leaks = checking_leaks


def enable_checks(new_val: bool = True) -> Scope:
    """Type-check every Jaxpr that is made.

    >>> import tracebridge as tb
    >>> with tb.enable_checks():
    ...     print(tb.jit(lambda x: x * 2)(1.0))
    2.0
    """
    return Scope("enable_checks", new_val)


def log_compiles(new_val: bool = True) -> Scope:
    """Log when a function is traced and compiled.

    >>> import tracebridge as tb
    >>> with tb.log_compiles():
    ...     tb.config.log_compiles
    True
    """
    return Scope("log_compiles", new_val)


def explain_cache_misses(new_val: bool = True) -> Scope:
    """Log why calls did not find a compiled function.

    >>> import tracebridge as tb
    >>> with tb.explain_cache_misses():
    ...     tb.config.explain_cache_misses
    True
    """
    return Scope("explain_cache_misses", new_val)


def threefry_partitionable(new_val: bool = True) -> Scope:
    """Choose the partitionable form of the threefry generator.

    >>> import tracebridge as tb
    >>> with tb.threefry_partitionable(False):
    ...     tb.config.threefry_partitionable
    False
    """
    return Scope("threefry_partitionable", new_val)


def default_prng_impl(new_val: str) -> Scope:
    """Choose the generator of new random keys.

    >>> import tracebridge as tb
    >>> with tb.default_prng_impl('rbg'):
    ...     tb.config.default_prng_impl
    'rbg'
    """
    return Scope("default_prng_impl", new_val)


guards_in_force: list[int] = [0]
"""How many scopes and global values guard transfers: zero almost always, and cheap to read."""
_guard_lock = threading.Lock()
_guarded_globally = [False]


def _count_guards(change: int) -> None:
    with _guard_lock:
        guards_in_force[0] += change


def _note_global_guard(name: str, value: Any) -> None:
    if name == "transfer_guard" and (value != "allow") is not _guarded_globally[0]:
        _guarded_globally[0] = value != "allow"
        _count_guards(1 if value != "allow" else -1)


on_global_change(_note_global_guard)
_note_global_guard("transfer_guard", _global["transfer_guard"])


class GuardScope(Decorating):
    """A `with` block that sets the level of some directions of transfer for this thread."""

    __slots__ = ("_directions", "_level", "_tokens")

    def __init__(self, directions: tuple[str, ...], level: str) -> None:
        if level not in LEVELS:
            raise OptionValueError(
                call="transfer_guard",
                got=repr(level),
                expected=" or ".join(map(repr, LEVELS)),
            )
        self._directions = directions
        self._level = level
        self._tokens: list[Token[State | None]] = []

    def again(self) -> GuardScope:
        return GuardScope(self._directions, self._level)

    def __enter__(self) -> None:
        levels = guard_levels(option("transfer_guard"))
        levels.update(dict.fromkeys(self._directions, self._level))
        changed = with_override(state(), "transfer_guard", joined_levels(levels))
        self._tokens.append(set_state(changed))
        _count_guards(1)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        _count_guards(-1)
        reset_state(self._tokens.pop())


def transfer_guard(new_val: str) -> GuardScope:
    """Allow, log or refuse transfers between host and devices, and between devices, in a block.

    ``'log'`` and ``'disallow'`` are about implicit transfers: those that come with a computation,
    and not by ``device_put`` or ``device_get``. ``'log_explicit'`` and ``'disallow_explicit'`` are
    about all of them. Python numbers and reads of memory that is on the host are no transfers.

    >>> import tracebridge as tb
    >>> import numpy as np
    >>> with tb.transfer_guard('disallow'):
    ...     x = tb.device_put(np.ones(3))
    ...     tb.jit(lambda x: x + 1)(np.ones(3))
    Traceback (most recent call last):
        ...
    tracebridge.core.errors.runtime_errors.GuardError: ...
    """
    return GuardScope(DIRECTIONS, new_val)


def transfer_guard_host_to_device(new_val: str) -> GuardScope:
    """The same for transfers of host arrays to devices.

    >>> import tracebridge as tb
    >>> with tb.transfer_guard_host_to_device('disallow'):
    ...     print(tb.jit(lambda x: x + 1)(1.0))
    2.0
    """
    return GuardScope(("host_to_device",), new_val)


def transfer_guard_device_to_device(new_val: str) -> GuardScope:
    """The same for transfers from one device to another.

    >>> import tracebridge as tb
    >>> with tb.transfer_guard_device_to_device('log'):
    ...     tb.config.transfer_guard
    'host_to_device=allow,device_to_device=log,device_to_host=allow'
    """
    return GuardScope(("device_to_device",), new_val)


def transfer_guard_device_to_host(new_val: str) -> GuardScope:
    """The same for reads of arrays on devices other than the CPU.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> with tb.transfer_guard_device_to_host('log'):
    ...     float(tb.device_get(tnp.ones(())))
    1.0
    """
    return GuardScope(("device_to_host",), new_val)


def no_tracing(new_val: bool = True) -> Scope:
    """Raise inside the block when a jitted function is traced: when a call is not in its cache.

    >>> import tracebridge as tb
    >>> f = tb.jit(lambda x: x + 1)
    >>> y = f(1.0)
    >>> with tb.no_tracing():
    ...     print(f(2.0))
    3.0
    """
    return Scope("no_tracing", new_val)


def no_execution(new_val: bool = True) -> Scope:
    """Raise inside the block when a program or an operation is executed on a device.

    >>> import tracebridge as tb
    >>> with tb.no_execution():
    ...     lowered = tb.jit(lambda x: x + 1).lower(1.0)
    """
    return Scope("no_execution", new_val)
