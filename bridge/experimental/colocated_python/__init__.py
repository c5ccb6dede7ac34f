"""Python functions that run on the hosts of devices: here the host that calls them."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.experimental.colocated_python.func import (
    colocated_python,
    colocated_python_class,
)
from tracebridge.experimental.colocated_python.host_devices import colocated_cpu_devices

__all__ = ["colocated_cpu_devices", "colocated_python", "colocated_python_class"]

_shield(globals(), __name__)
