"""How results of operations are split, from how their operands are.

Rules of primitives (``Primitive.split_results``) are made of these functions. An entry is that of
a PartitionSpec: names of axes of a mesh, or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.errors.transform_errors import ShardingTypeError
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec, entry_names
from tracebridge.core.sharding.splits import explicit_split

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray

Entries = tuple[Any, ...]
Splits = Sequence[NamedSharding | None]


def entries_of(aval: ShapedArray) -> Entries:
    """One entry for each axis."""
    return (None,) * aval.ndim if aval.split is None else aval.split.spec.partitions


def mesh_of_types(name: str, avals: Sequence[ShapedArray]) -> Any:
    """The mesh over which operands are split.

    Raises:
        ShardingTypeError: there are two.
    """
    meshes: list[Any] = [a.split.mesh for a in avals if a.split is not None]
    for other in meshes[1:]:
        if other != meshes[0]:
            raise ShardingTypeError(
                f"{name}: operands are split over two meshes, {meshes[0]} and {other}"
            )
    return meshes[0]


def split_of(name: str, avals: Sequence[ShapedArray], entries: Entries) -> NamedSharding | None:
    """The split of a result of ``name`` with these entries, over the mesh of the operands.

    Raises:
        ShardingTypeError: an axis of the mesh would split two axes of the result.
    """
    names = [n for entry in entries for n in entry_names(entry)]
    if not names:
        return None
    if len(set(names)) != len(names):
        got = ", ".join([a.str_short() for a in avals])
        raise ShardingTypeError(
            f"{name} of {got}: an illegally sharded result, over an axis of the mesh twice: "
            f"{PartitionSpec(*entries)}",
            hint="reshard an operand first: tracebridge.sharding.reshard",
        )
    mesh = mesh_of_types(name, avals)
    return explicit_split(NamedSharding(mesh, PartitionSpec(*entries)), len(entries))


def merged(name: str, avals: Sequence[ShapedArray], *, call: str = "") -> Entries:
    """The entries of operands of one rank, which agree where two have some.

    Raises:
        ShardingTypeError: they do not.
    """
    rows = [entries_of(a) for a in avals]
    found: list[Any] = []
    for column in zip(*rows, strict=True):
        some = [entry for entry in column if entry is not None]
        if any([entry != some[0] for entry in some[1:]]):
            shown = ", ".join([str(row) for row in rows])
            raise ShardingTypeError(
                f"{call or name} got incompatible shardings for broadcasting: {shown}",
                hint="reshard an operand: tracebridge.sharding.reshard",
            )
        found.append(some[0] if some else None)
    return tuple(found)


def same_along_others(
    name: str, x: ShapedArray, shape: Sequence[Any], word: str = ""
) -> NamedSharding | None:
    """The split of ``x`` for a result of its rank, whose sizes differ along some axes.

    Raises:
        ShardingTypeError: such an axis is split, and its parts would differ in size.
    """
    if x.split is None:
        return None
    sizes: Any = x.split.mesh.shape
    for entry, old, new in zip(entries_of(x), x.shape, shape, strict=True):
        parts = 1
        for axis in entry_names(entry):
            parts *= sizes[axis]
        if old != new and parts > 1 and (type(new) is not int or new % parts):
            raise ShardingTypeError(
                f"{word or name} on sharded dims: an axis of {x.str_short()} is split into "
                f"{parts} equal parts, which {new} elements do not have",
                hint="reshard it first: tracebridge.sharding.reshard",
            )
    return x.split


def even_split(x: ShapedArray, shape: Sequence[Any]) -> NamedSharding | None:
    """The split of ``x`` for a result of its rank, whole along axes without equal parts."""
    if x.split is None:
        return None
    parts = x.split.parts_of(x.ndim)
    kept = [
        entry if type(new) is int and not new % n else None
        for entry, n, new in zip(entries_of(x), parts, shape, strict=True)
    ]
    return explicit_split(x.split.update(spec=PartitionSpec(*kept)), x.ndim)


def whole_along(name: str, x: ShapedArray, axes: Sequence[int]) -> None:
    """Raise unless nothing splits ``axes`` of an operand.

    Raises:
        ShardingTypeError: an axis of a mesh does.
    """
    entries = entries_of(x)
    for axis in axes:
        if entries[axis] is not None:
            raise ShardingTypeError(
                f"{name}: axis {axis} of {x.str_short()} is split, and each result needs all of it",
                hint="reshard it first: tracebridge.sharding.reshard",
            )
