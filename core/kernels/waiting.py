"""Kernels that are written and compiled when a program that calls them is.

Thread-safety: a lock; a kernel that two threads want is compiled once.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from tracebridge.core._jaxlib.ffi import KERNEL, register_kernel
from tracebridge.core.kernels.machine import compile_text
from tracebridge.core.kernels.own_threads import DIRECT

ENTRY = "handler"
"""What the function is called that XLA calls, in each text."""

_LOCK = threading.Lock()
_NAME = re.compile(rb"%s[0-9a-f]{32}" % KERNEL.encode())
_waiting: dict[str, Callable[[], str]] = {}
"""By name what writes the text."""
_seen: set[str] = set()
"""Names that wait or are compiled: XLA takes a name once."""
_direct: dict[str, int] = {}
"""By name where the function lies that is called without XLA; kernels without one are missing."""


def wait_for_program(name: str, write: Callable[[], str]) -> None:
    """Write and compile the kernel ``name`` when a program is compiled that calls it."""
    with _LOCK:
        if name not in _seen:
            _seen.add(name)
            _waiting[name] = write


def compile_kernels(module: Any, bytecode: bytes | None) -> None:
    """Compile the kernels that a lowered module calls, before XLA looks for them."""
    if not _waiting:
        return
    text = str(module).encode() if bytecode is None else bytecode
    for found in set(_NAME.findall(text)):
        _compile(found.decode())


def direct_address(name: str) -> int | None:
    """Where the function of a kernel lies that is called without XLA, compiled now if need be."""
    _compile(name)
    return _direct.get(name)


def _compile(name: str) -> None:
    with _LOCK:
        if name not in _waiting:
            return
        handler, direct = compile_text(_waiting[name](), (ENTRY, DIRECT))
        register_kernel(name, handler)
        if direct:
            _direct[name] = direct
        del _waiting[name]
