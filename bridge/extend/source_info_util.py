"""Where equations come from: lines and named scopes, for interpreters that make them anew."""

from __future__ import annotations

from tracebridge.core.compat.frames import register_exclusion
from tracebridge.core.compat.source_info import (
    current,
    current_name_stack,
    extend_name_stack,
    new_name_stack,
    new_source_info,
    reset_name_stack,
    set_name_stack,
    summarize,
    user_context,
)
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.ir.atoms import NameStack, SourceInfo

__all__ = [
    "NameStack",
    "SourceInfo",
    "current",
    "current_name_stack",
    "extend_name_stack",
    "new_name_stack",
    "new_source_info",
    "register_exclusion",
    "reset_name_stack",
    "set_name_stack",
    "summarize",
    "user_context",
]

_shield(globals(), __name__)
