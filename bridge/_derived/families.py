"""Families of programs: a function of flat tensors and everything derived from it.

A ``Family`` is a function of a flat list of tensors that is specialised to their shapes and dtypes
at need: ``family.program(avals)`` is a Jaxpr. Its derivatives and its batched forms are families
too, named by a suffix of its handle, so that a graph that was captured by torch needs to hold only
a short string:

    handle           of a wrapped function with its argument structure (see wrap.py)
    handle::jvp(101)       tangents at the first and third input
    handle::vjp(110|10)    cotangents of the first two inputs, for a cotangent of the first result
    handle::slopes(110)    results, and gradients of the first two inputs of their sum
    handle::fwd(110)       results and residuals for gradients of the first two inputs
    handle::bwd(110|10)    those gradients from inputs, residuals and cotangents
    handle::ruled(110)     results alone, by the rules that gradients of the first two inputs use
    handle::vmap(0,n)      the first input batched along axis 0, the second not batched

Derivatives follow torch: the gradient of a real function of a complex number is the conjugate of
the engine's.
"""

from __future__ import annotations

import abc
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

from tracebridge._derived.dependence import attached, paths_of
from tracebridge._derived.gradients import (
    gradients,
    jvp_by_gradients,
    with_gradients,
    with_slopes,
)
from tracebridge._derived.handles import Mask, mask_of, vjp_handle, vmap_handle
from tracebridge._derived.residuals import NO_DERIVATIVE, Split, split_for_backward
from tracebridge._derived.settings import note_settings
from tracebridge.core.config.settings import Settings
from tracebridge.core.config.values import on_global_change, tracing_key
from tracebridge.core.config.wide import Width, at_least
from tracebridge.core.control.custom.custom_vjp import custom_vjp_call_p
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.linearize import linearize_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr, jaxprs_in_params
from tracebridge.core.runtime.backends.clients import on_fork
from tracebridge.core.util.caching import BoundedCache

Avals = tuple[ShapedArray, ...]
_SETTINGS = "torch settings"

_HANDLES: weakref.WeakValueDictionary[str, Family] = weakref.WeakValueDictionary()
_ROOTS: weakref.WeakSet[Family] = weakref.WeakSet()
# Families whose handle stands in a graph that torch keeps: they live as long as the process.
_PINNED: dict[str, Family] = {}
MAX_RUNS = 1024  # executables of one family
MAX_PROGRAMS = 4096  # of one family; one that sees more shapes starts over


class Family(abc.ABC):
    """A function of flat tensors at any shapes."""

    __slots__ = (
        "__weakref__",
        "_mapped",
        "children",
        "handle",
        "levels",
        "lock",
        "programs",
        "runs",
    )

    def __init__(self, handle: str, lock: Any = None) -> None:
        self.handle = handle
        self.lock = threading.RLock() if lock is None else lock
        self.programs: dict[Any, Jaxpr] = {}
        self.children: dict[str, Family] = {}
        self._mapped: dict[tuple[int | None, ...], Family] = {}
        # Filled by _eager.py: executables by dtypes, shapes and devices.
        self.runs: BoundedCache[Any] = BoundedCache("executables", MAX_RUNS, register=False)
        # Filled by torch/_eager/levels.py: the known calls under transformations of torch.
        self.levels: Any = None
        _HANDLES[handle] = self

    @property
    def name(self) -> str:
        """What programs and messages call the function."""
        return self.handle.partition("|")[0].rpartition(":")[2]

    def program(self, avals: Avals) -> Jaxpr:
        """The Jaxpr at strongly typed avals of all inputs."""
        with at_least(self.width(avals)):
            key = (avals, tracing_key())
            found = self.programs.get(key)
            if found is None:
                with self.lock:
                    found = self.programs.get(key)
                    if found is None:
                        if len(self.programs) >= MAX_PROGRAMS:
                            self.programs.clear()
                        found = self.programs[key] = self.build(avals)
                        found.cache[_SETTINGS] = Settings()
            return found

    def compiled(self, avals: Avals) -> None:  # noqa: B027 - derived families need no answer
        """Called after each compilation at other shapes, dtypes or devices."""

    @abc.abstractmethod
    def build(self, avals: Avals) -> Jaxpr:
        """Make the Jaxpr at ``avals``."""

    @abc.abstractmethod
    def width(self, avals: Avals) -> Width:
        """How wide numbers are in the program at ``avals``."""

    @abc.abstractmethod
    def captured(self, avals: Avals) -> str:
        """The handle for a graph that torch captures at ``avals``: with a fingerprint.

        The family lives as long as the process then, since the graph has nothing but the handle.
        """

    def child(self, suffix: str) -> Family:
        """The derived family with this suffix."""
        found = self.children.get(suffix)
        if found is None:
            kind, _, rest = suffix.partition("(")
            with self.lock:
                found = self.children.get(suffix)
                if found is None:
                    made = _DERIVED[kind](self, suffix, rest.rstrip(")"))
                    found = self.children[suffix] = made
        return found

    def mapped(self, dims: tuple[int | None, ...]) -> Family:
        """The function of inputs with a further axis at ``dims``."""
        found = self._mapped.get(dims)
        if found is None:
            found = self._mapped[dims] = self.child(vmap_handle("", dims)[2:])
        return found

    @property
    def has_forward_mode(self) -> bool:
        """Whether tangents come from rules; else they are gradients of gradients."""
        return True

    def vjp(self, active: Mask, cotangents: Mask) -> Family:
        """Gradients of the inputs ``active`` from inputs and cotangents, all in one program."""
        return self.child(vjp_handle("", active, cotangents)[2:])

    def clear(self) -> None:
        """Forget all programs, also of derived families."""
        self.programs.clear()
        if self.levels is not None:
            self.levels.clear()
        for key in self.runs.keys():  # noqa: SIM118 - a cache is no dict
            compiled = self.runs.get(key)
            if compiled is not None:
                compiled.clear()
        self.runs.clear()
        for child in list(self.children.values()):
            child.clear()


