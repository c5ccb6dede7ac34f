"""Memory that ndarrays are copied into for the time of one call.

A program takes buffers of XLA, and jaxlib needs 3.5 us to make one, most of a call of a small
program. So there are buffers over memory of ours that stay: a call with ndarrays writes into it
and runs. That is right where nobody sees the memory after the call: on one device of the
synchronous CPU client, on which no argument is still being made, without callbacks (which may keep
their arguments) and without donation; see ``can_lend``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.config.transfer_guards import guards_in_force
from tracebridge.core.config.values import on_global_change, option
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import put_literal, put_numpy, put_operand
from tracebridge.core.runtime.backends.clients import on_fork
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.util.caching import register_table

if TYPE_CHECKING:
    from tracebridge.core.runtime.programs.program import Program

LARGEST = 1 << 16  # bytes of a room; copies of more cost more than a new buffer does
MOST_BYTES = 1 << 23  # of all rooms
_OVERHEAD = 1 << 10  # bytes of the objects of a room, about
_MOST_KINDS = 4096
_ALIGNED = 64  # what XLA asks of memory that it takes as it is


@final
class Room:
    """Memory, and an Array of it. In the list ``free`` of its kind, or with one call."""

    __slots__ = ("array", "free", "memory")

    def __init__(self, memory: np.ndarray[Any, Any], array: Array, free: list[Room]) -> None:
        self.memory = memory
        self.array = array
        self.free = free


# Free rooms by the shape and the dtype of what is copied into them, or by the type of numbers.
_ROOMS: dict[Any, list[Room]] = register_table("rooms of ndarrays", {})
_REFUSED: set[Any] = set()  # kinds that XLA does not take where they are
_held = [0]  # bytes


def operand(host: np.ndarray[Any, Any] | np.generic, taken: list[Room]) -> Array:
    """An ndarray or a number of NumPy as an Array, in the default state.

    In a room that is added to ``taken`` where that is possible. The caller runs a program with
    ``run_on_loan``, or gives the rooms back, and keeps no Array.
    """
    if host.nbytes > LARGEST or guards_in_force[0]:
        return _put(host)
    try:
        room = _ROOMS[_kind(host)].pop()
    except (KeyError, IndexError):
        made = _new_room(host)
        if made is None:
            return _put(host)
        room = made
    try:
        room.memory[...] = host
    except OverflowError:  # NumPy refuses its numbers where it wraps arrays
        room.memory[...] = np.asarray(host)
    taken.append(room)
    return room.array


def _kind(host: np.ndarray[Any, Any] | np.generic) -> Any:
    kind = type(host)
    return (host.shape, host.dtype) if kind is np.ndarray else kind


def _put(host: np.ndarray[Any, Any] | np.generic) -> Array:
    if type(host) is np.ndarray:
        return put_operand(host)
    value: Any = as_value(host)
    return put_literal(value) if type(value) is Literal else value


def rooms_of(host: np.ndarray[Any, Any] | np.generic) -> list[Room] | None:
    """The free rooms of the kind of ``host``, if there are any."""
    return _ROOMS.get(_kind(host))


def _new_room(host: np.ndarray[Any, Any] | np.generic) -> Room | None:
    kind = _kind(host)
    if kind in _REFUSED or not host.dtype.isnative:
        return None
    sample = _put(host)
    size = sample.nbytes
    raw = np.empty(size + _ALIGNED, np.uint8)
    start = -raw.ctypes.data % _ALIGNED
    memory = raw[start : start + size].view(sample.dtype).reshape(host.shape)
    array = put_numpy(memory, borrow=True)
    if not size or array._buf.unsafe_buffer_pointer() != memory.ctypes.data:
        if len(_REFUSED) >= _MOST_KINDS:
            _REFUSED.clear()
        _REFUSED.add(kind)
        return None
    size += _OVERHEAD
    if len(_ROOMS) >= _MOST_KINDS:
        _forget()
    elif _held[0] + size > MOST_BYTES:
        _empty()
    _held[0] += size
    # With the signature of what is copied: the memory is ours, and no donation comes here.
    array._sig = sample._sig
    return Room(memory, array, _ROOMS.setdefault(kind, []))


def give_back(taken: Sequence[Room]) -> None:
    """The calls that had these rooms are over."""
    for room in taken:
        room.free.append(room)


def can_lend(program: Program[Any]) -> bool:
    """Whether nobody sees the arguments of a program once a call of it has returned."""
    place = program.placement
    return (
        type(place) is SingleDeviceSharding
        and place.device.platform == "cpu"
        and not option("cpu_async_dispatch")
        and not (program.lowered.callbacks or program.lowered.effects or program.donated)
        and all([buf.is_ready() for buf in program.constants])
    )


def lending(run: Any, inner: Callable[..., object]) -> Any:
    """``run``, which does no more with its arguments than ``inner``."""
    if lends(inner):
        run.lends = True
    return run


def lends(run: Callable[..., object]) -> bool:
    """Whether arguments of ``run`` may be in rooms."""
    return hasattr(run, "lends")


def run_on_loan(
    run: Callable[..., Any], arrays: Sequence[Any], taken: list[Room], *, star: bool = False
) -> Any:
    """``run(*arrays)``, or with ``star`` ``run(arrays)``, of arrays some of which are in rooms."""
    if not taken:
        return run(arrays) if star else run(*arrays)
    if not lends(run):
        own = {id(room.array): put_operand(room.memory) for room in taken}
        arrays = [own.get(id(x), x) for x in arrays]
    try:
        return run(arrays) if star else run(*arrays)
    finally:
        give_back(taken)


def _empty() -> None:
    """Let go of all free rooms. The lists stay, since calls know theirs."""
    for free in list(_ROOMS.values()):
        free.clear()
    _held[0] = 0


def _forget() -> None:
    _empty()
    _ROOMS.clear()


on_fork(_forget)


@on_global_change
def _option_changed(name: str, value: object) -> None:
    del name, value
    _forget()
