"""The pass over a Jaxpr before it is lowered, and the list of rewrites that it tries.

| equation | where | becomes |
|---|---|---|
| ``reduce_sum``, ``dot_general`` | the operand is an outer product | contractions of its factors |
| ``reduce_sum`` | the operand is an array in memory, times weights | a product with the weights |
| ``reduce_sum`` | an axis that stays holds copies of one slice | the sum of that slice, repeated |
| ``reduce_sum`` | the operand is a reshape that splits no sum | the sum, reshaped |
| ``reduce_sum`` | the operand is a negated array of floats | the negated sum |
| ``reduce_sum`` | of functions that others read too, as in softmax | these are computed once |
| ``reduce_sum`` | of ``exp(x - max(x))``, read by the sum only | ``exp_sums.py`` |
| ``reduce_sum`` | of short chains that others read a part of | the sum of a copy |
| ``reduce_sum`` | over what ``take_along_axis`` puts back | what it puts back |
| ``reduce_sum`` | of products that others sum up with other weights | ``shared_products.py`` |
| ``gather`` | few elements of a chain that others read too | the chain of these elements |
| ``add`` | of what pads make of the parts of an array | their concatenation |
| ``transpose`` | the operand is joined along a new axis | a concatenation along another axis |
| ``sin``, ``cos``, ``tan`` | the same of the same operand is there | that one |
| ``broadcast_in_dim`` | of random bits or sines | ``repeated.py`` |
| ``sin``, ``cos``, ``tan`` | of large arrays, with what is elementwise round them | ``waves.py`` |

Picks come first, in a pass of their own: what is picked from is read by one less then.

Derivatives and batching see programs as they were written. Lowerings for single platforms that
need one equation only are rules of their own (core/lowering/platforms.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.lowering.rewrites.batches import with_batch_kernels
from tracebridge.core.lowering.rewrites.contraction import SumOfProducts
from tracebridge.core.lowering.rewrites.copies import Copies
from tracebridge.core.lowering.rewrites.exp_sums import ExpSum
from tracebridge.core.lowering.rewrites.factors import (
    Axes,
    Factor,
    Unfolding,
    is_outer_product,
    is_plain,
    matching_groups,
)
from tracebridge.core.lowering.rewrites.flat import computed_by, flat
from tracebridge.core.lowering.rewrites.guarded import guarded_p
from tracebridge.core.lowering.rewrites.joins import Joins, moved_join
from tracebridge.core.lowering.rewrites.own_copies import OwnCopy, may_have_copy
from tracebridge.core.lowering.rewrites.picks import Pick, may_be_pick
from tracebridge.core.lowering.rewrites.producers import Reads
from tracebridge.core.lowering.rewrites.repeated import is_costly, with_stored
from tracebridge.core.lowering.rewrites.rows import with_row_kernels
from tracebridge.core.lowering.rewrites.shared_products import with_shared_products
from tracebridge.core.lowering.rewrites.spikes import SpikeSum, is_comparison
from tracebridge.core.lowering.rewrites.waves import with_guarded_waves

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.value import Value

_REAL = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_FUSED = frozenset({Cost.FREE, Cost.MOVES_DATA, Cost.CHEAP, Cost.EXPENSIVE, Cost.COMPOSED})

# Where a product with weights beats a sum of their products, measured with jaxlib 0.10.2 on two
# cores: over rows by 1.6 to 6 times, over columns by up to 1.8, but not over many of them.
_LEAST_WEIGHTED = 1 << 14
_LEAST_WIDTH = 16
_MOST_ROWS = 1024

# Sums of fewer elements are left to XLA (core/lax/reduce/cpu_sums.py).
_LEAST_WRITTEN = 1 << 15

_EXACT = _REAL | {np.dtype(np.complex64), np.dtype(np.complex128)}

Made = dict[int, "tuple[Application, Sequence[int]]"]
Rewrites = dict[Any, Callable[..., "int | None"]]

_MULTIPLIES = frozenset({lax.mul_p, lax.square_p, lax.integer_pow_p})
_PLACES = frozenset(
    {lax.neg_p, lax.broadcast_in_dim_p, lax.transpose_p, lax.reshape_p, lax.squeeze_p}
)


def rewritten(jaxpr: Jaxpr) -> Jaxpr:
    """``jaxpr`` with the faster forms of what is in the table above."""
    # None stands for the Jaxpr itself, which must not refer to itself.
    if "rewritten" not in jaxpr.cache:
        found = {app.primitive for app, _ in jaxpr.equations}
        new = with_stored(jaxpr) if any([is_costly(p) for p in found]) else None
        if lax.gather_p in found:
            new = _with_picks(new or jaxpr) or new
        if lax.pad_p in found and lax.add_p in found:
            new = _Pass(new or jaxpr, _JOINS).result() or new
        new = with_batch_kernels(new or jaxpr) or new
        new = with_row_kernels(new or jaxpr) or new
        if lax.reduce_sum_p in found:
            new = with_shared_products(new or jaxpr) or new
        if new is not None or not found.isdisjoint(_REWRITES):
            new = _Pass(new or jaxpr, _REWRITES).result() or new
            new = with_guarded_waves(new or jaxpr) or new
        jaxpr.cache["rewritten"] = new
    return jaxpr.cache["rewritten"] or jaxpr


def _with_picks(jaxpr: Jaxpr) -> Jaxpr | None:
    """The program after the rewrites of picks, if there are any."""
    equations = jaxpr.equations
    if not any([app.primitive is lax.gather_p and may_be_pick(app) for app, _ in equations]):
        return None
    return _Pass(flat(jaxpr, computed_by), {lax.gather_p: _pick}).result()


class _Pass:
    """One Jaxpr while it is rewritten, by a list of rewrites."""

    def __init__(self, jaxpr: Jaxpr, rewrites: Rewrites) -> None:
        self.jaxpr, self.rewrites = jaxpr, rewrites
        self.graph = Graph()
        self.made_by: Made = {}
        self.copies = Copies(self.made_by)
        self.waves: dict[object, int] = {}
        self.written: dict[int, int] = {}
        """Values that are computed once and read from memory -> what stands for them."""
        self.joins = Joins(self.graph)
        self.changed = self.compares = False
        self.numbers: list[int] = []
        """Of the variables of the program."""
        self._products: dict[int, bool] = {}
        self._apart: dict[int, bool] = {}
        self._reads: Reads | None = None

    def result(self) -> Jaxpr | None:
        """The program, if anything has changed."""
        jaxpr, graph = self.jaxpr, self.graph
        avals, equations, made_by = graph.avals, graph.equations, self.made_by
        inputs = graph.inputs(jaxpr.in_avals)
        self.numbers = numbers = [*inputs, *[graph.constant(c) for c in jaxpr.consts]]
        sources, rewrite_of, written = jaxpr.sources, self.rewrites.get, self.written
        for k, (app, idx) in enumerate(jaxpr.equations):
            source = sources[k] if sources else None
            args = [numbers[i] for i in idx]
            if written:
                args = [written.get(a, a) for a in args]
            if app.multiple:
                first = graph.add(app, args, source)
                numbers.extend(range(first, first + len(app.outs)))
                continue
            # As Graph.add does: this loop sees every equation of every program.
            first = len(avals)
            avals.append(app.out)
            equations.append((app, args, first, source))
            made_by[first] = app, args
            rewrite = rewrite_of(app.primitive)
            new = rewrite(self, app, args, source) if rewrite is not None else None
            self.changed |= new is not None
            numbers.append(first if new is None else new)
        if not self.changed:
            return None
        outs = [written.get(numbers[i], numbers[i]) for i in jaxpr.outs]
        return graph.program(inputs, outs, jaxpr.debug)

    def emit(self, run: Callable[..., object], args: Sequence[int], source: object) -> int:
        """The equations of a function of values, which has one result."""
        program = self.staged(run, args)
        (number,) = self.graph.inline(program, args, source)
        return number

    def staged(self, run: Callable[..., object], args: Sequence[int]) -> Jaxpr:
        """A function of values as a program."""

        def listed(*values: Value) -> list[Any]:
            out = run(*values)
            return list(out) if isinstance(out, tuple) else [out]

        return stage(listed, [self.graph.avals[a] for a in args], locate=False)

    def guarded(self, run: Callable[..., object], leaves: Sequence[int]) -> int:
        """Flag and result of a function of values, or the equation that was added last."""
        plain = self.graph.program(leaves, [len(self.graph.avals) - 1], NO_DEBUG_INFO)
        plain.cache["rewritten"] = None
        params = {"fast": self.staged(run, leaves), "plain": plain}
        return self.graph.add_bound(guarded_p, leaves, params)

    def readers(self, number: int) -> int:
        """How often the program, as it was written, reads a value of the graph."""
        if self._reads is None:
            self._reads = Reads(self.jaxpr)
        return self._reads.of(number, self.numbers)

    def is_product(self, number: int) -> bool:
        """Whether a value may have several factors: it is a product, moved about."""
        known = self._products.get(number)
        if known is None:
            made = self.made_by.get(number)
            known = self._products[number] = made is not None and self._multiplies(*made)
        return known

    def _multiplies(self, app: Application, args: Sequence[int]) -> bool:
        primitive = app.primitive
        if primitive is lax.dot_general_p:
            return is_outer_product(app)
        return primitive in _MULTIPLIES or (primitive in _PLACES and self.is_product(args[0]))

    def comes_apart(self, number: int) -> bool:
        """Whether a value may be a product of factors none of which has all of its axes."""
        known = self._apart.get(number)
        if known is None:
            made = self.made_by.get(number)
            known = self._apart[number] = made is not None and self._comes_apart(*made)
        return known

    def _comes_apart(self, app: Application, args: Sequence[int]) -> bool:
        primitive = app.primitive
        if primitive is lax.dot_general_p:
            return is_outer_product(app)
        if primitive is lax.broadcast_in_dim_p and _may_be_larger(app):
            return True
        if primitive in _MULTIPLIES:
            pairs = zip(args, app.avals, strict=True)
            return all([self.comes_apart(a) for a, aval in pairs if aval.ndim])
        return primitive in _PLACES and self.comes_apart(args[0])

    def is_fused(self, number: int) -> bool:
        """Whether XLA computes a value inside of what reads it, so that it is not in memory."""
        made = self.made_by.get(number)
        return made is not None and made[0].primitive.cost in _FUSED

    def is_static(self, app: Application) -> bool:
        """Whether all sizes are numbers, and there are elements."""
        return all([type(a.size) is int and a.size > 0 for a in (*app.avals, *app.outs)])


def _may_be_larger(app: Application) -> bool:
    """Whether a broadcast repeats elements."""
    x, out = app.avals[0].size, app.out.size
    return type(x) is not int or type(out) is not int or out > x


# sums of products --------------------------------------------------------------------------------


def _sum(here: _Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    if args[0] not in here.made_by or not here.is_static(app):
        return None
    new = _sum_of_copies(here, app, args, source)
    if new is None and here.compares:
        new = _sum_of_spikes(here, app, args, source)
    if new is not None:
        return new
    if app.out.dtype in _EXACT and here.is_product(args[0]):
        params = {"precision": None, "preferred_element_type": None}
        if here.comes_apart(args[0]):
            unfolding = Unfolding(here.graph, here.made_by)
            axes = unfolding.new_axes(app.avals[0].shape)
            factors = unfolding.of(args[0], axes, whole=True)
            kept = tuple([a for i, a in enumerate(axes) if i not in app.params["axes"]])
            new = _contracted(here, app, source, unfolding, factors, kept, params)
        if new is None and app.out.dtype == np.float32:
            new = _weighted_sum(here, app, args, source, params)
        if new is not None:
            return new
    found = (rewrite(here, app, args, source) for rewrite in _SUMS)
    return next((new for new in found if new is not None), None)


def _product(here: _Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    if not any([here.comes_apart(a) for a in args]) or not here.is_static(app):
        return None
    x, y = app.avals
    if app.out.dtype in _EXACT and x.dtype == y.dtype == app.out.dtype and is_plain(app):
        (xc, yc), (xb, yb) = app.params["dimension_numbers"]
        unfolding = Unfolding(here.graph, here.made_by)
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
    here: _Pass,
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
    plan = SumOfProducts(unfolding, factors, kept, app.out.shape, params)
    if plan.result is None or (plan.sums and dtype not in _REAL):
        return None
    if not plan.sums:
        return here.emit(lambda *leaves: plan.run(leaves)[1], plan.leaves, source)
    return here.guarded(lambda *leaves: plan.run(leaves), plan.leaves)


def _weighted_sum(
    here: _Pass, app: Application, args: Sequence[int], source: object, params: Params
) -> int | None:
    """The sum of an array in memory times weights that are the same along some axis."""
    aval = app.avals[0]
    if aval.size < _LEAST_WEIGHTED:
        return None
    unfolding = Unfolding(here.graph, here.made_by)
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
    plan = SumOfProducts(unfolding, [weights, array], kept, app.out.shape, params, as_pair=True)
    return here.emit(lambda *leaves: plan.run(leaves)[1], plan.leaves, source)


# copies ------------------------------------------------------------------------------------------


def _sum_of_copies(
    here: _Pass, app: Application, args: Sequence[int], source: object
) -> int | None:
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

    def run(x: Value) -> Any:
        part = lax.slice(x, (0,) * len(shape), limits)
        summed = lax.reduce_sum(part, axes)
        return lax.broadcast_in_dim(summed, out_shape, tuple(range(len(out_shape))))

    return here.emit(run, args, source)


# reshapes ----------------------------------------------------------------------------------------


def _sum_of_reshaped(
    here: _Pass, app: Application, args: Sequence[int], source: object
) -> int | None:
    """The sum over axes that a reshape made, as a sum over those that it made them of."""
    made = here.made_by.get(args[0])
    if made is None or made[0].primitive is not lax.reshape_p:
        return None
    before, (operand,) = made
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
    axes, shape = tuple(summed), app.out.shape
    return here.emit(lambda x: lax.reshape(lax.reduce_sum(x, axes), shape), [operand], source)


def _sum_of_negated(
    here: _Pass, app: Application, args: Sequence[int], source: object
) -> int | None:
    """The negated sum: what is subtracted from a broadcast has such a derivative.

    Where the sum is a product with ones, the negated array would be written for it alone.
    """
    made = here.made_by[args[0]]
    if made[0].primitive is not lax.neg_p or app.out.dtype not in _REAL:
        return None
    axes = app.params["axes"]
    return here.emit(lambda x: lax.neg(lax.reduce_sum(x, axes)), made[1], source)


# functions that are read twice --------------------------------------------------------------------


def _sum_of_shared(
    here: _Pass, app: Application, args: Sequence[int], source: object
) -> int | None:
    """The sum of exponentials, say, that are written once for all that read them.

    XLA would compute them in the sum, and again in each of its operations that reads them.
    """
    (x,) = app.avals
    made = here.made_by[args[0]][0].primitive
    if made.cost is not Cost.EXPENSIVE or x.dtype not in _REAL or x.size < _LEAST_WRITTEN:
        return None
    if here.readers(args[0]) < 2:
        return None
    here.written[args[0]] = once = here.emit(lax.optimization_barrier, args, source)
    return here.graph.add(app, [once], source)


def _sum_of_exp(here: _Pass, app: Application, args: Sequence[int], _: object) -> int | None:
    """The sum of exponentials of differences, by a sum of exponentials."""
    plan = ExpSum(app, args[0], here.graph, here.made_by, here.readers)
    return here.guarded(plan.run, plan.leaves) if plan.leaves else None


def _sum_of_copy(here: _Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    """The sum of squared differences, say, of a copy of differences that others read too."""
    if not may_have_copy(app):
        return None
    copy = OwnCopy(args[0], here.made_by, here.readers)
    if copy.made is None:
        return None
    return here.emit(partial(copy.run, app.params["axes"]), copy.leaves, source)


_SUMS = (_sum_of_reshaped, _sum_of_negated, _sum_of_shared, _sum_of_exp, _sum_of_copy)

# picks -------------------------------------------------------------------------------------------


def _pick(here: _Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    """Few elements of a chain that XLA would write, because others read a part of it too."""
    if not may_be_pick(app):
        return None
    pick = Pick(app, args, here.made_by)
    if pick.made is None or all([here.readers(n) < 2 for n in pick.shared]):
        return None
    return here.emit(pick.run, pick.leaves, source)


def _compares(here: _Pass, app: Application, args: Sequence[int], source: object) -> None:
    """Nothing: it only remembers that there are comparisons."""
    del args, source
    here.compares |= is_comparison(app)


def _sum_of_spikes(
    here: _Pass, app: Application, args: Sequence[int], source: object
) -> int | None:
    """The sum of what a pick puts back into zeros, say."""
    if app.out.dtype not in _EXACT:
        return None
    shape, axes = app.avals[0].shape, app.params["axes"]
    for axis in axes:
        plan = SpikeSum(args[0], shape, axis, here.made_by)
        if plan.made is not None:
            return here.emit(partial(plan.run, axes), plan.leaves, source)
    return None


# concatenations ----------------------------------------------------------------------------------


def _transposed_concatenation(
    here: _Pass, app: Application, args: Sequence[int], source: object
) -> int | None:
    """Arrays joined along a new axis, which is then moved, are joined where it goes."""
    plan = moved_join(app, args, here.made_by) if here.is_static(app) else None
    return None if plan is None else here.emit(*plan, source)


def _part(here: _Pass, app: Application, args: Sequence[int], source: object) -> None:
    """Nothing: it only remembers what a pad puts where."""
    del source
    here.joins.padded(app, args)


def _joined(here: _Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    plan = here.joins.added(app, args)
    return None if plan is None else here.emit(*plan, source)


def _wave(here: _Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    """The same function of the same operand, if it is there already."""
    del source
    if app.params:
        return None
    made = next(reversed(here.made_by))
    first = here.waves.setdefault((app.primitive, args[0]), made)
    return None if first == made else first


_JOINS: Rewrites = {lax.pad_p: _part, lax.add_p: _joined}
_REWRITES: Rewrites = {
    lax.reduce_sum_p: _sum,
    lax.dot_general_p: _product,
    lax.transpose_p: _transposed_concatenation,
    lax.sin_p: _wave,
    lax.cos_p: _wave,
    lax.eq_p: _compares,
    lax.tan_p: _wave,
}
