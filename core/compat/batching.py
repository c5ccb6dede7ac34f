"""Batching rules as functions: tables, and the usual ways to make rules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tracebridge.core.ir.primitive as base
from tracebridge.core.compat.tables import RuleTable
from tracebridge.core.errors.transform_errors import AxisSpecError, CustomRuleError
from tracebridge.core.interpreters.staged_rules import BatchInfo, SpmdAxis
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis, to_front
from tracebridge.core.lax.shape.reshape import reshape
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.rule_contexts import BatchContext


Rule = Callable[..., Any]
not_mapped = None
"""The axis of an argument, or of a result, that is the same for all elements of the batch."""


@public_path("tracebridge.interpreters.batching")
class AxisData(NamedTuple):
    """The axis that is being mapped, as the rules of ``fancy_primitive_batchers`` get it."""

    name: Any
    size: Any
    spmd_name: Any = None


def _checked(primitive: base.Primitive, pair: object) -> tuple[Any, Any]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        msg = f"the batching rule of {primitive} gave {pair!r}, expected (result, axis)"
        raise CustomRuleError(msg)
    out, dim = pair
    if not primitive.multiple_results:
        return as_value(out), dim
    outs = [as_value(o) for o in out]
    dims = list(dim) if isinstance(dim, list | tuple) else [dim] * len(outs)
    if len(outs) != len(dims):
        msg = f"the batching rule of {primitive} gave {len(outs)} results and {len(dims)} axes"
        raise CustomRuleError(msg)
    return outs, dims


def _install(primitive: base.Primitive, rule: Rule) -> Rule:
    def batch(
        ctx: BatchContext, args: Sequence[object], dims: Sequence[int | None], **params: Any
    ) -> Any:
        return _checked(primitive, rule(tuple(args), tuple(dims), **params))

    return batch


def _install_fancy(primitive: base.Primitive, rule: Rule) -> Rule:
    def batch(
        ctx: BatchContext, args: Sequence[object], dims: Sequence[int | None], **params: Any
    ) -> Any:
        data = AxisData(ctx.axis_name, ctx.size, ctx.spmd_name)
        return _checked(primitive, rule(data, tuple(args), tuple(dims), **params))

    return batch


def _install_axis(primitive: base.Primitive, rule: Rule) -> Rule:
    def batch(
        ctx: BatchContext, args: Sequence[object], dims: Sequence[int | None], **params: Any
    ) -> Any:
        given = (ctx.size, ctx.axis_name, None, tuple(args), tuple(dims))
        return _checked(primitive, rule(*given, **params))

    return batch


def _size(args: Sequence[Any], dims: Sequence[int | None]) -> Any:
    for a, d in zip(args, dims, strict=True):
        if d is not None:
            return a.aval.shape[d]
    msg = "batching rule: no argument has a mapped axis"
    raise AxisSpecError(msg)


def _offer(primitive: base.Primitive) -> Rule:
    def rule(args: Sequence[object], dims: Sequence[int | None], **params: Any) -> Any:
        values = [as_value(a) for a in args]
        return primitive.batch(BatchInfo(_size(values, dims), None), values, list(dims), **params)

    return rule


def _offer_fancy(primitive: base.Primitive) -> Rule:
    def rule(axis: Any, args: Sequence[object], dims: Sequence[int | None], **params: Any) -> Any:
        values = [as_value(a) for a in args]
        spmd_name = getattr(axis, "spmd_name", None)
        given = axis.name if spmd_name is None else SpmdAxis(axis.name, spmd_name)
        return primitive.batch(BatchInfo(axis.size, given), values, list(dims), **params)

    return rule


def _offer_axis(primitive: base.Primitive) -> Rule:
    def rule(
        size: object,
        name: object,
        _: object,
        args: Sequence[object],
        dims: Sequence[int | None],
        **params: Any,
    ) -> Any:
        values = [as_value(a) for a in args]
        return primitive.batch(BatchInfo(size, name), values, list(dims), **params)

    return rule


primitive_batchers = RuleTable("batching.primitive_batchers", "batch", _install, _offer)
"""``rule(args, axes, **params) -> (result, axis)``; lists for several results."""

fancy_primitive_batchers = RuleTable(
    "batching.fancy_primitive_batchers", "batch", _install_fancy, _offer_fancy
)
"""``rule(axis_data, args, axes, **params)``: the same with name and size of the mapped axis."""

axis_primitive_batchers = RuleTable(
    "batching.axis_primitive_batchers", "batch", _install_axis, _offer_axis
)
"""``rule(size, name, None, args, axes, **params)``."""


def defvectorized(prim: Primitive) -> None:
    """Say that a primitive works elementwise, so that a batch is just a larger array.

    Args:
        prim: the primitive.

    >>> import tracebridge as tb
    >>> from tracebridge.extend.core import Primitive
    >>> from tracebridge.interpreters import batching
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_impl(lambda x: 2 * x)
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> batching.defvectorized(twice_p)
    >>> print(tb.vmap(twice_p.bind)(tb.lax.iota("int32", 3)))
    [0 2 4]
    """
    primitive_batchers[prim] = functools.partial(_vectorized, prim)


def _vectorized(prim: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
    if any([d != dims[0] for d in dims]):
        msg = f"{prim}: its arguments are mapped over different axes: {tuple(dims)}"
        raise CustomRuleError(msg, hint="use batching.defbroadcasting for several arguments")
    out = prim.bind(*args, **params)
    return out, [dims[0]] * len(out) if prim.multiple_results else dims[0]


def defbroadcasting(prim: Primitive) -> None:
    """Say that a primitive works elementwise on several arguments of one shape, or scalars.

    Arguments that are not mapped are repeated where the others have a batch axis.

    Args:
        prim: the primitive.

    >>> import tracebridge as tb
    >>> from tracebridge.extend.core import Primitive
    >>> from tracebridge.interpreters import batching
    >>> product_p = Primitive("product")
    >>> _ = product_p.def_impl(lambda x, y: x * y)
    >>> _ = product_p.def_abstract_eval(lambda x, y: x)
    >>> batching.defbroadcasting(product_p)
    >>> print(tb.vmap(product_p.bind, in_axes=(0, None))(tb.lax.iota("int32", 3), 2))
    [0 2 4]
    """
    primitive_batchers[prim] = functools.partial(_broadcasting, prim)


def _broadcasting(
    prim: Primitive, args: Sequence[object], dims: Sequence[int | None], **params: Any
) -> Any:
    pairs = list(zip([as_value(a) for a in args], dims, strict=True))
    size = _size([a for a, _ in pairs], dims)
    rank = max([a.aval.ndim - (d is not None) for a, d in pairs])
    aligned: list[Any] = []
    for a, d in pairs:
        moved = to_front(a, d, size)
        missing = rank + 1 - moved.aval.ndim
        if missing and d is None and not a.aval.ndim:
            moved = a
        elif missing:
            shape = moved.aval.shape
            moved = reshape(moved, (shape[0], *[1] * missing, *shape[1:]))
        aligned.append(moved)
    out = prim.bind(*aligned, **params)
    return out, [0] * len(out) if prim.multiple_results else 0


def defreducer(prim: Any, ident: object = None) -> None:
    """Say that a primitive reduces over the parameter ``axes``.

    Args:
        prim: the primitive, of one argument.
        ident: the neutral element; batches of equal sizes do not need it.

    >>> import tracebridge as tb
    >>> from tracebridge.extend.core import Primitive
    >>> from tracebridge.interpreters import batching
    >>> total_p = Primitive("total")
    >>> _ = total_p.def_impl(lambda x, *, axes: x.sum(axes))
    >>> _ = total_p.def_abstract_eval(lambda x, *, axes: tb.eval_shape(lambda y: y.sum(axes), x))
    >>> batching.defreducer(total_p)
    >>> print(tb.vmap(lambda x: total_p.bind(x, axes=(0,)))(tb.lax.full((2, 3), 1)))
    [3 3]
    """
    del ident

    def rule(args: Sequence[Any], dims: Sequence[int | None], *, axes: Any, **params: Any) -> Any:
        (x,), (dim,) = args, dims
        moved = move_batch_axis(x, 0 if dim is None else dim, 0)
        out = prim.bind(moved, axes=tuple([a + 1 for a in axes]), **params)
        return out, [0] * len(out) if prim.multiple_results else 0

    primitive_batchers[prim] = rule


def broadcast(x: object, sz: object, axis: int, *_: object) -> Any:
    """``x`` repeated along a new axis of size ``sz``.

    Args:
        x: the array.
        sz: the size of the new axis.
        axis: its position in the result.

    >>> from tracebridge.interpreters import batching
    >>> print(batching.broadcast(1.0, 3, 0))
    [1. 1. 1.]
    """
    return broadcast_batch(as_value(x), sz, axis)


def bdim_at_front(x: object, bdim: int | None, size: object, *_: object) -> Any:
    """``x`` with its batch axis in front; repeated if it has none.

    Args:
        x: the array.
        bdim: its batch axis; None if it has none.
        size: the size of the batch.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import batching
    >>> batching.bdim_at_front(tb.lax.full((2, 3), 1.0), 1, 3).shape
    (3, 2)
    """
    return to_front(as_value(x), bdim, size)


def moveaxis(x: object, src: int, dst: int) -> Any:
    """``x`` with one axis moved.

    Args:
        x: the array.
        src: which axis, also from the end.
        dst: its new position, also from the end.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import batching
    >>> batching.moveaxis(tb.lax.full((2, 3), 1.0), 0, -1).shape
    (3, 2)
    """
    value = as_value(x)
    n = value.aval.ndim
    return move_batch_axis(value, src % n, dst % n)
