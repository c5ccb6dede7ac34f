"""Convolutions of one feature along one axis by products of blocks with Toeplitz matrices.

A block of results is the product of the blocks of the array that it needs and a band matrix of the
kernel; matrices are multiplied at many times the speed of the sliding sum. The zeros of the band
meet elements that the sum does not have, so the array must be finite (``all_finite``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.conv.geometry import Geometry, in_order
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.ad_util import full_of

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

BLOCK = 128
MAX_BLOCKS = 16  # products for each block of results: kernels of up to 1921 elements


def block_count(length: int) -> int:
    """How many blocks meet a block and ``length`` shifts of it."""
    return -(-(BLOCK + length - 1) // BLOCK)


def all_finite(x: Value) -> Any:
    """Whether there is neither an infinity nor a NaN."""
    return lax.reduce_and(lax.is_finite(x), tuple(range(x.aval.ndim)))


def _to_length(x: Value, low: int, length: int) -> Any:
    """The last axis with ``low`` zeros in front, and zeros up to ``length`` behind."""
    config = [(0, 0, 0)] * (x.aval.ndim - 1) + [(low, length - x.aval.shape[-1] - low, 0)]
    return lax.pad(x, full_of(x.aval.update(shape=()), 0), config)


def _blocks(x: Value, low: int, count: int) -> Any:
    """Rows of ``x``, of shape (rows, length), in ``count`` blocks."""
    x = _to_length(x, low, count * BLOCK)
    return lax.reshape(x, (x.aval.shape[0], count, BLOCK))


def _band(kernel: Value, count: int) -> Any:
    """The matrix whose element (j, r) is element j - r of the kernel, or 0; ``count`` blocks."""
    rows = count * BLOCK
    v = _to_length(kernel, BLOCK - 1, rows + BLOCK - 1)
    length = v.aval.shape[0]
    # Rows that are one longer than the vector, which repeats, begin one later each time.
    flat = lax.reshape(lax.broadcast_in_dim(v, (rows + 2, length), (1,)), ((rows + 2) * length,))
    flat = lax.slice_in_dim(flat, 0, rows * (length + 1))
    hankel = lax.slice_in_dim(lax.reshape(flat, (rows, length + 1)), 0, BLOCK, axis=1)
    return lax.rev(hankel, (1,))


def by_blocks(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """Few taps, many results."""
    del prim
    (taps,), (results,), ((low, _),) = g.kernel, g.results, g.padding
    count, rows = block_count(taps), -(-results // BLOCK)
    band = _band(lax.reshape(y, (taps,)), count)
    x = lax.transpose(x, g.numbers.lhs_spec)
    batch, _, length = x.aval.shape
    blocks = _blocks(lax.reshape(x, (batch, length)), low, rows + count - 1)
    total: Any = None
    for i in range(count):
        here = lax.slice_in_dim(blocks, i, i + rows, axis=1)
        matrix = lax.slice_in_dim(band, i * BLOCK, (i + 1) * BLOCK)
        term = lax.dot_general(here, matrix, (((2,), (0,)), ((), ())), precision=g.precision)
        total = term if total is None else lax.add(total, term)
    total = lax.slice_in_dim(lax.reshape(total, (batch, rows * BLOCK)), 0, results, axis=1)
    return in_order(lax.expand_dims(total, (1,)), (0, 1, 2), g.numbers.out_spec)


def by_block_products(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """Few results, many taps: sums along the diagonals of the products of blocks."""
    del prim
    (taps,), (results,), ((low, _),) = g.kernel, g.results, g.padding
    count, rows = block_count(results), -(-taps // BLOCK)
    x, y = lax.transpose(x, g.numbers.lhs_spec), lax.transpose(y, g.numbers.rhs_spec)
    left = _blocks(lax.reshape(x, x.aval.shape[1:]), low, rows + count - 1)
    right = _blocks(lax.reshape(y, y.aval.shape[1:]), 0, rows)
    numbers = (((0, 1), (0, 1)), ((), ()))
    products = [
        lax.dot_general(
            right, lax.slice_in_dim(left, i, i + rows, axis=1), numbers, precision=g.precision
        )
        for i in range(count)
    ]
    # Row r, shifted to the left by r, has the products of elements j - r apart in column j - r.
    width = count * BLOCK
    flat = lax.reshape(lax.concatenate(products, 1), (BLOCK * width,))
    sheared = lax.reshape(_to_length(flat, 0, BLOCK * (width + 1)), (BLOCK, width + 1))
    total = lax.reduce_sum(lax.slice_in_dim(sheared, 0, results, axis=1), (0,))
    return in_order(lax.reshape(total, (1, 1, results)), (0, 1, 2), g.numbers.out_spec)
