"""Names of wrapped functions: what handles begin with, and how another process finds them."""

from __future__ import annotations

import importlib
import threading
import weakref
from typing import Any

_LOCK = threading.Lock()
WRAPPED: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""The living wrapped functions by name."""


def register(wrapped: Any, fun: Any) -> str:
    """A name that no living wrapped function has; the import path of the function if possible."""
    module = getattr(fun, "__module__", None) or "?"
    qualname = getattr(fun, "__qualname__", type(fun).__qualname__)
    # Bars and double colons separate the parts of a handle.
    base = f"{module}:{qualname}".replace("|", "/").replace("::", ":")
    with _LOCK:
        name, n = base, 1
        while name in WRAPPED:
            n += 1
            name = f"{base}#{n}"
        WRAPPED[name] = wrapped
    return name


def by_import_path(module: str, qualname: str) -> Any:
    """The object that ``module.qualname`` names now, or None."""
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        return None
    return found
