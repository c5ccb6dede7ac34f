"""Warnings that point at the user's line."""

from __future__ import annotations

import sys
import warnings

from tracebridge.core.errors.filtering import is_internal_file

warned = [object()]
"""Another object after each warning, of any thread.

Who remembers calls compares: one that warned has to warn again.
"""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost frame that is not ours."""
    warned[0] = object()
    level = 2
    frame = sys._getframe(1)
    while frame is not None and is_internal_file(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
