"""Numerical checks of derivatives, under the names that test suites of the peer library use."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.testing.grads import check_grads, check_jvp, check_vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]

_shield(globals(), __name__)
