"""Windows: their reductions, and what they select; reductions by a computation of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.windows.geometry import Windows, windows_of
from tracebridge.torch._aten.builder import Builder, aten, rule
from tracebridge.torch._aten.carriers import carrier, is_wide_unsigned, largest, smallest
from tracebridge.torch._aten.integers import in_order, masked
from tracebridge.torch._aten.shapes import with_padding

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr

_MOST = 256  # elements of a window that are combined one after the other


def _patches(b: Builder, x: fx.Proxy, fill: Any, shape: Sequence[object], w: Windows) -> Any:
    """All windows of ``x``: their axes come last, as one."""
    config = [
        (low, high, step - 1) for (low, high), step in zip(w.padding, w.base_dilation, strict=True)
    ]
    x = with_padding(b, x, fill, config, shape)
    ndim = len(shape)
    along = zip(w.window_dimensions, w.window_strides, w.window_dilation, strict=True)
    for axis, (size, stride, step) in enumerate(along):
        x = b.call(aten.unfold.default, x, axis, (size - 1) * step + 1, stride)
        if step != 1:
            x = b.call(aten.slice.Tensor, x, ndim + axis, 0, 2**63 - 1, step)
    return x


def _flat(b: Builder, x: fx.Proxy, ndim: int) -> Any:
    return b.call(aten.flatten.using_ints, x, ndim, 2 * ndim - 1)


def _is_static(shape: Sequence[Any]) -> bool:
    return all([type(n) is int for n in shape])


def _usable(b: Builder, w: Windows) -> bool:
    return (
        bool(b.avals[0].ndim)
        and _is_static(b.avals[0].shape)
        and 0 not in (*w.window_dimensions, *b.aval.shape)
    )


@rule("reduce_window_sum")
def _window_sum(b: Builder, x: fx.Proxy, **params: Any) -> Any:
    w, dtype = windows_of(params), b.aval.dtype
    if not _usable(b, w):
        return x if not b.aval.ndim else b.filled(0, b.aval)
    ndim = b.aval.ndim
    x = _patches(b, x, 0, b.avals[0].shape, w)
    axes = list(range(ndim, 2 * ndim))
    return masked(b, b.call(aten.sum.dim_IntList, x, axes, False, dtype=carrier(dtype)), dtype)


def _winners(b: Builder, x: fx.Proxy, w: Windows, *, most: bool) -> Any:
    """Values and positions of the first largest or least element of each window."""
    aval = b.avals[-1]
    dtype = aval.dtype
    fill: Any = smallest(dtype) if most else largest(dtype)
    if is_wide_unsigned(dtype):
        x, fill = in_order(b, x), (-(2**63) if most else 2**63 - 1)
    if dtype.kind == "b":
        x, fill = b.convert(x, torch.uint8), int(fill)
    ndim = aval.ndim
    patches = _flat(b, _patches(b, x, fill, aval.shape, w), ndim)
    return b.call_all(aten.max.dim if most else aten.min.dim, 2, patches, -1)


def _extreme_rule(name: str, *, most: bool) -> None:
    @rule(name)
    def emit(b: Builder, x: fx.Proxy, **params: Any) -> Any:
        w, dtype = windows_of(params), b.aval.dtype
        if is_complex(dtype):
            return NotImplemented
        if _is_static(b.aval.shape) and 0 in b.aval.shape:
            return b.filled(0, b.aval)
        if not _usable(b, w):
            return x if not b.aval.ndim else NotImplemented
        found = _winners(b, x, w, most=most)[0]
        if dtype.kind == "b":
            return b.convert(found, torch.bool)
        return in_order(b, found) if is_wide_unsigned(dtype) else found


_extreme_rule("reduce_window_max", most=True)
_extreme_rule("reduce_window_min", most=False)
_extreme_rule("reduce_window_or", most=True)
_extreme_rule("reduce_window_and", most=False)


# what windows select ------------------------------------------------------------------------------


def _is_most(select_prim: Any) -> bool:
    return str(getattr(select_prim, "name", select_prim)) == "ge"


def _places(b: Builder, operand: fx.Proxy, w: Windows, *, most: bool) -> Any:
    """The position in the flat operand of the winner of each window; padding never wins."""
    aval = b.avals[1]
    ndim, count = aval.ndim, 1
    for n in aval.shape:
        count *= n
    numbers = b.call(aten.reshape.default, b.arange(count), b.shape(aval))
    numbers = _flat(b, _patches(b, numbers, -1, aval.shape, w), ndim)
    fill = smallest(aval.dtype) if most else largest(aval.dtype)
    values = _flat(b, _patches(b, operand, fill, aval.shape, w), ndim)
    target = aten.argmax.default if most else aten.argmin.default
    # Among elements as extreme as padding the first one that is none.
    inside = b.call(aten.ge.Scalar, numbers, 0)
    winner = b.call(target, values, -1, True)
    best = b.call(aten.gather.default, values, -1, winner)
    equal = b.call(aten.eq.Tensor, values, best)
    equal = b.call(aten.logical_or.default, equal, _both_nan(b, values, best))
    wins = b.convert(b.call(aten.logical_and.default, equal, inside), torch.uint8)
    first = b.call(aten.argmax.default, wins, -1, True)
    return b.call(aten.squeeze.dim, b.call(aten.gather.default, numbers, -1, first), -1)


def _both_nan(b: Builder, x: fx.Proxy, y: fx.Proxy) -> Any:
    return b.call(
        aten.logical_and.default, b.call(aten.ne.Tensor, x, x), b.call(aten.ne.Tensor, y, y)
    )


@rule("select_and_gather_add")
def _select_and_gather_add(
    b: Builder, t: fx.Proxy, x: fx.Proxy, select_prim: Any, **params: Any
) -> Any:
    w = _of_selection(params)
    if not _usable(b, w) or is_complex(b.avals[1].dtype):
        return NotImplemented
    places = _places(b, x, w, most=_is_most(select_prim))
    flat = b.call(aten.reshape.default, t, [-1])
    found = b.call(aten.index.Tensor, flat, [b.call(aten.clamp_min.default, places, 0)])
    return b.call(aten.where.ScalarOther, b.call(aten.ge.Scalar, places, 0), found, 0)


@rule("select_and_scatter_add")
def _select_and_scatter_add(
    b: Builder, t: fx.Proxy, x: fx.Proxy, select_prim: Any, **params: Any
) -> Any:
    w = _of_selection(params)
    aval = b.avals[1]
    if not aval.ndim or not _is_static(aval.shape) or is_complex(aval.dtype):
        return NotImplemented
    if 0 in (*w.window_dimensions, *aval.shape):
        return b.filled(0, b.aval)
    places = _places(b, x, w, most=_is_most(select_prim))
    count = 1
    for n in aval.shape:
        count *= n
    inside = b.call(aten.ge.Scalar, places, 0)
    places = b.call(aten.where.ScalarOther, inside, places, count)
    flat = b.full([count + 1], 0, carrier(b.aval.dtype))
    flat_places = b.call(aten.reshape.default, places, [-1])
    out = b.call(
        aten.scatter_add.default, flat, 0, flat_places, b.call(aten.reshape.default, t, [-1])
    )
    out = b.call(aten.slice.Tensor, out, 0, 0, count)
    return b.call(aten.reshape.default, out, b.shape(aval))


def _of_selection(params: Any) -> Windows:
    n = len(params["window_dimensions"])
    ones = (1,) * n
    more = {"base_dilation": ones, "window_dilation": ones}
    return windows_of({**more, **params})


# computations of the user -------------------------------------------------------------------------


def _folded(
    b: Builder, inits: Sequence[Any], count: int, at: Callable[[int], list[Any]], jaxpr: Jaxpr
) -> list[Any]:
    """``count`` elements combined one after the other, from the initial values on."""
    found = list(inits)
    for i in range(count):
        found = b.inline(jaxpr, [*found, *at(i)])
    return found


@rule("reduce_window")
def _reduce_window(b: Builder, *xs: fx.Proxy, jaxpr: Jaxpr, **params: Any) -> Any:
    w = windows_of(params)
    n = len(xs) // 2
    aval = b.avals[0]
    count = 1
    for size in w.window_dimensions:
        count *= size
    if not _usable(b, w) or count > _MOST:
        return NotImplemented
    patches: list[Any] = []
    for x, init, a in zip(xs[:n], xs[n:], b.avals[:n], strict=True):
        flat = _flat(b, _patches(b, x, 0, a.shape, w), a.ndim)
        inside = b.full(b.shape(a), value=True, dtype=torch.bool)
        inside = _flat(b, _patches(b, inside, False, a.shape, w), a.ndim)
        patches.append(b.call(aten.where.self, inside, flat, init))
    shape = b.shape(b.outs[0])
    inits = [b.call(aten.expand.default, x, shape) for x in xs[n:]]
    jaxpr = _elementwise(jaxpr, b.outs)

    def at(i: int) -> list[Any]:
        return [b.call(aten.select.int, p, aval.ndim, i) for p in patches]

    return _folded(b, inits, count, at, jaxpr)


@rule("reduce")
def _reduce(b: Builder, *xs: fx.Proxy, jaxpr: Jaxpr, dimensions: Sequence[int], **_: object) -> Any:
    n = len(xs) // 2
    aval = b.avals[0]
    count = 1
    for axis in dimensions:
        count *= aval.shape[axis] if type(aval.shape[axis]) is int else _MOST + 1
    if count > _MOST:
        return NotImplemented
    kept = [a for a in range(aval.ndim) if a not in dimensions]
    rows = [
        b.call(
            aten.reshape.default,
            b.call(aten.permute.default, x, [*dimensions, *kept]),
            [count, *b.shape(b.outs[0])],
        )
        for x in xs[:n]
    ]
    inits = [b.call(aten.expand.default, x, b.shape(b.outs[0])) for x in xs[n:]]
    jaxpr = _elementwise(jaxpr, b.outs)

    def at(i: int) -> list[Any]:
        return [b.call(aten.select.int, r, 0, i) for r in rows]

    return _folded(b, inits, count, at, jaxpr)


def _elementwise(jaxpr: Jaxpr, outs: Sequence[Any]) -> Jaxpr:
    """A computation on scalars as one on arrays of the shape of ``outs``."""
    for n in reversed(outs[0].shape):
        dims = (0,) * jaxpr.n_in
        jaxpr = batch_jaxpr(jaxpr, n, None, dims, (True,) * len(jaxpr.out_avals))[0]
    return jaxpr
