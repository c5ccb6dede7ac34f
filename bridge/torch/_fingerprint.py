"""Fingerprints of programs: digests of what is computed, equal in all processes.

Nothing in them depends on addresses, on the order of sets, on names of files or on what was
computed before: constants enter by their content, functions (rules of derivatives, callbacks) by
their code and what it refers to. What has no content that can be compared gets a fingerprint that
no other process has.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import struct
import types
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import numpy as np

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.values import Literal
from tracebridge.core.runtime.array import Array
from tracebridge.core.tree.tree import PyTreeDef
from tracebridge.core.util.caching import BoundedCache
from tracebridge.torch._names import by_import_path

_KEY = "torch fingerprint"
_DIGEST_BYTES = 12
UNIQUE = "only-"
"""What fingerprints of programs begin with that no other process can compare."""

# Attributes of the engine's own objects that remember work, or lead to what does.
_MEMOS = frozenset(
    {"memo", "owner", "cache", "_known", "_memo", "__weakref__", "_lock", "lock", "plans", "runs"}
)
_NUMBERS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
_BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
# Whose values say nothing of what is computed.
_SKIPPED = (weakref.ReferenceType, BoundedCache, DebugInfo)


def fingerprint(jaxpr: Jaxpr) -> str:
    """The digest of a program: its inputs, constants, equations, results, and their rules."""
    found = jaxpr.cache.get(_KEY)
    if found is None:
        try:
            found = _Digest().of(jaxpr).hex()
        except NoContentError:
            found = f"{UNIQUE}{uuid.uuid4().hex}"
        jaxpr.cache[_KEY] = found
    return found


class NoContentError(Exception):
    """An object has nothing that two processes could compare."""


@final
class _Digest:
    """One walk over a program and everything it refers to.

    Each object enters as a digest of its own: whether equal parts are one object or several
    depends on caches.
    """

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self.known: dict[int, bytes] = {}
        # The objects that the walk is inside of, and how deep each one is.
        self.open: dict[int, int] = {}
        self.alive: list[Any] = []

    def of(self, x: Any) -> bytes:
        """The digest of an object."""
        key = id(x)
        found = self.known.get(key)
        if found is None:
            if key in self.open:
                return b"%d levels up" % (len(self.open) - self.open[key])
            self.open[key] = len(self.open)
            outer, self.hash = self.hash, hashlib.blake2b(digest_size=_DIGEST_BYTES)
            self._method_of(x)(self, x)
            found = self.known[key] = self.hash.digest()
            self.alive.append(x)  # so that no other object gets its address
            self.hash = outer
            del self.open[key]
        return found

    def _method_of(self, x: Any) -> Callable[[_Digest, Any], None]:
        for kinds, method in _METHODS:
            if isinstance(x, kinds):
                return method
        return _Digest.object

    def text(self, *words: object) -> None:
        """Words of the digest; none runs into the next one."""
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            self.hash.update(struct.pack("<q", len(data)))
            self.hash.update(data)

    def each(self, kind: str, items: Iterable[Any]) -> None:
        listed = list(items)
        self.text(kind, len(listed))
        for item in listed:
            self.add(item)

    def program(self, jaxpr: Jaxpr) -> None:
        self.each("program", jaxpr.in_avals)
        self.each("consts", jaxpr.consts)
        self.text("steps", len(jaxpr.steps))
        for app, slots in jaxpr.steps:
            self.text(app.primitive.name, slots)
            self.mapping(app.params)
            self.each("outs", app.outs)
        self.text(jaxpr.outs)
        self.each("results", jaxpr.out_avals)

    def mapping(self, items: Mapping[Any, Any]) -> None:
        self.text("mapping", len(items))
        for key, value in items.items():
            self.add(key)
            self.add(value)

    def add(self, x: Any) -> None:
        """Anything that a program may refer to."""
        if isinstance(x, _NUMBERS):
            self.text(type(x).__name__, x if isinstance(x, str | bytes) else repr(x))
            return
        if isinstance(x, ShapedArray):
            self.text("aval", x.dtype.name, x.shape, x.weak_type)
            return
        self.text(self.of(x))

    # kinds of objects ----------------------------------------------------------------------------

    def literal(self, x: Literal) -> None:
        self.add(x.aval)
        self.text(repr(x.value))

    def array(self, x: Array) -> None:
        self.add(x.aval)
        self.memory(np.asarray(x))

    def memory(self, x: np.ndarray[Any, Any] | np.generic) -> None:
        if x.dtype.hasobject:
            self.each("objects", np.asarray(x).ravel().tolist())
        else:
            self.text("memory", x.dtype.name, x.shape, np.asarray(x).tobytes())

    def dtype(self, x: np.dtype[Any]) -> None:
        self.text("dtype", x.name)

    def member(self, x: enum.Enum) -> None:
        self.text("member", type(x).__qualname__, x.name)

    def sequence(self, x: tuple[Any, ...] | list[Any]) -> None:
        self.each(type(x).__qualname__, x)

    def unordered(self, x: set[Any] | frozenset[Any]) -> None:
        self.text("set", *sorted([_Digest().of((item,)) for item in x]))

    def tree(self, x: PyTreeDef) -> None:
        node = x.node_data()
        self.add(None if node is None else tuple(node))
        self.each("children", x.children())

    def named(self, x: Any) -> None:
        if isinstance(x, types.ModuleType):  # which may import what it is asked for
            self.text("module", x.__name__)
            return
        name = getattr(x, "__qualname__", getattr(x, "__name__", None))
        self.text("named", getattr(x, "__module__", ""), name)
        owner = getattr(x, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            self.add(owner)

    def primitive(self, x: Primitive) -> None:
        self.text("primitive", x.name)

    def partial(self, x: functools.partial[Any]) -> None:
        self.each("partial", (x.func, x.args, x.keywords))

    def method(self, x: types.MethodType) -> None:
        self.each("method", (x.__func__, x.__self__))

    def cell(self, x: types.CellType) -> None:
        try:
            content = x.cell_contents
        except ValueError:
            self.text("empty cell")
            return
        self.add(content)

    def function(self, x: types.FunctionType) -> None:
        """Code, defaults, closure, and what the code refers to in its own package."""
        if _package(x) == "tracebridge" and by_import_path(x.__module__, x.__qualname__) is x:
            self.named(x)  # a library function, whose closure remembers what was called
            return
        self.text("function", x.__qualname__)
        self.code(x.__code__)
        self.each("defaults", (x.__defaults__, x.__kwdefaults__))
        self.each("closure", x.__closure__ or ())
        for name in sorted(_global_names(x.__code__)):
            if name in x.__globals__:
                self.text(name)
                self.reference(x.__globals__[name], _package(x))

    def reference(self, x: Any, package: str) -> None:
        """What a global name refers to; libraries are known by their names."""
        if isinstance(x, types.ModuleType):
            self.named(x)
            return
        inside = _package(x) == package and package != "tracebridge"
        if isinstance(x, types.FunctionType) and not inside:
            self.named(x)
        elif isinstance(x, (types.FunctionType, tuple, Array, np.ndarray, *_NUMBERS)):
            self.add(x)
        else:
            self.text(type(x).__qualname__, getattr(x, "__name__", ""))
            decorated = getattr(x, "__wrapped__", None) if inside else None
            if isinstance(decorated, types.FunctionType):
                self.add(decorated)

    def code(self, x: types.CodeType) -> None:
        self.text(x.co_code, x.co_names, x.co_freevars, x.co_cellvars, x.co_flags)
        self.text(x.co_argcount, x.co_kwonlyargcount)
        # The documentation of a function is its first constant, but computes nothing.
        self.each("constants", x.co_consts)

    def object(self, x: Any) -> None:
        """The class and the attributes, or what pickle would write."""
        kind = type(x)
        self.text("object", kind.__module__, kind.__qualname__)
        if getattr(x, "is_symbolic_dim", False):
            self.text(str(x))
            return
        call = kind.__dict__.get("__call__")
        if isinstance(call, types.FunctionType) and kind.__module__.split(".")[0] != "tracebridge":
            self.add(call)
        attributes = _attributes(x)
        if attributes:
            self.mapping(attributes)
            return
        try:
            reduced = x.__reduce_ex__(4)
        except Exception as error:
            raise NoContentError(kind.__qualname__) from error
        if isinstance(reduced, str):
            self.text(reduced)
            return
        make, arguments, *state = reduced
        self.each("made", (make, arguments, *state[:1]))

    def nothing(self, x: Any) -> None:
        self.text("skipped", type(x).__qualname__)


def _attributes(x: Any) -> dict[str, Any]:
    """Attributes of an object that Python code has made, without what they remember."""
    found: dict[str, Any] = dict(getattr(x, "__dict__", {}))
    for kind in type(x).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(x, name):
                found[name] = getattr(x, name)
    return {k: found[k] for k in sorted(found) if k not in _MEMOS}


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= _global_names(const)
    return names


def _package(x: Any) -> str:
    return str(getattr(x, "__module__", None)).split(".")[0]


# Tried in this order.
_METHODS: list[tuple[Any, Callable[[_Digest, Any], None]]] = [
    (Jaxpr, _Digest.program),
    (Literal, _Digest.literal),
    (Array, _Digest.array),
    (np.ndarray | np.generic, _Digest.memory),
    (np.dtype, _Digest.dtype),
    (enum.Enum, _Digest.member),
    ((tuple, list), _Digest.sequence),
    ((set, frozenset), _Digest.unordered),
    ((dict, types.MappingProxyType), _Digest.mapping),
    (PyTreeDef, _Digest.tree),
    (type | types.ModuleType | np.ufunc, _Digest.named),
    (_BUILTINS, _Digest.named),
    (types.FunctionType, _Digest.function),
    (types.MethodType, _Digest.method),
    (functools.partial, _Digest.partial),
    (types.CellType, _Digest.cell),
    (types.CodeType, _Digest.code),
    (Primitive, _Digest.primitive),
    (_SKIPPED, _Digest.nothing),
]
