"""Convolutions written as other operations, for the CPU.

Each form takes the array, the kernel and the ``Geometry``; sums are those of the convolution in
another order. ``cpu_rules.py`` says which form is used when. Padding counts as zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.control.loops.fori import fori_loop
from tracebridge.core.control.loops.map import map as map_rows
from tracebridge.core.conv.geometry import (
    Geometry,
    in_order,
    merged,
    padded,
    part,
    places,
    split,
    without,
)
from tracebridge.core.conv.numbers import ConvDimensionNumbers, Ints
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.ad_util import full_of, zeros_of

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


MAX_TERMS = 80
"""How many terms one loop adds up: more compile for too long."""


_MOST_TERMS_OF_LOOP = 64
"""How many of them are written out; of more, those of one place along the first axis, in a loop."""


def multiply_add(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """One product of a shifted array and a number per feature for each term: few loops."""
    del prim
    batch, features, *space = g.numbers.lhs_spec
    inputs, outputs, groups = g.inputs, g.outputs, g.groups
    x = split(padded(x, space, g.padding), features, groups)
    moved = [i + (i > features) for i in (batch, *space)]
    shape = list(x.aval.shape)
    shape[features + 1] = outputs
    for axis, count in zip(moved[1:], g.results, strict=True):
        shape[axis] = count
    # Factors of neighbouring features lie beside each other.
    outs, ins, *taps = g.numbers.rhs_spec
    kernel = in_order(y, (*taps, ins, outs), tuple(range(len(g.rhs))))
    kernel = lax.reshape(kernel, (*g.kernel, inputs, groups, outputs))

    def added(total: Any, x: Value, kernel: Value, taps: Ints) -> Any:
        """``total`` with the terms of these taps, the first axes of ``kernel``."""
        for place in places(taps):
            starts = [k * b for k, b in zip(place, g.rhs_dilation, strict=True)]
            here = part(x, moved[1:], starts, g.results, g.strides)
            for i in range(inputs):
                one = here if inputs == 1 else lax.slice_in_dim(here, i, i + 1, axis=features + 1)
                one = lax.broadcast_in_dim(one, tuple(shape), tuple(range(len(shape))))
                first, last = (*place, i, 0, 0), (*[k + 1 for k in place], i + 1, groups, outputs)
                factor = lax.reshape(lax.slice(kernel, first, last), (groups, outputs))
                factor = lax.broadcast_in_dim(factor, tuple(shape), (features, features + 1))
                term = lax.mul(one, factor)
                total = term if total is None else lax.add(total, term)
        return total

    if g.kernel[0] == 1 or inputs * math.prod(g.kernel) <= _MOST_TERMS_OF_LOOP:
        total = added(None, x, kernel, g.kernel)
    else:
        taps, reach = (1, *g.kernel[1:]), (g.results[0] - 1) * g.strides[0] + 1

        def row(k: Value, total: Value) -> Any:
            start = lax.mul(k, g.rhs_dilation[0])
            here = lax.dynamic_slice_in_dim(x, start, reach, moved[1])
            return added(total, here, lax.dynamic_slice_in_dim(kernel, k, 1, 0), taps)

        total = fori_loop(0, g.kernel[0], row, full_of(x.aval.update(shape=tuple(shape)), 0))
    shape[features : features + 2] = [groups * outputs]
    return in_order(lax.reshape(total, tuple(shape)), g.numbers.lhs_spec, g.numbers.out_spec)


def by_phases(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """A convolution of an array with gaps: one without gaps for each remainder of the places."""
    _, _, *kernel_axes = g.numbers.rhs_spec
    counts = [-(-p // a) for p, a in zip(g.results, g.lhs_dilation, strict=True)]
    parts: list[Any] = []
    for phase in places(g.lhs_dilation):
        starts: list[int] = []
        taps: list[int] = []
        pads: list[tuple[int, int]] = []
        for r, a, k, n, count, pad in zip(
            phase, g.lhs_dilation, g.kernel, g.sizes, counts, g.padding, strict=True
        ):
            if a == 1:
                starts, taps, pads = [*starts, 0], [*taps, k], [*pads, pad]
                continue
            first = (pad[0] - r) % a
            number = max(0, -(-(k - first) // a))
            low = -((r + first - pad[0]) // a)
            starts, taps = [*starts, first], [*taps, number]
            pads.append((low, count + number - 1 - n - low))
        if 0 in taps:
            shape = list(g.out)
            for axis, count in zip(g.numbers.out_spec[2:], counts, strict=True):
                shape[axis] = count
            parts.append(zeros_of(x.aval.update(shape=tuple(shape), weak_type=False)))
            continue
        some = part(y, kernel_axes, starts, taps, g.lhs_dilation)
        ones = (1,) * g.n_space
        parts.append(prim.bind(x, some, **g.params(padding=tuple(pads), lhs_dilation=ones)))
    return _interleaved(parts, g)


def _interleaved(parts: list[Any], g: Geometry) -> Any:
    """The results of all phases, each at its places."""
    space = g.numbers.out_spec[2:]
    x = lax.reshape(lax.stack(parts), (*g.lhs_dilation, *parts[0].aval.shape))
    order = list(range(g.n_space, x.aval.ndim))
    for d, axis in enumerate(space):
        order.insert(order.index(g.n_space + axis) + 1, d)
    x = lax.transpose(x, tuple(order))
    shape = list(parts[0].aval.shape)
    for axis, a in zip(space, g.lhs_dilation, strict=True):
        shape[axis] *= a
    return lax.slice(lax.reshape(x, tuple(shape)), [0] * len(shape), g.out)


def spread_products(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """A kernel that is no larger than the gaps: each result is one product of matrices."""
    del prim
    batch, features, *space = g.numbers.lhs_spec
    outs, ins, *kernel = g.numbers.rhs_spec
    y = lax.rev(y, tuple(kernel))
    config = [(0, 0, 0)] * y.aval.ndim
    for axis, k, a in zip(kernel, g.kernel, g.lhs_dilation, strict=True):
        config[axis] = (0, a - k, 0)
    y = lax.pad(y, full_of(y.aval.update(shape=()), 0), config)
    numbers = (((features,), (ins,)), ((), ()))
    x = lax.dot_general(x, y, numbers, precision=g.precision)
    n = len(g.lhs) - 1
    left, right = without((features, batch, *space), features), without((ins, outs, *kernel), ins)
    order: list[int] = []
    for i in range(len(g.out)):
        role = g.numbers.out_spec.index(i)
        if role == 0:
            order.append(left[0])
        elif role == 1:
            order.append(n + right[0])
        else:
            order += [left[role - 1], n + right[role - 1]]
    x = lax.transpose(x, tuple(order))
    shape, config = list(g.out), [(0, 0, 0)] * len(g.out)
    for axis, n_lhs, a, k, p, (low, _) in zip(
        g.numbers.out_spec[2:],
        g.sizes,
        g.lhs_dilation,
        g.kernel,
        g.results,
        g.padding,
        strict=True,
    ):
        shape[axis] = n_lhs * a
        before = low - k + 1
        config[axis] = (before, p - n_lhs * a - before, 0)
    x = lax.reshape(x, tuple(shape))
    return lax.pad(x, full_of(x.aval.update(shape=()), 0), config)


def peeled_axis(g: Geometry) -> tuple[int, int]:
    """The spatial axis along which fewest convolutions do, and how many."""
    fewest = [min(k, p) for k, p in zip(g.kernel, g.results, strict=True)]
    return fewest.index(min(fewest)), min(fewest)


def peeled(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """Convolutions with a spatial axis less, added up or side by side."""
    d, _ = peeled_axis(g)
    lhs, rhs, out = g.numbers
    left, right, made = lhs[2 + d], rhs[2 + d], out[2 + d]
    x = padded(x, (left,), (g.padding[d],))
    few_taps = g.kernel[d] <= g.results[d]
    changes: dict[str, Any] = {
        name: entries[:d] + entries[d + 1 :]
        for name, entries in g.params().items()
        if name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    }
    changes["dimension_numbers"] = ConvDimensionNumbers(
        without(lhs, left), without(rhs, right), without(out, made)
    )
    params = g.params(**changes)
    stride, hole = g.strides[d], g.rhs_dilation[d]
    if not few_taps:
        y = merged(y, rhs[1], right)
        rows: list[Any] = []
        for p in range(g.results[d]):
            here = part(x, (left,), (p * stride,), (g.kernel[d],), (hole,))
            row = prim.bind(merged(here, lhs[1], left), y, **params)
            rows.append(lax.expand_dims(row, (made,)))
        return lax.concatenate(rows, made)
    total: Any = None
    for k in range(g.kernel[d]):
        here = part(x, (left,), (k * hole,), (g.results[d],), (stride,))
        tap = lax.index_in_dim(y, k, right, keepdims=False)
        term = prim.bind(merged(here, lhs[0], left), tap, **params)
        total = term if total is None else lax.add(total, term)
    batch = without(out, made)[0]
    total = split(total, batch, total.aval.shape[batch] // g.results[d])
    order = [i for i in range(len(g.out)) if i != batch + 1]
    order.insert(made, batch + 1)
    return lax.transpose(total, tuple(order))


def with_unit_axis(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """A convolution along one axis as one along two: XLA has a fast path for that."""
    specs: list[tuple[int, ...]] = []
    values: list[Any] = []
    for spec, value in zip(g.numbers, (x, y, None), strict=True):
        at = spec[2]
        specs.append((*[i + (i >= at) for i in spec[:2]], at, at + 1))
        values.append(None if value is None else lax.expand_dims(value, (at,)))
    params = g.params(
        window_strides=(1, *g.strides),
        padding=((0, 0), *g.padding),
        lhs_dilation=(1, *g.lhs_dilation),
        rhs_dilation=(1, *g.rhs_dilation),
        dimension_numbers=ConvDimensionNumbers(*specs),
    )
    wide = prim.bind(values[0], values[1], **params)
    return lax.reshape(wide, g.out)


def groups_apart(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """One convolution for each group."""
    lhs, rhs, out = g.numbers
    axis = lhs[1] if g.feature_groups > 1 else lhs[0]
    params = g.params(feature_group_count=1, batch_group_count=1)
    n, m = x.aval.shape[axis] // g.groups, g.outputs
    parts = [
        prim.bind(
            lax.slice_in_dim(x, i * n, (i + 1) * n, axis=axis),
            lax.slice_in_dim(y, i * m, (i + 1) * m, axis=rhs[0]),
            **params,
        )
        for i in range(g.groups)
    ]
    return lax.concatenate(parts, out[1])


def pairs_apart(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """One convolution for each row and each output of all groups of the batch."""
    lhs, rhs, out = g.numbers
    rows = _each_of_group(x, lhs[0], g.groups)
    columns = [
        lax.concatenate([prim.bind(a, b, **g.params()) for a in rows], out[0])
        for b in _each_of_group(y, rhs[0], g.groups)
    ]
    return lax.reshape(lax.stack(columns, out[1] + 1), g.out)


def _each_of_group(x: Value, axis: int, groups: int) -> list[Any]:
    """The first of each group along ``axis``, the second of each, and so on."""
    x = split(x, axis, groups)
    counts = range(x.aval.shape[axis + 1])
    return [lax.index_in_dim(x, i, axis + 1, keepdims=False) for i in counts]


# few results, a large kernel: the derivative of a kernel -----------------------------------------


def can_contract(g: Geometry) -> bool:
    """Whether only one of array and kernel has gaps."""
    pairs = zip(g.lhs_dilation, g.rhs_dilation, strict=True)
    return all([a == 1 or b == 1 for a, b in pairs])


_FEW_PLACES = 4
"""How many products of matrices are written out: more compile for too long."""


def _over_places(
    x: Value, y: Value, g: Geometry, left: Ints, right: Ints, combine: Callable[..., Any], most: int
) -> Any:
    """``combine`` of the parts of array and kernel that meet in a result, for all of them.

    Up to ``most`` results, along the last axes, are written out; a loop takes the others.
    """
    pads, others = list(g.padding), [(0, 0)] * g.n_space
    for d, (a, (low, _)) in enumerate(zip(g.lhs_dilation, g.padding, strict=True)):
        if a > 1:  # the kernel is padded instead
            first = low - (g.results[d] - 1) * g.strides[d]
            last = (g.sizes[d] - 1) * a + low
            pads[d] = (0, 0)
            others[d] = (max(0, -first), max(0, last - g.kernel[d] + 1))
    x, y = padded(x, left, tuple(pads)), padded(y, right, tuple(others))

    def over_last(x: Value, y: Value, first: int) -> Any:
        """For all places along the axes from ``first`` on."""
        parts: list[Any] = []
        for place in places(g.results[first:]):
            here, there = x, y
            for d, p in enumerate(place, first):
                start = p * g.strides[d]
                if g.lhs_dilation[d] > 1:
                    at = g.padding[d][0] - start + others[d][0]
                    there = part(there, right[d : d + 1], (at,), g.sizes[d : d + 1],
                                 g.lhs_dilation[d : d + 1])  # fmt: skip
                else:
                    here = part(here, left[d : d + 1], (start,), g.kernel[d : d + 1],
                                g.rhs_dilation[d : d + 1])  # fmt: skip
            parts.append(combine(here, there))
        return lax.stack(parts)

    looped = _looped_axes(g.results, most) if max(g.lhs_dilation) == 1 else 0
    if not looped:
        return over_last(x, y, 0)
    rows = _looped(x, y, g, left, lambda x, y: over_last(x, y, looped), looped)
    return lax.reshape(rows, (math.prod(g.results), *rows.aval.shape[2:]))


def _looped_axes(results: Ints, most: int) -> int:
    """How many axes must be looped over so that no more than ``most`` places are left."""
    return next(n for n in range(len(results) + 1) if math.prod(results[n:]) <= most)


def _looped(
    x: Value, y: Value, g: Geometry, left: Ints, combine: Callable[..., Any], looped: int
) -> Any:
    """``combine`` for each place along the first ``looped`` spatial axes."""
    results, left = g.results[:looped], left[:looped]
    starts = [
        lax.reshape(lax.broadcasted_iota("int32", results, d), (math.prod(results),))
        for d in range(looped)
    ]
    sizes, steps = list(x.aval.shape), [1] * x.aval.ndim
    for axis, k, b in zip(left, g.kernel, g.rhs_dilation, strict=False):
        sizes[axis], steps[axis] = (k - 1) * b + 1, b

    def one(place: Sequence[Value]) -> Any:
        index: list[Any] = [full_of(place[0].aval, 0)] * x.aval.ndim
        for axis, p, stride in zip(left, place, g.strides, strict=False):
            index[axis] = lax.mul(p, stride)
        here = lax.dynamic_slice(x, index, sizes)
        return combine(lax.slice(here, [0] * len(sizes), sizes, steps), y)

    return map_rows(one, starts)


_LONG = 256  # elements whose products one small product of matrices adds up


def contracted(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """A product of matrices for each place of the result."""
    del prim
    (batch, features, *left), (outs, ins, *right), _ = g.numbers
    groups, n = g.groups, g.n_space
    if g.batch_groups > 1:  # to (features, group, batch, space), (inputs, group, outputs, space)
        x = split(lax.transpose(x, (features, batch, *left)), 1, groups)
    else:
        x = split(lax.transpose(x, (features, batch, *left)), 0, groups)
        x = lax.transpose(x, (1, 0, *range(2, n + 3)))
    y = split(lax.transpose(y, (ins, outs, *right)), 1, groups)
    space = tuple(range(3, n + 3))
    steps = zip(g.lhs_dilation, g.sizes, g.kernel, strict=True)
    size = math.prod([k if a == 1 else s for a, s, k in steps])

    def product(here: Value, there: Value) -> Any:
        a, b = [lax.reshape(v, (*v.aval.shape[:3], size)) for v in (here, there)]
        if size < _LONG:
            numbers = (((0, 3), (0, 3)), ((1,), (1,)))
            return lax.dot_general(a, b, numbers, precision=g.precision)
        numbers = (((3,), (3,)), ((0, 1), (0, 1)))
        return lax.reduce_sum(lax.dot_general(a, b, numbers, precision=g.precision), (0,))

    # (places, group, batch, outputs) to (batch, group, outputs, places)
    total = _over_places(x, y, g, space, space, product, _FEW_PLACES)
    total = lax.transpose(total, (2, 1, 3, 0))
    total = lax.reshape(total, (total.aval.shape[0], groups * g.outputs, *g.results))
    return in_order(total, tuple(range(n + 2)), g.numbers.out_spec)


def pointwise_gradient(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """The only result is one product of matrices, whose rows are all places of all examples."""
    del prim
    lhs, rhs, out = g.numbers
    x = part(padded(x, lhs[2:], g.padding), lhs[2:], (0,) * g.n_space, g.kernel, g.rhs_dilation)
    numbers = (((lhs[1], *lhs[2:]), (rhs[1], *rhs[2:])), ((), ()))
    total = lax.dot_general(x, y, numbers, precision=g.precision)  # (batch, outputs)
    total = lax.reshape(total, (*total.aval.shape, *g.results))
    return in_order(total, tuple(range(g.n_space + 2)), out)


_WRITTEN_OUT = 9  # places that are all written out: more compile for too long
_ROW = 7  # places that are written out in the body of a loop
_CHAINS = 4, 8
"""Products that are added up before a sum, in a loop that is vectorised: where all places are
written out, and in the body of a loop over places."""
_MOST_HELD = 1 << 23
"""Products that may be held for one sum; of more, each place is summed alone."""


def summed_products(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """The same where a group has one row and one output: elementwise products and their sums."""
    del prim
    lhs, rhs, _ = g.numbers
    y = in_order(y, (rhs[1], rhs[0], *rhs[2:]), (lhs[1], lhs[0], *lhs[2:]))
    space = lhs[2:]
    kept = tuple([i for i in range(len(g.lhs)) if i != lhs[0]])
    is_short = math.prod(g.results) <= _WRITTEN_OUT
    most, chain = (_WRITTEN_OUT, _CHAINS[0]) if is_short else (_ROW, _CHAINS[1])

    def product(here: Value, there: Value) -> Any:
        shape = here.aval.shape
        # Not along the innermost axis, which is the one that vectors lie along.
        lengths = {
            axis: max([c for c in range(1, chain + 1) if shape[axis] % c == 0])
            for axis in kept
            if axis != len(shape) - 1
        }
        axis = max(lengths, key=lambda i: lengths[i]) if lengths else 0
        apart = lengths.get(axis, 1)
        total: Any = None
        for i in range(apart):
            count = (shape[axis] // apart,)
            a, b = [part(v, (axis,), (i,), count, (apart,)) for v in (here, there)]
            total = lax.mul(a, b) if total is None else lax.add(total, lax.mul(a, b))
        return total

    if not is_short and math.prod(g.results) * math.prod(x.aval.shape) > _MOST_HELD:
        sums = _over_places(x, y, g, space, space, lambda *v: lax.reduce_sum(product(*v), kept), 1)
    else:  # one sum for all, as each is a loop of its own
        stacked = _over_places(x, y, g, space, space, product, most)
        sums = lax.reduce_sum(stacked, tuple([i + 1 for i in kept]))
    total = lax.reshape(lax.transpose(sums, (1, 0)), (1, g.groups, *g.results))
    return in_order(total, tuple(range(len(g.out))), g.numbers.out_spec)
