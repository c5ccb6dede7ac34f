"""Looking into traced code: print, log, call a function, stop at a prompt, see placements."""

from __future__ import annotations

from tracebridge.core.control.callbacks.debug import callback
from tracebridge.core.control.callbacks.debugger import breakpoint
from tracebridge.core.control.callbacks.inspect_sharding import (
    inspect_array_sharding,
    visualize_array_sharding,
    visualize_sharding,
)
from tracebridge.core.control.callbacks.prints import log
from tracebridge.core.control.callbacks.prints import print_values as print
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.ir.effects import DebugEffect, OrderedDebugEffect

__all__ = [
    "DebugEffect",
    "OrderedDebugEffect",
    "breakpoint",
    "callback",
    "inspect_array_sharding",
    "log",
    "print",
    "visualize_array_sharding",
    "visualize_sharding",
]

_shield(globals(), __name__)
