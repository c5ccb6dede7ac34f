"""Which axes of the values of a program belong together, and which of them can be cut.

Axes are one class where an equation pairs their elements. A class in which nothing is summed up,
taken apart or joined can be cut in all arrays that have it: the program does the same for each
part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.ir.traverse import distinct_applications
from tracebridge.core.kernels.equations import REDUCTIONS
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr

Pairs = Sequence[Sequence[int | None]]
"""Of each operand: to which axis of the result each axis belongs; None: it cannot be cut."""


@final
class Axes:
    """The axes of all values of a Jaxpr, which has no calls.

    ``same``: pairs of variables whose axes belong together besides. ``pairs_of``: which axes an
    equation pairs. ``totals``: results of products that may be sums over parts of the axes that
    these sum along.
    """

    def __init__(
        self,
        jaxpr: Jaxpr,
        same: Iterable[tuple[int, int]] = (),
        pairs_of: Callable[[Application], Pairs] | None = None,
        totals: Collection[int] = (),
    ) -> None:
        self.pairs_of = pairs_of
        self.avals = jaxpr.variable_avals()
        self._parent: list[int] = []
        self._ids: list[tuple[int, ...]] = []
        """Of each variable the numbers of its axes: axes that belong together share one, mostly."""
        self._whole: list[int] = []
        self._totals = frozenset(totals)
        self._summed: dict[int, int] = {}
        """Of totals: the axis that is summed along, in one of the factors."""
        v = jaxpr.n_in + len(jaxpr.consts)
        for aval in self.avals[:v]:
            self._ids.append(tuple([self._new() for _ in range(aval.ndim)]))
        apps = distinct_applications(jaxpr)
        plain = {app for app in apps if app.primitive.is_elementwise}
        for app, args in jaxpr.equations:
            if app in plain:
                self._ids.append(self._of_elements(app, args))
                v += 1
                continue
            for _ in app.outs:
                self._ids.append(self._related(app, args, v))
                v += 1
        for a, b in same:
            self._join(self._ids[a], self._ids[b])

    def classes(self) -> list[dict[int, int]]:
        """Those that can be cut, each as variables and the axes of theirs that are in it."""
        roots = [self._root(n) for n in range(len(self._parent))]
        whole = {roots[n] for n in self._whole}
        found: dict[int, dict[int, int]] = {}
        for v, ids in enumerate(self._ids):
            for i, n in enumerate(ids):
                root = roots[n]
                if v in found.setdefault(root, {}):
                    whole.add(root)  # an array has it twice
                found[root][v] = i
        sizes = {r: {self.avals[v].shape[i] for v, i in c.items()} for r, c in found.items()}
        return [c for r, c in found.items() if r not in whole and len(sizes[r]) == 1]

    def members(self, variable: int, axis: int) -> dict[int, int] | None:
        """The variables that have an axis, which may be of other sizes there, and which it is."""
        root, found = self._root(self._ids[variable][axis]), dict[int, int]()
        if root in {self._root(n) for n in self._whole}:
            return None
        places: dict[tuple[int, ...], list[int]] = {}
        for v, ids in enumerate(self._ids):
            if ids not in places:
                places[ids] = [i for i, n in enumerate(ids) if self._root(n) == root]
                if len(places[ids]) > 1:
                    return None  # an array has it twice
            if places[ids]:
                found[v] = places[ids][0]
        return found

    def totals_along(self, members: Mapping[int, int]) -> list[int]:
        """The results that are sums along the axes of a class."""
        v, i = next(iter(members.items()))
        root = self._root(self._ids[v][i])
        return [out for out, n in self._summed.items() if self._root(n) == root]

    def _new(self) -> int:
        self._parent.append(len(self._parent))
        return len(self._parent) - 1

    def _root(self, n: int) -> int:
        parent = self._parent
        while parent[n] != n:
            parent[n] = n = parent[parent[n]]
        return n

    def _join(self, some: Sequence[int], others: Sequence[int]) -> None:
        """Axes belong together, one by one."""
        if some != others:
            for a, b in zip(some, others, strict=True):
                self._parent[self._root(a)] = self._root(b)

    def _related(self, app: Application, args: Sequence[int], out: int) -> tuple[int, ...]:
        """The axes of a result that is no elementwise one."""
        is_product = app.primitive is lax.dot_general_p
        summed = self._join_summed(app, args, out) if is_product else None
        found: list[int | None] = [None] * self.avals[out].ndim
        for k, (a, axes) in enumerate(zip(args, (self.pairs_of or pairs_of)(app), strict=True)):
            for i, (n, j) in enumerate(zip(self._ids[a], axes, strict=True)):
                if j is not None:
                    there = found[j]
                    found[j] = n
                    if there is not None:
                        self._join([n], [there])
                elif summed is None or summed[k] != i:
                    self._whole.append(n)
        ids = tuple([self._new() if n is None else n for n in found])
        if app.primitive is not lax.broadcast_in_dim_p:  # which makes axes
            self._whole += [n for n, there in zip(ids, found, strict=True) if there is None]
        return ids

    def _of_elements(self, app: Application, args: Sequence[int]) -> tuple[int, ...]:
        """The axes of operands and results are the same ones; operands may be numbers."""
        arrays = [ids for a in args if (ids := self._ids[a])]
        for ids in arrays[1:]:
            self._join(ids, arrays[0])
        if arrays:
            return arrays[0]
        made = tuple([self._new() for _ in range(app.outs[0].ndim)])
        self._whole += made
        return made

    def _join_summed(self, app: Application, args: Sequence[int], out: int) -> list[int] | None:
        """The axes that are summed along, of each factor, as one class: one is longer than 1."""
        contracted, _ = app.params["dimension_numbers"]
        long = [k for k, i in enumerate(contracted[0]) if app.avals[0].shape[i] != 1]
        if out not in self._totals or len(long) != 1 or args[0] == args[1]:
            return None
        summed = [axes[long[0]] for axes in contracted]
        x, y = [self._ids[a][i] for a, i in zip(args, summed, strict=True)]
        self._join([x], [y])
        self._summed[out] = x
        return summed


_PAIRS: BoundedCache[Pairs] = BoundedCache("axes of equations", 4096)


def pairs_of(app: Application) -> Pairs:
    """To which axes of the results those of the operands belong."""
    return _PAIRS.get_or_make(app, lambda: _pairs_of(app))


def _pairs_of(app: Application) -> Pairs:
    if app.primitive.is_elementwise or app.primitive is lax.stop_gradient_p:
        return [range(a.ndim) for a in app.avals]
    rule = _RULES.get(app.primitive)
    if rule is None:
        return [[None] * a.ndim for a in app.avals]
    return rule(app)


def _broadcast(app: Application) -> Pairs:
    (aval,), shape = app.avals, app.out.shape
    axes = app.params["broadcast_dimensions"]
    return [[j if n == shape[j] else None for n, j in zip(aval.shape, axes, strict=True)]]


def _transpose(app: Application) -> Pairs:
    order = app.params["permutation"]
    return [[order.index(i) for i in range(len(order))]]


def _reduction(app: Application) -> Pairs:
    gone = app.params["axes"]
    kept = itertools.count()
    return [[None if i in gone else next(kept) for i in range(app.avals[0].ndim)]]


def _product(app: Application) -> Pairs:
    contracted, batch = app.params["dimension_numbers"]
    n = itertools.count(len(batch[0]))
    pairs = []
    for aval, summed, lead in zip(app.avals, contracted, batch, strict=True):
        axes: list[int | None] = []
        for i in range(aval.ndim):
            axes.append(lead.index(i) if i in lead else None if i in summed else next(n))
        pairs.append(axes)
    return pairs


def _reshape(app: Application) -> Pairs:
    """Axes of one size that the same number of elements comes after."""
    sizes = app.out.shape
    there = {place: i for i, place in enumerate(_places(sizes)) if sizes[i] != 1}
    return [[there.get(place) for place in _places(app.avals[0].shape)]]


def _places(shape: Sequence[int]) -> list[tuple[int, int]]:
    """Of each axis its size, and how many elements come after one of its own."""
    return [(n, math.prod(shape[i + 1 :])) for i, n in enumerate(shape)]


def _slice(app: Application) -> Pairs:
    """Axes of which it takes all elements."""
    kept = enumerate(zip(app.avals[0].shape, app.out.shape, strict=True))
    return [[i if n == taken else None for i, (n, taken) in kept]]


def _except(axis: int, app: Application) -> Pairs:
    return [[i if i != axis else None for i in range(a.ndim)] for a in app.avals]


def _pad(app: Application) -> Pairs:
    config = app.params["padding_config"]
    return [[None if any(edge) else i for i, edge in enumerate(config)], []]


_RULES: Mapping[Any, Callable[[Application], Pairs]] = {
    lax.broadcast_in_dim_p: _broadcast,
    lax.transpose_p: _transpose,
    lax.dot_general_p: _product,
    lax.reshape_p: _reshape,
    lax.squeeze_p: _reshape,
    lax.slice_p: _slice,
    lax.split_p: lambda app: _except(app.params["axis"], app),
    lax.concatenate_p: lambda app: _except(app.params["dimension"], app),
    lax.roll_p: lambda app: _except(app.params["dimension"], app),
    lax.pad_p: _pad,
    **dict.fromkeys(REDUCTIONS, _reduction),
}


_WITH_NEIGHBOURS = frozenset({lax.roll_p, lax.slice_p, lax.pad_p, lax.concatenate_p})


def pairs_with_neighbours(app: Application) -> Pairs:
    """As `pairs_of`, with elements of an axis that are moved, cut off or added."""
    if app.primitive not in _WITH_NEIGHBOURS:
        return pairs_of(app)
    return [range(a.ndim) for a in app.avals]
