"""Kernels that are written and compiled when a program that calls them is.

LLVM compiles them in a thread of its own while XLA compiles the program, which finds a function
that goes on to the kernel (``entries.py``).

Thread-safety: a lock round the tables; a kernel that two threads want is compiled once.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge.core._jaxlib.ffi import KERNEL, register_kernel
from tracebridge.core.kernels.content import digest
from tracebridge.core.kernels.entries import Entry, new_entries
from tracebridge.core.kernels.machine import compile_text, n_threads
from tracebridge.core.kernels.own_threads import DIRECT

ENTRY = "handler"
"""What the function is called that XLA calls, in each text."""

_LOCK = threading.Lock()
_NAME = re.compile(rb"%s[0-9a-f]{32}" % KERNEL.encode())
_waiting: dict[str, Callable[[], str]] = {}
"""By name what writes the text."""
_seen: set[str] = set()
"""Names that wait or are compiled: XLA takes a name once."""
_entries: dict[str, Entry] = {}
"""By name what XLA calls of kernels that are not there yet."""
_running: dict[str, Compiling] = {}
"""By name what compiles a kernel now."""
_compiled: dict[str, tuple[int, int]] = {}
"""By what stands for a text its machine code: kernels with other names may have the same one."""
_direct: dict[str, int] = {}
"""By name where the function lies that is called without XLA; kernels without one are missing."""


@final
class Compiling:
    """The kernels of one program that are not there yet; other programs may want them, too."""

    def __init__(self) -> None:
        self.own: list[str] = []
        """Those that nobody else compiles."""
        self.others: dict[str, Compiling] = {}
        """By name who compiles the rest."""
        self.failures: dict[str, BaseException] = {}
        """By name what writing or compiling a kernel has raised."""
        self.is_done = threading.Event()

    def begin(self) -> None:
        """Compile them while XLA compiles the program that calls them."""
        try:
            threading.Thread(target=self.compile, name="kernels").start()
        except RuntimeError:  # the interpreter ends, and starts no more threads
            self.compile()

    def compile(self) -> None:
        """Compile one after another."""
        for name in self.own:
            try:
                handler, direct = _machine_code(_waiting[name]())
                with _LOCK:
                    _hand_over(name, handler, direct)
            except BaseException as failure:  # noqa: BLE001 - who waits for it raises it
                self.failures[name] = failure
                with _LOCK:  # the next program that calls it tries again
                    _running.pop(name, None)
        self.is_done.set()

    def wait(self) -> None:
        """Return when all are there.

        Raises:
            Exception: what writing or compiling one of them has raised.
        """
        for name, compiling in [*[(name, self) for name in self.own], *self.others.items()]:
            compiling.is_done.wait()
            if name in compiling.failures:
                raise compiling.failures[name]


def _machine_code(text: str) -> tuple[int, int]:
    """Where the functions of a text lie; two threads may compile the same one at once."""
    key = digest(text)
    found = _compiled.get(key)
    if found is None:
        handler, direct = compile_text(text, (ENTRY, DIRECT))
        found = _compiled[key] = handler, direct
    return found


def _hand_over(name: str, handler: int, direct: int) -> None:
    """A kernel is there from now on. Whoever calls has the lock."""
    entry = _entries.get(name)
    if entry is None:
        register_kernel(name, handler)
    else:
        entry.leads_to(handler)
        del _entries[name]
    if direct:
        _direct[name] = direct
    del _waiting[name], _running[name]


def wait_for_program(name: str, write: Callable[[], str]) -> None:
    """Write and compile the kernel ``name`` when a program is compiled that calls it."""
    with _LOCK:
        if name not in _seen:
            _seen.add(name)
            _waiting[name] = write


def write_kernel(name: str) -> None:
    """Write a kernel if it waits for its use, for what else comes of that."""
    write = _waiting.get(name)
    if write is not None:
        write()


def compile_kernels(module: Any, bytecode: bytes | None) -> Compiling | None:
    """Begin to compile the kernels that a lowered module calls; XLA finds them from now on.

    The program may run when ``wait`` of what is returned has; None if nothing is to be done.
    """
    if not _waiting:  # those that are being compiled are among them
        return None
    text = str(module).encode() if bytecode is None else bytecode
    names = [name.decode() for name in dict.fromkeys(_NAME.findall(text))]
    is_apart = n_threads() > 1
    compiling = _wanted(names, is_apart)
    if not is_apart:
        compiling.compile()
        compiling.wait()
        return None
    if compiling.own:
        compiling.begin()
    return compiling


def direct_address(name: str) -> int | None:
    """Where the function of a kernel lies that is called without XLA, compiled now if need be."""
    compiling = _wanted([name], has_entries=False)
    compiling.compile()
    compiling.wait()
    return _direct.get(name)


def _wanted(names: Sequence[str], has_entries: bool) -> Compiling:
    """Those of these kernels that are not there; nobody else compiles them from now on."""
    compiling = Compiling()
    with _LOCK:
        wanted = [name for name in names if name in _waiting]
        if has_entries:
            missing = [name for name in wanted if name not in _entries]
            for name, entry in zip(missing, new_entries(len(missing)), strict=True):
                _entries[name] = entry
                register_kernel(name, entry.address)
        for name in wanted:
            if name in _running:
                compiling.others[name] = _running[name]
            else:
                compiling.own.append(name)
                _running[name] = compiling
    return compiling
