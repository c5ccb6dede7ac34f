"""Grids of devices: create_device_mesh, create_hybrid_device_mesh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.experimental.mesh_utils import create_device_mesh, create_hybrid_device_mesh


class Device:
    """A device of a machine with several groups of devices."""

    def __init__(self, number: int, slice_index: int, process_index: int = 0) -> None:
        self.id = number
        self.slice_index = slice_index
        self.process_index = process_index

    def __repr__(self) -> str:
        return f"d{self.id}"


def ids(grid: Any) -> Any:
    return np.vectorize(lambda d: d.id)(grid).tolist()


def test_devices_in_a_grid() -> None:
    """In their order; by default all of them."""
    devices = [Device(i, 0) for i in range(6)]

    assert [[0, 1, 2], [3, 4, 5]] == ids(create_device_mesh((2, 3), devices))
    assert [[0], [1], [2]] == ids(create_device_mesh([3, 1], np.array(devices[:3], dtype=object)))
    assert tb.devices() == list(create_device_mesh((len(tb.devices()),)))


def test_groups_are_outer() -> None:
    """Each axis runs over the groups first, then inside one."""
    devices = [Device(10 * s + i, s, 7 - s) for s in (1, 0) for i in range(4)]

    grid = create_hybrid_device_mesh((2, 2), (2, 1), devices)
    assert [[0, 1], [2, 3], [10, 11], [12, 13]] == ids(grid)
    grid = create_hybrid_device_mesh((2, 2), (1, 2), devices, should_sort_granules_by_key=False)
    assert [[10, 11, 0, 1], [12, 13, 2, 3]] == ids(grid)
    grid = create_hybrid_device_mesh((4,), (2,), devices, process_is_granule=True)
    assert [10, 11, 12, 13, 0, 1, 2, 3] == ids(grid)


def test_refused() -> None:
    """Numbers that do not fit."""
    devices = [Device(i, i // 2) for i in range(4)]
    with pytest.raises(
        DevicePlacementError, match=r"mesh_shape=.3,. needs 3 devices, but there are 4"
    ):
        create_device_mesh((3,), devices)
    with pytest.raises(AxisSpecError, match=r"mesh_shape: got .0, 4."):
        create_device_mesh((0, 4), devices)
    with pytest.raises(AxisSpecError, match="as many axes in both"):
        create_hybrid_device_mesh((2,), (2, 1), devices)
    with pytest.raises(DevicePlacementError, match="needs 3 groups, but there are 2"):
        create_hybrid_device_mesh((2,), (3,), devices)
    with pytest.raises(DevicePlacementError, match="needs 4 devices, but there are 2"):
        create_hybrid_device_mesh((4,), (2,), devices)
    del devices[0].slice_index
    with pytest.raises(
        DevicePlacementError, match=r"(?s)d0 has no slice_index.*process_is_granule"
    ):
        create_hybrid_device_mesh((2,), (2,), devices)
