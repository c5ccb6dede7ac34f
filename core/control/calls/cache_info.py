"""What a jitted function counts of its calls, and the answer to ``f.cache_info()``."""

from __future__ import annotations

from typing import NamedTuple, final

# Why a call took each of the other paths.
WHY = {
    "converted": "an argument is a Python number or an ndarray, which each call copies to an array",
    "checked": "an option, a mesh or a named axis is in force that each call has to look at",
    "traced": "it stood inside of another traced function, where it became an equation",
    "references": "it reads or writes mutable references, whose contents go in and come out",
    "disabled": "disable_jit is in force: the Python function ran",
}


class CacheInfo(NamedTuple):
    """What ``f.cache_info()`` of a jitted function gives; ``print`` it.

    ``fast``: how many signatures are on the fastest paths: of ``one`` array, of ``many``, of
    ``trees``, and ``keyed`` ones (keywords, static arguments, and what numbers become). Calls on
    these paths are not counted: a counter would cost them 1.5 %. ``slow``: the calls that took
    another path, each of them: ``converted``, ``checked``, ``traced``, ``references``,
    ``disabled``. ``traces`` and ``compilations``: how often the function was traced, and compiled;
    ``programs``: how many of them it keeps. ``last_miss``: why it was traced or compiled the last
    time. ``last_slow``: why the last one of the slow calls was one.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> double = tb.jit(lambda x: x * 2)
    >>> for x in (tnp.ones(3), tnp.ones(3), tnp.ones(4), 5.0, 6.0):
    ...     _ = double(x)
    >>> double.cache_info()
    CacheInfo of <lambda>:
      fast signatures: one 2, keyed 1
      slow calls: converted 1
      3 traces, 3 compilations, 3 programs kept
      last miss: compiled again, because of x: f32[] instead of f32[4] (shape () instead of (4,), \
    a Python number instead of an array)
      last slow call: an argument is a Python number or an ndarray, which each call copies to an \
    array
    """

    name: str
    fast: dict[str, int]
    slow: dict[str, int]
    traces: int
    compilations: int
    programs: int
    last_miss: str | None
    last_slow: str | None

    def __repr__(self) -> str:
        traces = _number(self.traces, "trace")
        compilations = _number(self.compilations, "compilation")
        lines = [
            f"CacheInfo of {self.name}:",
            f"  fast signatures: {_listed(self.fast)}",
            f"  slow calls: {_listed(self.slow)}",
            f"  {traces}, {compilations}, {_number(self.programs, 'program')} kept",
        ]
        if self.last_miss is not None:
            lines.append(f"  last miss: {self.last_miss}")
        if self.last_slow is not None:
            lines.append(f"  last slow call: {self.last_slow}")
        return "\n".join(lines)


def _listed(numbers: dict[str, int]) -> str:
    return ", ".join([f"{path} {n}" for path, n in numbers.items() if n]) or "none"


def _number(n: int, thing: str) -> str:
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


@final
class Counts:
    """What one jitted function counts outside of the fastest paths.

    ``slow``: how many calls took each path of ``WHY``, in the order of their last one. ``missed``:
    "traced" or "compiled", what the last miss did; ``first``: its reason, if there was no other
    call to compare with; ``parameters``: those of that call.
    """

    __slots__ = ("compilations", "first", "missed", "parameters", "slow", "traces")

    def __init__(self) -> None:
        self.slow: dict[str, int] = {}
        self.traces = 0
        self.compilations = 0
        self.missed: str | None = None
        self.first: str | None = None
        self.parameters: tuple[str, ...] = ()

    def left(self, path: str) -> None:
        """Note a call that took a slower path."""
        self.slow[path] = self.slow.pop(path, 0) + 1

    def note(self, missed: str, first: str | None, parameters: tuple[str, ...]) -> None:
        """Note a miss."""
        self.missed, self.first, self.parameters = missed, first, parameters
