"""Where a computation runs: committed arguments decide, else the default device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.runtime.backends import default_placement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.sharding.single_device import SingleDeviceSharding


def choose_placement(
    signatures: Sequence[Any], name: str, device: SingleDeviceSharding | None = None
) -> tuple[SingleDeviceSharding, bool]:
    """Placement of a computation and whether its results are committed.

    Raises:
        DevicePlacementError: two arguments are committed to different devices.
    """
    chosen: Any = None
    first = -1
    for i, sig in enumerate(signatures):
        if not sig.committed:
            continue
        if chosen is None:
            chosen, first = sig.sharding, i
        elif sig.sharding is not chosen:
            msg = (
                f"{name}: arguments are committed to different devices: argument {first} to "
                f"{chosen}, argument {i} to {sig.sharding}"
            )
            raise DevicePlacementError(msg, hint="move one with device_put(x, device)")
    if device is not None:
        return device, True
    if chosen is not None:
        return chosen, True
    return default_placement(), False


def all_at(signatures: Sequence[Any], placement: Any) -> bool:
    """Whether every argument is there already."""
    return all([s.sharding is placement for s in signatures])
