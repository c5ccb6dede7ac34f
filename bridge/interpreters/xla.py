"""Evaluation of single primitives by their compiled form."""

from __future__ import annotations

from tracebridge.core.extend.primitive import apply_primitive

__all__ = ["apply_primitive"]
