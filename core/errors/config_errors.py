"""Errors about options."""

from __future__ import annotations

from tracebridge.core.errors.base import TracebridgeError


class UnknownOptionError(TracebridgeError, AttributeError):
    """There is no option of this name."""


class OptionValueError(TracebridgeError, ValueError, TypeError):
    """An option was given a value of the wrong type or outside its choices."""


class OptionFrozenError(TracebridgeError, RuntimeError):
    """An option was changed too late: what it is about has started with another value."""
