"""Functions whose names may still change; modules below are loaded on import."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracebridge.core.compat.hijax.mutable import cur_qdd
from tracebridge.core.control.callbacks.io import io_callback
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.util.listing import listing as _listing

__all__ = ["cur_qdd", "io_callback"]

__dir__ = _listing(globals(), loaded=True)

_shield(globals(), __name__)

if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> Any:
        raise importlib.import_module("tracebridge._api.programs.missing").missing(__name__, name)
