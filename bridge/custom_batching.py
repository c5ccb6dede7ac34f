"""Functions with batching rules of their own."""

from __future__ import annotations

from tracebridge._api.custom.custom_batching import custom_vmap, sequential_vmap
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["custom_vmap", "sequential_vmap"]

_shield(globals(), __name__)
