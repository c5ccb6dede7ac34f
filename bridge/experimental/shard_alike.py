"""Values that are split over devices in the same way."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.lax.shard_alike import shard_alike

__all__ = ["shard_alike"]

_shield(globals(), __name__)
