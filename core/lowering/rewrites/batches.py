"""Programs of small matrices, for each element of a batch, that become one kernel.

A group begins with a matrix product that has batch axes; further products of the same batch join
it, elementwise equations, reductions along other axes, and what moves elements without mixing those
of the batch. XLA would do the products one after another, each for the whole batch. The kernel is
one of ``core/kernels/steps/batch_kernel.py``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.open_numbers import OpenNumber, Place, is_near_one, number_in
from tracebridge.core.ir.traverse import distinct_applications, primitives_of
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.equations import REDUCTIONS, exponent_of, is_handled
from tracebridge.core.kernels.functions import is_easy_power
from tracebridge.core.kernels.machine import is_there
from tracebridge.core.kernels.numbers import with_places
from tracebridge.core.kernels.steps.arrays import Arrays, Cut, cut_shape
from tracebridge.core.kernels.steps.axes import pairs_of
from tracebridge.core.kernels.steps.batch_kernel import batch_kernel, batch_kernel_p
from tracebridge.core.kernels.steps.contractions import is_written_product, is_written_reduction
from tracebridge.core.kernels.steps.late_quotients import with_late_quotients
from tracebridge.core.kernels.steps.moves import MOVES, only_adds
from tracebridge.core.kernels.steps.parts import cut_params, rows_of
from tracebridge.core.kernels.steps.views import without_ones
from tracebridge.core.lowering.rewrites.batch_limits import (
    BY_ROWS,
    EACH,
    Limits,
    are_small,
    batch_axes,
    batch_of,
    batch_of_operand,
    is_small_product,
    is_static,
    limits_of,
    pays,
    sums,
)
from tracebridge.core.lowering.rewrites.flat import computed_by, flat, with_shifts
from tracebridge.core.lowering.rewrites.groups import Groups, Readers
from tracebridge.core.lowering.rewrites.inlined import inlined
from tracebridge.core.lowering.rewrites.producers import GIVEN
from tracebridge.core.lowering.rewrites.slices import part_of_array
from tracebridge.core.lowering.rewrites.with_kernels import Kernel, WithKernels
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.kernels.numbers import Numbers

    _Cuts = Sequence[tuple[int, ...] | None]

_MOST_SCRATCH = 1 << 24  # bytes, of each thread
_MOST_LINES = 8192  # of the text
_MOST_EQUATIONS = 128
_MOST_ARRAYS = 24
_RESHAPES = frozenset({lax.reshape_p, lax.squeeze_p})
_MOVED = frozenset({lax.broadcast_in_dim_p, lax.transpose_p, *_RESHAPES})
_BY_NUMBERS = frozenset({lax.pow_p, lax.pad_p})
_DTYPES = frozenset({np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.bool_)})

# What equations are in a group for themselves, whatever program they are in.
_CUTS: BoundedCache[tuple[tuple[int, ...] | None]] = BoundedCache("equations in batches", 4096)
_OF_OPERANDS: BoundedCache[Sequence[Cut]] = BoundedCache("operands of batches", 4096)


def with_batch_kernels(jaxpr: Jaxpr) -> Jaxpr | None:
    """``jaxpr`` with kernels for batches of small matrices; None if there are none."""
    if not _has_products(jaxpr) or not is_there():
        return None
    batches, kernels = _kernels(flat(jaxpr, _meaning))
    return WithKernels(batches, kernels).program() if kernels else None


def _kernels(program: Jaxpr) -> tuple[_Batches, list[Kernel]]:
    batches = _Batches(program, BY_ROWS)
    kernels = batches.kernels()
    if batches.has_too_large:
        batches = _Batches(program, EACH)
        kernels = batches.kernels()
    return batches, kernels


def kernels_of(jaxpr: Jaxpr) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Of each kernel of ``jaxpr`` its equations, and the variables that it gives.

    Calls, and what other rewrites make of the program, are not considered.
    """
    if not _has_products(jaxpr) or not is_there():
        return []
    return [(kernel.members, kernel.results) for kernel in _kernels(jaxpr)[1]]


