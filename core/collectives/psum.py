"""Sums, means and extremes over named axes: psum, pmean, pmax, pmin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.collectives.axes import (
    Collective,
    axis_names,
    axis_size,
    bound_names,
    by_group,
    check_distinct,
    checked_groups,
    from_groups,
    map_leaves,
    size_of_axis,
    size_value,
    take_rows,
)
from tracebridge.core.collectives.axis_index import axis_index
from tracebridge.core.collectives.replicas import all_reduce
from tracebridge.core.dtypes.canonicalize import default_int, to_inexact
from tracebridge.core.dtypes.dtypes import bool_, is_bool, is_complex, is_inexact
from tracebridge.core.dtypes.weak_type import is_python_scalar
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import AxisError
from tracebridge.core.ir.aval import NOWHERE, ShapedArray
from tracebridge.core.ir.varied import varied
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import to_front
from tracebridge.core.lax.shape.axes import as_axes
from tracebridge.core.tree import tree

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


class _AllReduce(Collective):
    """Parameters ``axes`` and ``axis_index_groups`` (a tuple of tuples, or None)."""

    unites = True
    unites_types = True
    # The StableHLO operation that combines two elements.
    combine: ClassVar[str]
    # Whether complex numbers have it: a sum of them, no maximum.
    takes_complex: ClassVar[bool] = False

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        (x,) = avals
        if is_bool(x.dtype) or (is_complex(x.dtype) and not self.takes_complex):
            msg = f"{self.name} does not work on {x.dtype.name}"
            raise UnsupportedDtypeError(msg)
        return x.strong

    def resolve(self, x: Any, d: int | None, ctx: BatchContext, **params: Any) -> tuple[Any, Any]:
        groups = params["axis_index_groups"]
        if groups is not None:
            return self._in_groups(x, d, ctx, groups)
        out = self.of_equal(x, ctx.size) if d is None else self.reduce(x, (d,))
        rest = tuple([a for a in params["axes"] if a != ctx.axis_name])
        return (self.bind(out, axes=rest, axis_index_groups=None) if rest else out), None

    def _in_groups(
        self, x: Value, d: int | None, ctx: BatchContext, groups: Any
    ) -> tuple[Any, Any]:
        """Reduce each group, and give the result to its members."""
        if len({len(g) for g in groups}) != 1:
            return self._in_unequal_groups(to_front(x, d, ctx.size), groups), 0
        parts = by_group(x, d, ctx.size, groups)
        shape = parts.aval.shape
        dims = (0, *range(2, len(shape)))
        wide = lax.broadcast_in_dim(self.reduce(parts, (1,)), shape, dims)
        return from_groups(wide, groups), 0

    def _in_unequal_groups(self, x: Value, groups: Any) -> Any:
        rest = x.aval.shape[1:]
        parts: list[Any] = []
        for group in groups:
            total = self.reduce(take_rows(x, np.asarray(group, np.int32)), (0,))
            shape = (len(group), *rest)
            parts.append(lax.broadcast_in_dim(total, shape, tuple(range(1, len(shape)))))
        order = np.concatenate([np.asarray(g, np.int32) for g in groups])
        return take_rows(lax.concatenate(parts, 0), np.argsort(order).astype(np.int32))

    def communicate(self, ctx: LoweringContext, x: Any, groups: Any, **params: Any) -> Any:
        return all_reduce(ctx, x, ctx.aval_out, groups, self.combine)

    def reduce(self, x: object, axes: tuple[int, ...]) -> Any:
        """The reduction of array axes that the collective stands for."""
        raise TypeError(self.name)

    def of_equal(self, x: object, size: object) -> Any:
        """The reduction of ``size`` equal elements."""
        del size
        return x


@final
class Psum(_AllReduce):
    """Sum over named axes."""

    name = "psum"
    takes_complex = True
    combine = "stablehlo.add"

    def reduce(self, x: Any, axes: tuple[int, ...]) -> Any:
        return lax.reduce_sum(x, axes)

    def of_equal(self, x: Any, size: Any) -> Any:
        return lax.mul(x, size_value(size, x.aval.dtype))

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), self.bind(*tangents, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        """Every element took part in every sum; where types know it, its cotangent is shared."""
        (x,) = args
        names, groups = params["axes"], params["axis_index_groups"]
        own = x.aval.vma.intersection(names) if groups is None else NOWHERE
        rest = tuple([name for name in names if name not in own])
        if rest:
            ct = self.bind(ct, axes=rest, axis_index_groups=groups)
        return [varied(ct, own)]


class _Extremum(_AllReduce):
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        """Elements that tie share the derivative evenly, as in reduce_max."""
        (x,), (t,) = primals, tangents
        ans = self.bind(x, **params)
        wins = lax.eq(x, ans)
        count = psum_p.bind(lax.convert_dtype(wins, t.aval.dtype), **params)
        total = psum_p.bind(lax.select(wins, t, zeros_of(t.aval)), **params)
        return ans, lax.div(total, count)

    makes_nan = False


@final
class Pmax(_Extremum):
    """Maximum over named axes."""

    name = "pmax"
    combine = "stablehlo.maximum"

    def reduce(self, x: Any, axes: tuple[int, ...]) -> Any:
        return lax.reduce_max(x, axes)


@final
class Pmin(_Extremum):
    """Minimum over named axes."""

    name = "pmin"
    combine = "stablehlo.minimum"

    def reduce(self, x: Any, axes: tuple[int, ...]) -> Any:
        return lax.reduce_min(x, axes)


psum_p = Psum()
pmax_p = Pmax()
pmin_p = Pmin()


def _split_axes(call: str, axis_name: object) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Bound names, and positions of array axes, in ``axis_name``."""
    all_names = axis_names(axis_name)
    positions = tuple([a for a in all_names if isinstance(a, int)])
    names = tuple([a for a in all_names if not isinstance(a, int)])
    for name in names:
        size_of_axis(call, name)
    check_distinct(call, names)
    return names, positions


