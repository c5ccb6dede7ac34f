"""Programs in graphs that torch.export makes: graphs that need no function of the process."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import final

import torch

from tracebridge._derived.families import Avals, Family, is_pinned, pin, register_root
from tracebridge._derived.names import types_of
from tracebridge._derived.saved import SavedProgram, TooLargeError, save_program
from tracebridge.core.config.wide import Width
from tracebridge.core.dtypes.width import width_of
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.errors.user_warnings import warn_user
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.symbolic.dims import is_static
from tracebridge.core.symbolic.scope import SymbolicScope
from tracebridge.torch._crossing.symbolic import LEAST_SIZES, aval_of_text
from tracebridge.torch._graphs.roots import resolve

MAX_BYTES = 4 << 20
"""Of a program in a graph, which hands it over at each call."""

GRAD_ORDER = ContextVar("grad_order", default=1)
"""How many orders of derivatives a graph holds; see ``saving``."""

IN_GRAPHS = ContextVar("in_graphs", default=True)
"""Whether graphs hold programs: those that are translated at once in this process need none."""

_UNKNOWN = "?"
_LOCK = threading.RLock()


@final
class SavedFamily(Family):
    """A family of a graph that holds the program itself."""

    __slots__ = ("saved",)

    def __init__(self, handle: str, saved: SavedProgram) -> None:
        super().__init__(handle)
        self.saved = saved
        register_root(self)

    @property
    def name(self) -> str:
        return self.saved.name

    def build(self, avals: Avals) -> Jaxpr:
        return self.saved.program(avals)

    @property
    def has_forward_mode(self) -> bool:
        return False

    def width(self, avals: Avals) -> Width:
        return width_of([a.dtype for a in self.saved.in_avals])

    def captured(self, avals: Avals) -> str:
        return self.handle


def program_for_graph(family: Family, avals: Avals) -> str:
    """The text of the program for a graph of torch.export; empty elsewhere.

    It is empty, too, where the program needs this process: the graph names the function then.
    """
    if not torch.compiler.is_exporting() or not IN_GRAPHS.get():
        return ""
    jaxpr = family.program(avals)
    order = GRAD_ORDER.get()
    key = "torch saved", order
    found: str = jaxpr.cache.get(key, _UNKNOWN)
    if found is _UNKNOWN:
        try:
            found = _text_of(family, avals, order)
            too_large = len(found) > MAX_BYTES
        except TooLargeError:
            too_large = True
        except Exception:  # noqa: BLE001 - callbacks, shardings, sizes that nothing tells: see above
            found, too_large = "", False
        if too_large:
            warn_user(
                f"{family.name}: its program has more than {MAX_BYTES >> 20} MB of constants and "
                "is not saved in the graph, which can be called only where the function has been "
                "imported. Pass large arrays as arguments: parameters and buffers of a Module are"
            )
            found = ""
        jaxpr.cache[key] = found
    return found


def _text_of(family: Family, avals: Avals, order: int) -> str:
    """The program, for size 0 too if it can be traced so: torch does not stop calls of that size.

    Raises:
        ExportError: the program needs what only this process has.
    """
    if all([is_static(a.shape) for a in avals]):
        return save_program(family.program(avals), family.name, order=order)
    for least in LEAST_SIZES:
        try:
            program = _program_of_all(family, avals, least)
            # Some functions need a row.
            return save_program(program, family.name, order=order, with_gradient=least == 0)
        except TooLargeError:
            raise
        except Exception:
            if least == LEAST_SIZES[-1]:
                raise
    raise AssertionError


def _program_of_all(family: Family, avals: Avals, least: int) -> Jaxpr:
    """The program for sizes of at least ``least``.

    Its scope is its own: what a trace assumes of sizes is checked by all programs of a scope.
    """
    scope = SymbolicScope(least=least, strict=True)
    return family.program(tuple([aval_of_text(t, least, scope) for t in types_of(avals)]))


def ensure_known(handle: str, program: str) -> None:
    """Let ``handle`` mean a function of this process that makes its program, or else ``program``.

    Raises:
        ExportError: the program is damaged, or of a later version.
    """
    if is_pinned(handle):
        return
    with _LOCK:
        if is_pinned(handle):
            return
        try:
            resolve(handle)
        except ExchangeError:  # also its subclass for functions that compute something else
            name = handle.partition("|")[0].partition("@")[0].rpartition(":")[2]
            pin(handle, SavedFamily(handle, SavedProgram(program, name)))
