"""Objects of the user: their text in messages, and attributes that may raise."""

from __future__ import annotations

from typing import Any


def shown(x: object, limit: int | None = 80) -> str:
    """``repr(x)``, at most ``limit`` characters of it.

    An object whose ``repr`` raises (lists in lists beyond Python's recursion limit do) is named by
    its class: the message that it stands in is the one to see.
    """
    try:
        text = repr(x)
    except Exception:  # noqa: BLE001 - whatever the class of a user raises
        return f"<{type(x).__name__} object, whose repr raises>"
    return text if limit is None or len(text) <= limit else f"{text[: limit - 3]}..."


def attribute(x: object, name: str) -> Any:
    """``getattr(x, name)``, or None where there is none or a property of a user's class raises."""
    try:
        return getattr(x, name, None)
    except Exception:  # noqa: BLE001 - whatever the class of a user raises
        return None
