"""What processes of one program do together: gather, broadcast, compare, wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._api.devices.processes import (
    assert_equal,
    broadcast_one_to_all,
    global_array_to_host_local_array,
    host_local_array_to_global_array,
    process_allgather,
    reached_preemption_sync_point,
    sync_global_devices,
)
from tracebridge._api.programs.missing import missing as _missing
from tracebridge.core.errors.filtering import shield as _shield

__all__ = [
    "assert_equal",
    "broadcast_one_to_all",
    "global_array_to_host_local_array",
    "host_local_array_to_global_array",
    "process_allgather",
    "reached_preemption_sync_point",
    "sync_global_devices",
]

_shield(globals(), __name__)

if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        raise _missing(__name__, name)