def _has_products(jaxpr: Jaxpr) -> bool:
    """Whether a product could begin a group, in called functions too."""
    there = primitives_of(jaxpr)
    calls = any([p.computes is not None for p in there])
    if not calls and lax.dot_general_p not in there:
        return False
    for app in distinct_applications(jaxpr):
        called = computed_by(app) if calls else None
        if called is not None:
            if _has_products(called):
                return True
        elif app.primitive is lax.dot_general_p and batch_of(app) is not None and sums(app):
            return True
    return False


def _meaning(app: Application) -> Jaxpr | None:
    """What a call computes, and a sum of shifted exponentials with the largest one as the shift."""
    return inlined(app) or with_shifts(app)


def _moves_ones(app: Application) -> bool:
    """Whether a reshape makes or takes away axes of one element only."""
    return without_ones(app.avals[0].shape) == without_ones(app.out.shape)


def _cut(app: Application, key: tuple[int, ...], cuts: _Cuts) -> tuple[int, ...] | None:
    """The axes of the batch in the result, of those in the operands that are members."""
    found: tuple[int | None, ...] | None = None
    if app.primitive is lax.dot_general_p:
        found = batch_axes(app)
        if len(found) != len(key):
            return None
    for axes, given in zip(pairs_of(app), cuts, strict=True):
        if given is not None:
            cut = tuple([axes[i] for i in given])
            if None in cut or found not in (None, cut):
                return None
            found = cut
    return None if found is None else tuple([i for i in found if i is not None])


def _cuts_of_operands(app: Application, out: tuple[int, ...]) -> Sequence[Cut]:
    return [tuple([axes.index(j) if j in axes else None for j in out]) for axes in pairs_of(app)]


