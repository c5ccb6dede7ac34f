"""The order in which arrays lie in memory."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.lax.layout_constraint import with_layout_constraint
from tracebridge.core.sharding.layout import Format, Layout

__all__ = ["Format", "Layout", "with_layout_constraint"]

_shield(globals(), __name__)
