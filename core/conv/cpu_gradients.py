"""Gradients of kernels as products of matrices of shifted copies of both operands.

The gradient is a convolution with few results, the places of the kernel, and copies of the array
for all of them would be as many times as large. But a place has a coordinate along each axis: if
the array is shifted by those along some axes, and the cotangent by those along the others, one
product of two matrices has all pairs of shifts. Three by three places need three copies of each.

The shifted cotangent has zeros around it, which meet infinities and NaN that it does not meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.conv.geometry import Geometry, in_order, padded, part, places
from tracebridge.core.conv.numbers import Ints
from tracebridge.core.ir.primitive import Primitive

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_STEP = 1 << 20  # bytes of copies that are there at a time: the nearest caches hold them
_MOST_STEPS = 16
_LEAST_LINES = 8  # of a step, for each one that it has in common with the next

Remainders = dict[Ints, dict[Ints, Ints]]
"""By how much the cotangent is shifted for each place along the axes of its shifts, by what is left
of the way there if it has holes: for each remainder the array is cut once."""


def can_shift(g: Geometry) -> bool:
    """Whether it is such a gradient, of arrays without groups and gaps."""
    return g.groups == 1 and g.n_space > 0 and max(g.lhs_dilation) == 1


def is_in_front(g: Geometry) -> bool:
    """Whether places are the last axes of products."""
    return _order(g)[0] == 0


def shifts_cotangent(g: Geometry) -> bool:
    """Whether there are zeros that meet elements of the array which the cotangent does not."""
    return _shifted_axes(g) > 0


def shifted_products(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """The sum of products of matrices over all steps, one product for each remainder."""
    del prim
    n, order = _shifted_axes(g), _order(g)
    remainders = _remainders(g, n)
    totals: list[Any] = []
    for left, right in _steps(x, y, g, totals):
        here = in_order(left, g.numbers.lhs_spec, order)
        there = in_order(right, g.numbers.rhs_spec, order)
        parts = [
            _product(here, there, g, order, remainder, [*shifts.values()])
            for remainder, shifts in remainders.items()
        ]
        totals[:] = map(lax.add, totals, parts) if totals else parts
    # (places of shifts, outputs, other places, rows) to (rows, outputs, places)
    total = _by_place(totals, remainders)
    rows, outputs = g.lhs[g.numbers.lhs_spec[0]], g.outputs
    total = lax.reshape(total, (*g.results[:n], outputs, *g.results[n:], rows))
    space = [d + (d >= n) for d in range(g.n_space)]
    total = lax.transpose(total, (g.n_space + 1, n, *space))
    return in_order(total, tuple(range(g.n_space + 2)), g.numbers.out_spec)


def _order(g: Geometry) -> Ints:
    """Where rows or outputs, examples and places are in both operands of products.

    In front or, if they are last already, last: turning these round takes longer.
    """
    last = len(g.lhs) - 1
    if g.numbers.lhs_spec[0] == g.numbers.rhs_spec[0] == last:
        return (last, *range(last))
    return tuple(range(last + 1))


def _shifted_axes(g: Geometry) -> int:
    """Along how many axes, the first ones, the cotangent is shifted: so that copies are small."""
    return min(range(g.n_space + 1), key=lambda n: _copies(g, n))


def _copies(g: Geometry, n: int) -> float:
    """How many elements copies have, for each place of the cotangent."""
    steps = list(zip(g.results, g.strides, g.rhs_dilation, strict=True))[:n]
    cuts = math.prod([len({t * s % b for t in range(p)}) for p, s, b in steps])
    of_rows = cuts * math.prod(g.results[n:]) * g.lhs[g.numbers.lhs_spec[0]]
    return _longer(g, n) * (of_rows + math.prod(g.results[:n]) * g.outputs)


def longer(g: Geometry) -> float:
    """How many times as many products there are, those with zeros with them."""
    return _longer(g, _shifted_axes(g))


def _longer(g: Geometry, n: int) -> float:
    steps = list(zip(g.results, g.strides, g.rhs_dilation, g.kernel, strict=True))[:n]
    return math.prod([1 + ((p - 1) * s // b) / k for p, s, b, k in steps])


def _remainders(g: Geometry, n: int) -> Remainders:
    found: Remainders = {}
    for place in places(g.results[:n]):
        steps = zip(place, g.strides, g.rhs_dilation, strict=False)
        ways = [divmod(t * s, b) for t, s, b in steps]
        shifts = found.setdefault(tuple([left for _, left in ways]), {})
        shifts[place] = tuple([shift for shift, _ in ways])
    return found


def _steps(x: Value, y: Value, g: Geometry, totals: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Parts of the operands, by examples or by lines of images, whose products add up.

    Zeros are around those of ``x``. The next step begins when ``totals`` are there.
    """
    size = y.aval.dtype.itemsize * g.inputs * math.prod(g.kernel) * _copies(g, _shifted_axes(g))
    lines, hole, reach = g.kernel[0], g.rhs_dilation[0], (g.results[0] - 1) * g.strides[0]
    most_by_lines = lines // (_LEAST_LINES * (reach // hole + 1))
    by_lines = most_by_lines > g.inputs
    n = max(1, min(_MOST_STEPS, round(size / _STEP), most_by_lines if by_lines else g.inputs))
    (_, examples, line, *_), (_, of_y, line_of_y, *_), _ = g.numbers
    for k in range(n):
        if by_lines:
            start, stop = k * lines // n, (k + 1) * lines // n
            right = lax.slice_in_dim(y, start, stop, axis=line_of_y)
            left, pads = _lines(x, line, g.padding[0], start * hole, (stop - 1) * hole + reach + 1)
        else:
            start, stop = k * g.inputs // n, (k + 1) * g.inputs // n
            right = lax.slice_in_dim(y, start, stop, axis=of_y)
            left, pads = lax.slice_in_dim(x, start, stop, axis=examples), g.padding[0]
        if totals:
            *totals[:], left, right = lax.optimization_barrier([*totals, left, right])
        yield padded(left, g.numbers.lhs_spec[2:], (pads, *g.padding[1:])), right


