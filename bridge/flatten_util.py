"""Trees as vectors."""

from __future__ import annotations

from tracebridge._api.args.ravel import ravel_pytree
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["ravel_pytree"]

_shield(globals(), __name__)