def _all_reduce(primitive: _AllReduce, x: object, axis_name: object, groups: object) -> Any:
    names, positions = _split_axes(primitive.name, axis_name)
    groups = checked_groups(primitive.name, names, groups, equal=False)

    def apply(value: Value) -> Any:
        is_mask = is_bool(value.aval.dtype)
        if is_mask:
            value = lax.convert_dtype(value, default_int())
        if positions:
            value = primitive.reduce(value, as_axes(primitive.name, positions, value.aval.ndim))
        if names:
            value = primitive.bind(value, axes=names, axis_index_groups=groups)
        # The largest of some bools is a bool, their sum a number.
        return lax.convert_dtype(value, bool_) if is_mask and primitive is not psum_p else value

    return map_leaves(apply, x)


def psum(x: object, axis_name: object, *, axis_index_groups: object = None) -> Any:
    """Sum of ``x`` over the elements of named axes.

    Args:
        x: pytree of arrays. A Python number is multiplied by the size of the axes.
        axis_name: a bound axis name, or a tuple of them; ints in it are axes of the arrays.
        axis_index_groups: groups of positions along the axes, which together hold each position
            once; each group is summed on its own.

    Returns:
        Pytree like ``x``, equal for all elements (of a group).

    Raises:
        UnboundAxisNameError: no surrounding transformation binds a name.

    >>> import tracebridge as tb
    >>> tb.vmap(lambda x: tb.lax.psum(x, "i"), axis_name="i")(tb.numpy.arange(3)).tolist()
    [3, 3, 3]
    """
    names, positions = _split_axes("psum", axis_name)
    if axis_index_groups is None and not positions:
        leaves, structure = tree.flatten(x)
        if any([is_python_scalar(leaf) for leaf in leaves]):
            total = axis_size(names)
            return structure.unflatten(
                [
                    leaf * total
                    if is_python_scalar(leaf)
                    else _all_reduce(psum_p, leaf, axis_name, None)
                    for leaf in leaves
                ]
            )
    return _all_reduce(psum_p, x, axis_name, axis_index_groups)


