"""Descriptions of machines."""

import pytest

import tracebridge as tb
from tracebridge.core._jaxlib.plugins import PluginLoadError
from tracebridge.experimental import topologies


def test_machines_that_are_here_and_others() -> None:
    """A mesh over the devices of this process; a plugin that is not installed is named."""
    here = topologies.get_attached_topology()
    mesh = topologies.make_mesh(here, (len(here.devices), 1), ("x", "y"))

    assert tb.devices() == here.devices
    assert (("x", len(here.devices)), ("y", 1)) == mesh.shape_tuple
    with pytest.raises(PluginLoadError, match="'abacus' takes a plugin"):
        topologies.get_topology_desc("2x2", "abacus")
