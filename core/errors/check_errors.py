"""Errors that checks in traced programs find; see ``tracebridge.experimental.checkify``."""

from __future__ import annotations

from tracebridge.core.errors.base import TracebridgeError

__all__ = [
    "CheckError",
    "DivisionByZeroError",
    "FailedCheckError",
    "NanError",
    "OutOfBoundsError",
]


class CheckError(TracebridgeError, ValueError):
    """A check in a traced program failed; subclasses say of which kind it was."""


class FailedCheckError(CheckError):
    """A condition that was given to ``check`` did not hold."""


class NanError(CheckError):
    """A primitive gave NaN."""


class OutOfBoundsError(CheckError, IndexError):
    """An index lay outside of the array."""


class DivisionByZeroError(CheckError, ZeroDivisionError):
    """A number was divided by zero."""
