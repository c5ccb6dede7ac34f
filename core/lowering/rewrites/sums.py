"""Rewrites of sums: over products, copies, reshapes, functions that others read too.

A rewrite takes the pass, the equation, its operands and its source; it gives the number of what
stands for the result, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.cost import Cost
from tracebridge.core.lowering.rewrites.contraction import planned, product_of
from tracebridge.core.lowering.rewrites.emission import Emission
from tracebridge.core.lowering.rewrites.exp_sums import ExpSum
from tracebridge.core.lowering.rewrites.factors import (
    Axes,
    Factor,
    Unfolding,
    is_plain,
    matching_groups,
)
from tracebridge.core.lowering.rewrites.one_pass import Pass
from tracebridge.core.lowering.rewrites.own_copies import OwnCopy, may_have_copy, may_have_no_shift
from tracebridge.core.lowering.rewrites.spikes import SpikeSum, is_comparison

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application, Params

_REAL = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
# Where a product with weights beats a sum of their products, measured with jaxlib 0.10.2 on two
# cores: over rows by 1.6 to 6 times, over columns by up to 1.8, but not over many of them.
_LEAST_WEIGHTED = 1 << 14
_LEAST_WIDTH = 16
_MOST_ROWS = 1024

# Sums of fewer elements are left to XLA (core/lax/reduce/cpu_sums.py).
_LEAST_WRITTEN = 1 << 15

_EXACT = _REAL | {np.dtype(np.complex64), np.dtype(np.complex128)}


# sums of products --------------------------------------------------------------------------------


def rewritten_sum(here: Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    """The first form that a sum has, if any."""
    made = here.made_by.get(args[0])
    if made is None or not here.is_static(app):
        return None
    new = _sum_of_copies(here, app, args, source)
    if new is None and here.compares:
        new = _sum_of_spikes(here, app, args, source)
    if new is not None:
        return new
    if app.out.dtype in _EXACT and here.is_product(args[0]):
        params = {"precision": None, "preferred_element_type": None}
        if here.comes_apart(args[0]):
            unfolding = Unfolding(here.made_by)
            axes = unfolding.new_axes(app.avals[0].shape)
            factors = unfolding.of(args[0], axes, whole=True)
            kept = tuple([a for i, a in enumerate(axes) if i not in app.params["axes"]])
            new = _contracted(here, app, source, unfolding, factors, kept, params)
        if new is None and app.out.dtype == np.float32:
            new = _weighted_sum(here, app, args, source, params)
        if new is not None:
            return new
    rewrite = _BY_OPERAND.get(made[0].primitive)
    new = None if rewrite is None else rewrite(here, app, args, source)
    if new is None and made[0].primitive.cost is Cost.EXPENSIVE:
        new = _sum_of_shared(here, app, args, source)
    if new is None and may_have_no_shift(app.avals[0], app.params["axes"], has_maxima=True):
        new = _sum_of_exp(here, app, args)
    if new is None and may_have_copy(app):
        new = _sum_of_copy(here, app, args, source)
    return new


def rewritten_product(
    here: Pass, app: Application, args: Sequence[int], source: object
) -> int | None:
    """A product of matrices that are outer products themselves."""
    if not any([here.comes_apart(a) for a in args]) or not here.is_static(app):
        return None
    x, y = app.avals
    if app.out.dtype in _EXACT and x.dtype == y.dtype == app.out.dtype and is_plain(app):
        (xc, yc), (xb, yb) = app.params["dimension_numbers"]
        unfolding = Unfolding(here.made_by)
        x_axes = unfolding.new_axes(x.shape)
        shared = dict(zip((*yc, *yb), (*xc, *xb), strict=True))
        free = iter(unfolding.new_axes([n for j, n in enumerate(y.shape) if j not in shared]))
        y_axes = [x_axes[shared[j]] if j in shared else next(free) for j in range(y.ndim)]
        of_x, of_y = unfolding.of(args[0], x_axes), unfolding.of(args[1], tuple(y_axes))
        if len(of_x) > 1 or len(of_y) > 1:
            kept = (
                *[x_axes[i] for i in xb],
                *[a for i, a in enumerate(x_axes) if i not in (*xc, *xb)],
                *[a for j, a in enumerate(y_axes) if j not in shared],
            )
            new = _contracted(here, app, source, unfolding, [*of_x, *of_y], kept, app.params)
            if new is not None:
                return new
    return None


def _contracted(
    here: Pass,
    app: Application,
    source: object,
    unfolding: Unfolding,
    factors: Sequence[Factor],
    kept: Axes,
    params: Params,
) -> int | None:
    """The sum over all axes but ``kept``, by its factors."""
    if unfolding.failed or len(factors) < 2:
        return None
    dtype = app.out.dtype
    if any([here.graph.avals[f.number].dtype != dtype for f in factors]):
        return None
    product, leaves = product_of(unfolding, factors, kept, app.out.shape)
    plan = planned(product, params)
    if plan.result is None or (plan.sums and dtype not in _REAL):
        return None
    if not plan.sums:
        return here.write_equations(plan.write, leaves, source)
    return here.guarded(here.written_program(plan.write_guarded, leaves, plan), leaves)


def _weighted_sum(
    here: Pass, app: Application, args: Sequence[int], source: object, params: Params
) -> int | None:
    """The sum of an array in memory times weights that are the same along some axis."""
    aval = app.avals[0]
    if aval.size < _LEAST_WEIGHTED:
        return None
    unfolding = Unfolding(here.made_by)
    axes = unfolding.new_axes(aval.shape)
    factors = unfolding.of(args[0], axes, whole=False)
    if unfolding.failed or len(factors) != 2:
        return None
    weights, array = sorted(factors, key=lambda f: len(unfolding.resolved(f.axes)))
    summed = unfolding.resolved(tuple([axes[i] for i in app.params["axes"]]))
    of_array, of_weights = unfolding.resolved(array.axes), unfolding.resolved(weights.axes)
    is_product = set(summed) <= set(of_weights) < set(of_array) == set(unfolding.resolved(axes))
    if not is_product or not summed or here.is_fused(array.number):
        return None
    length = math.prod([unfolding.sizes[a] for a in summed])
    width = unfolding.sizes[of_array[-1]]
    if width < _LEAST_WIDTH or (of_array[-1] not in summed and length > _MOST_ROWS):
        return None
    kept = tuple([a for i, a in enumerate(axes) if i not in app.params["axes"]])
    product, leaves = product_of(unfolding, [weights, array], kept, app.out.shape)
    plan = planned(product, params, as_pair=True)
    return here.write_equations(plan.write, leaves, source)


# copies ------------------------------------------------------------------------------------------


def _sum_of_copies(here: Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    """The sum of one slice, repeated along the axes that hold copies of it and stay."""
    shape, axes = app.avals[0].shape, app.params["axes"]
    if len(axes) == len(shape):
        return None
    copied = here.copies.of(args[0])
    same = [i for i, n in enumerate(shape) if copied >> i & 1 and n != 1 and i not in axes]
    if not same:
        return None
    limits = tuple([1 if i in same else n for i, n in enumerate(shape)])
    out_shape = app.out.shape

    def write(to: Emission) -> int:
        bounds = {"start_indices": (0,) * len(shape), "limit_indices": limits}
        part = to.apply(lax.slice_p, args[0], **bounds, strides=(1,) * len(shape))
        summed = to.over(lax.reduce_sum_p, part, axes)
        return to.broadcast(summed, out_shape, tuple(range(len(out_shape))))

    return here.write_equations(write, args, source)


# reshapes ----------------------------------------------------------------------------------------


def _sum_of_reshaped(
    here: Pass, app: Application, args: Sequence[int], source: object
) -> int | None:
    """The sum over axes that a reshape made, as a sum over those that it made them of."""
    before, (operand,) = here.made_by[args[0]]
    shape, axes = before.avals[0].shape, app.params["axes"]
    groups = matching_groups(shape, before.out.shape)
    if groups is None or all([len(a) == len(b) == 1 for a, b in groups]):
        return None
    summed: list[int] = []
    for inner, outer in groups:
        flags = {i in axes for i in outer}
        if len(flags) > 1:
            return None
        summed.extend(inner if flags.pop() else ())
    if not summed:
        return None
    shape = app.out.shape

    def write(to: Emission) -> int:
        return to.reshape(to.over(lax.reduce_sum_p, to.leaves[0], summed), shape)

    return here.write_equations(write, [operand], source)


def _sum_of_negated(
    here: Pass, app: Application, args: Sequence[int], source: object
) -> int | None:
    """The negated sum: what is subtracted from a broadcast has such a derivative.

    Where the sum is a product with ones, the negated array would be written for it alone.
    """
    if app.out.dtype not in _REAL:
        return None
    axes = app.params["axes"]

    def write(to: Emission) -> int:
        return to.apply(lax.neg_p, to.over(lax.reduce_sum_p, to.leaves[0], axes))

    return here.write_equations(write, here.made_by[args[0]][1], source)


# functions that are read twice --------------------------------------------------------------------


def _sum_of_shared(here: Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    """The sum of exponentials, say, that are written once for all that read them.

    XLA would compute them in the sum, and again in each of its operations that reads them.
    """
    (x,) = app.avals
    if x.dtype not in _REAL or x.size < _LEAST_WRITTEN:
        return None
    if here.readers(args[0]) < 2:
        return None
    here.written[args[0]] = once = here.emit(lax.optimization_barrier, args, source)
    return here.graph.add(app, [once], source)


def _sum_of_exp(here: Pass, app: Application, args: Sequence[int]) -> int | None:
    """The sum of exponentials of differences, by a sum of exponentials."""
    plan = ExpSum(app, args[0], here.graph, here.made_by, here.readers)
    if not plan.leaves:
        return None
    return here.guarded(here.staged(plan.run, plan.leaves, None), plan.leaves)


def _sum_of_copy(here: Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    """The sum of squared differences, say, of a copy of differences that others read too."""
    copy = OwnCopy(args[0], here.made_by, here.readers)
    if copy.made is None:
        return None
    return here.emit(partial(copy.run, app.params["axes"]), copy.leaves, source)


_BY_OPERAND: dict[Any, Callable[..., int | None]] = {
    lax.reshape_p: _sum_of_reshaped,
    lax.neg_p: _sum_of_negated,
}


# picks -------------------------------------------------------------------------------------------


def compares(here: Pass, app: Application, args: Sequence[int], source: object) -> None:
    """Nothing: it only remembers that there are comparisons."""
    del args, source
    here.compares |= is_comparison(app)


def _sum_of_spikes(here: Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    """The sum of what a pick puts back into zeros, say."""
    if app.out.dtype not in _EXACT:
        return None
    shape, axes = app.avals[0].shape, app.params["axes"]
    for axis in axes:
        plan = SpikeSum(args[0], shape, axis, here.made_by)
        if plan.made is not None:
            return here.emit(partial(plan.run, axes), plan.leaves, source)
    return None
