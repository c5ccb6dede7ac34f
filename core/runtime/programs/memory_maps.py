"""Room for compiled programs among the memory maps of the process.

Linux lets a process have a certain number of memory maps, 65530 if nobody changed it. Each program
that XLA compiles for the CPU takes 5 to some 50 of them, so after some ten thousand programs (a
loop over sizes, a long session in a notebook, a large test suite) there is none left, and the
next compilation fails or ends the process. Long before that the caches are cleared: programs that
are needed again compile again, those that somebody holds stay.
"""

from __future__ import annotations

import gc
import sys
import warnings
from pathlib import Path

from tracebridge.core.util.caching import clear_all

_MOST_MAPS = Path("/proc/sys/vm/max_map_count")
_MAPS = Path("/proc/self/maps")
_SHARE = 0.75  # of the maps may be taken; the rest is for threads, files and other libraries
_OF_LARGE_PROGRAM = 100  # maps; counting them is put off by as many programs as surely fit
_LEAST_PUT_OFF = 16
_WHEN_NOTHING_HELPS = 4096
_NEVER = sys.maxsize


class _Watch:
    """Counts compilations between two looks at the memory maps."""

    __slots__ = ("put_off",)

    def __init__(self) -> None:
        self.put_off = 0


_WATCH = _Watch()


def make_room_for_program() -> None:
    """Clear the caches if nearly all memory maps of this process are taken.

    To be called before each compilation for the CPU; nearly always one subtraction.
    """
    if _WATCH.put_off > 0:
        _WATCH.put_off -= 1
        return
    _WATCH.put_off = _look(_limit())


def _look(limit: int | None) -> int:
    """Count maps, clear caches if they are too many; how many programs need no look."""
    if limit is None:
        return _NEVER
    taken = _count()
    if taken >= limit:
        clear_all()
        gc.collect()  # traces refer to each other in circles
        taken = _count()
        if taken >= limit:
            warnings.warn(_advice(taken, limit), RuntimeWarning, stacklevel=2)
            return _WHEN_NOTHING_HELPS
    return max((limit - taken) // _OF_LARGE_PROGRAM, _LEAST_PUT_OFF)


def _advice(taken: int, limit: int) -> str:
    return (
        f"this process has {taken} memory maps, and the system takes at most "
        f"{round(limit / _SHARE)}; compiled programs need some of them, and without any left "
        "compilations fail. Clearing tracebridge's caches did not help: let go of results of "
        "lower(...).compile() and of wrapped functions that are not needed any more, or let "
        "the system take more: sysctl -w vm.max_map_count=262144"
    )


def _limit() -> int | None:
    """How many maps may be taken; None where no such limit is known."""
    try:
        return round(int(_MOST_MAPS.read_text(encoding="ascii")) * _SHARE)
    except (OSError, ValueError):
        return None


def _count() -> int:
    try:
        return _MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0
