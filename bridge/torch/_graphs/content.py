"""Tokens of functions and objects: equal as long as what they compute with is the same.

Graphs guard on them, so that they are cheap beside fingerprints: what cannot change stands for
itself. They are for one process only.
"""

from __future__ import annotations

import functools
import types
from typing import Any, final

import numpy as np

from tracebridge.core.control.jit.cached_call import Jitted
from tracebridge.core.util.caching import BoundedCache
from tracebridge.torch._graphs.fingerprint import (
    LIBRARIES,
    NoContentError,
    attributes_of,
    digest_of,
    global_names,
    is_of_user,
    package_of,
)

_NAMES: BoundedCache[tuple[str, ...]] = BoundedCache("names in code", 1024)


def token(x: Any) -> Any:
    """What ``==`` compares to find out whether an object, or what a function reads, is as before.

    Functions by code, defaults, closure and globals; objects by class and attributes; containers
    and NumPy arrays by what is in them; objects of libraries by what they are pickled as.
    """
    try:
        return _Walk().of(x)
    except RecursionError:
        return _Same(x)  # too deep to walk over


@final
class _Same:
    """An object that is equal to nothing but itself."""

    __hash__ = None  # type: ignore[assignment]  # tokens are compared only
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.x is other.x


@final
class _Walk:
    def __init__(self) -> None:
        # Where each object was met first, which ends cycles.
        self.met: dict[int, int] = {}
        self.alive: list[Any] = []

    def of(self, x: Any) -> Any:
        kind = type(x)
        if kind is float or kind is complex:
            return repr(x)  # -0.0 and NaN
        if x is None or kind in (int, bool, str, bytes):
            return (kind, x)
        if kind is types.ModuleType or kind is types.BuiltinFunctionType:
            return _Same(x)
        place = self.met.get(id(x))
        if place is not None:
            return ("met", place)
        self.met[id(x)] = len(self.met)
        self.alive.append(x)
        if kind is types.FunctionType:
            return self.function(x)
        if kind in (tuple, list):
            return (kind, [self.of(v) for v in x])
        if kind is dict:
            return (kind, [(self.of(k), self.of(v)) for k, v in x.items()])
        if kind is types.MethodType:
            return (kind, self.of(x.__func__), self.of(x.__self__))
        if kind is functools.partial:
            return (kind, self.of(x.func), self.of(x.args), self.of(x.keywords))
        if kind is np.ndarray and not x.dtype.hasobject:
            return (kind, x.dtype, x.shape, x.tobytes())
        if isinstance(x, type):
            return self.of_class(x)
        return self.object(x)

    def function(self, x: types.FunctionType) -> Any:
        if package_of(x) in LIBRARIES:
            return _Same(x)
        if str(x.__globals__.get("__name__")).partition(".")[0] in LIBRARIES:
            # Made by a transformation. What is compiled keeps what it was traced with.
            wrapped = x.__dict__.get("__wrapped__")
            compiled = isinstance(getattr(x.__dict__.get("clear_cache"), "__self__", None), Jitted)
            return (_Same(x), None if compiled else self.of(wrapped))
        cells = [_content(cell) for cell in x.__closure__ or ()]
        names = _NAMES.get(x.__code__)
        if names is None:
            names = tuple(sorted(global_names(x.__code__)))
            _NAMES.set(x.__code__, names)
        scope = x.__globals__
        return (
            x.__code__,
            self.of(x.__defaults__),
            self.of(x.__kwdefaults__),
            [self.of(v) for v in cells],
            [self.reference(scope[name], names, ()) for name in names if name in scope],
        )

    def reference(self, x: Any, names: tuple[str, ...], inside: tuple[Any, ...]) -> Any:
        """What a global is, with what the code takes out of a module."""
        if type(x) is not types.ModuleType or x in inside:
            return self.of(x)
        if x.__name__.partition(".")[0] in LIBRARIES:
            return _Same(x)
        scope = vars(x)
        found = [self.reference(scope[n], names, (*inside, x)) for n in names if n in scope]
        return (_Same(x), found)

    def of_class(self, x: type) -> Any:
        if package_of(x) in LIBRARIES:
            return _Same(x)
        members = [(k, self.of(v)) for k, v in vars(x).items() if is_of_user(k, v, x)]
        return (_Same(x), members, [self.of(base) for base in x.__bases__])

    def object(self, x: Any) -> Any:
        kind = type(x)
        package = package_of(kind)
        if package == "tracebridge":
            return _Same(x)
        attributes = attributes_of(x)
        if package not in LIBRARIES and attributes:
            items = [(k, self.of(v)) for k, v in attributes.items()]
            return (self.of(kind), _content_of_plain(x), items)
        try:
            return (kind, digest_of(x))
        except NoContentError:
            return _Same(x)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _content_of_plain(x: Any) -> Any:
    """The value of an object whose class is derived from a plain type."""
    if isinstance(x, int | float | complex | str | bytes | list | tuple | dict | set | frozenset):
        return digest_of(x)
    return None
