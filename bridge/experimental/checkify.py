"""Checks that work in traced and compiled programs: NaN, division, indices, and one's own."""

from __future__ import annotations

from tracebridge._api.programs.checkify import (
    ErrorCategory,
    all_checks,
    automatic_checks,
    checkify,
    div_checks,
    float_checks,
    index_checks,
    nan_checks,
    user_checks,
)
from tracebridge.core.errors.check_errors import (
    CheckError,
    DivisionByZeroError,
    FailedCheckError,
    NanError,
    OutOfBoundsError,
)
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.transforms.checkify.check import check, check_error, debug_check
from tracebridge.core.transforms.checkify.error import Error, init_error

JaxRuntimeError = CheckError
"""The name of the peer for what ``Error.throw`` raises."""

__all__ = [
    "CheckError",
    "DivisionByZeroError",
    "Error",
    "ErrorCategory",
    "FailedCheckError",
    "JaxRuntimeError",
    "NanError",
    "OutOfBoundsError",
    "all_checks",
    "automatic_checks",
    "check",
    "check_error",
    "checkify",
    "debug_check",
    "div_checks",
    "float_checks",
    "index_checks",
    "init_error",
    "nan_checks",
    "user_checks",
]

_shield(globals(), __name__)
