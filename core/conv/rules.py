"""The derivatives of a convolution, and its batches, are convolutions with other axes.

``bind`` is that of the primitive, which has these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.conv.numbers import ConvDimensionNumbers, size_with_gaps
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.lax.shape.pad import with_sizes
from tracebridge.core.lax.unsplit import unsplit

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.value import Value


Bind = Callable[..., Any]


def _swapped(spec: tuple[int, ...]) -> tuple[int, ...]:
    """The first two axes in each other's place."""
    return (spec[1], spec[0], *spec[2:])


def move_groups(x: Any, source: int, target: int, groups: int) -> Any:
    """The outer part, of size ``groups``, of axis ``source`` made the outer part of ``target``."""
    if groups == 1:
        return x
    shape = x.aval.shape
    split = (*shape[:source], groups, shape[source] // groups, *shape[source + 1 :])
    x = lax.reshape(x, split)
    axis = target + (target > source)  # where the target is now
    order = [i for i in range(len(split)) if i != source]
    order.insert(order.index(axis), source)
    x = lax.transpose(x, tuple(order))
    merged = [n if i != source else n // groups for i, n in enumerate(shape)]
    merged[target] *= groups
    return lax.reshape(x, tuple(merged))


def _finish(out: Any, aval: ShapedArray) -> Any:
    """A cotangent of the type ``aval``."""
    out = with_sizes(out, aval.shape)
    if is_complex(out.aval.dtype) and not is_complex(aval.dtype):
        out = lax.real(out)
    return out if out.aval.dtype == aval.dtype else lax.convert_dtype(out, aval.dtype)


def _preferred(a: Value, b: Value, ct: Value) -> Any:
    """Cotangents accumulate in their dtype, where the other operand has another one."""
    return None if a.aval.dtype == b.aval.dtype else ct.aval.dtype


def lhs_cotangent(bind: Bind, ct: Value, x: ShapedArray, y: Value, params: Params) -> Any:
    """The cotangent convolved with the kernel, turned around."""
    numbers = params["dimension_numbers"]
    lhs, rhs, out = numbers
    if 0 in (*ct.aval.shape, *x.shape, *y.aval.shape):
        return zeros_of(x)
    features, batches = params["feature_group_count"], params["batch_group_count"]
    pads: list[tuple[Any, Any]] = []
    for i, (stride, (low, _), a, b) in enumerate(_windows(params)):
        kernel = size_with_gaps(y.aval.shape[rhs[2 + i]], b)
        before = kernel - 1 - low
        whole = size_with_gaps(x.shape[lhs[2 + i]], a) + kernel - 1
        pads.append((before, whole - before - size_with_gaps(ct.aval.shape[out[2 + i]], stride)))
    groups = max(features, batches)
    preferred = _preferred(ct, y, ct)
    ct, pads, gaps = _with_known_pads(ct, out[2:], pads, params["window_strides"])
    y = move_groups(lax.rev(y, rhs[2:]), rhs[0], rhs[1], groups)
    cotangent = bind(
        ct,
        y,
        window_strides=params["lhs_dilation"],
        padding=tuple(pads),
        lhs_dilation=tuple(gaps),
        rhs_dilation=params["rhs_dilation"],
        dimension_numbers=ConvDimensionNumbers(out, _swapped(rhs), lhs),
        feature_group_count=groups,
        batch_group_count=1,
        precision=params["precision"],
        preferred_element_type=preferred,
    )
    if batches > 1:
        cotangent = move_groups(cotangent, lhs[1], lhs[0], batches)
    return _finish(cotangent, x)


def rhs_cotangent(bind: Bind, ct: Value, x: Value, y: ShapedArray, params: Params) -> Any:
    """The array convolved with the cotangent."""
    lhs, rhs, out = params["dimension_numbers"]
    if 0 in (*ct.aval.shape, *x.aval.shape, *y.shape):
        return zeros_of(y)
    # The sums over a split batch are not split: the kernels' cotangent is as the kernels are.
    x, ct = unsplit(x), unsplit(ct)
    pads: list[tuple[Any, Any]] = []
    for i, (stride, (low, _), a, b) in enumerate(_windows(params)):
        size = size_with_gaps(x.aval.shape[lhs[2 + i]], a)
        whole = size_with_gaps(y.shape[rhs[2 + i]], b) - 1
        whole = whole + size_with_gaps(ct.aval.shape[out[2 + i]], stride)
        pads.append((low, whole - low - size))
    x, pads, gaps = _with_known_pads(x, lhs[2:], pads, params["lhs_dilation"])
    cotangent = bind(
        x,
        ct,
        window_strides=params["rhs_dilation"],
        padding=tuple(pads),
        lhs_dilation=tuple(gaps),
        rhs_dilation=params["window_strides"],
        dimension_numbers=ConvDimensionNumbers(_swapped(lhs), _swapped(out), _swapped(rhs)),
        # Groups of features are groups of what is the batch here, and the other way round.
        feature_group_count=params["batch_group_count"],
        batch_group_count=params["feature_group_count"],
        precision=params["precision"],
        preferred_element_type=_preferred(x, ct, ct),
    )
    return _finish(cotangent, y)


def _with_known_pads(
    x: Value, axes: Sequence[int], pads: Sequence[tuple[Any, Any]], gaps: Sequence[int]
) -> tuple[Any, list[tuple[int, int]], list[int]]:
    """``x`` with what its sizes decide around it: convolutions are padded by known numbers."""
    config = [(0, 0, 0)] * x.aval.ndim
    left: list[tuple[int, int]] = []
    left_gaps: list[int] = []
    for axis, (low, high), gap in zip(axes, pads, gaps, strict=True):
        known = type(low) is type(high) is int
        if not known:
            config[axis] = (low, high, gap - 1)
        left.append((low, high) if known else (0, 0))
        left_gaps.append(gap if known else 1)
    if any([entry != (0, 0, 0) for entry in config]):
        x = lax.pad(x, zeros_of(x.aval.update(shape=())), config)
    return x, left, left_gaps


def _windows(params: Params) -> Any:
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    return zip(*[params[name] for name in names], strict=True)


def batched(
    bind: Bind, size: Any, args: Sequence[Value], dims: Sequence[int | None], params: Params
) -> tuple[Any, int]:
    """The mapped axis becomes part of the features, or of the batch."""
    (x, y), (d, e) = args, dims
    lhs, rhs, out = params["dimension_numbers"]
    features, batches = params["feature_group_count"], params["batch_group_count"]
    if d is not None and e is not None:
        name = "batch_group_count" if batches > 1 else "feature_group_count"
        x = _merged(x, d, lhs[0] if batches > 1 else lhs[1], 1)
        y = _merged(y, e, rhs[0], 1)
        result = bind(x, y, **{**params, name: size * params[name]})
        return _parted(result, out[1], 1, size), 0
    if d is not None:
        result = bind(_merged(x, d, lhs[0], batches), y, **params)
        return _parted(result, out[0], 1, size), 0
    assert e is not None  # one of the operands is batched
    groups = max(features, batches)
    result = bind(x, _merged(y, e, rhs[0], groups), **params)
    return _parted(result, out[1], groups, size), 0


def _merged(x: Value, dim: int, axis: int, outer: int) -> Any:
    """``axis`` of each element with the mapped axis in it, inside of ``outer`` groups."""
    x = move_batch_axis(x, dim, 0)
    size, *shape = x.aval.shape
    n = shape[axis]
    x = lax.reshape(x, (size, *shape[:axis], outer, n // outer, *shape[axis + 1 :]))
    x = move_batch_axis(x, 0, axis + 1)
    return lax.reshape(x, (*shape[:axis], size * n, *shape[axis + 1 :]))


def _parted(x: Value, axis: int, outer: int, size: Any) -> Any:
    """The inverse: the mapped axis is in front."""
    shape = x.aval.shape
    n = shape[axis] // size
    x = lax.reshape(x, (*shape[:axis], outer, size, n // outer, *shape[axis + 1 :]))
    x = move_batch_axis(x, axis + 1, 0)
    return lax.reshape(x, (size, *shape[:axis], n, *shape[axis + 1 :]))
