"""Errors and warnings about dtypes and promotion.

Operations raise TypeError for a wrong dtype, the functions that differentiation gives (pullbacks,
linearizations) ValueError in comparable libraries; DtypeMismatchError is both, so that code that
catches either keeps working.
"""

from __future__ import annotations

from tracebridge.core.errors.base import TracebridgeError


class DtypeMismatchError(TracebridgeError, TypeError, ValueError):
    """Dtypes that must be equal differ, or an operation does not take this dtype."""


class UnsupportedDtypeError(TracebridgeError, TypeError, ValueError):
    """A value has a dtype that no array can hold (object, str, datetime, foreign byte order)."""


class ExplicitX64Error(UnsupportedDtypeError):
    """A 64-bit dtype was asked for by name while 64-bit types are off and none may be narrowed."""


class TypePromotionError(TracebridgeError, ValueError):
    """There is no implicit promotion between these dtypes."""


class ExplicitX64Warning(UserWarning):
    """A 64-bit dtype was asked for by name while 64-bit types are off, and 32 bits were given."""
