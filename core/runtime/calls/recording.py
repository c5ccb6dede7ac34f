"""What staged functions have run eagerly, for who wants to run it again without asking."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident
from typing import Any, final

from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.runtime.calls.dispatch import raise_for


@final
class Recorder:
    """The calls of one thread in one block: ``(run, arguments, result)`` of each."""

    __slots__ = ("calls", "thread")

    def __init__(self) -> None:
        self.thread = get_ident()
        self.calls: list[tuple[Callable[..., Any], Sequence[Any], Any]] = []


# Empty almost always.
RECORDERS: list[Recorder] = []


@contextlib.contextmanager
def recording() -> Iterator[Recorder]:
    """Note each staged function that is called eagerly in this thread while the block lasts."""
    recorder = Recorder()
    RECORDERS.append(recorder)
    try:
        yield recorder
    finally:
        RECORDERS.remove(recorder)


def note(run: Callable[..., Any], arrays: Sequence[Any], out: object) -> None:
    """Tell the blocks of this thread that ``run(*arrays)`` gave ``out``."""
    here = get_ident()
    for recorder in RECORDERS:
        if recorder.thread == here:
            recorder.calls.append((run, arrays, out))


def recorded(run: Callable[..., Any], arrays: Sequence[Any], name: str) -> Any:
    """``run(*arrays)``, noted."""
    try:
        out = run(*arrays)
    except XlaRuntimeError as error:
        raise_for(arrays, name, error)
        raise
    note(run, arrays, out)
    return out
