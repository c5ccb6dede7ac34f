"""over_mesh and sharding_at: the same parts on the same devices, said over another mesh."""

from __future__ import annotations

import pytest

import tracebridge as tb
from tracebridge.core.sharding.equivalent import over_mesh, sharding_at
from tracebridge.sharding import NamedSharding

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
P = tb.P


def test_over_mesh_keeps_the_parts() -> None:
    """One axis of eight says what two axes of four and two say together."""
    line = tb.make_mesh((8,), ("i",))
    grid = tb.make_mesh((4, 2), ("x", "y"))

    found = over_mesh(grid, NamedSharding(line, P("i")), 2)

    assert NamedSharding(grid, P(("x", "y"))) is found
    assert found is over_mesh(grid, found, 2)


def test_over_mesh_needs_the_same_devices() -> None:
    """Over a mesh of other devices there is no such sharding."""
    two = tb.make_mesh((2,), ("i",), devices=tb.devices()[:2])
    grid = tb.make_mesh((4, 2), ("x", "y"))

    assert over_mesh(grid, NamedSharding(two, P("i")), 1) is None


def test_sharding_at_tells_what_has_no_name() -> None:
    """Parts in an order that no specification gives."""
    line = tb.make_mesh((8,), ("i",))
    there = NamedSharding(line, P("i")).positions(1)

    assert NamedSharding(line, P("i")) is sharding_at(line, (8,), there)
    assert sharding_at(line, (8,), there[::-1]) is None
