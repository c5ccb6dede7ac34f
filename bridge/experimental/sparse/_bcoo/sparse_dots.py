"""Products of two sparse arrays: elements with the same shared coordinates are joined."""

from __future__ import annotations

import functools
import math
from typing import Any, final

import tracebridge.numpy as tnp
from tracebridge._api.programs.jit import jit
from tracebridge._api.vectorize.vmap import vmap
from tracebridge.core.compat.traces import is_concrete
from tracebridge.core.control.calls.by_definition import ByDefinition
from tracebridge.core.ir.cost import Cost
from tracebridge.experimental.sparse._base import Shape, SparseInfo, info_of
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.indices import (
    batch_sizes,
    first_of_equals,
    joined,
    keys_of,
    order_of,
    padding,
    sparse_sizes,
    taken,
    valid,
    widened,
)
from tracebridge.experimental.sparse._bcoo.layouts import bcoo_update_layout
from tracebridge.experimental.sparse._bcoo.sorting import bcoo_sum_duplicates

Axes = tuple[int, ...]
Numbers = tuple[Axes, Axes, Axes, Axes]


def dot_of_sparse(lhs: BCOO, rhs: BCOO, dims: Numbers, kind: Any) -> BCOO:
    """The product of two BCOO arrays, as ``bcoo_dot_general`` describes it.

    It stores as many elements as a bound that shapes give. Outside of traced code the pairs that
    meet are counted instead, where that bound is more than both arrays store.
    """
    plan = _Plan(lhs, rhs, dims)
    known = is_concrete(plan.left.indices) and is_concrete(plan.right.indices)
    if known and min(plan.bound, plan.most) > lhs.nse + rhs.nse:
        return bcoo_sum_duplicates(plan.product(plan.count(), kind))
    data, indices = bcoo_spdot_general_p.bind(
        lhs.data,
        lhs.indices,
        rhs.data,
        rhs.indices,
        lhs_spinfo=info_of(lhs),
        rhs_spinfo=info_of(rhs),
        dimension_numbers=((dims[0], dims[1]), (dims[2], dims[3])),
        preferred_element_type=kind,
    )
    merged = plan.most < plan.bound
    return BCOO((data, indices), shape=plan.shape, indices_sorted=merged, unique_indices=merged)


@final
class BcooSpdotGeneral(ByDefinition):
    """Data and coordinates of two arrays -> those of their product."""

    name = "bcoo_spdot_general"
    multiple_results = True
    cost = Cost.CONTRACTION

    def define(
        self,
        *operands: Any,
        lhs_spinfo: SparseInfo,
        rhs_spinfo: SparseInfo,
        dimension_numbers: Any,
        preferred_element_type: Any,
    ) -> tuple[Any, Any]:
        lhs = BCOO(operands[:2], **lhs_spinfo._asdict())
        rhs = BCOO(operands[2:], **rhs_spinfo._asdict())
        a, b, c, d = [tuple(axes) for pair in dimension_numbers for axes in pair]
        plan = _Plan(lhs, rhs, (a, b, c, d))
        out = plan.product(plan.bound, preferred_element_type)
        if plan.most < plan.bound:
            out = bcoo_sum_duplicates(out, nse=plan.most)
        return out.data, out.indices


bcoo_spdot_general_p = BcooSpdotGeneral()


@final
class _Plan:
    """How the elements of two arrays meet, with exactly one axis of batches each."""

    def __init__(self, lhs: BCOO, rhs: BCOO, dims: Numbers) -> None:
        n = _shared_batches(lhs, rhs, dims)
        lhs, rhs = [bcoo_update_layout(x, n_batch=n, n_dense=0) for x in (lhs, rhs)]
        self.batch = batch_sizes(lhs)
        left, right = [
            tuple([a - n for a in (*batch, *contracting) if a >= n])
            for contracting, batch in ((dims[0], dims[2]), (dims[1], dims[3]))
        ]
        self.keys = left, right
        self.n_shared = len(dims[2]) - n
        self.left, self.right = _prepared(lhs), _prepared(rhs)
        self.bound = _bound(self.left, self.right, *self.keys)
        free = [
            [size for a, size in enumerate(x.shape) if a not in (*contracting, *batch)]
            for x, contracting, batch in ((lhs, dims[0], dims[2]), (rhs, dims[1], dims[3]))
        ]
        self.shape = (*[lhs.shape[a] for a in dims[2]], *free[0], *free[1])
        # As many elements as the product has coordinates.
        self.most = math.prod(self.shape[n:])

    def count(self) -> int:
        """The largest number of pairs that meet in a batch; the arrays are known."""
        return int(_most_pairs(self.left, self.right, *self.keys))

    def product(self, nse: int, kind: Any) -> BCOO:
        """The product with ``nse`` pairs, whose coordinates may be equal."""
        left, right = self.left, self.right
        if kind is not None:
            left, right = left.astype(kind), right.astype(kind)
        out = _pairs(left, right, self.keys, self.n_shared, nse)
        return _batched(out, self.batch)


def _shared_batches(lhs: BCOO, rhs: BCOO, dims: Numbers) -> int:
    """How many leading axes are axes of batches of both arrays, and of the product."""
    n = 0
    pairs = list(zip(dims[2], dims[3], strict=True))
    while n < min(lhs.n_batch, rhs.n_batch, len(pairs)) and pairs[n] == (n, n):
        n += 1
    return n


