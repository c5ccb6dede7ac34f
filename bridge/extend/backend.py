"""The clients of the runtime, and the device of computations that nothing binds to another one."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.extend.clients import backends, get_backend, get_default_device

__all__ = ["backends", "get_backend", "get_default_device"]

_shield(globals(), __name__)
