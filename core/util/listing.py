"""What ``dir()`` of a module lists: what it offers, not what it is written with."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


def listing(namespace: dict[str, Any], *, loaded: bool = False) -> Callable[[], list[str]]:
    """A ``__dir__`` for a module: its ``__all__``.

    Without it completion offers ``annotations`` and every helper that the module imports.

    Args:
        namespace: that of the module, ``globals()``; it is read when somebody asks.
        loaded: list the modules below that are loaded, too: they are public. Those of other
            packages implement what ``__all__`` names.
    """

    def names() -> list[str]:
        below = _modules_below(namespace) if loaded else []
        return sorted({*namespace["__all__"], *below})

    return names


def _modules_below(namespace: dict[str, Any]) -> list[str]:
    package = namespace["__name__"]
    return [
        name
        for name, value in namespace.items()
        if name[0] != "_"
        and isinstance(value, ModuleType)
        and f"{package}.{name}" == value.__name__
    ]
