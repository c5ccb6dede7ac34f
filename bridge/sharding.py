"""Where arrays live: devices, meshes, and how arrays are spread over them."""

from __future__ import annotations

from tracebridge.core.sharding.mesh import AxisType, Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.sharding.single_device import SingleDeviceSharding

__all__ = [
    "AxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
]
