"""Functions whose names may still change; modules below are loaded on import."""

from __future__ import annotations

from tracebridge.core.control.callbacks.io import io_callback
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["io_callback"]

_shield(globals(), __name__)
