"""map that insists on equal lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def safe_map(fn: Callable[..., T], *args: Iterable[Any]) -> list[T]:
    """Apply `fn` to the elements of sequences in parallel.

    Raises:
        ValueError: if the lengths differ.
    """
    if len(args) == 1:
        return list(map(fn, args[0]))
    return [fn(*items) for items in zip(*args, strict=True)]
