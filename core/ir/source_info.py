"""Source locations: stored as jaxlib tracebacks, resolved only for errors and lowering."""

from __future__ import annotations

from tracebridge.core.errors.filtering import user_frame
from tracebridge.core.ir.name_stack import NamedSource


def line_of(traceback: object) -> tuple[str, int, str] | None:
    """File, line and function of the user's frame in a stored traceback."""
    stored = traceback.traceback if type(traceback) is NamedSource else traceback
    return None if stored is None else user_frame(stored)


def describe_line(traceback: object) -> str:
    """``file:line (function)`` of the user's frame in a stored traceback, or an empty string."""
    frame = line_of(traceback)
    if frame is None:
        return ""
    file, line, function = frame
    return f"{file}:{line} ({function})"
