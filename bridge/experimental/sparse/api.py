"""What works on arrays of every format."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.experimental.sparse._creation import (
    empty,
    eye,
)
from tracebridge.experimental.sparse._operators import (
    todense,
    todense_p,
)

__all__ = [
    "empty",
    "eye",
    "todense",
    "todense_p",
]

_shield(globals(), "tracebridge.experimental.sparse")
