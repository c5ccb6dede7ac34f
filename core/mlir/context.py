"""The one MLIR context of the process, entered only while something is lowered."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib import mlir

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTEXT: list[Any] = []
# The context runs without threads of its own, so that only one thread may build in it at a time.
LOCK = threading.RLock()
_BORROWED = threading.local()


def mlir_context() -> Any:
    """The process-wide context; made at the first lowering."""
    if not _CONTEXT:
        with LOCK:
            if not _CONTEXT:
                _CONTEXT.append(mlir.make_context())
    return _CONTEXT[0]


@contextlib.contextmanager
def building() -> Iterator[Any]:
    """Enter the context and an unknown location; holds the lock."""
    context = mlir_context()
    lock = contextlib.nullcontext() if getattr(_BORROWED, "on", False) else LOCK
    with lock, mlir.no_dialect_classes(), context, mlir.ir.Location.unknown(context):
        yield context


@contextlib.contextmanager
def borrowed() -> Iterator[None]:
    """For a thread of XLA that asks for a program while it compiles another one.

    The thread that compiles holds the lock, and waits for this one.
    """
    _BORROWED.on = True
    try:
        yield
    finally:
        _BORROWED.on = False
