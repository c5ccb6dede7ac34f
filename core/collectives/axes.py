"""Names of axes: which are bound, how large they are, and what collectives share."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracebridge.core import lax
from tracebridge.core.collectives.replicas import replica_groups
from tracebridge.core.config.state import axis_env
from tracebridge.core.errors.shown import shown
from tracebridge.core.errors.transform_errors import AxisSpecError, UnboundAxisNameError
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import entries_of, even_split, split_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import literal
from tracebridge.core.ir.varied import joined, typed_axes, varied
from tracebridge.core.lax.batch_util import to_front
from tracebridge.core.tree import tree

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


def size_of_axis(call: str, name: object) -> Any:
    """The size of the innermost bound axis ``name``.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds the name.
    """
    bound = axis_env()
    for other, size in reversed(bound):
        if other == name:
            return size
    raise UnboundAxisNameError(name, call=call, bound=[n for n, _ in bound])


def axis_names(axis_name: object) -> tuple[Any, ...]:
    """A name, or a tuple or list of names, as a tuple."""
    return tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)


def bound_names(call: str, axis_name: Hashable) -> tuple[Any, ...]:
    """The names in ``axis_name``, each of them bound, and none there twice."""
    names = axis_names(axis_name)
    for name in names:
        size_of_axis(call, name)
    check_distinct(call, names)
    return names


def check_distinct(call: str, names: Sequence[object]) -> None:
    """Raise AxisSpecError if a name is there twice."""
    if len(names) > 1 and len(set(names)) != len(names):
        msg = f"{call}: the axis names {tuple(names)} contain one twice"
        raise AxisSpecError(msg, expected="different names")


def axis_size(axis_name: object) -> Any:
    """The number of elements of a named axis, or of the product of several.

    Args:
        axis_name: a bound axis name, or a tuple of them.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds a name.

    >>> import tracebridge as tb
    >>> tb.vmap(lambda x: x * tb.lax.axis_size("i"), axis_name="i")(tb.numpy.arange(3)).tolist()
    [0, 3, 6]
    """
    total: Any = 1
    for name in axis_names(axis_name):
        total = total * size_of_axis("axis_size", name)
    return total


def map_leaves(fun: Callable[[Any], Any], x: object) -> Any:
    """``fun`` of the values of the leaves of ``x``."""
    return tree.map(lambda leaf: fun(as_value(leaf)), x)


class Collective(Primitive):
    """One operand, combined across the elements of the named axes in parameter ``axes``."""

    cost = Cost.OTHER

    def names_axis(self, axis_name: object, params: Params) -> bool:
        return axis_name in params["axes"]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        """Axes of vmap are gone before lowering; those of pmap are replicas of the program."""
        groups = replica_groups(ctx, self.name, params["axes"], params.get("axis_index_groups"))
        return self.communicate(ctx, operands[0], groups, **params)

    # Whether all elements get the same.
    unites: ClassVar[bool] = False
    # Whether types say so: derivatives of what follows are summed then.
    unites_types: ClassVar[bool] = False

    def bind(self, *args: Value, **params: Any) -> Any:
        """Apply it to a value, which along the named axes has to vary in the sense of types."""
        own = typed_axes()
        if own:
            own = own.intersection(params["axes"])
            args = tuple([varied(a, own) for a in args])
        return super().bind(*args, **params)

    def vary_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Sequence[frozenset[Any]]:
        found = joined(avals)
        if self.unites_types and params.get("axis_index_groups") is None:
            found = found.difference(params["axes"])
        return [found] * len(outs)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        """As the operand over axes that are none of the collective's, along equal parts."""
        (out,) = outs
        entries = self.entries(list(entries_of(avals[0])), **params)
        split = split_of(self.name, avals, tuple(entries))
        return [None if split is None else even_split(out.with_split(split), out.shape)]

    def entries(self, given: list[Any], **params: Any) -> list[Any]:
        """For each axis of the result the names that split it, from those of the operand."""
        del params
        return given

    def varying(self, app: Application, ins: Sequence[Any], walk: Any) -> Sequence[Any]:
        own = walk.names.intersection(app.params["axes"])
        if self.unites and app.params.get("axis_index_groups") is None:
            return [ins[0] - own]
        return [ins[0] | own]

    def communicate(
        self, ctx: LoweringContext, x: object, groups: np.ndarray[Any, Any], **params: object
    ) -> Any:
        """The operation between the replicas of each row of ``groups``."""
        raise TypeError(self.name)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        if not self.names_axis(ctx.axis_name, params):
            return self.along(x, d, **params)
        if params.get("axis_index_groups") is not None and len(params["axes"]) > 1:
            raise AxisSpecError(
                f"{self.name}: axis_index_groups of the axes {params['axes']}, of which vmap maps "
                f"over {ctx.axis_name!r}",
                expected="groups of one axis, or of axes of a mesh",
            )
        return self.resolve(x, d, ctx, **params)

    def along(self, x: Any, d: int | None, **params: Any) -> tuple[Any, Any]:
        """Batch over another axis, which is none of the collective's business."""
        return self.bind(x, **params), d

    def resolve(
        self, x: object, d: int | None, ctx: BatchContext, **params: object
    ) -> tuple[Any, Any]:
        """Batch over the named axis itself; ``d`` is None where the elements are all equal."""
        raise TypeError(self.name)


