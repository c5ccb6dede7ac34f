"""shard_alike: two values inside a program are split over the devices in the same way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import TreeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.barriers import OperandsThemselves
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis
from tracebridge.core.mlir.attrs import i64
from tracebridge.core.tree import tree

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


@final
class ShardAlike(OperandsThemselves):
    """The two operands themselves; XLA chooses one way of splitting for both."""

    name = "shard_alike"

    def evaluate(self, arrays: Sequence[object], **params: object) -> Any:
        """Eagerly arrays are where they are."""
        return list(arrays)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        mesh = ctx.mesh
        if mesh is None or len(ctx.manual) == len(mesh.axis_names):
            return list(operands)
        group = {"group_id": i64(_next_group(ctx.module))}
        for x in operands:
            ctx.create("sdy.sharding_group", results=[], operands=[x], attributes=group)
        return list(operands)

    def jvp(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: object
    ) -> Any:
        """Tangents are a pair of their own."""
        return self.bind(*primals), self._pair(tangents)

    def transpose(self, ct: Any, *args: Value, **params: Any) -> Sequence[Any]:
        return self._pair(ct)

    def _pair(self, values: Sequence[Any]) -> list[Any]:
        given = all(v is not None for v in values)
        return list(self.bind(*values)) if given else list(values)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: object
    ) -> tuple[Any, Any]:
        """Both get the mapped axis, at the same place."""
        (x, y), (i, j) = args, dims
        place = i if j is None else j
        if place is None:
            return self.bind(x, y), [None, None]
        x, y = [
            broadcast_batch(v, ctx.size, place) if d is None else move_batch_axis(v, d, place)
            for v, d in ((x, i), (y, j))
        ]
        return self.bind(x, y), [place, place]


def _next_group(module: Any) -> int:
    """The first number that no group of the module has."""
    taken: set[int] = set()

    def see(op: Any) -> Any:
        if op.name == "sdy.sharding_group":
            taken.add(mlir.ir.IntegerAttr(op.attributes["group_id"]).value)
        return mlir.ir.WalkResult.ADVANCE

    module.operation.walk(see)
    return next(i for i in itertools.count() if i not in taken)


shard_alike_p = ShardAlike()


@api_boundary
def shard_alike(x: object, y: object) -> tuple[Any, Any]:
    """``x`` and ``y``, split over devices in the same way inside compiled programs.

    XLA chooses how values inside a program are split; here it makes one choice for each pair of
    leaves. Nothing happens outside of programs, and in programs for one device.

    Args:
        x: tree of arrays.
        y: tree of arrays, of the structure and the shapes of ``x``.

    Returns:
        The pair ``(x, y)``.

    Raises:
        TreeMismatchError: the trees have other structures.
        ShapeMismatchError: two leaves have other shapes.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.shard_alike import shard_alike
    >>> x, y = tb.jit(lambda x: shard_alike(x, 2 * x))(tb.numpy.ones(4))
    >>> print(y)
    [2. 2. 2. 2.]
    """
    flat_x, tree_x = tree.checked_flatten(x)
    flat_y, tree_y = tree.checked_flatten(y)
    if tree_x != tree_y:
        msg = f"shard_alike: x has the structure {tree_x}, y has {tree_y}"
        raise TreeMismatchError(msg, expected="trees of one structure")
    pairs = [_alike(as_value(a), as_value(b)) for a, b in zip(flat_x, flat_y, strict=True)]
    return tree_x.unflatten([p[0] for p in pairs]), tree_y.unflatten([p[1] for p in pairs])


def _alike(x: Value, y: Value) -> Sequence[Any]:
    if x.aval.shape != y.aval.shape:
        msg = f"shard_alike: a leaf of x is {x.aval.str_short()}, that of y {y.aval.str_short()}"
        raise ShapeMismatchError(msg, expected="equal shapes")
    return shard_alike_p.bind(x, y)