def _lines(
    x: Value, axis: int, pads: tuple[int, int], start: int, stop: int
) -> tuple[Any, tuple[int, int]]:
    """What ``x`` with zeros around has from ``start`` to ``stop``, and the zeros around that."""
    size, first, end = x.aval.shape[axis], start - pads[0], stop - pads[0]
    low = min(max(first, 0), size)
    high = max(low, min(end, size))
    after = max(0, end - max(first, size))
    return lax.slice_in_dim(x, low, high, axis=axis), (end - first - (high - low) - after, after)


def _product(
    x: Value, y: Value, g: Geometry, order: Ints, remainder: Ints, shifts: Sequence[Ints]
) -> Any:
    """The products of all shifts of one remainder: (shifts, outputs, other places and rows)."""
    axis, _, *space = order
    n = len(remainder)
    most = [max(shifts_of_axis) for shifts_of_axis in zip(*shifts, strict=True)]
    kernel = [y.aval.shape[a] for a in space]
    counts = [k + q for k, q in zip(kernel, [*most, *[0] * (g.n_space - n)], strict=True)]
    left: list[Any] = []
    for place in places(g.results[n:]):
        steps = [t * s for t, s in zip(place, g.strides[n:], strict=True)]
        left.append(part(x, space, (*remainder, *steps), counts, g.rhs_dilation))
    right: list[Any] = []
    for shift in shifts:
        pads = [(q, m - q) for q, m in zip(shift, most, strict=True)]
        right.append(padded(y, space[:n], tuple(pads)))
    matrices = [
        lax.concatenate(copies, axis) if len(copies) > 1 else copies[0] for copies in (right, left)
    ]
    sides = [m.aval.shape[axis] for m in matrices]
    length = matrices[0].aval.size // sides[0]
    in_front = axis == 0
    a, b = [
        lax.reshape(m, (side, length) if in_front else (length, side))
        for m, side in zip(matrices, sides, strict=True)
    ]
    summed = int(in_front)
    total = lax.dot_general(a, b, (((summed,), (summed,)), ((), ())), precision=g.precision)
    return lax.reshape(total, (len(shifts), sides[0] // len(shifts), sides[1]))


def _by_place(totals: Sequence[Any], remainders: Remainders) -> Any:
    """The products of all remainders, in the order of the places of shifts."""
    if len(totals) == 1:
        return totals[0]
    rows: dict[Ints, Any] = {}
    for total, shifts in zip(totals, remainders.values(), strict=True):
        for i, place in enumerate(shifts):
            rows[place] = lax.index_in_dim(total, i, 0, keepdims=False)
    return lax.stack([rows[place] for place in sorted(rows)])
