"""Exchanges along named axes: ppermute, pshuffle, all_to_all, pswapaxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.collectives.all_gather import all_gather
from tracebridge.core.collectives.axes import (
    Collective,
    axis_size,
    bound_names,
    by_group,
    checked_groups,
    from_groups,
    map_leaves,
    size_of_axis,
    take_rows,
)
from tracebridge.core.collectives.axis_index import axis_index
from tracebridge.core.collectives.replicas import all_to_all as all_to_all_op
from tracebridge.core.collectives.replicas import permute
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import move_batch_axis, to_front
from tracebridge.core.lax.shape.axes import as_axis

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


@final
class Ppermute(Collective):
    """Parameters ``axes`` (one name) and ``perm``, pairs (source, destination)."""

    name = "ppermute"
    makes_nan = False

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        return avals[0].strong

    def resolve(self, x: Any, d: int | None, ctx: BatchContext, **params: Any) -> tuple[Any, Any]:
        x = to_front(x, d, ctx.size)
        source, sent = _sources(ctx.size, params["perm"])
        moved = take_rows(x, source)
        if not sent.all():
            flags = lax.broadcast_in_dim(sent, moved.aval.shape, (0,))
            moved = lax.select(flags, moved, zeros_of(moved.aval))
        return moved, 0

    def communicate(self, ctx: LoweringContext, x: Any, groups: Any, **params: Any) -> Any:
        pairs = [(row[a], row[b]) for row in groups.tolist() for a, b in params["perm"]]
        return permute(ctx, x, ctx.aval_out, pairs)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), self.bind(*tangents, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        back = tuple([(b, a) for a, b in params["perm"]])
        return [self.bind(ct, axes=params["axes"], perm=back)]


@final
class AllToAll(Collective):
    """Element i gives part j of ``split_axis`` to element j, as part i of ``concat_axis``.

    Parameters besides these two: ``axes`` (one name), ``axis_index_groups`` and ``size``, the
    number of elements of the axis, or of each group.

    The part loses its axis and gets a new one of the size of the named axis.
    """

    name = "all_to_all"
    makes_nan = False

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        split, concat, size = params["split_axis"], params["concat_axis"], params["size"]
        if x.shape[split] != size:
            msg = (
                f"all_to_all: axis {split} of {x.str_short()} must have the size {size} of the "
                f"axis {params['axes'][0]!r}"
            )
            raise ShapeMismatchError(msg)
        shape = [s for i, s in enumerate(x.shape) if i != split]
        shape.insert(concat, size)
        return x.update(shape=tuple(shape), weak_type=False)

    def entries(self, given: list[Any], **params: Any) -> list[Any]:
        rest = [entry for i, entry in enumerate(given) if i != params["split_axis"]]
        rest.insert(params["concat_axis"], None)
        return rest

    def resolve(self, x: Any, d: int | None, ctx: BatchContext, **params: Any) -> tuple[Any, Any]:
        """The batch axis and the split axis change places."""
        split, concat = params["split_axis"], params["concat_axis"]
        groups = params["axis_index_groups"]
        if groups is not None:
            parts = move_batch_axis(by_group(x, d, ctx.size, groups), split + 2, 1)
            return from_groups(move_batch_axis(parts, 2, concat + 2), groups), 0
        x = to_front(x, d, ctx.size)
        parts = move_batch_axis(x, split + 1, 0)
        return move_batch_axis(parts, 1, concat + 1), 0

    def along(self, x: Any, d: int | None, **params: Any) -> tuple[Any, Any]:
        if d is None:
            return self.bind(x, **params), None
        moved = move_batch_axis(x, d, 0)
        axes = {name: params[name] + 1 for name in ("split_axis", "concat_axis")}
        return self.bind(moved, **{**params, **axes}), 0

    def communicate(self, ctx: LoweringContext, x: Any, groups: Any, **params: Any) -> Any:
        (aval,) = ctx.avals_in
        split, concat = params["split_axis"], params["concat_axis"]
        received = all_to_all_op(ctx, x, aval, groups, split)
        order = [i for i in range(aval.ndim) if i != split]
        order.insert(concat, split)
        return ctx.transpose(received, ctx.aval_out, order)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), self.bind(*tangents, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        axes = {"split_axis": params["concat_axis"], "concat_axis": params["split_axis"]}
        return [self.bind(ct, **{**params, **axes})]


ppermute_p = Ppermute()
all_to_all_p = AllToAll()


def ppermute(x: object, axis_name: object, perm: Sequence[tuple[int, int]]) -> Any:
    """Send the values of some elements of a named axis to others.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name, or a tuple of them, of which the last runs fastest.
        perm: pairs ``(source, destination)``; no source and no destination appears twice.

    Returns:
        Pytree like ``x``: what was received, zeros for elements that nothing is sent to.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds the name.
        AxisSpecError: the pairs are out of range or repeat an element.

    >>> import tracebridge as tb
    >>> shift = [(0, 1), (1, 2)]
    >>> f = tb.vmap(lambda x: tb.lax.ppermute(x, "i", shift), axis_name="i")
    >>> f(tb.numpy.array([5, 6, 7])).tolist()
    [0, 5, 6]
    """
    names = bound_names("ppermute", axis_name)
    size = axis_size(names)
    pairs = tuple([(int(a), int(b)) for a, b in perm])
    for what, ends in (("source", [a for a, _ in pairs]), ("destination", [b for _, b in pairs])):
        if len(set(ends)) != len(ends) or any([not 0 <= e < size for e in ends]):
            msg = f"ppermute: perm {pairs} must name each {what} once, in [0, {size})"
            raise AxisSpecError(msg)
    if len(names) != 1:
        return map_leaves(lambda value: _permute_grid(value, names, size, pairs), x)
    return map_leaves(lambda value: ppermute_p.bind(value, axes=names, perm=pairs), x)


def _permute_grid(value: object, names: Sequence[object], size: int, pairs: object) -> Any:
    """The permutation of the positions along several axes: each element takes what it is sent."""
    source, sent = _sources(size, pairs)
    everything = all_gather(value, tuple(names))
    here = axis_index(tuple(names))
    received = lax.dynamic_index_in_dim(
        everything, lax.dynamic_index_in_dim(source, here, 0, keepdims=False), 0, keepdims=False
    )
    if sent.all():
        return received
    flag = lax.dynamic_index_in_dim(sent, here, 0, keepdims=False)
    return lax.select(flag, received, zeros_of(received.aval))


def _sources(size: int, pairs: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """For each position the one that it receives from, and whether it receives anything."""
    source = np.zeros(size, np.int32)
    sent = np.zeros(size, np.bool_)
    for a, b in pairs:
        source[b], sent[b] = a, True
    return source, sent


def pshuffle(x: object, axis_name: object, perm: Sequence[int]) -> Any:
    """Give element i of a named axis the value of element ``perm[i]``.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name, or a tuple of them, of which the last runs fastest.
        perm: a permutation of the positions.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds the name.
        AxisSpecError: ``perm`` is not a permutation.

    >>> import tracebridge as tb
    >>> f = tb.vmap(lambda x: tb.lax.pshuffle(x, "i", [2, 0, 1]), axis_name="i")
    >>> f(tb.numpy.array([5, 6, 7])).tolist()
    [7, 5, 6]
    """
    size = axis_size(bound_names("pshuffle", axis_name))
    if sorted(perm) != list(range(size)):
        msg = f"pshuffle: {list(perm)} is not a permutation of range({size})"
        raise AxisSpecError(msg)
    return ppermute(x, axis_name, [(source, i) for i, source in enumerate(perm)])


def all_to_all(
    x: object,
    axis_name: object,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: object = None,
    tiled: bool = False,
) -> Any:
    """Exchange a named axis with an array axis.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name, or a tuple of them, of which the last runs fastest.
        split_axis: array axis whose part j goes to element j.
        concat_axis: array axis of the result along which the received parts lie.
        axis_index_groups: groups of positions along the axes, of one length; each group
            exchanges on its own.
        tiled: split and concatenate existing axes, instead of removing and adding one.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds the name.
        ShapeMismatchError: ``split_axis`` cannot be split into as many parts.

    >>> import tracebridge as tb
    >>> f = tb.vmap(lambda x: tb.lax.all_to_all(x, "i", 0, 0), axis_name="i")
    >>> f(tb.numpy.array([[0, 1], [2, 3]])).tolist()
    [[0, 2], [1, 3]]
    """
    names = bound_names("all_to_all", axis_name)
    groups = checked_groups("all_to_all", names, axis_index_groups)
    sizes = [size_of_axis("all_to_all", n) for n in names] if groups is None else [len(groups[0])]
    size = math.prod(sizes)

    def exchange(value: Value) -> Any:
        ndim = value.aval.ndim
        split = as_axis("all_to_all", split_axis, ndim)
        concat = as_axis("all_to_all", concat_axis, ndim)
        shape = value.aval.shape
        if shape[split] % size if tiled else shape[split] != size:
            kind = "be a multiple of" if tiled else "have"
            msg = (
                f"all_to_all: axis {split} of {value.aval.str_short()} must {kind} the size "
                f"{size} of {_described(names, groups)}"
            )
            raise ShapeMismatchError(msg)
        if not tiled:
            return _exchange(value, names, sizes, split, concat, groups)
        parts = (*shape[:split], size, shape[split] // size, *shape[split + 1 :])
        # Without the axis of the parts the axes are those of ``value``.
        received = _exchange(lax.reshape(value, parts), names, sizes, split, concat, groups)
        out = received.aval.shape
        merged = (*out[:concat], out[concat] * out[concat + 1], *out[concat + 2 :])
        return lax.reshape(received, merged)

    return map_leaves(exchange, x)


def _described(names: Sequence[object], groups: object) -> str:
    what = f"the axis {names[0]!r}" if len(names) == 1 else f"the axes {tuple(names)}"
    return what if groups is None else f"the groups of {what}"


def _exchange(
    value: Value,
    names: Sequence[object],
    sizes: Sequence[Any],
    split: int,
    concat: int,
    groups: object,
) -> Any:
    """The exchange over the product of the axes, one axis after the other."""
    if len(names) == 1 or groups is not None:
        return all_to_all_p.bind(
            value,
            axes=tuple(names),
            size=sizes[0],
            split_axis=split,
            concat_axis=concat,
            axis_index_groups=groups,
        )
    shape = value.aval.shape
    n = len(names)
    value = lax.reshape(value, (*shape[:split], *sizes, *shape[split + 1 :]))
    for i, (name, size) in enumerate(zip(names, sizes, strict=True)):
        value = _exchange(value, (name,), (size,), split + i, split + i, groups)
    order = [a for a in range(value.aval.ndim) if not split <= a < split + n]
    order[concat:concat] = range(split, split + n)
    value = lax.transpose(value, tuple(order))
    shape = value.aval.shape
    return lax.reshape(value, (*shape[:concat], math.prod(sizes), *shape[concat + n :]))


def pswapaxes(x: object, axis_name: object, axis: int, *, axis_index_groups: object = None) -> Any:
    """Swap a named axis with an array axis of the same size.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name.
        axis: the array axis.
        axis_index_groups: as in ``all_to_all``.

    >>> import tracebridge as tb
    >>> f = tb.vmap(lambda x: tb.lax.pswapaxes(x, "i", 0), axis_name="i")
    >>> f(tb.numpy.array([[0, 1], [2, 3]])).tolist()
    [[0, 2], [1, 3]]
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)
