"""Operators that read and write elements at positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import Operator, axis_of, cast, is_array
from tracebridge.torch._translate.operators import shapes
from tracebridge.torch._translate.operators.products import norm_of
from tracebridge.torch._translate.operators.shapes import slice_index


def trained_by_frequency(table: Value, indices: Value) -> Any:
    """A table whose rows have the mean derivative of their uses, and not the sum."""
    often = tnp.zeros((table.shape[0],), table.dtype)
    often = often.at[tnp.reshape(indices, (-1,))].add(cast(1, table.dtype))
    part = table / tnp.maximum(often, cast(1, table.dtype))[:, None]
    return part + lax.stop_gradient(table - part)


def _embedding_renorm(weight: Value, indices: Value, max_norm: Any, norm_type: Any) -> Any:
    """Rows that are read shortened to a largest norm; torch differentiates as if they were not."""
    fixed = lax.stop_gradient(weight)
    read = tnp.zeros((weight.shape[0],), np.bool_).at[tnp.reshape(indices, (-1,))].set(True)
    norm = norm_of(fixed, norm_type)
    size = tnp.where(read & (norm > max_norm), cast(max_norm, norm.dtype) / (norm + 1e-7), 1)
    short = fixed * cast(size, weight.dtype)[:, None]
    return weight + lax.stop_gradient(short - fixed)


def _embedding(
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    if padding_idx >= 0:  # the row is not trained
        row = tnp.arange(weight.shape[0])[:, None] == padding_idx
        weight = tnp.where(row, lax.stop_gradient(weight), weight)
    if scale_grad_by_freq:
        weight = trained_by_frequency(weight, indices)
    return tnp.take(weight, indices, axis=0, mode="clip")


def _index_of(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([slice(None) if i is None else i for i in indices])


def _index(x: Value, indices: Sequence[Any]) -> Any:
    return x[_index_of(indices)]


def _index_put(x: Value, indices: Sequence[Any], values: Value, accumulate: bool = False) -> Any:
    values = cast(values, x.dtype)
    named = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if len(named) == 1 and named[0][1].dtype == np.bool_:
        axis, mask = named[0]
        new = _spread(values, mask, axis, x)
        mask = tnp.reshape(mask, mask.shape + (1,) * (x.ndim - axis - mask.ndim))
        return tnp.where(mask, x + new if accumulate else new, x)
    at = x.at[_index_of(indices)]
    return at.add(values) if accumulate else at.set(values)


def _spread(values: Value, mask: Value, axis: int, x: Value) -> Any:
    """Values for the elements that a mask of axes from ``axis`` on names, each at its place."""
    chosen = (*x.shape[:axis], 1, *x.shape[axis + mask.ndim :])
    values = tnp.reshape(values, (1,) * (len(chosen) - values.ndim) + values.shape)
    if values.shape[axis] == 1:
        return tnp.expand_dims(values, tuple(range(axis, axis + mask.ndim - 1)))
    order = tnp.cumsum(tnp.reshape(mask, (-1,)), dtype=np.int32) - np.int32(1)
    rows = tnp.take(values, order, axis=axis, mode="clip")
    return tnp.reshape(rows, rows.shape[:axis] + mask.shape + rows.shape[axis + 1 :])


def _gather(x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Any:
    if not x.ndim or not index.ndim:
        return tnp.reshape(tnp.reshape(x, (-1,))[tnp.reshape(index, (-1,))], index.shape)
    axis = axis_of(dim, x.ndim)
    if [n for d, n in enumerate(index.shape) if d != axis] == [
        n for d, n in enumerate(x.shape) if d != axis
    ]:  # of whole rows: one element of each, as losses pick, goes back without a scatter
        return tnp.take_along_axis(x, index, axis, mode="promise_in_bounds")
    return x[_grid(index, axis)]


def _grid(index: Value, axis: int) -> tuple[Any, ...]:
    """An index for each axis: ``index`` along ``axis``, elsewhere the own position."""
    return tuple(
        [
            index if a == axis else lax.broadcasted_iota(np.int64, index.shape, a)
            for a in range(index.ndim)
        ]
    )


def _cut(src: Value, index: Value) -> Any:
    """The part of the source that belongs to an index."""
    return src if src.shape == index.shape else src[tuple([slice(0, n) for n in index.shape])]


def _writing(method: str) -> Operator:
    def run(x: Value, dim: int, index: Value, src: Value) -> Any:
        if not x.ndim:
            return getattr(tnp.reshape(x, (1,)).at[tnp.reshape(index, (-1,))], method)(
                tnp.reshape(cast(src, x.dtype), (-1,))
            )[0]
        src = _cut(cast(src, x.dtype), index) if is_array(src) else cast(src, x.dtype)
        return getattr(x.at[_grid(index, axis_of(dim, x.ndim))], method)(src)

    return run


_REDUCTIONS = {"sum": "add", "prod": "multiply", "amax": "max", "amin": "min", "mean": "add"}


def _scatter_reduce(
    x: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Any:
    where = _grid(index, axis_of(dim, x.ndim))
    src = _cut(src, index)
    start = x
    if not include_self:
        start = x.at[where].set(cast(_neutral(reduce, x.dtype), x.dtype))
    y = getattr(start.at[where], _REDUCTIONS[reduce])(src)
    if reduce != "mean":
        return y
    count = tnp.full(x.shape, 1 if include_self else 0, x.dtype)
    count = tnp.maximum(count.at[where].add(cast(1, x.dtype)), cast(1, x.dtype))
    return y / count if x.dtype.kind not in "iu" else tnp.floor_divide(y, count)


def _neutral(reduce: str, dtype: Any) -> Any:
    if reduce in {"sum", "mean"}:
        return 0
    if reduce == "prod":
        return 1
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.min if reduce == "amax" else limits.max)
    return -math.inf if reduce == "amax" else math.inf


def _index_select(x: Value, dim: int, index: Value) -> Any:
    return tnp.take(x, index, axis=axis_of(dim, x.ndim), mode="clip") if x.ndim else x


def _numbers_too(fun: Operator) -> Operator:
    """An operator along an axis that takes numbers for arrays of one element, as torch does."""

    def run(x: Value, dim: int, index: Value, source: Value, *args: Any, **options: Any) -> Any:
        full, places, new = [v if v.ndim else tnp.reshape(v, (1,)) for v in (x, index, source)]
        return tnp.reshape(fun(full, dim, places, new, *args, **options), x.shape)

    return run


def _along(method: str) -> Operator:
    """Writing whole slices at positions of one axis."""

    def run(x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Any:
        at = x.at[(slice(None),) * axis_of(dim, x.ndim) + (index,)]
        return getattr(at, method)(source if alpha == 1 else source * cast(alpha, x.dtype))

    return run


def _select_scatter(x: Value, src: Value, dim: int, index: int) -> Any:
    return x.at[(slice(None),) * axis_of(dim, x.ndim) + (index,)].set(src)


def _slice_scatter(
    x: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    return x.at[slice_index(x, dim, start, end, step)].set(src)


def _masked_scatter(x: Value, mask: Value, source: Value) -> Any:
    x, mask = tnp.broadcast_arrays(x, mask)
    places = tnp.cumsum(cast(tnp.reshape(mask, (-1,)), np.dtype(np.int64))) - 1
    values = tnp.take(tnp.reshape(source, (-1,)), tnp.maximum(places, 0), mode="clip")
    return tnp.where(mask, tnp.reshape(values, x.shape), x)


def _multilabel_margin_loss(x: Value, target: Value, reduction: int) -> tuple[Any, Any]:
    """Margins of the classes before the first -1 to all others; and which classes these are."""
    scores, classes = [v if v.ndim == 2 else tnp.reshape(v, (1, -1)) for v in (x, target)]
    n = scores.shape[1]
    named = tnp.cumprod(cast(classes >= 0, np.dtype(np.int32)), axis=1) != 0
    classes = tnp.where(named, classes, 0)
    hot = (classes[..., None] == tnp.arange(n)) & named[..., None]
    is_target = tnp.any(hot, axis=1)
    own = tnp.take_along_axis(scores, classes, 1)
    margin = cast(1, x.dtype) - own[..., None] + scores[:, None]
    counts = named[..., None] & ~is_target[:, None] & (margin > 0)
    loss = tnp.sum(tnp.where(counts, margin, cast(0, x.dtype)), axis=(1, 2)) / n
    if reduction:
        loss = tnp.mean(loss) if reduction == 1 else tnp.sum(loss)
    elif x.ndim < 2:
        loss = loss[0]
    return loss, cast(tnp.reshape(is_target, target.shape), x.dtype)


def _scatter_by(x: Value, dim: int, index: Value, src: Any, *, reduce: str) -> Any:
    """Writing that adds or multiplies."""
    return _writing(reduce)(x, dim, index, src)


def _index_reduce(
    x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Any:
    """Slices that are reduced into those at positions of one axis."""
    axis = axis_of(dim, x.ndim)
    shape = [1] * source.ndim
    shape[axis] = -1
    grid = tnp.broadcast_to(tnp.reshape(index, shape), source.shape)
    return _scatter_reduce(x, dim, grid, source, reduce, include_self=include_self)


def _put(x: Value, index: Value, source: Value, accumulate: bool = False) -> Any:
    at = tnp.reshape(x, (-1,)).at[tnp.reshape(index, (-1,))]
    values = tnp.reshape(source, (-1,))
    return tnp.reshape(at.add(values) if accumulate else at.set(values), x.shape)


def _nonzero_static(x: Value, *, size: Any, fill_value: int = -1) -> Any:
    """Places of elements that are not zero, as many as there is room for."""
    return cast(tnp.argwhere(x, size=size, fill_value=fill_value), np.dtype(np.int64))


def _repeat_interleave(repeats: Value, *, output_size: int) -> Any:
    """Positions, each as often as it says."""
    ends = tnp.cumsum(repeats)
    places = tnp.arange(output_size, dtype=ends.dtype)
    return cast(tnp.searchsorted(ends, places, side="right"), repeats.dtype)


def _written_into(view: Operator) -> Operator:
    """An array whose elements in a view are those of another array."""

    def run(x: Value, src: Value, *options: Any, **more: Any) -> Any:
        places = tnp.reshape(tnp.arange(math.prod(x.shape)), x.shape)
        index = tnp.reshape(view(places, *options, **more), (-1,))
        flat = tnp.reshape(x, (-1,)).at[index].set(tnp.reshape(cast(src, x.dtype), (-1,)))
        return tnp.reshape(flat, x.shape)

    return run


ROWS: Final[dict[str, Operator]] = {
    "_unsafe_index.Tensor": _index,
    "_unsafe_index_put.default": _index_put,
    "as_strided_scatter.default": _written_into(shapes.ROWS["as_strided.default"]),
    "diagonal_scatter.default": _written_into(shapes.ROWS["diagonal.default"]),
    "embedding.default": _embedding,
    "embedding_renorm.default": _embedding_renorm,
    "gather.default": _gather,
    "index.Tensor": _index,
    "index_add.default": _numbers_too(_along("add")),
    "index_copy.default": _numbers_too(_along("set")),
    "index_put.default": _index_put,
    "index_reduce.default": _numbers_too(_index_reduce),
    "index_select.default": _index_select,
    "masked_scatter.default": _masked_scatter,
    "multilabel_margin_loss_forward.default": _multilabel_margin_loss,
    "nonzero_static.default": _nonzero_static,
    "put.default": _put,
    "repeat_interleave.Tensor": _repeat_interleave,
    "scatter.reduce": _scatter_by,
    "scatter.value_reduce": _scatter_by,
    "scatter.src": _writing("set"),
    "scatter.value": _writing("set"),
    "scatter_add.default": _writing("add"),
    "scatter_reduce.two": _scatter_reduce,
    "select_scatter.default": _select_scatter,
    "slice_scatter.default": _slice_scatter,
}
