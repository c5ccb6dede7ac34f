"""Devices by description: those that are here, and those of machines to compile for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracebridge._api.devices.devices import devices as _devices
from tracebridge._api.devices.meshes import create_device_mesh
from tracebridge.core._jaxlib.topologies import described_devices
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.util.public_path import public_path

__all__ = ["TopologyDescription", "get_attached_topology", "get_topology_desc", "make_mesh"]


@public_path("tracebridge.experimental.topologies")
@final
class TopologyDescription:
    """The devices of a machine, in ``devices``.

    Args:
        devices: the devices.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.topologies import TopologyDescription
    >>> len(TopologyDescription(tb.devices()).devices) == tb.device_count()
    True
    """

    __slots__ = ("devices",)

    def __init__(self, devices: Sequence[Any]) -> None:
        self.devices = list(devices)


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """The devices of this process.

    Args:
        platform: "cpu", "gpu" or "tpu"; None for the default one.

    >>> from tracebridge.experimental.topologies import get_attached_topology
    >>> get_attached_topology("cpu").devices[0].platform
    'cpu'
    """
    return TopologyDescription(_devices(platform))


def get_topology_desc(
    topology_name: str = "", platform: str | None = None, **kwargs: Any
) -> TopologyDescription:
    """The devices of a machine that need not be here: programs can be compiled for them.

    Args:
        topology_name: the machine, such as "v5e:2x2" for four chips of TPU v5e.
        platform: "tpu", which None means, or "cuda".
        kwargs: options of the platform's plugin, by name.

    Raises:
        PluginLoadError: the plugin of the platform is not installed.

    >>> from tracebridge.experimental.topologies import get_topology_desc
    >>> get_topology_desc("", "abacus")
    Traceback (most recent call last):
        ...
    tracebridge.core._jaxlib.plugins.PluginLoadError: ...
    """
    return TopologyDescription(described_devices(platform or "tpu", topology_name, kwargs))


def make_mesh(
    topo: TopologyDescription,
    mesh_shape: Sequence[int],
    axis_names: Sequence[str],
    *,
    contiguous_submeshes: bool = False,
) -> Mesh:
    """A mesh over the devices of a machine.

    Args:
        topo: the machine.
        mesh_shape: the size of each axis.
        axis_names: the name of each axis.
        contiguous_submeshes: whether parts of the mesh must be connected, as in
            `mesh_utils.create_device_mesh`.

    >>> from tracebridge.experimental.topologies import get_attached_topology, make_mesh
    >>> here = get_attached_topology("cpu")
    >>> make_mesh(here, (len(here.devices), 1), ("x", "y")).axis_names
    ('x', 'y')
    """
    grid = create_device_mesh(mesh_shape, topo.devices, contiguous_submeshes=contiguous_submeshes)
    return Mesh(grid, axis_names)


_shield(globals(), __name__)
