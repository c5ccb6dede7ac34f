"""The function that compiled code wraps, handed from Dynamo to the lines that wrap it."""

from __future__ import annotations

import importlib
import threading
from typing import Any

_NOTED = threading.local()


def note_function(context: Any) -> None:
    """Called by Dynamo in the place of the line that names it, where ``fun`` is wrapped.

    Raises:
        ExchangeError: ``fun`` closes over tensors, or other things that only the run knows.
    """
    # Who wraps nothing in compiled code does not wait for the import of Dynamo.
    functions = importlib.import_module("tracebridge.torch._graphs.functions")
    _NOTED.fun = functions.function_at(context)


def noted_function() -> Any:
    """The function of the last call of ``note_function``."""
    fun, _NOTED.fun = _NOTED.fun, None
    return fun