def checked_groups(
    call: str, names: Sequence[object], groups: object, *, equal: bool = True
) -> Any:
    """``axis_index_groups`` as tuples: a partition of positions along the axes ``names``.

    The last name runs fastest. ``equal``: all groups have one length.

    Raises:
        AxisSpecError: they are not.
    """
    if groups is None:
        return None
    if not names:
        msg = f"{call}: axis_index_groups needs an axis name, got none"
        raise AxisSpecError(msg)
    if not isinstance(groups, tuple | list | np.ndarray):
        msg = f"{call}: axis_index_groups is {shown(groups)} of type {type(groups).__name__}"
        raise AxisSpecError(msg, expected="a list of lists of positions, or None")
    index_groups = tuple([tuple([int(i) for i in g]) for g in groups])
    members = sorted([i for g in index_groups for i in g])
    size = math.prod([size_of_axis(call, name) for name in names])
    if members != list(range(size)) or (equal and len({len(g) for g in index_groups}) != 1):
        several = f"the axes {tuple(names)}"
        axis = f"{several if len(names) > 1 else f'the axis {names[0]!r}'} of size {size}"
        msg = f"{call}: axis_index_groups {index_groups} do not split {axis}"
        what = "groups of one length" if equal else "groups"
        raise AxisSpecError(msg, expected=f"{what} that hold each index once")
    return index_groups


def by_group(x: Value, d: int | None, size: object, groups: Sequence[Sequence[int]]) -> Any:
    """``x`` with its batch axis split in front: (group, position in the group, ...)."""
    x = to_front(x, d, size)
    order = np.concatenate([np.asarray(g, np.int32) for g in groups])
    shape = (len(groups), len(groups[0]), *x.aval.shape[1:])
    return lax.reshape(take_rows(x, order), shape)


def from_groups(x: Value, groups: Sequence[Sequence[int]]) -> Any:
    """The inverse: the elements in the order of their positions along the axis, in front."""
    order = np.concatenate([np.asarray(g, np.int32) for g in groups])
    shape = x.aval.shape
    rows = lax.reshape(x, (shape[0] * shape[1], *shape[2:]))
    return take_rows(rows, np.argsort(order).astype(np.int32))


def take_rows(x: Operand, order: np.ndarray[Any, Any]) -> Any:
    """``x`` with the elements of axis 0 in another order."""
    return lax.index_take(x, [order], (0,))


def size_value(size: Any, dtype: Any) -> Any:
    """The size of an axis as a scalar of ``dtype``."""
    if type(size) is int:
        return literal(size, dtype)
    return lax.convert_dtype(lax.dimension_size(size), dtype)
