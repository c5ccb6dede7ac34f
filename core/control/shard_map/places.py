"""How a whole array is spread over the named axes of a mesh, one block for each device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tracebridge.core.ir.aval import batched_aval
from tracebridge.core.ir.splits import entries_of
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec, entry_names
from tracebridge.core.sharding.splits import explicit_split

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray


class Place(NamedTuple):
    """For each axis of the whole array the mesh axes that split it, the first one slowest.

    ``stacked`` is the axis of the whole array that blocks do not have, if there is one;
    ``n_entries`` is how many entries the user's specification has, with those at its end that
    split nothing.
    """

    axes: tuple[tuple[Any, ...], ...]
    stacked: int | None = None
    n_entries: int = 0

    @property
    def names(self) -> frozenset[Any]:
        """The mesh axes whose devices have different blocks."""
        return frozenset([name for names in self.axes for name in names])

    @property
    def spec(self) -> PartitionSpec:
        """The specification of the whole array."""
        n = len(self.axes)
        while n > self.n_entries and not self.axes[n - 1]:
            n -= 1
        return PartitionSpec(*self.axes[:n])

    def __repr__(self) -> str:
        entries = [repr(e) for e in self.spec]
        stacked = [] if self.stacked is None else [f"stacked={self.stacked}"]
        return f"P({', '.join(entries + stacked)})"

    def whole(self, block: ShapedArray, sizes: Mapping[Any, int], mesh: Any = None) -> ShapedArray:
        """The aval of the whole array of which one device has a block; split over ``mesh``."""
        part = block if self.stacked is None else batched_aval(block, 1, self.stacked)
        pairs = zip(part.shape, self.axes, strict=True)
        whole = part.update(shape=tuple([n * count(axes, sizes) for n, axes in pairs]))
        whole = whole.with_vma(whole.vma.difference(sizes))
        if mesh is None or not mesh.explicit_axes:
            return whole.with_split(None)
        rows = zip(self.axes, entries_of(part), strict=True)
        spec = PartitionSpec(*[(*axes, *entry_names(entry)) for axes, entry in rows])
        return whole.with_split(explicit_split(NamedSharding(mesh, spec), whole.ndim))

    def part(
        self, whole: ShapedArray, sizes: Mapping[Any, int], mesh: Any, typed: Sequence[Any]
    ) -> ShapedArray:
        """The aval of a block; ``mesh`` has the axes of blocks as Manual ones.

        Along axes ``typed`` it says whether blocks differ.
        """
        block = whole.update(shape=self.part_shape(whole.shape, sizes)).with_split(None)
        block = block.with_vma(block.vma | self.names.intersection(typed))
        if whole.split is None:
            return block
        split = explicit_split(NamedSharding(mesh, whole.split.spec), whole.ndim)
        return block.with_split(split)

    def part_shape(self, shape: Sequence[Any], sizes: Mapping[Any, int]) -> tuple[Any, ...]:
        """The shape of a device's part of a whole array."""
        return tuple([n // count(axes, sizes) for n, axes in zip(shape, self.axes, strict=True)])

    def behind(self, names: Sequence[Any]) -> Place:
        """The place with one more axis in front, split by ``names``."""
        stacked = None if self.stacked is None else self.stacked + 1
        return Place((tuple(names), *self.axes), stacked, self.n_entries + 1)


def count(axes: Sequence[Any], sizes: Mapping[Any, int]) -> int:
    """Into how many parts mesh axes split an axis."""
    return math.prod([sizes[name] for name in axes])


def stacked_over(names: Sequence[Any], block: ShapedArray) -> Place:
    """The place of values of which each device has its own: blocks beside each other in front."""
    return Place((tuple(names), *[()] * block.ndim), 0)