class Derived(Family):
    """A family that is computed from another one."""

    __slots__ = ("parent", "suffix")
    kind: ClassVar[str]

    def __init__(self, parent: Family, suffix: str, arguments: str) -> None:
        self.parent = parent
        self.suffix = suffix
        self.parse(arguments)
        super().__init__(f"{parent.handle}::{suffix}", parent.lock)

    @abc.abstractmethod
    def parse(self, arguments: str) -> None:
        """Read what stands in the brackets of the handle."""

    @property
    def name(self) -> str:
        # The handle has a number besides, for functions that are wrapped again: programs that
        # differ in nothing else share an executable.
        return self.parent.name

    @property
    def has_forward_mode(self) -> bool:
        return self.parent.has_forward_mode

    def width(self, avals: Avals) -> Width:
        # The inputs of the parent come first; what follows belongs to derivatives.
        return self.parent.width(avals)

    @abc.abstractmethod
    def of_parent(self, avals: Avals) -> Avals:
        """Avals of the inputs of the family that this one is derived from."""

    def captured(self, avals: Avals) -> str:
        return f"{self.parent.captured(self.of_parent(avals))}::{self.suffix}"


@final
class Jvp(Derived):
    """Inputs, then tangents; results, then tangents of the inexact results."""

    __slots__ = ("nonzero",)

    def parse(self, arguments: str) -> None:
        self.nonzero = mask_of(arguments)

    def of_parent(self, avals: Avals) -> Avals:
        return avals[: len(self.nonzero)]

    def build(self, avals: Avals) -> Jaxpr:
        primal = self.parent.program(self.of_parent(avals))
        wanted = tuple([is_inexact(a.dtype) for a in primal.out_avals])
        if not self.has_forward_mode:
            return jvp_by_gradients(primal, self.nonzero)
        return jvp_jaxpr(primal, self.nonzero, wanted)[0]


@final
class Vjp(Derived):
    """Inputs, then cotangents; gradients of the active inputs. Recomputes what it needs."""

    __slots__ = ("active", "cotangents")

    def parse(self, arguments: str) -> None:
        active, _, cotangents = arguments.partition("|")
        self.active, self.cotangents = mask_of(active), mask_of(cotangents)

    def of_parent(self, avals: Avals) -> Avals:
        return avals[: len(self.active)]

    def build(self, avals: Avals) -> Jaxpr:
        primal = self.parent.program(self.of_parent(avals))
        return gradients(primal, self.active, self.cotangents)


@final
class Slopes(Derived):
    """The results, then gradients of the active inputs of the sum of results that have some."""

    __slots__ = ("active",)

    def parse(self, arguments: str) -> None:
        self.active = mask_of(arguments)

    def of_parent(self, avals: Avals) -> Avals:
        return avals

    def build(self, avals: Avals) -> Jaxpr:
        return with_slopes(self.parent.program(avals), self.active)


@final
class Fwd(Derived):
    """Results, then residuals that are neither inputs nor results."""

    __slots__ = ("active",)

    def parse(self, arguments: str) -> None:
        self.active = mask_of(arguments)

    def of_parent(self, avals: Avals) -> Avals:
        return avals

    def build(self, avals: Avals) -> Jaxpr:
        return split(self.parent, self.active, avals).forward


@final
class Bwd(Derived):
    """Inputs, saved results, residuals, cotangents; gradients of the active inputs."""

    __slots__ = ("active", "cotangents")

    def parse(self, arguments: str) -> None:
        active, _, cotangents = arguments.partition("|")
        self.active, self.cotangents = mask_of(active), mask_of(cotangents)

    def of_parent(self, avals: Avals) -> Avals:
        return avals[: len(self.active)]

    def build(self, avals: Avals) -> Jaxpr:
        found = split(self.parent, self.active, self.of_parent(avals))
        return found.backward_of_all(self.cotangents)


