"""Gradients of kernels from images that lie in memory as rows, features in front.

Those of depthwise kernels are sums of products of long rows, those of kernels of one place sums of
products of matrices: copies with features last, which these replace, take longer than the products.

XLA's library for sums takes products of two rows that lie in memory one element after another. An
image is such a row if what lies between its lines is there in both operands: a tap of the kernel
then is a distance between the beginnings of two rows.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.conv.geometry import Geometry, in_order, padded, part, places
from tracebridge.core.conv.numbers import Ints
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.ad_util import zeros_of

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


_LEAST_PLACES = 32  # of an image, for products of matrices,
_LARGEST = 3  # all of which together are at most so many times as large as the operands


def has_rows(g: Geometry) -> bool:
    """Whether images lie in memory as they are, and neither has gaps."""
    (_, _, *left), (_, _, *right), _ = g.numbers
    last = list(range(2, len(g.lhs)))
    return left == right == last and max(g.lhs_dilation) == 1


def summed_rows(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """Groups of one row and one output: for each result, one sum over long rows of all examples.

    Where the kernel has holes, what its places meet is a row for each remainder of the distance.
    """
    del prim
    lhs, rhs, _ = g.numbers
    y = in_order(y, (rhs[1], rhs[0], *rhs[2:]), (lhs[1], lhs[0], *lhs[2:]))
    starts = [[t * s for t in range(n)] for n, s in zip(g.results, g.strides, strict=True)]
    sizes = [
        n + s[-1] // b for n, s, b in zip(g.kernel, starts, g.rhs_dilation, strict=True)
    ]  # of a row for one remainder
    pitches = [math.prod(sizes[d + 1 :]) for d in range(g.n_space)]
    rows = _rows_of_remainders(x, g, sizes)
    there = _row(y, [g.kernel[0], *sizes[1:]])
    length = there.aval.shape[2]
    sums: list[Any] = []
    for place in itertools.product(*starts):
        steps = list(zip(place, g.rhs_dilation, strict=True))
        first = sum([p // b * n for (p, b), n in zip(steps, pitches, strict=True)])
        row = rows[tuple([p % b for p, b in steps])]
        here = lax.slice_in_dim(row, first, first + length, axis=2)
        # The library sums rows, and not over the examples as well.
        sums.append(lax.reduce_sum(lax.reduce_sum(lax.mul(here, there), (2,)), (lhs[1],)))
    total = lax.reshape(lax.stack(sums, 1), (1, g.groups, *g.results))
    return in_order(total, tuple(range(len(g.out))), g.numbers.out_spec)


def has_matrices(g: Geometry, dtype: Any) -> bool:
    """Whether products of matrices for each example, and their memory, cost less than copies."""
    lhs, rhs, _ = g.numbers
    n_places, rows, outputs = math.prod(g.kernel), g.lhs[lhs[0]], g.outputs
    return (
        dtype in (np.float32, np.float64)
        and has_rows(g)
        and lhs[1] == rhs[1] == 0
        and n_places >= _LEAST_PLACES
        and rows * outputs <= _LARGEST * (rows + outputs) * n_places
    )


def summed_matrices(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """The only result is the sum of one product of matrices for each example."""
    del prim
    space = tuple(range(2, g.n_space + 2))
    x = part(padded(x, space, g.padding), space, (0,) * g.n_space, g.kernel, g.rhs_dilation)
    x, y = [lax.reshape(v, (*v.aval.shape[:2], math.prod(g.kernel))) for v in (x, y)]
    # The library for products is faster if the first one has more rows.
    turned = x.aval.shape[1] < y.aval.shape[1]
    if turned:
        x, y = y, x
    numbers = (((2,), (2,)), ((0,), (0,)))
    total = lax.reduce_sum(lax.dot_general(x, y, numbers, precision=g.precision), (0,))
    if turned:
        total = lax.transpose(total, (1, 0))
    total = lax.reshape(total, (*total.aval.shape, *g.results))  # (batch, outputs, results)
    return in_order(total, tuple(range(g.n_space + 2)), g.numbers.out_spec)


def _rows_of_remainders(x: Value, g: Geometry, sizes: list[int]) -> dict[Ints, Any]:
    """Zeros around ``x``, and rows of its places that are a remainder from multiples of holes."""
    # The last rows begin within the last line and end within one more.
    sizes = [sizes[0] + (g.n_space > 1), *sizes[1:]]
    config = [(0, 0, 0), (0, 0, 0)]
    for n, b, size, (low, _) in zip(sizes, g.rhs_dilation, g.sizes, g.padding, strict=True):
        config.append((low, n * b - size - low, 0))
    x = lax.pad(x, zeros_of(x.aval.update(shape=())), config)
    axes = tuple(range(2, g.n_space + 2))
    return {
        place: _row(part(x, axes, place, sizes, g.rhs_dilation), sizes)
        for place in places(g.rhs_dilation)
    }


def _row(x: Value, sizes: list[int]) -> Any:
    """Images in one row each, with zeros after what is there up to ``sizes``."""
    shape = x.aval.shape
    config = [(0, n - have, 0) for n, have in zip([*shape[:2], *sizes], shape, strict=True)]
    if [*shape[2:]] != sizes:
        x = lax.pad(x, zeros_of(x.aval.update(shape=())), config)
    return lax.reshape(x, (*shape[:2], math.prod(sizes)))
