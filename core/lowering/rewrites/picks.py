"""Elements picked from what is computed elementwise: computed of the elements that are picked.

``log_softmax(x)[row, label]`` needs one element of each row of ``x - max``. What sums its
exponentials up reads that difference too, so XLA writes it for both; here it is a part of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.traverse import distinct_applications
from tracebridge.core.lax.indexing.gather import default_fill
from tracebridge.core.lowering.rewrites.emission import Emission
from tracebridge.core.lowering.rewrites.flat import computed_by, flat
from tracebridge.core.lowering.rewrites.producers import makers, reads_of, variable_avals
from tracebridge.core.lowering.rewrites.spliced import Instead, spliced
from tracebridge.core.util.caching import BoundedCache, Hashed

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.lowering.rewrites.factors import Producers

_MOST_VISITS = 32  # equations that are looked at for one pick
_MOST_ARRAYS = 4  # arrays that are picked from instead of one
_LEAST_PICKED_FROM = 1 << 15
_BOOL = np.dtype(np.bool_)
_LEAST_RATIO = 8  # of elements that are there to those that are picked

_EMITTED: BoundedCache[Jaxpr] = BoundedCache("picks by chain", 64)

Make = Callable[[Emission], int]


def with_picks(jaxpr: Jaxpr) -> Jaxpr | None:
    """The program after the rewrites of picks, if there are any.

    A pick pays where others read a part of the chain too, so that XLA would write that.
    """
    apps = [app for app in distinct_applications(jaxpr) if app.primitive is lax.gather_p]
    if not any([_may_be_pick(app) for app in apps]):
        return None
    program = flat(jaxpr, computed_by)
    apps = [app for app in distinct_applications(program) if app.primitive is lax.gather_p]
    picking = {app for app in apps if _may_be_pick(app)}
    made_by, reads, found = makers(program), reads_of(program), dict[int, Instead]()
    for k, (app, args) in enumerate(program.equations):
        if app in picking:
            pick = Pick(app, args, made_by)
            if pick.made is not None and any([reads[v] > 1 for v in pick.shared]):
                found[k] = pick.instead(variable_avals(program))
    return spliced(program, found) if found else None


def _may_be_pick(app: Application) -> bool:
    """Whether an equation picks few elements of many."""
    x, indices = app.avals
    sizes = x.size, indices.size, app.out.size
    if not all([type(n) is int and n > 0 for n in sizes]):
        return False
    return x.size >= _LEAST_PICKED_FROM and x.size >= _LEAST_RATIO * app.out.size


@final
class Pick:
    """A gather of a chain of elementwise equations, as the chain of what is picked.

    ``made``: how the elements are made of the values ``leaves``, or ``None``. ``shared``: the
    values of the chain, which others may read. Positions that leave the array are clamped within
    the chain, and what they picked is replaced at its end.
    """

    __slots__ = (
        "_app", "_arrays", "_known", "_made_by", "_visits", "leaves", "made", "shared", "walk",
    )  # fmt: skip

    def __init__(self, app: Application, args: Sequence[int], made_by: Producers) -> None:
        self._app, self._made_by = app, made_by
        self._known: dict[int, Make] = {}
        self._arrays = self._visits = 0
        self.leaves = [args[1]]
        self.walk: list[object] = [app]
        """What ``write`` depends on: the chain as it is walked through."""
        self.shared: list[int] = []
        made = self._of(args[0], app.avals[0])
        self.made = made if self.shared and self._arrays <= _MOST_ARRAYS else None

    def write(self, emission: Emission) -> int:
        """Add the picked elements to a graph."""
        assert self.made is not None  # nothing is won: nobody asks
        out, params = self.made(emission), self._app.params
        if params["mode"] is not lax.GatherScatterMode.FILL_OR_DROP:
            return out
        # Which positions are out of bounds says a pick with this mode, whatever their dtype.
        nowhere = emission.full(self._app.avals[0].update(dtype=_BOOL, weak_type=False), False)
        outside = emission.apply(
            lax.gather_p, nowhere, emission.leaves[0], **{**params, "fill_value": True}
        )
        return emission.apply(lax.select_n_p, outside, out, self._fill(emission, out))

    def instead(self, avals: Sequence[ShapedArray]) -> Instead:
        """The program of it; ``avals``: those of all variables."""
        given = tuple([avals[v] for v in self.leaves])
        key = Hashed((tuple(self.walk), given))
        return Instead(_EMITTED.get_or_make(key, lambda: self._program(given)), self.leaves)

    def _program(self, given: Sequence[ShapedArray]) -> Jaxpr:
        graph = Graph()
        inputs = graph.inputs(given)
        return graph.program(inputs, [self.write(Emission(graph, inputs))], NO_DEBUG_INFO)

    def _fill(self, emission: Emission, out: int) -> int:
        aval, given = emission.graph.avals[out], self._app.params["fill_value"]
        fill = default_fill(aval.dtype) if given is None else given
        return emission.full(aval.update(weak_type=False), fill)

    def _leaf(self, number: int) -> int:
        if number not in self.leaves:
            self.leaves.append(number)
        place = self.leaves.index(number)
        self.walk.append(("leaf", place))
        return place

    def _of(self, number: int, aval: ShapedArray) -> Make:
        """How the picked elements of a value are made."""
        known = self._known.get(number)
        if known is None:
            self._visits += 1
            made = self._made_by.get(number) if self._visits <= _MOST_VISITS else None
            known = None if made is None else self._of_equation(number, *made)
            if known is None:
                self._arrays += bool(aval.ndim)
                known = self._picked(self._leaf(number), aval)
            self._known[number] = known
        else:
            self.walk.append(list(self._known).index(number))
        return known

    def _of_equation(self, number: int, app: Application, args: Sequence[int]) -> Make | None:
        primitive, params = app.primitive, app.params
        if primitive.is_elementwise and not app.effects:
            self.shared.append(number)
            self.walk.append(app)
            parts = [self._of(a, aval) for a, aval in zip(args, app.avals, strict=True)]
            return lambda e: e.apply(primitive, *[make(e) for make in parts], **params)
        if primitive is lax.broadcast_in_dim_p:
            self.walk.append(app)
            return self._repeated(app, self._leaf(args[0]))
        return None

    def _picked(self, place: int, aval: ShapedArray) -> Make:
        """Elements of an array; a scalar is itself."""
        if not aval.ndim:
            return lambda e: e.leaves[place]
        params = self._params()
        return lambda e: e.apply(lax.gather_p, e.leaves[place], e.leaves[0], **params)

    def _params(self) -> Params:
        """Of a gather that clamps positions."""
        params = {**self._app.params, "fill_value": None}
        if params["mode"] is lax.GatherScatterMode.FILL_OR_DROP:
            params["mode"] = lax.GatherScatterMode.CLIP
        return params

    def _repeated(self, app: Application, place: int) -> Make | None:
        """Elements of a broadcast, picked from its operand by what remains of the index vectors."""
        (aval,), dims = app.avals, app.params["broadcast_dimensions"]
        if not aval.ndim:
            out = self._app.out
            return lambda e: e.broadcast(e.leaves[place], out.shape, ())
        # Axes that the operand has, and that are not repeated.
        kept = [d for i, d in enumerate(dims) if aval.shape[i] == app.out.shape[d]]
        shape = tuple([app.out.shape[d] for d in kept])
        narrow = _Narrow(self._app, kept)
        if narrow.components:
            self._arrays += 1
        elif narrow.is_window:
            return None
        params = {**self._params(), **narrow.params}
        places, out_places = narrow.places, narrow.out_places

        def make(e: Emission) -> int:
            x = e.reshape(e.leaves[place], shape)
            if narrow.components:
                indices = narrow.indices(e, e.leaves[0])
                return narrow.placed(e, e.apply(lax.gather_p, x, indices, **params), out_places)
            return narrow.placed(e, x, places)

        return make


@final
class _Narrow:
    """A gather without some of the axes of its operand, along which all elements are the same.

    ``components``: of the index vectors that are left; ``is_window``: whether windows are;
    ``places``: the axes of the result that those of the operand become, if none of both is;
    ``out_places``: the axes of the result that this gather gives.
    """

    __slots__ = (
        "_n_components",
        "_out",
        "components",
        "is_window",
        "out_places",
        "params",
        "places",
    )

    def __init__(self, app: Application, kept: Sequence[int]) -> None:
        self._out = app.out
        numbers, sizes = app.params["dimension_numbers"], app.params["slice_sizes"]
        x, indices = app.avals
        new = {d: i for i, d in enumerate(kept)}
        batching = list(
            zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
        )
        dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        windows = [d for d in range(x.ndim) if d not in dropped]
        offsets = dict(zip(windows, numbers.offset_dims, strict=True))
        gone = [offsets[d] for d in windows if d not in new]
        batch_axes = [i for i in range(self._out.ndim) if i not in numbers.offset_dims]
        index_map = numbers.start_index_map
        self.out_places = [i for i in range(self._out.ndim) if i not in gone]
        self.components = [i for i, d in enumerate(index_map) if d in new]
        self.is_window = any([d in new for d in (*windows, *numbers.collapsed_slice_dims)])
        of_batch = dict(batching)
        self.places = [] if self.is_window else [batch_axes[of_batch[d]] for d in kept]
        self.params = {
            "dimension_numbers": lax.GatherDimensionNumbers(
                tuple([self.out_places.index(offsets[d]) for d in windows if d in new]),
                tuple([new[d] for d in numbers.collapsed_slice_dims if d in new]),
                tuple([new[d] for d in index_map if d in new]),
                tuple([new[d] for d, _ in batching if d in new]),
                tuple([b for d, b in batching if d in new]),
            ),
            "slice_sizes": tuple([sizes[d] for d in kept]),
            "unique_indices": False,
            "indices_are_sorted": False,
        }
        self._n_components = indices.shape[-1]

    def indices(self, e: Emission, indices: int) -> int:
        """The index vectors with the components that are left."""
        if len(self.components) == self._n_components:
            return indices
        *rows, _ = e.shape(indices)
        zeros = [0] * len(rows)
        parts = [e.slice(indices, (*zeros, i), (*rows, i + 1)) for i in self.components]
        return e.apply(lax.concatenate_p, *parts, dimension=len(rows))

    def placed(self, e: Emission, x: int, places: Sequence[int]) -> int:
        """A value whose axes are these of the result, repeated along its other axes."""
        order = tuple(sorted(range(len(places)), key=lambda i: places[i]))
        if order != tuple(range(len(places))):
            x = e.apply(lax.transpose_p, x, permutation=order)
        return e.broadcast(x, self._out.shape, tuple(sorted(places)))
