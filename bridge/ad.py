"""Marks that say what becomes of the cotangents of a pullback; see ``with_refs`` of ``vjp``."""

from __future__ import annotations

from tracebridge._api.derivatives.pullback_places import DidntWant, DontWant, GradRef, GradValue
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["DidntWant", "DontWant", "GradRef", "GradValue"]

_shield(globals(), __name__)
