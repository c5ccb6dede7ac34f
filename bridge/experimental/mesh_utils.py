"""Grids of devices for meshes."""

from __future__ import annotations

from tracebridge._api.devices.meshes import create_device_mesh, create_hybrid_device_mesh
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]

_shield(globals(), __name__)
