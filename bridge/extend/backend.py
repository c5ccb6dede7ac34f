"""The clients of the runtime, and the device of computations that nothing binds to another one."""

from __future__ import annotations

from tracebridge.core.compat.clients import backends, get_backend, get_default_device
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["backends", "get_backend", "get_default_device"]

_shield(globals(), __name__)
