"""Linear functions whose transpose is a rule of their own."""

from __future__ import annotations

from tracebridge._api.custom_transpose import custom_transpose

__all__ = ["custom_transpose"]