@final
class _Batches(Groups):
    """Groups by the sizes of their batch."""

    begins_with = lax.dot_general_p

    def __init__(self, jaxpr: Jaxpr, limits: Limits) -> None:
        self.limits, self.has_too_large = limits, False
        self._limits: dict[int, Limits] = {}
        """By elements of a batch."""
        self.cuts: dict[int, tuple[int, ...]] = {}
        """Of results of members: their axes of the batch."""
        self._begins: dict[Application, tuple[int, ...] | None] = {}
        self._sizes: dict[tuple[int, ...], tuple[int, ...]] = {}
        """Of batches, equal ones as one object."""
        self._alike: dict[object, tuple[int, ...] | None] = {}
        """Those of equations like this one that read such members; None: it cannot be one."""
        self._of_operands: dict[tuple[Application, tuple[int, ...]], Sequence[Cut]] = {}
        self._paying: dict[tuple[tuple[Application, ...], tuple[int, ...]], bool] = {}
        """Whether members are worth a kernel."""
        self._before: dict[tuple[Application, Cut], Cut | None] = {}
        """Of equations that move elements, by the axes of the batch in the result."""
        self.planned: dict[object, _Planned] = {}
        """By what kernels compute: layers of a network are alike."""
        super().__init__(jaxpr)

    def kind_of(self, app: Application) -> bool:
        """Whether an equation can join a group."""
        return not (app.multiple or app.effects or app.out.vma or app.primitive.has_rules_of_users)

    def key_for(self, app: Application, args: Sequence[int]) -> tuple[int, ...] | None:
        """The sizes of the batch."""
        is_product, within = app.primitive is self.begins_with, self.within
        for i, a in enumerate(args):
            group = within[a]
            if group is not None and (not is_product or self.cuts[a] == batch_of_operand(app, i)):
                return self.keys[group]
        return self._begun_by(app) if is_product else None

    def _begun_by(self, app: Application) -> tuple[int, ...] | None:
        """The sizes of a batch that a product begins a group of."""
        if app not in self._begins:
            sizes = batch_of(app, self.limits)
            self._begins[app] = None if sizes is None else self._sizes.setdefault(sizes, sizes)
        return self._begins[app]

    def limits_of(self, n: int) -> Limits:
        """The limits for a batch of so many elements."""
        if n not in self._limits:
            self._limits[n] = limits_of(n, self.limits)
        return self._limits[n]

    def joins(self, k: int, key: tuple[int, ...], group: int) -> bool:
        """Whether no element of the batch of this equation needs another one."""
        app, args = self.jaxpr.equations[k]
        cuts = tuple([self.cuts[a] if self.within[a] == group else None for a in args])
        # Numbers of the program decide about powers and pads.
        if app.primitive in _BY_NUMBERS:
            cut = self._cut_of(app, args, key, cuts)
        else:
            place = app, key, cuts
            if place not in self._alike:
                known = *place, self.limits_of(math.prod(key))
                found = _CUTS.get_or_make(known, lambda: (self._cut_of(app, args, key, cuts),))
                self._alike[place] = found[0]
            cut = self._alike[place]
        if cut is None:
            return False
        self.cuts[self.first[k]] = cut
        return True

    def _cut_of(
        self, app: Application, args: Sequence[int], key: tuple[int, ...], cuts: _Cuts
    ) -> tuple[int, ...] | None:
        """The axes of the batch in the result, if the equation can be a member."""
        avals, n = (*app.avals, app.out), math.prod(key)
        if any([a.dtype not in _DTYPES for a in avals]) or not is_static(avals):
            return None
        if not are_small(avals, n, self.limits_of(n)) or not self._can_be_written(app, args, n):
            return None
        cut = _cut(app, key, cuts)
        return cut if cut is not None and tuple([app.out.shape[i] for i in cut]) == key else None

    def _can_be_written(self, app: Application, args: Sequence[int], n: int) -> bool:
        """Whether steps may have such an equation."""
        primitive = app.primitive
        if primitive is lax.dot_general_p:
            return is_written_product(app) and is_small_product(app, n, self.limits_of(n))
        if primitive in REDUCTIONS:
            return is_written_reduction(app)
        if primitive is lax.pad_p:
            return self.is_number(args[1]) and only_adds(app)
        if primitive in MOVES:
            return True
        if primitive is lax.pow_p:
            y = exponent_of(self.jaxpr, args[1])
            return y is not None and is_easy_power(y)
        return is_handled(app)

    def cuts_of_operands(self, app: Application, out: tuple[int, ...]) -> Sequence[Cut]:
        """The axes of the batch in the operands of an equation, of those in its result."""
        found = self._of_operands.get((app, out))
        if found is None:
            found = _OF_OPERANDS.get_or_make((app, out), lambda: _cuts_of_operands(app, out))
            self._of_operands[app, out] = found
        return found

    def cut_before(self, app: Application, out: Cut) -> Cut | None:
        """The axes of the batch in what an equation moves; None if it stays outside."""
        if (app, out) not in self._before:
            found: Cut | None = None
            # Where axes are taken apart or joined, those of rows might be.
            if app.primitive not in _RESHAPES or _moves_ones(app):
                (axes,) = pairs_of(app)
                cut = [None if j is None or j not in axes else axes.index(j) for j in out]
                found = tuple(cut)
            self._before[app, out] = found
        return self._before[app, out]

    def kernels(self) -> list[Kernel]:
        """The groups that have kernels and are faster with them."""
        found = [m for m in self.components() if self._pays(m)]
        readers = self.readers([self.first[k] for some in found for k in some])
        kernels = [_BatchKernel(self, members, readers) for members in found]
        return [kernel for kernel in kernels if kernel.is_written]

    def shares(self, variable: int, group: int) -> bool:
        """Arrays are read once."""
        del group
        return self.avals[variable].ndim > 0

    def _pays(self, members: Sequence[int]) -> bool:
        """Whether members are few, and worth a kernel."""
        if len(members) > _MOST_EQUATIONS:
            return False
        equations = self.jaxpr.equations
        apps = tuple([equations[k][0] for k in members])
        key = apps, self.keys[self.group_of[members[0]]]
        if key not in self._paying:
            self._paying[key] = pays(*key)
        return self._paying[key]


_Operand = tuple[int, Cut]
"""A variable and its axes of the batch; equations may read one variable in several ways."""


