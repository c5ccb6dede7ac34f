"""PartitionSpec: which axes of a mesh split which axis of an array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, final

from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.util.public_path import public_path


@final
class _Unconstrained:
    """Type of ``PartitionSpec.UNCONSTRAINED``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCONSTRAINED"


_UNCONSTRAINED: Final = _Unconstrained()


@public_path("tracebridge.sharding")
@final
class PartitionSpec:
    """For each axis of an array the mesh axes that split it: a name, a tuple of names, or None.

    Missing entries at the end stand for None. Immutable; ``tuple(spec)`` has the entries.

    Args:
        partitions: the entries.
        unreduced: names of axes along which the parts are still to be summed.
        reduced: names of axes along which cotangents are still to be summed.

    Raises:
        ArgumentTypeError: ``unreduced`` or ``reduced`` is no set.
        ArgumentValueError: they contain None, or one axis has two roles.

    >>> import tracebridge as tb
    >>> tb.sharding.PartitionSpec('x', None, ('y', 'z'))
    P('x', None, ('y', 'z'))
    """

    __slots__ = ("__weakref__", "_entries", "reduced", "unreduced")

    UNCONSTRAINED = _UNCONSTRAINED

    def __init__(
        self,
        *partitions: Any,
        unreduced: frozenset[Any] = frozenset(),
        reduced: frozenset[Any] = frozenset(),
    ) -> None:
        self._entries = tuple([_entry(p) for p in partitions])
        self.unreduced = unreduced
        self.reduced = reduced
        if unreduced or reduced:
            self._check_sums()

    def _check_sums(self) -> None:
        """The sets of names in their normal form; each axis has one role."""
        split = {name for entry in self._entries for name in entry_names(entry)}
        roles: dict[str, Any] = {"partitions": split}
        for role in ("unreduced", "reduced"):
            names = _names(role, getattr(self, role))
            setattr(self, role, names)
            for other, taken in roles.items():
                if names & taken:
                    axes = ", ".join(sorted(map(repr, names & taken)))
                    msg = f"PartitionSpec: {other} and {role} have axes in common: {axes}"
                    raise ArgumentValueError(msg, expected="one role for each axis")
            roles[role] = names

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, i: Any) -> Any:
        return self._entries[i]

    def __add__(self, other: Any) -> PartitionSpec:
        return PartitionSpec(*self, *other, unreduced=self.unreduced, reduced=self.reduced)

    def __radd__(self, other: tuple[object, ...]) -> PartitionSpec:
        return PartitionSpec(*other, *self, unreduced=self.unreduced, reduced=self.reduced)

    @property
    def partitions(self) -> tuple[Any, ...]:
        """The entries as a tuple."""
        return self._entries

    def update(
        self,
        partitions: tuple[Any, ...] | None = None,
        unreduced: frozenset[Any] | None = None,
        reduced: frozenset[Any] | None = None,
    ) -> PartitionSpec:
        """The same with other entries, or other sets of axes; None leaves them.

        >>> import tracebridge as tb
        >>> tb.P('x').update(partitions=(None, 'x'))
        P(None, 'x')
        """
        return PartitionSpec(
            *(self._entries if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def index(self, value: object) -> int:
        """The position of an entry."""
        return self._entries.index(_entry(value))

    def count(self, value: object) -> int:
        """How often an entry appears."""
        return self._entries.count(_entry(value))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionSpec):
            return (
                self._entries == other._entries
                and self.unreduced == other.unreduced
                and self.reduced == other.reduced
            )
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self._entries, self.unreduced, self.reduced))

    def __repr__(self) -> str:
        parts = [repr(p) for p in self._entries]
        alone = len(parts) == 1 and not self.unreduced and not self.reduced
        for name in ("unreduced", "reduced"):
            names = getattr(self, name)
            if names:
                parts.append(f"{name}={set(names)!r}")
        return f"P({', '.join(parts)}{',' if alone else ''})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._entries, self.unreduced, self.reduced)


def _restore(
    entries: tuple[object, ...], unreduced: frozenset[Any], reduced: frozenset[Any]
) -> PartitionSpec:
    return PartitionSpec(*entries, unreduced=unreduced, reduced=reduced)


def _names(role: str, given: object) -> frozenset[Any]:
    """A set of names of axes."""
    if not isinstance(given, set | frozenset):
        msg = f"PartitionSpec: {role} is {given!r} of type {type(given).__name__}"
        raise ArgumentTypeError(msg, expected="a set of names of axes")
    if None in given:
        msg = f"PartitionSpec: {role} contains None"
        raise ArgumentValueError(msg, expected="names of axes of the mesh")
    return frozenset(given)


def _entry(partition: object) -> Any:
    """One entry in its normal form: a tuple of one name is that name, an empty one is None."""
    if isinstance(partition, tuple | list):
        names: tuple[Any, ...] = tuple(partition)
        return None if not names else names[0] if len(names) == 1 else names
    return partition


def entry_names(entry: object) -> tuple[Any, ...]:
    """The mesh axes of one entry."""
    if entry is None or entry is _UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


P = PartitionSpec