@final
class Ruled(Derived):
    """The results, where the forward rules of custom_vjp functions stand for these functions.

    Unlike the functions, what the rules do has derivatives of its own.
    """

    __slots__ = ("active",)

    def parse(self, arguments: str) -> None:
        self.active = mask_of(arguments)

    def of_parent(self, avals: Avals) -> Avals:
        return avals

    def build(self, avals: Avals) -> Jaxpr:
        primal = self.parent.program(avals)
        if not _holds_custom_vjp(primal):
            return primal
        try:
            forward = linearize_jaxpr(inline_calls(primal), self.active).primal
        except NO_DERIVATIVE:
            return primal  # whose gradients nobody has asked for yet
        used = tuple([i < len(primal.outs) for i in range(len(forward.outs))])
        return dce_jaxpr(forward, used, keep_in=True)[0]


def _holds_custom_vjp(jaxpr: Jaxpr) -> bool:
    return any([
        app.primitive is custom_vjp_call_p
        or any([_holds_custom_vjp(inner) for inner in jaxprs_in_params(app.params)])
        for app, _ in jaxpr.equations
    ])  # fmt: skip


@final
class Vmap(Derived):
    """The function mapped over one axis."""

    __slots__ = ("dims",)

    def parse(self, arguments: str) -> None:
        self.dims = tuple([None if d == "n" else int(d) for d in arguments.split(",")])

    def of_parent(self, avals: Avals) -> Avals:
        return tuple([_without(a, d) for a, d in zip(avals, self.dims, strict=True)])

    def build(self, avals: Avals) -> Jaxpr:
        sizes = {a.shape[d] for a, d in zip(avals, self.dims, strict=True) if d is not None}
        (size,) = sizes
        inner = self.parent.program(self.of_parent(avals))
        return batch_jaxpr(inner, size, None, self.dims, True)[0]


_DERIVED: dict[str, type[Derived]] = {
    "jvp": Jvp,
    "vjp": Vjp,
    "slopes": Slopes,
    "fwd": Fwd,
    "bwd": Bwd,
    "ruled": Ruled,
    "vmap": Vmap,
}


def _without(aval: ShapedArray, dim: int | None) -> ShapedArray:
    if dim is None:
        return aval
    return aval.update(shape=(*aval.shape[:dim], *aval.shape[dim + 1 :]))


# derivatives -------------------------------------------------------------------------------------


def split(family: Family, active: Mask, avals: Avals) -> Split:
    """The forward and backward program of a family with residuals chosen by cost."""
    primal = family.program(avals)
    key = ("torch split", active)
    found = primal.cache.get(key)
    if found is None:
        with family.lock:
            found = primal.cache.get(key)
            if found is None:
                with settings_of(primal):
                    cts = attached(active, paths_of(primal))
                    joint = with_gradients(primal, active, cts)
                    found = primal.cache[key] = split_for_backward(joint, primal, cts)
    return found


def settings_of(program: Jaxpr) -> AbstractContextManager[None]:
    """A block with the options under which the program of a family was traced."""
    return program.cache[_SETTINGS].again()


# handles -----------------------------------------------------------------------------------------


def register_root(family: Family) -> None:
    """Note a family that is derived from no other; its programs are dropped with the options."""
    _ROOTS.add(family)


def pin(handle: str, family: Family) -> None:
    """Keep a family alive because a graph of torch names it so."""
    _PINNED[handle] = _HANDLES[handle] = family
    note_settings(handle)


def is_pinned(handle: str) -> bool:
    """Whether a graph of torch names a family so."""
    return handle in _PINNED


TWIN = "~"


def free_handle(handle: str) -> str:
    """``handle``, with a mark if a living family has it: its static arguments print alike."""
    while handle in _HANDLES:
        handle += TWIN
    return handle


def resolve(handle: str, find_root: Callable[[str], Family | None]) -> Family:
    """The family of a handle; ``find_root`` finds that of a graph which another process has made.

    Raises:
        ExchangeError: no wrapped function in this process has that name.
        ProgramMismatchError: one has it, and computes something else.
    """
    cached = _HANDLES.get(handle)
    if cached is not None:
        return cached
    base, _, suffix = handle.rpartition("::")
    if base and suffix.partition("(")[0] in _DERIVED:
        cached = _HANDLES[handle] = resolve(base, find_root).child(suffix)
        return cached
    family = find_root(handle)
    if family is not None:
        pin(handle, family)
        return family
    name = handle.partition("|")[0]
    msg = f"a torch graph calls the wrapped function {name!r}, which this process does not know"
    raise ExchangeError(
        msg,
        hint="import the module that wraps it at its top level before loading the graph, and keep "
        "the wrapped function alive",
    )


def clear_families() -> None:
    """Forget the programs and executables of all families."""
    for family in list(_ROOTS):
        family.clear()


on_fork(clear_families)


@on_global_change
def _option_changed(name: str, value: Any) -> None:
    del name, value
    clear_families()
