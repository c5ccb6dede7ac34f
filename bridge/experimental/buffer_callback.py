"""Python functions that write their results into memory of a program."""

from __future__ import annotations

from tracebridge.core._jaxlib.ffi import Buffer, ExecutionContext, ExecutionStage
from tracebridge.core.control.callbacks.buffers import buffer_callback
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["Buffer", "ExecutionContext", "ExecutionStage", "buffer_callback"]

_shield(globals(), __name__)