def pmean(x: object, axis_name: object, *, axis_index_groups: object = None) -> Any:
    """Mean of ``x`` over the elements of named axes; arguments as in ``psum``.

    >>> import tracebridge as tb
    >>> tb.vmap(lambda x: tb.lax.pmean(x, "i"), axis_name="i")(tb.numpy.arange(3.0)).tolist()
    [1.0, 1.0, 1.0]
    """
    names, positions = _split_axes("pmean", axis_name)
    size = count = axis_size(names)
    groups = checked_groups("pmean", names, axis_index_groups, equal=False)
    if groups is not None and len({len(g) for g in groups}) == 1:
        count = len(groups[0])

    def mean(value: Value) -> Any:
        if not is_inexact(value.aval.dtype):
            value = lax.convert_dtype(value, to_inexact(value.aval.dtype))
        total = _all_reduce(psum_p, value, axis_name, groups)
        divisor = count
        for a in positions:
            divisor = divisor * value.aval.shape[a]
        divisor = size_value(divisor, total.aval.dtype)
        if groups is not None and len({len(g) for g in groups}) != 1:
            # Elements of groups of different lengths divide by different numbers.
            ones = lax.full((), 1, total.aval.dtype)
            members = psum_p.bind(ones, axes=names, axis_index_groups=groups)
            divisor = lax.div(lax.mul(divisor, members), size_value(size, total.aval.dtype))
        return lax.div(total, divisor)

    return map_leaves(mean, x)


def pmax(x: object, axis_name: object, *, axis_index_groups: object = None) -> Any:
    """Largest element of ``x`` over named axes; arguments as in ``psum``.

    >>> import tracebridge as tb
    >>> tb.vmap(lambda x: tb.lax.pmax(x, "i"), axis_name="i")(tb.numpy.arange(3)).tolist()
    [2, 2, 2]
    """
    return _all_reduce(pmax_p, x, axis_name, axis_index_groups)


def pmin(x: object, axis_name: object, *, axis_index_groups: object = None) -> Any:
    """Smallest element of ``x`` over named axes; arguments as in ``psum``.

    >>> import tracebridge as tb
    >>> tb.vmap(lambda x: tb.lax.pmin(x, "i"), axis_name="i")(tb.numpy.arange(3)).tolist()
    [0, 0, 0]
    """
    return _all_reduce(pmin_p, x, axis_name, axis_index_groups)


def pbroadcast(x: object, axis_name: object, source: int) -> Any:
    """The value that one element of a named axis has, for all elements.

    Args:
        x: pytree of arrays.
        axis_name: a bound axis name, or a tuple of them, of which the last runs fastest.
        source: the position of the element.

    Raises:
        UnboundAxisNameError: no surrounding transformation binds the name.
        AxisError: ``source`` is no position of the axis.

    >>> import tracebridge as tb
    >>> f = tb.vmap(lambda x: tb.lax.pbroadcast(x, "i", 1), axis_name="i")
    >>> f(tb.numpy.array([5, 6, 7])).tolist()
    [6, 6, 6]
    """
    names = bound_names("pbroadcast", axis_name)
    size = axis_size(names)
    if not -size <= source < size:
        raise AxisError(f"pbroadcast: source {source} is not a position of axis {axis_name!r}")
    here = lax.eq(axis_index(names), source % size)

    def send(value: Value) -> Any:
        is_mask = is_bool(value.aval.dtype)
        sent = lax.convert_dtype(value, default_int()) if is_mask else value
        total = psum_p.bind(
            lax.select(here, sent, zeros_of(sent.aval)), axes=names, axis_index_groups=None
        )
        return lax.convert_dtype(total, bool_) if is_mask else total

    return map_leaves(send, x)
