"""Fingerprints of programs: digests of what is computed, equal in all processes.

Nothing in them depends on addresses, on the order of sets and dicts, on names of files or on what
was computed before. What enters:

* constants: their values, dtypes and shapes;
* functions (rules of derivatives, callbacks): code, defaults, attributes, closure, and the globals
  that the code names, also those of modules (``settings.SCALE``);
* objects: their class and their attributes, or what they are pickled as if their class says so
  (``__reduce__``, ``__getstate__``); containers by their items, members of enums by their values;
* classes: their methods, attributes and bases;
* functions and classes of libraries, and of other packages than that of the function that refers
  to them: their import path, if they can be imported by it.

Modules of libraries, locks, loggers, weak references and caches compute nothing. What has no
content that can be compared (generators, open files), and what is too large or too deep to walk
over, gives a fingerprint that no other process has.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import hashlib
import logging
import struct
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from tracebridge._derived.names import by_import_path
from tracebridge.core.control.jit.cached_call import Jitted
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.values import Literal
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.tree.tree import PyTreeDef
from tracebridge.core.util.caching import BoundedCache

_KEY = "torch fingerprint"
_DIGEST_BYTES = 12
_MAX_OBJECTS = 1 << 18
UNIQUE = "only-"
"""What fingerprints of programs begin with that no other process can compare."""

# Attributes of the engine's own objects that remember work, or lead to what does.
_MEMOS = frozenset(
    {"memo", "owner", "cache", "_known", "_memo", "__weakref__", "_lock", "lock", "bodies", "runs"}
)
_NUMBERS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
_CONTAINERS = (tuple, list, dict, set, frozenset)
_PLAIN = frozenset({*_NUMBERS, *_CONTAINERS, np.ndarray, types.MappingProxyType})
_BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
# Whose values say nothing of what is computed.
_SKIPPED = (
    weakref.ReferenceType, weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet,
    BoundedCache, DebugInfo, logging.Logger, threading.local,
    type(threading.Lock()), type(threading.RLock()),
)  # fmt: skip
# What classes hold besides what users write into them.
_OF_CLASSES = (types.GetSetDescriptorType, types.MemberDescriptorType)
_METHOD_KINDS = (types.FunctionType, classmethod, staticmethod, property)
# Packages that a program is not fingerprinted through: their functions are known by name.
LIBRARIES = frozenset({
    *sys.stdlib_module_names, "tracebridge", "jaxlib", "ml_dtypes", "numpy", "scipy", "torch",
    "tensorflow", "keras",
}) - {"__main__"}  # fmt: skip


def fingerprint(jaxpr: Jaxpr) -> str:
    """The digest of a program: its inputs, constants, equations, results, and their rules."""
    found = jaxpr.cache.get(_KEY)
    if found is None:
        try:
            found = _Digest().of(jaxpr).hex()
        except (NoContentError, RecursionError):
            found = f"{UNIQUE}{uuid.uuid4().hex}"
        jaxpr.cache[_KEY] = found
    return found


def digest_of(x: Any) -> bytes:
    """The digest of any object.

    Raises:
        NoContentError: it has no content that can be compared.
    """
    try:
        return _Digest().of(x)
    except RecursionError as error:
        raise NoContentError(type(x).__qualname__) from error


class NoContentError(Exception):
    """An object has nothing that two processes could compare."""


@final
class _Digest:
    """One walk over a program and everything it refers to.

    Each object enters as a digest of its own: whether equal parts are one object or several
    depends on caches.
    """

    def __init__(self, outer: _Digest | None = None) -> None:
        self.hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self.known: dict[Any, bytes] = {}
        # The objects that the walk is inside of, and how deep each one is.
        self.open: dict[int, int] = {} if outer is None else outer.open
        self.alive: list[Any] = []
        self.count: list[int] = [0] if outer is None else outer.count
        # The package of the function that refers to what is met.
        self.package: str | None = None if outer is None else outer.package

    def of(self, x: Any) -> bytes:
        """The digest of an object."""
        key = id(x), self.package
        cached = self.known.get(key)
        if cached is None:
            if id(x) in self.open:
                return b"%d levels up" % (len(self.open) - self.open[id(x)])
            self.count[0] += 1
            if self.count[0] > _MAX_OBJECTS:
                raise NoContentError("too many objects")
            self.open[id(x)] = len(self.open)
            outer, self.hash = self.hash, hashlib.blake2b(digest_size=_DIGEST_BYTES)
            package = self.package
            self._method_of(x)(self, x)
            cached = self.known[key] = self.hash.digest()
            self.alive.append(x)  # so that no other object gets its address
            self.hash, self.package = outer, package
            del self.open[id(x)]
        return cached

    def apart(self, x: Any) -> bytes:
        """The digest of an object, whatever was met before: for items in no order.

        How deep a cycle is entered would depend on the order.
        """
        return _Digest(self).of((x,))

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
        self.text("steps", len(jaxpr.equations))
        for app, variables in jaxpr.equations:
            self.text(app.primitive.name, variables)
            self.mapping(app.params)
            self.each("outs", app.outs)
        self.text(jaxpr.outs)
        self.each("results", jaxpr.out_avals)

    def mapping(self, items: Mapping[Any, Any]) -> None:
        self.text("mapping", len(items))
        try:
            listed = sorted([(k.encode(), v) for k, v in items.items()], key=lambda pair: pair[0])
        except AttributeError:  # keys of other types
            listed = [(self.apart(k), v) for k, v in items.items()]
            listed.sort(key=lambda pair: pair[0])
        for key, value in listed:
            self.text(key)
            self.add(value)

    def add(self, x: Any) -> None:
        """Anything that a program may refer to."""
        if type(x) in _NUMBERS:
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
            self.text(x.shape)
        else:
            self.dtype(x.dtype)
            self.text("memory", x.shape, np.asarray(x).tobytes())
        self.more(x)

    def tensor(self, x: torch.Tensor) -> None:
        try:
            with _disable_current_modes(), torch.no_grad():
                dense = x.detach().cpu().resolve_conj().resolve_neg().contiguous()
                content = dense.reshape(-1).view(torch.uint8).numpy().tobytes()
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise NoContentError("tensor") from error
        self.text("tensor", type(x).__qualname__, x.dtype, tuple(x.shape), content)

    def dtype(self, x: np.dtype[Any]) -> None:
        self.text("dtype", x.name, x.str, x.descr if x.names else "")

    def member(self, x: enum.Enum) -> None:
        self.add(type(x))
        self.text("member", x.name)
        self.add(x.value)

    def sequence(self, x: tuple[Any, ...] | list[Any]) -> None:
        self.each(type(x).__qualname__, x)
        self.more(x)

    def unordered(self, x: set[Any] | frozenset[Any]) -> None:
        self.text("set", *sorted([self.apart(item) for item in x]))
        self.more(x)

    def table(self, x: Mapping[Any, Any]) -> None:
        self.mapping(x)
        self.more(x)

    def number(self, x: Any) -> None:
        kinds = [kind for kind in _NUMBERS if isinstance(x, kind)]
        self.text("number", kinds[0].__name__, kinds[0].__repr__(x))
        self.more(x)

    def more(self, x: Any) -> None:
        """What a subclass of a plain type has besides."""
        if type(x) not in _PLAIN and not isinstance(x, np.generic):
            self.add(type(x))
            self.add(getattr(x, "default_factory", None))
            self.mapping(attributes_of(x))

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
        self.add(_content(x))

    def cached(self, x: Any) -> None:
        self.each("cached", (x.__wrapped__, x.cache_parameters()))

    def function(self, x: types.FunctionType) -> None:
        """Code, defaults, closure, and what the code refers to."""
        if self.by_name(x):
            self.named(x)
            return
        compiled = getattr(x.__dict__.get("clear_cache"), "__self__", None)
        if isinstance(compiled, Jitted) and compiled.fun is x.__dict__.get("__wrapped__"):
            self.add(compiled)  # the rest of the closure remembers what was called
            return
        self.text("function", x.__qualname__)
        self.package = package_of(x)
        self.code(x.__code__)
        self.each("defaults", (x.__defaults__, x.__kwdefaults__))
        self.mapping(x.__dict__)
        names = global_names(x.__code__)
        self.text("closure", len(x.__closure__ or ()))
        for cell in x.__closure__ or ():
            self.reference(_content(cell), names, [])
        if str(x.__globals__.get("__name__")).partition(".")[0] in LIBRARIES:
            return  # made by a transformation or decorator, whose module remembers what it did
        for name in sorted(names & x.__globals__.keys()):
            self.text(name)
            self.reference(x.__globals__[name], names, [])

    def reference(self, x: Any, names: set[str], inside: list[Any]) -> None:
        """What a global name refers to, with what the same code takes out of a module."""
        self.add(x)
        if not isinstance(x, types.ModuleType) or x in inside:
            return
        if x.__name__.partition(".")[0] not in LIBRARIES:
            for name in sorted(names & vars(x).keys()):
                self.text(name)
                self.reference(vars(x)[name], names, [*inside, x])

    def by_name(self, x: Any) -> bool:
        """Whether a function or class is known by its import path."""
        package = package_of(x)
        if package in LIBRARIES or self.package not in (None, package):
            return by_import_path(x.__module__, x.__qualname__) is x
        return False

    def compiled(self, x: Jitted) -> None:
        options = x.options
        self.each("jit", (x.fun, options.static_argnums, options.static_argnames))

    def kind(self, x: type) -> None:
        """A class: its name, bases, methods and attributes."""
        self.named(x)
        package = package_of(x)
        if package in LIBRARIES or self.by_name(x):
            return
        self.package = package
        self.each("bases", (type(x), *x.__bases__))
        members: Mapping[str, Any] = {}
        if issubclass(x, enum.Enum):
            members = x.__members__
            self.mapping({k: m.value for k, m in members.items()})
        self.mapping({k: v for k, v in vars(x).items() if k not in members and is_of_user(k, v, x)})

    def descriptor(self, x: Any) -> None:
        parts = ("__func__", "fget", "fset", "fdel", "func")
        self.each(type(x).__qualname__, [getattr(x, part, None) for part in parts])

    def code(self, x: types.CodeType) -> None:
        self.text(x.co_code, x.co_names, x.co_freevars, x.co_cellvars, x.co_flags)
        self.text(x.co_argcount, x.co_kwonlyargcount)
        # The documentation of a function is its first constant, but computes nothing.
        self.each("constants", x.co_consts)

    def object(self, x: Any) -> None:
        """The class and the attributes, or what pickle would write."""
        kind = type(x)
        self.add(kind)
        if getattr(x, "is_symbolic_dim", False):
            self.text(str(x))
            return
        content = getattr(x, "fingerprinted", None)
        if package_of(kind) == "tracebridge" and content is not None:
            self.add(content())
            return
        if not _pickles_itself(kind):
            attributes = attributes_of(x)
            if attributes:
                self.mapping(attributes)
                return
        try:
            known = copyreg.dispatch_table.get(kind)
            reduced = x.__reduce_ex__(4) if known is None else known(x)
        except Exception as error:
            raise NoContentError(kind.__qualname__) from error
        if isinstance(reduced, str):
            self.text(reduced)
            return
        make, arguments, *more = reduced
        state, items, pairs = [*more[:3], None, None, None][:3]
        self.each("made", (make, arguments, state, list(items or ())))
        self.mapping(dict(pairs or ()))

    def traced(self, x: Tracer) -> None:
        """A value of the trace, which a rule keeps with its call: the operands say which one."""
        self.text("traced", x.aval.str_short())

    def nothing(self, x: Any) -> None:
        self.text("skipped", type(x).__qualname__)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty cell"


def attributes_of(x: Any) -> dict[str, Any]:
    """Attributes of an object that Python code has made, without what they remember."""
    kind = type(x)
    # Those of users' objects may have any name.
    memos = _MEMOS if package_of(kind) == "tracebridge" else ("__weakref__",)
    attributes = {
        name: value
        for name, value in getattr(x, "__dict__", {}).items()
        if not isinstance(getattr(kind, name, None), functools.cached_property)
    }
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            own = name
            if name.startswith("__") and not name.endswith("__"):
                own = f"_{base.__name__.lstrip('_')}{name}"
            if hasattr(x, own):
                attributes[own] = getattr(x, own)
    return {k: v for k, v in attributes.items() if k not in memos}


def _pickles_itself(kind: type) -> bool:
    """Whether a class says better than its attributes what its objects hold."""
    package = package_of(kind)
    if package in LIBRARIES:
        return package != "tracebridge"
    names = ("__reduce__", "__reduce_ex__", "__getstate__")
    return any([getattr(kind, n, None) is not getattr(object, n, None) for n in names])


def is_of_user(name: str, value: Any, kind: type) -> bool:
    """Whether an attribute of a class is more than what Python puts there."""
    if isinstance(value, _OF_CLASSES) or name in ("__orig_bases__", "_abc_impl"):
        return False
    if issubclass(kind, enum.Enum) and name.startswith("_") and not name.startswith("__"):
        return False
    return not name.startswith("__") or isinstance(value, _METHOD_KINDS)


def global_names(code: types.CodeType) -> set[str]:
    """Names of globals and attributes in code, and in the functions that it makes."""
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= global_names(const)
    return names


def package_of(x: Any) -> str:
    """The first part of the module that an object says it is from."""
    return str(getattr(x, "__module__", None)).split(".")[0]


# Tried in this order.
_METHODS: list[tuple[Any, Callable[[_Digest, Any], None]]] = [
    (Jaxpr, _Digest.program),
    (Literal, _Digest.literal),
    (Tracer, _Digest.traced),
    (Array, _Digest.array),
    (np.ndarray | np.generic, _Digest.memory),
    (np.dtype, _Digest.dtype),
    (torch.Tensor, _Digest.tensor),
    (enum.Enum, _Digest.member),
    ((tuple, list), _Digest.sequence),
    ((set, frozenset), _Digest.unordered),
    ((dict, types.MappingProxyType), _Digest.table),
    (_NUMBERS, _Digest.number),
    (PyTreeDef, _Digest.tree),
    (type, _Digest.kind),
    (types.ModuleType | np.ufunc, _Digest.named),
    (_BUILTINS, _Digest.named),
    (types.FunctionType, _Digest.function),
    (types.MethodType, _Digest.method),
    (functools.partial, _Digest.partial),
    (functools._lru_cache_wrapper, _Digest.cached),
    ((classmethod, staticmethod, property, functools.cached_property), _Digest.descriptor),
    (types.CellType, _Digest.cell),
    (types.CodeType, _Digest.code),
    (Primitive, _Digest.primitive),
    (Jitted, _Digest.compiled),
    (_SKIPPED, _Digest.nothing),
]
