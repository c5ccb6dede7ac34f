"""Names of wrapped functions: what handles begin with, and how another process finds them."""

from __future__ import annotations

import importlib
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

_LOCK = threading.Lock()
COUNTER = "#"
STAMP = "@"
# What is in the path of a function that cannot be imported.
UNNAMED = ("<lambda>", "<locals>")
# Characters that separate the parts of a handle.
_PARTS = str.maketrans("|" + COUNTER + STAMP, "/__")

WRAPPED: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""The living wrapped functions by name."""

# How many names begin with a path. Functions that are made with ever new paths would make it grow
# for ever, so it starts over, with names of the next generation.
_GIVEN: dict[str, int] = {}
_MAX_GIVEN = 1 << 16
_GENERATION = [0]


def register(wrapped: Any, fun: Any) -> str:
    """A name that no wrapped function of this process has or had; its import path if possible.

    Graphs hold nothing but the name, and guard on nothing else: a name that was handed out again
    would make the graph of a dead function run for another one.
    """
    base = path_of(fun)
    with _LOCK:
        if len(_GIVEN) >= _MAX_GIVEN:
            _GIVEN.clear()
            _GENERATION[0] += 1
        generation = _GENERATION[0]
        n = _GIVEN[base] = _GIVEN.get(base, 0) + 1
        if generation:
            name = f"{base}{COUNTER}{generation}.{n}"
        else:
            name = base if n == 1 else f"{base}{COUNTER}{n}"
        WRAPPED[name] = wrapped
    return name


def path_of(fun: Any) -> str:
    """Module and qualified name of a callable, as far as it has them."""
    module = getattr(fun, "__module__", None) or "?"
    qualname = getattr(fun, "__qualname__", type(fun).__qualname__)
    path = f"{module}:{qualname}".translate(_PARTS)
    while "::" in path:
        path = path.replace("::", ":")
    return path


def stamped(handle: str, digest: str, avals: Sequence[Any]) -> str:
    """The handle with the fingerprint of the program at some avals, which another process checks.

    ``m:f#2|structure`` becomes ``m:f#2@digest float32[2,d0] int32[]|structure``.
    """
    name, bar, structure = handle.partition("|")
    return f"{name}{STAMP}{' '.join([digest, *types_of(avals)])}{bar}{structure}"


def types_of(avals: Sequence[Any]) -> tuple[str, ...]:
    """Shapes and dtypes as text, such as ``float32[2,2*d0]``."""
    sizes = [",".join([str(d).replace(" ", "") for d in a.shape]) for a in avals]
    return tuple([f"{a.dtype.name}[{s}]" for a, s in zip(avals, sizes, strict=True)])


class Parts(NamedTuple):
    """What a handle says: see ``stamped``."""

    name: str
    digest: str
    types: tuple[str, ...]
    structure: str

    @property
    def path(self) -> str:
        """The import path of the function."""
        return self.name.partition(COUNTER)[0]


def parts_of(handle: str) -> Parts:
    """The parts of a handle; an empty digest if it has none."""
    head, _, structure = handle.partition("|")
    name, _, stamp = head.partition(STAMP)
    digest, *types = stamp.split(" ")
    return Parts(name, digest, tuple(types), structure)


def wrapped_at(path: str) -> list[Any]:
    """The living wrapped functions of an import path, the one that has had it longest first."""
    found = [(name, f) for name, f in list(WRAPPED.items()) if name.partition(COUNTER)[0] == path]
    return [f for _, f in sorted(found, key=lambda pair: (len(pair[0]), pair[0]))]


def by_import_path(module: str, qualname: str) -> Any:
    """The object that ``module.qualname`` names now, or None."""
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        return None
    return found
