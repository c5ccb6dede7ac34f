"""Windows: their reductions, and what they select; reductions by a computation of the user."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_float
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.windows import winners
from tracebridge.core.windows.geometry import Windows, windows_of
from tracebridge.tf._native.arithmetic import larger, smaller
from tracebridge.tf._native.builder import Builder, DType, Tensor, is_static, rule
from tracebridge.tf._native.shapes import cut, padded

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.primitive import Primitive

_MOST = 256  # elements of a window that are combined one after the other


def _least(dtype: DType) -> Any:
    if is_bool(dtype):
        return False
    return -np.inf if is_float(dtype) else int(np.iinfo(dtype).min)


def _greatest(dtype: DType) -> Any:
    if is_bool(dtype):
        return True
    return np.inf if is_float(dtype) else int(np.iinfo(dtype).max)


def _filled_up(b: Builder, x: Tensor, fill: object, aval: ShapedArray, w: Windows) -> Tensor:
    """``x`` with what its windows see around its elements and between them."""
    config = [
        (low, high, step - 1) for (low, high), step in zip(w.padding, w.base_dilation, strict=True)
    ]
    return padded(b, x, b.full((), fill, aval.dtype), config, aval.shape)


def _along(
    x: Tensor,
    axis: int,
    size: int,
    stride: int,
    gap: int,
    combine: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """The windows along one axis, combined by halves."""
    n = tf.shape(x)[axis]
    count = n - (size - 1) * gap  # windows, before the stride

    def from_(y: Tensor, start: int) -> Tensor:
        return cut(y, axis, start, start + count)

    # Powers of two: each window of 2 k elements is two of k elements.
    found, done, span, whole = None, 0, 1, x
    while True:
        if size & span:
            part = from_(whole, done * gap)
            found = part if found is None else combine(found, part)
            done += span
        if done == size:
            return cut(found, axis, 0, None, stride) if stride > 1 else found
        whole = combine(cut(whole, axis, 0, -span * gap), cut(whole, axis, span * gap))
        span *= 2


def _reduced(
    b: Builder, x: Tensor, w: Windows, fill: object, combine: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """One axis after the other."""
    x = _filled_up(b, x, fill, b.avals[0], w)
    axes = zip(w.window_dimensions, w.window_strides, w.window_dilation, strict=True)
    for axis, (size, stride, gap) in enumerate(axes):
        if size > 1:
            x = _along(x, axis, size, stride, gap, combine)
        elif stride > 1:
            x = cut(x, axis, 0, None, stride)
    return x


def _usable(b: Builder, w: Windows) -> bool:
    return bool(b.avals[0].ndim) and is_static((*w.window_dimensions, *itertools.chain(*w.padding)))


def _window_rule(name: str, fill_of: Callable[[DType], object], combine: Any) -> None:
    @rule(name)
    def emit(b: Builder, x: Tensor, **params: Any) -> Any:
        w, dtype = windows_of(params), b.aval.dtype
        fill = fill_of(dtype) if not is_complex(dtype) or name.endswith("sum") else None
        if fill is None:
            return NotImplemented
        if not b.avals[0].ndim:
            return x
        if not _usable(b, w):
            return NotImplemented
        if 0 in (*b.aval.shape, *w.window_dimensions) or 0 in b.avals[0].shape:
            return b.full(b.aval.shape, fill, dtype)
        if is_float(dtype) and dtype.itemsize == 2:
            wide = _reduced(b, x, w, fill, lambda x, y: combine(x, y, dtype))
            return tf.cast(wide, x.dtype)
        return _reduced(b, x, w, fill, lambda x, y: combine(x, y, dtype))


def _sum_of(x: Tensor, y: Tensor, dtype: DType) -> Tensor:
    return x + y


_window_rule("reduce_window_sum", lambda dtype: 0, _sum_of)
_window_rule("reduce_window_max", _least, larger)
_window_rule("reduce_window_min", _greatest, smaller)
_window_rule("reduce_window_or", _least, larger)
_window_rule("reduce_window_and", _greatest, smaller)


# what windows select ------------------------------------------------------------------------------


@rule("select_and_gather_add")
def _select_and_gather_add(
    b: Builder, t: Tensor, x: Tensor, select_prim: Primitive, **params: Any
) -> Any:
    return _by_places(b, winners.gather_by_places, [t, x], select_prim, params)


@rule("select_and_scatter_add")
def _select_and_scatter_add(
    b: Builder, t: Tensor, x: Tensor, select_prim: Primitive, **params: Any
) -> Any:
    return _by_places(b, winners.scatter_by_places, [t, x], select_prim, params)


def _by_places(
    b: Builder,
    fun: Callable[..., Any],
    xs: Sequence[Tensor],
    select_prim: Primitive,
    params: dict[str, Any],
) -> Any:
    """By the form that takes the places of a window one after the other."""
    w = windows_of(params)
    if not _usable(b, w) or w.size > _MOST:
        return NotImplemented
    if 0 in (*w.window_dimensions, *b.avals[0].shape, *b.avals[1].shape):
        return b.zeros(b.aval)

    def run(*values: Any) -> list[Any]:
        return [fun(*values, select_prim=select_prim, windows=w)]

    return b.traced(run, xs, b.avals)[0]


# computations of the user -------------------------------------------------------------------------


def _folded(
    b: Builder, inits: Sequence[Tensor], count: int, at: Callable[[int], list[Any]], jaxpr: Jaxpr
) -> list[Tensor]:
    """``count`` elements combined one after the other, from the initial values on."""
    found = [tf.broadcast_to(x, b.shape(b.outs[0])) for x in inits]
    for n in reversed(b.outs[0].shape):
        dims = (0,) * jaxpr.n_in
        jaxpr = batch_jaxpr(jaxpr, n, None, dims, (True,) * len(jaxpr.out_avals))[0]
    for i in range(count):
        found = b.inline(jaxpr, [*found, *at(i)])
    return found


@rule("reduce_window")
def _reduce_window(b: Builder, *xs: Tensor, jaxpr: Jaxpr, **params: Any) -> Any:
    w = windows_of(params)
    n = len(xs) // 2
    if not _usable(b, w) or w.size > _MOST:
        return NotImplemented
    ones = tuple([1] * b.avals[0].ndim)
    plain = w._replace(padding=((0, 0),) * b.avals[0].ndim, base_dilation=ones)
    config = [
        (low, high, step - 1) for (low, high), step in zip(w.padding, w.base_dilation, strict=True)
    ]
    patches = [
        _windows(padded(b, x, init, config, a.shape), plain)
        for x, init, a in zip(xs[:n], xs[n:], b.avals[:n], strict=True)
    ]
    return _folded(b, xs[n:], w.size, lambda i: [p[i] for p in patches], jaxpr)


def _windows(x: Tensor, w: Windows) -> list[Tensor]:
    """The elements of all windows: one array for each place in a window."""
    sizes = tf.unstack(tf.shape(x))
    found: list[Tensor] = []
    for place in itertools.product(*[range(k) for k in w.window_dimensions]):
        along = zip(place, w.window_dimensions, w.window_strides, w.window_dilation, strict=True)
        window = [
            slice(at * gap, sizes[axis] - (k - 1 - at) * gap, step)
            for axis, (at, k, step, gap) in enumerate(along)
        ]
        found.append(x[tuple(window)])
    return found


@rule("reduce")
def _reduce(b: Builder, *xs: Tensor, jaxpr: Jaxpr, dimensions: Sequence[int], **_: object) -> Any:
    n = len(xs) // 2
    aval = b.avals[0]
    sizes = [aval.shape[axis] for axis in dimensions]
    if not is_static(sizes) or math.prod(sizes) > _MOST:
        return NotImplemented
    count = math.prod(sizes)
    kept = [a for a in range(aval.ndim) if a not in dimensions]
    shape = b.shape([aval.shape[a] for a in kept])
    rows = [tf.reshape(tf.transpose(x, [*dimensions, *kept]), [count, *shape]) for x in xs[:n]]
    return _folded(b, xs[n:], count, lambda i: [r[i] for r in rows], jaxpr)
