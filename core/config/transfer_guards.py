"""Guards of transfers: how many are in force, and the `with` blocks that set them."""

from __future__ import annotations

import threading
from types import TracebackType

from tracebridge.core.config.guard_levels import (
    DIRECTIONS,
    LEVELS,
    guard_levels,
    joined_levels,
)
from tracebridge.core.config.scopes import StateScope
from tracebridge.core.config.state import State, with_override
from tracebridge.core.config.values import global_value, on_global_change
from tracebridge.core.errors.config_errors import OptionValueError

guards_in_force: list[int] = [0]
"""How many scopes and global values guard transfers: zero almost always, and cheap to read."""
_guard_lock = threading.Lock()
_guarded_globally = [False]


def _count_guards(change: int) -> None:
    with _guard_lock:
        guards_in_force[0] += change


def _note_global_guard(name: str, value: object) -> None:
    if name == "transfer_guard" and (value != "allow") is not _guarded_globally[0]:
        _guarded_globally[0] = value != "allow"
        _count_guards(1 if value != "allow" else -1)


on_global_change(_note_global_guard)
_note_global_guard("transfer_guard", global_value("transfer_guard"))


class GuardScope(StateScope):
    """A `with` block that sets the level of some directions of transfer for this thread."""

    __slots__ = ("_directions", "_level")

    def __init__(self, directions: tuple[str, ...], level: str) -> None:
        super().__init__()
        if level not in LEVELS:
            raise OptionValueError(
                call="transfer_guard",
                got=repr(level),
                expected=" or ".join(map(repr, LEVELS)),
            )
        self._directions = directions
        self._level = level

    def again(self) -> GuardScope:
        return GuardScope(self._directions, self._level)

    def changed(self, current: State | None) -> State | None:
        # Of each direction alone: the others may be those of blocks that end earlier.
        outer = {} if current is None else current.values
        levels = guard_levels(outer.get("transfer_guard", global_value("transfer_guard")))
        levels.update(dict.fromkeys(self._directions, self._level))
        return with_override(current, "transfer_guard", joined_levels(levels))

    def __enter__(self) -> None:
        super().__enter__()
        _count_guards(1)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        _count_guards(-1)
        super().__exit__(exc_type, exc, tb)


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
    tracebridge.errors.GuardError: ...
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
