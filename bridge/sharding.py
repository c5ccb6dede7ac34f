"""Where arrays live: devices, meshes, and how arrays are spread over them."""

from __future__ import annotations

from tracebridge._api.devices.meshes import make_single_device_sharding
from tracebridge._api.devices.reshard import auto_axes, explicit_axes, reshard
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.sharding.abstract_mesh import AbstractDevice, AbstractMesh
from tracebridge.core.sharding.axis_types import AxisType, ManualAxisType
from tracebridge.core.sharding.context import (
    get_abstract_mesh,
    get_mesh,
    set_mesh,
    use_abstract_mesh,
)
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.sharding.single_device import SingleDeviceSharding

__all__ = [
    "AbstractDevice",
    "AbstractMesh",
    "AxisType",
    "ManualAxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "auto_axes",
    "explicit_axes",
    "get_abstract_mesh",
    "get_mesh",
    "make_single_device_sharding",
    "reshard",
    "set_mesh",
    "use_abstract_mesh",
]

_shield(globals(), __name__)
