"""Numerical checks of derivatives, under the names that test suites of the peer library use."""

from __future__ import annotations

from tracebridge.testing.grads import check_grads, check_jvp, check_vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]
