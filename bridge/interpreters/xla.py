"""Evaluation of single primitives by their compiled form, and types of operands."""

from __future__ import annotations

from tracebridge.core.compat.primitive import apply_primitive
from tracebridge.core.compat.value_types import canonicalize_dtype_handlers, pytype_aval_mappings
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["apply_primitive", "canonicalize_dtype_handlers", "pytype_aval_mappings"]

_shield(globals(), __name__)
