"""unsplit: values whose types say nothing of some axes of a mesh, so that XLA splits over them."""

from __future__ import annotations

__all__ = ["unsplit_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tracebridge.core.lax as lax
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.families import Constraint
from tracebridge.core.sharding.axis_types import with_types
from tracebridge.core.sharding.partition_spec import entry_names
from tracebridge.core.sharding.splits import without_axes
from tracebridge.core.tree.tree import flatten

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext


@final
class Unsplit(Constraint):
    """The operand itself; in its type the axes ``axes`` of the mesh are left to XLA."""

    name = "unsplit"
    makes_nan = False

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        return [without_axes(avals[0].split, params["axes"])]

    def destination(self, x: Any, *, axes: Sequence[Any]) -> Any:
        """Eagerly: where it is, over a mesh of other types."""
        sharding = x.sharding
        mesh = getattr(sharding, "mesh", None)
        return None if mesh is None else sharding.update(mesh=with_types(mesh, axes, "Auto"))

    def lower(self, ctx: LoweringContext, x: Any, *, axes: Sequence[Any]) -> Any:
        del ctx, axes
        return x

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """The batch axis stays split as it is: a caller knows nothing of it."""
        (x,), (dim,) = args, dims
        split = x.aval.split
        taken = () if split is None or dim is None else entry_names(split.spec[dim])
        axes = tuple([name for name in params["axes"] if name not in taken])
        return (self.bind(x, axes=axes) if axes else x), dim

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        split = args[0].aval.split
        return [ct if split is None else lax.sharding_constraint_p.bind(ct, sharding=split)]


unsplit_p = Unsplit()


def unsplit(value: Any, axes: Sequence[Any] | None = None) -> Any:
    """``value``, whose type is split over none of ``axes``; None: of all."""
    split = value.aval.split
    if split is None:
        return value
    names = tuple(split.mesh.axis_names if axes is None else axes)
    return value if without_axes(split, names) is split else unsplit_p.bind(value, axes=names)


def with_whole_rows(value: Any) -> Any:
    """``value`` whose first axis is not split, so that each row can be asked for."""
    split = value.aval.split
    return value if split is None else unsplit(value, entry_names(split.spec[0]))


def unsplit_leaves(tree: Any, axes: Sequence[Any] | None = None) -> Any:
    """The arrays and traced values of a tree so; other leaves stay."""
    flat, structure = flatten(tree)
    found = [
        unsplit(leaf, axes) if getattr(getattr(leaf, "aval", None), "split", None) else leaf
        for leaf in flat
    ]
    return structure.unflatten(found)
