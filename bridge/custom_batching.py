"""Functions with batching rules of their own."""

from __future__ import annotations

from tracebridge._api.custom_batching import custom_vmap, sequential_vmap

__all__ = ["custom_vmap", "sequential_vmap"]
