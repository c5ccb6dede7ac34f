"""The path that a class prints: that from which users import it, not the file that defines it.

The module need not be loaded: the path is only a name until somebody unpickles it.
`tests/bridge/test_class_paths.py` holds every public class to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

C = TypeVar("C", bound=type)


def public_path(module: str, name: str = "") -> Callable[[C], C]:
    """Let a class print ``module`` and, where it is public under another one, ``name``.

    The outermost decorator: `dataclass` looks annotations up in the module that defines the class.

    >>> @public_path("tracebridge.numpy")
    ... class Example:
    ...     pass
    >>> Example
    <class 'tracebridge.numpy.Example'>
    """

    def set_path(cls: C) -> C:
        cls.__module__ = module
        if name:
            cls.__name__ = cls.__qualname__ = name
        return cls

    return set_path
