"""How types of arrays are split: over the axes of type Explicit of a mesh, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge.core.errors.transform_errors import AxisSizeError
from tracebridge.core.sharding.axis_types import AxisType
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec, entry_names


def explicit_split(sharding: object, ndim: int) -> NamedSharding | None:
    """What the type of arrays of ``ndim`` axes says of ``sharding``, in its normal form.

    That is over an abstract mesh, with an entry for each axis and names of Explicit axes only;
    None if there are none.
    """
    if not isinstance(sharding, NamedSharding):
        return None
    mesh: Any = sharding.mesh
    if AxisType.Explicit not in mesh.axis_types:
        return None
    explicit = mesh.explicit_axes
    entries = [
        tuple([name for name in entry_names(entry) if name in explicit]) for entry in sharding.spec
    ]
    if not any(entries) or len(entries) > ndim:
        return None
    entries += [()] * (ndim - len(entries))
    return NamedSharding(mesh.abstract_mesh, PartitionSpec(*entries))


def check_even(split: NamedSharding, shape: Sequence[Any]) -> None:
    """Raise unless each axis is divided into parts of one size.

    Raises:
        AxisSizeError: names the axis.
    """
    for axis, (size, parts) in enumerate(zip(shape, split.parts_of(len(shape)), strict=True)):
        if type(size) is int and size % parts:
            raise AxisSizeError(
                f"{split.spec} splits axis {axis} of the shape {tuple(shape)} into {parts} parts, "
                f"but {parts} does not evenly divide the dimension size {size}"
            )


def without_axes(split: NamedSharding | None, names: Sequence[object]) -> NamedSharding | None:
    """The same where the axes ``names`` split nothing."""
    if split is None:
        return None
    entries = [
        tuple([name for name in entry_names(entry) if name not in names]) for entry in split.spec
    ]
    return explicit_split(split.with_spec(PartitionSpec(*entries)), len(entries))
