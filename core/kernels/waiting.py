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

ENTRY = "handler"
"""What the function is called that XLA calls, in each text."""

_LOCK = threading.Lock()
_NAME = re.compile(rb"%s[0-9a-f]{32}" % KERNEL.encode())
_waiting: dict[str, Callable[[], str]] = {}
"""By name what writes the text."""
_seen: set[str] = set()
"""Names that wait or are compiled: XLA takes a name once."""


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
        name = found.decode()
        with _LOCK:
            if name in _waiting:
                register_kernel(name, compile_text(_waiting[name](), ENTRY))
                del _waiting[name]
