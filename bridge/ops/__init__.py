"""Reductions over segments of an array."""

from __future__ import annotations

from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.ops.segments import segment_max, segment_min, segment_prod, segment_sum

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]

_publish(globals(), __name__)