class _Planned(NamedTuple):
    """The program of a kernel, and in which order it takes what is given."""

    program: Jaxpr
    arrays: Arrays
    order: Sequence[int]
    n_consts: int
    is_written: bool


def _n_consts(arrays: Arrays) -> int:
    """How many operands are the same for all elements of the batch."""
    return len([cut for cut in arrays.ins if all([i is None for i in cut])])


@final
class _BatchKernel(Kernel):
    def __init__(self, groups: _Batches, members: Sequence[int], readers: Readers) -> None:
        super().__init__(groups, members, readers, frozenset())
        self.batches = groups
        self.sizes: tuple[int, ...] = self.key
        self.places_of: dict[_Operand, int] = {}
        """Of what others make: as members read it, and as it is before it is moved within."""
        numbers: dict[float | OpenNumber, int] = {}
        of_members = self._key_of_members(numbers)
        self.numbers: Numbers = tuple(numbers)
        self.moved: dict[_Operand, tuple[int, _Operand]] = {}
        """What is broadcast or transposed within -> the equation outside, its operand."""
        read = list(self.places_of)
        for operand in read:
            self._look_through(operand)
        needed = dict.fromkeys([self._source(r) for r in read])
        # What is the same for all elements of the batch comes first.
        self.given = sorted(needed, key=lambda r: r[1].count(None) < len(r[1]))
        parts = [part_of_array(groups, v) for v, _ in self.given]
        self.places = tuple([part.place for part in parts]) if any([p.place for p in parts]) else ()
        key = of_members, self._key_of_operands(), self.places
        planned = groups.planned.get(key)
        if planned is None:
            planned = groups.planned[key] = self._planned()
        self.program, self.arrays, order, self.n_consts, self.is_written = planned
        self.operands = [parts[i].array for i in order]

    def _key_of_members(self, numbers: dict[float | OpenNumber, int]) -> object:
        """What members do, whatever variables are called; numbers in their places."""
        groups, places = self.batches, self.places_of
        equations, first, cuts, is_number = (
            groups.jaxpr.equations, groups.first, groups.cuts, groups.numbers,
        )  # fmt: skip
        own = {first[k]: -1 - i for i, k in enumerate(self.members)}
        found: list[object] = []
        for k in self.members:
            app, args = equations[k]
            out = cuts[first[k]]
            found.append(app)
            found.append(out)
            for i, a in enumerate(args):
                if a in own:
                    found.append(own[a])
                elif a in is_number:
                    found.append(self._number(a, numbers))
                else:
                    operand = a, groups.cuts_of_operands(app, out)[i]
                    found.append(places.setdefault(operand, len(places)))
        return self.sizes, tuple(found), tuple([own[v] for v in self.results])

    def _key_of_operands(self) -> object:
        """What is moved within, and all types."""
        avals, places, equations = self.batches.avals, self.places_of, self.batches.jaxpr.equations
        moved = [
            (places[operand], equations[k][0], places[source])
            for operand, (k, source) in self.moved.items()
        ]
        return tuple(moved), tuple([(avals[v], cut) for v, cut in places])

    def _look_through(self, operand: _Operand) -> None:
        """Broadcast or transpose within the kernel, if an operand is made so of another one."""
        groups = self.batches
        variable, cut = operand
        k = groups.made_by[variable]
        if operand in self.moved or k == GIVEN or k in groups.group_of:
            return
        app, args = groups.jaxpr.equations[k]
        if app.primitive not in _MOVED or groups.is_number(args[0]):
            return
        if groups.made_by[args[0]] in groups.group_of:
            return
        cut_before = groups.cut_before(app, cut)
        if cut_before is None:
            return
        source = args[0], cut_before
        self.places_of.setdefault(source, len(self.places_of))
        self.moved[operand] = k, source
        self._look_through(source)

    def _source(self, operand: _Operand) -> _Operand:
        """What is read from memory."""
        while operand in self.moved:
            _, operand = self.moved[operand]
        return operand

    def _number(self, variable: int, places: dict[float | OpenNumber, int]) -> object:
        """The key of a number that stands in the program.

        That of an open number is its place, as `with_places` finds it.
        """
        jaxpr = self.batches.jaxpr
        const = jaxpr.consts[variable - jaxpr.n_in]
        number = number_in(const)
        if number is not None:
            return const.aval, Place(places.setdefault(number, len(places)), is_near_one(number))
        assert isinstance(const, Literal)  # as `is_number` says
        return const.key()

    def _planned(self) -> _Planned:
        """The program of one element of the batch, or of some of its rows."""
        arrays = self._arrays()
        program = with_places(with_late_quotients(self._program())).program
        # Do some rows of an element of the batch at a time, if all of them fill the caches.
        found = rows_of(program, arrays)
        if found is not None:
            order, part, cut = found
            n_consts = _n_consts(cut)
            if batch_kernel(part, n_consts, cut) is not None:
                return _Planned(part, cut, order, n_consts, self._is_written(part, n_consts, cut))
        n_consts, order = _n_consts(arrays), list(range(len(self.given)))
        is_written = self._is_written(program, n_consts, arrays)
        return _Planned(program, arrays, order, n_consts, is_written)

    def _arrays(self) -> Arrays:
        groups = self.batches
        ins = [groups.avals[v] for v, _ in self.given]
        outs = [groups.avals[v] for v in self.results]
        cuts = tuple([cut for _, cut in self.given]), tuple([groups.cuts[v] for v in self.results])
        return Arrays(self.sizes, tuple(ins), tuple(outs), *cuts, places=self.places)

    def _program(self) -> Jaxpr:
        """The equations for one element of the batch, whose axes have the size 1."""
        groups, graph = self.batches, Graph()
        jaxpr = groups.jaxpr
        inputs = graph.inputs([self._part(r) for r in self.given])
        numbers: dict[_Operand, int] = dict(zip(self.given, inputs, strict=True))
        own: dict[int, int] = {}

        def read(operand: _Operand) -> int:
            if operand not in numbers:
                k, source = self.moved[operand]
                app, shape = jaxpr.equations[k][0], self._part(operand).shape
                numbers[operand] = graph.add_bound(
                    app.primitive, [read(source)], cut_params(app, shape)
                )
            return numbers[operand]

        def argument(a: int, cut: Cut) -> int:
            if a in groups.numbers:
                return graph.constant(jaxpr.consts[a - jaxpr.n_in])
            return own[a] if a in own else read((a, cut))

        for k in self.members:
            app, args = jaxpr.equations[k]
            v = groups.first[k]
            cuts = groups.cuts_of_operands(app, groups.cuts[v])
            given = [argument(a, cut) for a, cut in zip(args, cuts, strict=True)]
            params = cut_params(app, self._part((v, groups.cuts[v])).shape)
            own[v] = graph.add_bound(app.primitive, given, params)
        return graph.program(inputs, [own[v] for v in self.results], NO_DEBUG_INFO)

    def _part(self, operand: _Operand) -> ShapedArray:
        variable, cut = operand
        aval = self.batches.avals[variable]
        return aval.update(shape=cut_shape(aval.shape, cut, self.sizes))

    def _is_written(self, program: Jaxpr, n_consts: int, arrays: Arrays) -> bool:
        """Whether there is a kernel, and LLVM compiles it in about the time that XLA would take."""
        if not arrays.outs or len(arrays.ins) + len(arrays.outs) > _MOST_ARRAYS:
            return False
        largest = max([a.size for a in program.variable_avals()])
        if largest > self.batches.limits_of(math.prod(self.sizes)).of_part:
            self.batches.has_too_large = True
            return False
        kernel = batch_kernel(program, n_consts, arrays)
        if kernel is None or kernel.scratch > _MOST_SCRATCH:
            return False
        return kernel.lines <= _MOST_LINES

    def add_to(self, program: WithKernels) -> Sequence[int]:
        """Append the kernel."""
        params: dict[str, Any] = {"program": self.program, "arrays": self.arrays}
        params.update(num_consts=self.n_consts, numbers=self.numbers)
        first = program.add_bound(batch_kernel_p, self.operands, params)
        return range(first, first + len(self.results))
