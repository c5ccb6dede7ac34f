"""What axes of meshes are called, and who decides how arrays are split over them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from tracebridge.core.errors.transform_errors import AxisSpecError


class AxisType(enum.Enum):
    """Who decides how arrays are split over an axis of a mesh."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


def axis_names_of(call: str, axis_names: Any) -> tuple[Any, ...]:
    """A name, or a sequence of names, as a tuple.

    Raises:
        AxisSpecError: a name repeats.
    """
    one = isinstance(axis_names, str) or not isinstance(axis_names, Sequence)
    names: tuple[Any, ...] = (axis_names,) if one else tuple(axis_names)
    if len(set(names)) != len(names):
        raise AxisSpecError(f"{call}: axis_names={names} repeat a name")
    return names


def axis_types_of(
    call: str, types: tuple[AxisType, ...] | AxisType | None, n: int
) -> tuple[AxisType, ...]:
    """A type for each of ``n`` axes.

    Raises:
        AxisSpecError: there are more, or fewer, or other things.
    """
    if types is None or isinstance(types, AxisType):
        return (types or AxisType.Auto,) * n
    found: tuple[Any, ...] = tuple(types)
    if len(found) != n or not all([isinstance(t, AxisType) for t in found]):
        msg = f"{call}: axis_types={types}"
        raise AxisSpecError(msg, expected=f"{n} values of AxisType, one for each axis")
    return found
