"""One program in several processes: they meet, and their devices become one list.

After ``initialize`` in each process ``tracebridge.devices()`` gives the devices of all of them, and
``jit``, ``shard_map`` and ``pmap`` compute over all. Every process runs the same program and makes
the same calls in the same order. See docs/howto/several_processes.md.
"""

from __future__ import annotations

from tracebridge._api.devices.distributed import initialize, is_initialized, shutdown
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["initialize", "is_initialized", "shutdown"]

_shield(globals(), __name__)
