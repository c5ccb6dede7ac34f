"""Calls with numbers and ndarrays among their arguments, in the default state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.lent import (
    Room,
    give_back,
    lends,
    operand,
    rooms_of,
    run_on_loan,
)
from tracebridge.core.runtime.calls.dispatch import raise_for
from tracebridge.core.runtime.calls.scalars import SCALAR_TYPES, scalar_argument


def is_convertible(x: object) -> bool:
    """Whether ``converted`` makes an array of ``x``."""
    return type(x) is np.ndarray or type(x) in SCALAR_TYPES or isinstance(x, np.generic)


def converted(x: Any, taken: list[Room]) -> Any:
    """A Python number, an ndarray or a number of NumPy as an array.

    ``taken`` as in ``operand``.
    """
    kind = type(x)
    if kind in SCALAR_TYPES:
        return scalar_argument(x)
    return operand(x, taken) if kind is np.ndarray or issubclass(kind, np.generic) else x


def kinds_of(args: Sequence[Any]) -> tuple[Any, ...]:
    """What decides the signature that each argument will have as an array.

    Raises:
        AttributeError: never for arguments that ``converted`` takes.
    """
    return tuple(
        [
            x._sig if (kind := type(x)) is Array
            else (x.shape, x.dtype) if kind is np.ndarray
            else kind
            for x in args
        ]
    )  # fmt: skip


def make_host_run(
    args: Sequence[Any], table: Any, left: Callable[[str], None], name: str, *tree: object
) -> Callable[[Sequence[Any]], Any] | None:
    """``run(args)`` for arguments of the kinds of these; None if they have no program in ``table``.

    ``tree``: nothing for a table of positional arguments, the structure for a table of trees.
    """
    taken: list[Room] = []
    star = bool(tree)
    try:
        arrays = [x if type(x) is Array else converted(x, taken) for x in args]
        run = table[(*tree, *[a._sig for a in arrays])]
    except (KeyError, AttributeError, TypeError):
        return None
    finally:
        give_back(taken)

    def run_converted(args: Sequence[Any]) -> Any:
        left("converted")
        taken: list[Room] = []
        arrays = [x if type(x) is Array else converted(x, taken) for x in args]
        try:
            return run_on_loan(run, arrays, taken, star=star)
        except XlaRuntimeError as error:
            raise_for(arrays, name, error)
            raise

    numbers = [i for i, x in enumerate(args) if type(x) in SCALAR_TYPES]
    hosts = [i for i, x in enumerate(args) if i not in numbers and type(x) is not Array]
    places = [(i, rooms_of(args[i])) for i in hosts]
    if not lends(run) or any([free is None for _, free in places]):
        return run_converted
    if star:
        return _by_places(run, places, numbers, run_converted, left, name)
    return _by_places(lambda arrays: run(*arrays), places, numbers, run_converted, left, name)


def _by_places(
    run: Callable[..., Any],
    places: Sequence[tuple[int, Any]],
    numbers: Sequence[int],
    otherwise: Callable[[Sequence[Any]], Any],
    left: Callable[[str], None],
    name: str,
) -> Callable[[Sequence[Any]], Any]:
    """``otherwise``, where ``places`` tells which arguments go to which rooms.

    ``run`` takes the sequence of arrays.
    """

    def run_in_rooms(args: Sequence[Any]) -> Any:
        arrays = list(args)
        taken: list[Room] = []
        try:
            for i, free in places:
                room = free.pop()
                taken.append(room)
                room.memory[...] = args[i]
                arrays[i] = room.array
        except (IndexError, OverflowError):  # other calls have them, or a number wraps
            give_back(taken)
            return otherwise(args)
        left("converted")
        try:
            for i in numbers:
                arrays[i] = scalar_argument(args[i])
            return run(arrays)
        except XlaRuntimeError as error:
            raise_for(arrays, name, error)
            raise
        finally:
            for room in taken:
                room.free.append(room)

    return run_in_rooms
