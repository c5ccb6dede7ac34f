"""Evaluation of single primitives by their compiled form, and types of operands."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.extend.primitive import apply_primitive
from tracebridge.core.extend.value_types import canonicalize_dtype_handlers

__all__ = ["apply_primitive", "canonicalize_dtype_handlers"]

_shield(globals(), __name__)
