"""Random sparse arrays."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.experimental.sparse._creation import (
    random_bcoo,
)

__all__ = [
    "random_bcoo",
]

_shield(globals(), "tracebridge.experimental.sparse")
