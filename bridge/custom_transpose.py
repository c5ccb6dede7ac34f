"""Linear functions whose transpose is a rule of their own."""

from __future__ import annotations

from tracebridge._api.custom.custom_transpose import custom_transpose
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["custom_transpose"]

_shield(globals(), __name__)
