"""Trees as vectors."""

from __future__ import annotations

from tracebridge._api.ravel import ravel_pytree

__all__ = ["ravel_pytree"]