def _prepared(mat: BCOO) -> BCOO:
    """The array with exactly one axis of batches."""
    mat = widened(mat)
    count = math.prod(batch_sizes(mat))
    n = mat.n_batch
    return BCOO(
        (
            mat.data.reshape((count, *mat.data.shape[n:])),
            mat.indices.reshape((count, *mat.indices.shape[n:])),
        ),
        shape=(count, *mat.shape[n:]),
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


def _batched(mat: BCOO, batch: Shape) -> BCOO:
    """The inverse of ``_prepared``."""
    return BCOO(
        (
            mat.data.reshape((*batch, *mat.data.shape[1:])),
            mat.indices.reshape((*batch, *mat.indices.shape[1:])),
        ),
        shape=(*batch, *mat.shape[1:]),
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


def _bound(lhs: BCOO, rhs: BCOO, lhs_keys: Axes, rhs_keys: Axes) -> int:
    """The largest number of pairs that can meet in a batch."""
    bounds: list[int] = []
    for x, other, keys in ((lhs, rhs, rhs_keys), (rhs, lhs, lhs_keys)):
        meets = other.nse
        if other.unique_indices:
            free = [n for k, n in enumerate(sparse_sizes(other)) if k not in keys]
            meets = min(meets, math.prod(free))
        bounds.append(x.nse * meets)
    return min(bounds)


def _ranges(
    left: Any, right: Any, left_sizes: Shape, right_sizes: Shape, lhs_keys: Axes, rhs_keys: Axes
) -> tuple[Any, Any, Any]:
    """For each element of the left the elements of the right that it meets, of one batch.

    Gives where these begin in the order of the keys, how many they are, and that order.
    """
    dtype = tnp.promote_types(left.dtype, right.dtype)
    sizes = tuple([left_sizes[a] for a in lhs_keys])
    count = right.shape[0]
    marks = [valid(left, left_sizes), valid(right, right_sizes)]
    both = tnp.concatenate([
        joined([right[:, a] for a in rhs_keys], right).astype(dtype),
        joined([left[:, a] for a in lhs_keys], left).astype(dtype),
    ])  # fmt: skip
    keys = keys_of(both, sizes)
    if len(keys) > 1:
        # One number for each different set of keys.
        *ordered, positions = order_of(keys)
        groups = tnp.cumsum(first_of_equals(ordered), dtype="int32") - 1
        keys = [taken(groups, order_of([positions])[-1])]
    # Elements that are padding by a coordinate that is no key come last.
    last = tnp.iinfo(keys[0].dtype).max
    right_key = tnp.where(marks[1], keys[0][:count], last)
    ordered, order = order_of([right_key])
    begin, end = [
        tnp.searchsorted(ordered, keys[0][count:], side=side).astype("int32")
        for side in ("left", "right")
    ]
    return begin, tnp.where(marks[0], end - begin, 0), order


@functools.partial(jit, static_argnums=(2, 3), inline=True)
def _most_pairs(lhs: BCOO, rhs: BCOO, lhs_keys: Axes, rhs_keys: Axes) -> Any:
    """The largest number of pairs in a batch."""

    def count(left: Any, right: Any) -> Any:
        sizes = sparse_sizes(lhs), sparse_sizes(rhs)
        return tnp.sum(_ranges(left, right, *sizes, lhs_keys, rhs_keys)[1], dtype="int32")

    return tnp.max(vmap(count)(lhs.indices, rhs.indices), initial=0)


@functools.partial(jit, static_argnums=(2, 3, 4), inline=True)
def _pairs(lhs: BCOO, rhs: BCOO, keys: tuple[Axes, Axes], n_shared: int, nse: int) -> BCOO:
    """The products of all pairs; axes: shared ones that stay, free ones of left and right."""
    lhs_keys, rhs_keys = keys
    left_sizes, right_sizes = sparse_sizes(lhs), sparse_sizes(rhs)
    left_free = [a for a in range(len(left_sizes)) if a not in lhs_keys]
    right_free = [a for a in range(len(right_sizes)) if a not in rhs_keys]
    kept = [*lhs_keys[:n_shared], *left_free]
    shape = (*[left_sizes[a] for a in kept], *[right_sizes[a] for a in right_free])
    dtype = tnp.promote_types(lhs.indices.dtype, rhs.indices.dtype)

    def one(left_data: Any, left: Any, right_data: Any, right: Any) -> tuple[Any, Any]:
        begin, counts, order = _ranges(left, right, left_sizes, right_sizes, lhs_keys, rhs_keys)
        ends = tnp.cumsum(counts, dtype="int32")
        numbers = tnp.arange(nse, dtype="int32")
        at = tnp.searchsorted(ends, numbers, side="right").astype("int32")
        at = tnp.minimum(at, left.shape[0] - 1)
        keep = numbers < ends[-1]
        partner = tnp.where(keep, begin[at] + numbers - (ends[at] - counts[at]), 0)
        partner = order[partner]
        found = [
            *[left[at, a] for a in kept],
            *[right[partner, a] for a in right_free],
        ]
        data = left_data[at] * right_data[partner]
        data = tnp.where(keep, data, tnp.zeros((), data.dtype))
        like = tnp.zeros((nse, 1), dtype)
        return data, tnp.where(keep[:, None], joined(found, like), padding(shape, dtype))

    if lhs.nse == 0 or rhs.nse == 0 or nse == 0:
        kind = tnp.promote_types(lhs.dtype, rhs.dtype)
        batch = lhs.shape[0]
        data = tnp.zeros((batch, nse), kind)
        indices = tnp.broadcast_to(padding(shape, dtype), (batch, nse, len(shape)))
    else:
        data, indices = vmap(one)(lhs.data, lhs.indices, rhs.data, rhs.indices)
    return BCOO((data, indices), shape=(lhs.shape[0], *shape))
