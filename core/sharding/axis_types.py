"""What axes of meshes are called, and who decides how arrays are split over them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.sharding")
class AxisType(enum.Enum):
    """Who decides how arrays are split over an axis of a mesh."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


class TypedAxes:
    """What meshes say of the types of their axes."""

    __slots__ = ()
    axis_names: Any
    axis_types: Any

    def _of_type(self, wanted: AxisType) -> tuple[Any, ...]:
        pairs = zip(self.axis_names, self.axis_types, strict=True)
        return tuple([name for name, found in pairs if found is wanted])

    def _are_all(self, wanted: AxisType) -> bool:
        return bool(self.axis_types) and set(self.axis_types) == {wanted}

    @property
    def auto_axes(self) -> tuple[Any, ...]:
        """Names of the axes of type Auto."""
        return self._of_type(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Any, ...]:
        """Names of the axes of type Explicit."""
        return self._of_type(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Any, ...]:
        """Names of the axes of type Manual."""
        return self._of_type(AxisType.Manual)

    @property
    def are_all_axes_auto(self) -> bool:
        """Whether there are axes, and all are of type Auto."""
        return self._are_all(AxisType.Auto)

    @property
    def are_all_axes_explicit(self) -> bool:
        """Whether there are axes, and all are of type Explicit."""
        return self._are_all(AxisType.Explicit)

    @property
    def are_all_axes_manual(self) -> bool:
        """Whether there are axes, and all are of type Manual."""
        return self._are_all(AxisType.Manual)


@public_path("tracebridge.sharding")
@final
class ManualAxisType:
    """What a value is to axes of a mesh that a program handles by itself. Immutable.

    Args:
        varying: names of axes along which the value may differ.
        unreduced: names of axes along which its parts are still to be summed.
        reduced: names of axes along which it is the sum of parts.

    Raises:
        AxisSpecError: one name has two of these roles.

    >>> import tracebridge as tb
    >>> sorted(tb.sharding.ManualAxisType(varying=frozenset({"x"})).varying)
    ['x']
    """

    __slots__ = ("_key",)

    def __init__(
        self,
        *,
        varying: frozenset[Any] = frozenset(),
        unreduced: frozenset[Any] = frozenset(),
        reduced: frozenset[Any] = frozenset(),
    ) -> None:
        self._key = frozenset(varying), frozenset(unreduced), frozenset(reduced)
        if len(frozenset().union(*self._key)) != sum(map(len, self._key)):
            raise AxisSpecError(f"{self!r}: a name has two roles", expected="one role for a name")

    @property
    def varying(self) -> frozenset[Any]:
        """Names of axes along which the value may differ."""
        return self._key[0]

    @property
    def unreduced(self) -> frozenset[Any]:
        """Names of axes along which parts are still to be summed."""
        return self._key[1]

    @property
    def reduced(self) -> frozenset[Any]:
        """Names of axes along which it is the sum of parts."""
        return self._key[2]

    @property
    def empty(self) -> bool:
        """Whether it names no axis."""
        return not any(self._key)

    def invarying(self, mesh: TypedAxes) -> frozenset[Any]:
        """Names of the Manual axes of a mesh that have no role: all devices have the same.

        Args:
            mesh: a mesh, such as ``get_abstract_mesh()`` inside of ``shard_map``.
        """
        return frozenset(mesh.manual_axes).difference(*self._key)

    def update(self, **roles: Any) -> ManualAxisType:
        """The same with other names in some roles."""
        fields = {"varying": self.varying, "unreduced": self.unreduced, "reduced": self.reduced}
        return ManualAxisType(**{**fields, **roles})

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, ManualAxisType) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        varying, unreduced, reduced = self._key
        return f"ManualAxisType(varying={varying}, unreduced={unreduced}, reduced={reduced})"


WHOLLY_SHARED = ManualAxisType()


def axis_names_of(call: str, axis_names: Any) -> tuple[Any, ...]:
    """A name, or a sequence of names, as a tuple.

    Raises:
        AxisSpecError: a name repeats, or is None.
    """
    one = isinstance(axis_names, str) or not isinstance(axis_names, Sequence)
    names: tuple[Any, ...] = (axis_names,) if one else tuple(axis_names)
    if len(set(names)) != len(names):
        raise AxisSpecError(f"{call}: axis_names={names} repeat a name")
    if None in names:
        raise AxisSpecError(f"{call}: axis_names={names}, but None is no name")
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


def with_types(mesh: Any, names: Sequence[Any], kind: str) -> Any:
    """A mesh whose axes ``names`` have the type of this name; the others keep theirs."""
    pairs = zip(mesh.axis_names, mesh.axis_types, strict=True)
    wanted = AxisType[kind]
    return mesh.update(axis_types=tuple([wanted if n in names else old for n, old in pairs]))
