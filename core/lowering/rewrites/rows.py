"""Equations over the rows of large arrays that become one kernel (``core/kernels/rows``).

A group is elementwise equations on arrays of one shape (the frame), broadcasts to it, reductions
of its rows, what is made of their results, and sums over other axes. XLA would make a pass over the
arrays for each reduction; a kernel reads them once.

Groups that compute costly functions of each element, or arrays that are then joined, are kernels
without reductions, too, where XLA would fuse nothing with them.

Parts of a group that share no value and no array are kernels of their own.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, final

from tracebridge.core import lax
from tracebridge.core.ir.traverse import distinct_applications, primitives_of
from tracebridge.core.kernels.equations import REDUCTIONS, exponent_of, is_handled
from tracebridge.core.kernels.functions import is_easy_power
from tracebridge.core.kernels.machine import is_there
from tracebridge.core.kernels.rows.program import RESHAPES, Target, Written
from tracebridge.core.kernels.rows.row_kernel import row_kernel_p
from tracebridge.core.lowering.rewrites.columns import with_columns
from tracebridge.core.lowering.rewrites.flat import flat
from tracebridge.core.lowering.rewrites.frames import Frames, has_frames, large_in, meaning
from tracebridge.core.lowering.rewrites.groups import Groups, Readers
from tracebridge.core.lowering.rewrites.in_frames import (
    BY_ROW,
    can_be_power,
    joins_by_shapes,
    known_answers,
    may_join,
)
from tracebridge.core.lowering.rewrites.joined import joined_in
from tracebridge.core.lowering.rewrites.parts import PARTS, part_of
from tracebridge.core.lowering.rewrites.producers import GIVEN, producers
from tracebridge.core.lowering.rewrites.row_programs import Rest, RowEquations
from tracebridge.core.lowering.rewrites.turned_sums import with_turned_sums
from tracebridge.core.lowering.rewrites.whole_programs import frame_of_ends, see_whole, whole_shape
from tracebridge.core.lowering.rewrites.with_kernels import Kernel, WithKernels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.kernels.numbers import WithPlaces
    from tracebridge.core.kernels.rows.frame import Frame, Shape
    from tracebridge.core.kernels.rows.program import Views
    from tracebridge.core.lowering.rewrites.joined import Join

_MOST_EQUATIONS = 128
_MOST_OF_FUNCTIONS = 3  # results of kernels that only compute functions
_MOST_ARRAYS = 24  # that a kernel reads and writes at the same time
_SMALL = 4  # an array of less than this share of the frame may be written before a kernel reads it

_COPIES = RESHAPES | {lax.broadcast_in_dim_p, lax.iota_p}


def with_row_kernels(jaxpr: Jaxpr, is_main: bool = False) -> Jaxpr | None:
    """``jaxpr`` with kernels over rows; None if there are none.

    Frames that want the same arrays come one after another: what the first one leaves.
    ``is_main``: it is called from outside, and may be kernels as a whole.
    """
    seen: Callable[[Jaxpr], Jaxpr] = see_whole if is_main else lambda program: program
    seen(jaxpr)
    if not has_frames(jaxpr) or not is_there():
        return None
    program = seen(with_turned_sums(with_columns(flat(jaxpr, meaning))))
    made, is_whole = None, whole_shape(program) is not None
    for frames in (Frames(), Frames(doubles=True)):
        while found := frames.next_ones(program):
            new = _Rows(program, found).result() if _may_pay(program, found) else None
            if new is not None:
                made = program = seen(new)
    if made is not None and is_whole:
        ends = frame_of_ends(made)
        ended = _Rows(made, ends, ends=True).result() if ends else None
        made = made if ended is None else ended
    return made


def _may_pay(jaxpr: Jaxpr, frames: Mapping[Shape, Frame]) -> bool:
    """Whether a group of these frames may be worth a kernel, as ``_Rows`` says."""
    doubles = _are_of_doubles(frames)
    large = large_in(jaxpr, doubles)
    if whole_shape(jaxpr) is not None:
        return True
    if any([app.out.shape in frames for app in large.costly]):
        return True
    for app in distinct_applications(jaxpr):
        if app.primitive in REDUCTIONS:
            frame = frames.get(app.avals[0].shape)
            if frame is not None and joins_by_shapes(app, frame, False) == (True, False):
                return True
    return not doubles and bool(_joined(jaxpr))


def _are_of_doubles(frames: Mapping[Shape, Frame]) -> bool:
    return any([frame.doubles for frame in frames.values()])


def _joined(jaxpr: Jaxpr) -> set[int]:
    """Variables that are parts of large arrays, and results of what members of groups may be."""
    joining = set(large_in(jaxpr).joining)
    if not joining:
        return set()
    parts = {v for app, args in jaxpr.equations if app in joining for v in args}
    (made_by, _), equations = producers(jaxpr), jaxpr.equations
    return {v for v in parts if made_by[v] != GIVEN and may_join(equations[made_by[v]][0])}


@final
class _Rows(Groups):
    """Groups by their frame.

    ``ends``: they end sums that kernels have begun, and are worth it.
    """

    def __init__(self, jaxpr: Jaxpr, frames: dict[Shape, Frame], ends: bool = False) -> None:
        self.ends = ends
        self.frames = frames
        self._answers = {id(frame): known_answers(frame) for frame in frames.values()}
        """Of frames: whether equations can join one, and whether they sum up others."""
        self._own: set[Application] = set()
        """Equations of which the shapes tell the frame."""
        self._n_rows: dict[int, int] = {}
        """Of groups."""
        self.programs: dict[object, Jaxpr] | None = None
        """Those of several kernels, by what they compute: layers of a network are alike."""
        doubles = _are_of_doubles(frames)
        self._costly = set(large_in(jaxpr, doubles).costly)
        self.joined = set[int]() if doubles else _joined(jaxpr)
        super().__init__(jaxpr)
        if len(self.keys) > 1:
            self._move_to_readers()

    def _move_to_readers(self) -> None:
        """Put what reads no value, as positions, into the group of all its readers.

        It was put into the group that grew then: the others would read it from memory.
        """
        equations, made_by, group_of = self.jaxpr.equations, self.made_by, self.group_of
        numbers, outside = self.numbers, -1
        readers: dict[int, set[int]] = {}
        """By the variable that an equation makes."""
        for k in group_of:
            app, args = equations[k]
            if app.primitive in REDUCTIONS:
                continue  # sums over other axes are not read where they are made
            for a in args:
                if a not in numbers and a not in readers:
                    break
            else:
                readers[self.first[k]] = set()
        if not readers:
            return
        for v in self.jaxpr.outs:
            if v in readers:
                readers[v].add(outside)
        made = readers.keys()
        for k in reversed(range(made_by[next(iter(made))], len(equations))):
            args = equations[k][1]
            if k in group_of and self.first[k] in readers:
                group, *others = readers[self.first[k]] or [outside]
                if not others and group != outside and self.joins(k, self.keys[group], group):
                    self.put(k, group)
            elif made.isdisjoint(args):
                continue
            for a in args:
                if a in readers:
                    readers[a].add(group_of.get(k, outside))

    def kind_of(self, app: Application) -> Frame | bool:
        """The frame that an equation has by its shapes; True: its operands may tell."""
        if app.multiple or app.effects or app.out.vma or app.primitive.has_rules_of_users:
            return False
        for aval in (*app.avals, app.out):
            frame = self.frames.get(aval.shape)
            if frame is not None:
                return frame
        return True

    def key_for(self, app: Application, args: Sequence[int]) -> Frame | None:
        """The frame of numbers of its rows that an equation reads."""
        n, within, n_rows = -1, self.within, self._n_rows
        for a in args:
            group = within[a]
            if group is not None:
                n = math.prod(app.out.shape) if n == -1 else n
                if group not in n_rows:
                    n_rows[group] = self.keys[group].n_rows
                if n == n_rows[group]:
                    return self.keys[group]
        return None

    def shares(self, variable: int, group: int) -> bool:
        """Arrays of the frame are read once."""
        return self.avals[variable].shape in self.keys[group].shapes

    def always_joins(self, app: Application, key: Frame) -> bool | None:
        """Whether an equation of a frame is in its group, unless what it reads decides."""
        self._own.add(app)
        if app.primitive in BY_ROW or app.primitive is lax.pow_p:
            return None
        answer = self._answers[id(key)].get((app, False))
        can_join, is_sum = answer or joins_by_shapes(app, key, False)
        return None if is_sum else can_join

    def joins(self, k: int, key: Frame, group: int) -> bool:
        """Whether an equation can be in a group."""
        app, args = self.jaxpr.equations[k]
        primitive, within = app.primitive, self.within
        # Its shapes decide, and of some whether they read numbers of rows.
        by_row = False
        if app not in self._own:  # then no array of a frame is read
            for a in args:
                if within[a] == group:
                    by_row = True
        elif primitive in BY_ROW:
            a = args[0]
            by_row = within[a] == group and self.avals[a].shape not in key.shapes
        if primitive is lax.pow_p:  # its exponent decides, too
            y = exponent_of(self.jaxpr, args[1])
            return y is not None and is_easy_power(y) and can_be_power(app, key, by_row)
        answer = self._answers[id(key)].get((app, by_row))
        can_join, is_sum = answer or joins_by_shapes(app, key, by_row)
        if is_sum:
            self.sums.add(k)
        return can_join

    def _pays(self, members: Sequence[int]) -> bool:
        """Whether a kernel is worth it: it computes functions, joins, or saves passes."""
        if len(members) > _MOST_EQUATIONS:
            return False
        if self.is_whole(members) or self.is_costly(members) or self.saves_passes(members):
            return True
        joined = self.joined
        return bool(joined) and not joined.isdisjoint([self.first[k] for k in members])

    def is_whole(self, members: Sequence[int]) -> bool:
        """Whether members are a program that is called without XLA, if it is a kernel."""
        if self.ends:
            return True
        if whole_shape(self.jaxpr) is None:
            return False
        inside = set(members)
        return all([
            k in inside or not app.out.ndim for k, (app, _) in enumerate(self.jaxpr.equations)
        ])  # fmt: skip

    def is_costly(self, members: Sequence[int]) -> bool:
        """Whether members compute functions of each element of large arrays."""
        equations, costly = self.jaxpr.equations, self._costly
        return bool(costly) and not costly.isdisjoint([equations[k][0] for k in members])

    def saves_passes(self, members: Sequence[int]) -> bool:
        """Whether a row is read again after a reduction."""
        equations, made_by = self.jaxpr.equations, self.made_by
        reductions = [k for k in members if equations[k][0].primitive in REDUCTIONS]
        if not reductions or self.sums.issuperset(reductions):
            return False
        # XLA makes several sums over other axes in one pass.
        if len(reductions) > 1 and not self.key_of(members).is_across:
            return True
        inside = set(members)
        for k in members:
            app, args = equations[k]
            if app.primitive is lax.broadcast_in_dim_p and made_by[args[0]] in inside:
                return True
        return False

    def _reads_numbers(self, members: Sequence[int]) -> bool:
        """Whether members read numbers of rows that equations outside of groups make."""
        frame, made_by, equations = self.key_of(members), self.made_by, self.jaxpr.equations
        read = {made_by[a] for member in members for a in equations[member][1]}
        outside = [k for k in read if k >= 0 and k not in self.group_of]
        elementwise = [k for k in outside if equations[k][0].primitive.is_elementwise]
        return any([self._makes_numbers(k, frame) for k in elementwise])

    def _with_numbers(self, members: Sequence[int], readers: Readers) -> list[int]:
        """Members, and what computes numbers of rows for nobody but them.

        As the inverse of a deviation that the forward pass has kept: XLA would run one more kernel.
        """
        frame, group = self.key_of(members), self.group_of[members[0]]
        inside = set(members)
        # The last ones first: then it is known who of their readers is inside.
        equations, made_by, group_of = self.jaxpr.equations, self.made_by, self.group_of
        read = {made_by[a] for k in members for a in equations[k][1]}
        todo = [-k for k in read if k not in group_of]
        heapify(todo)
        while todo:
            k = -heappop(todo)
            if k < 0 or k in group_of or len(inside) >= _MOST_EQUATIONS:
                continue
            read_by = readers[self.first[k]]
            if not inside.issuperset(read_by) or not self._makes_numbers(k, frame):
                continue
            if all([self._has_row_each(reader, frame) for reader in read_by]):
                inside.add(k)
                self.put(k, group)
                for a in equations[k][1]:
                    heappush(todo, -made_by[a])
        return sorted(inside) if len(inside) > len(members) else list(members)

    def _makes_numbers(self, k: int, frame: Frame) -> bool:
        """Whether an equation computes one number for each row, or for all, from others."""
        app, _ = self.jaxpr.equations[k]
        if not app.primitive.is_elementwise or self.kind_of(app) is not True:
            return False
        shape = app.out.shape
        fits = all([not a.ndim or a.shape == shape for a in app.avals])
        is_power = app.primitive is lax.pow_p
        if not fits or is_power or not is_handled(app, frame.doubles):
            return False
        return not shape or frame.is_by_row(shape)

    def _has_row_each(self, k: int, frame: Frame) -> bool:
        """Whether a member that reads one number for each row has these along the rows.

        As many numbers may stand along another axis: a frame has as many rows as columns.
        """
        app, _ = self.jaxpr.equations[k]
        shape = app.out.shape
        if app.primitive is not lax.broadcast_in_dim_p or shape not in frame.shapes:
            return True
        if not app.avals[0].ndim:  # one for all
            return True
        axes = app.params["broadcast_dimensions"]
        return frame.steps(app.avals[0].shape, axes, shape) == frame.by_row

    def key_of(self, members: Sequence[int]) -> Frame:
        """The frame of members of a group."""
        return self.keys[self.group_of[members[0]]]

    def result(self) -> Jaxpr | None:
        """The program with its kernels, if it has any."""
        found = [members for members in self.components() if self._pays(members)]
        if not found:
            return None
        of_members = {self.first[k] for members in found for k in members}
        reads_numbers = any([self._reads_numbers(members) for members in found])
        readers = self.readers(range(len(self.avals)) if reads_numbers else of_members)
        if reads_numbers:
            found = [self._with_numbers(members, readers) for members in found]
        kernels = [_RowKernel(self, members, readers) for members in found]
        kernels = [kernel for kernel in kernels if kernel.pays]
        if len(kernels) > 1:
            self.programs = {}
        return WithKernels(self, kernels).program() if kernels else None


@final
class _RowKernel(Kernel):
    def __init__(self, groups: _Rows, members: Sequence[int], readers: Readers) -> None:
        super().__init__(groups, members, readers, _COPIES)
        self.rows, self.readers = groups, readers
        self.frame: Frame = self.key
        self.rests: dict[int, Rest] = {}
        """How sums over parts of rows are ended outside; known with the program."""
        self.given = list(self.operands)
        """What the program calls its operands; they may be parts of what the kernel reads."""
        self.views: Views = (None,) * len(self.given)
        primitives = primitives_of(groups.jaxpr)
        if not PARTS.isdisjoint(primitives):
            parts = [part_of(groups, self.frame, v) for v in self.given]
            self.operands = [p[0] if p else v for v, p in zip(self.given, parts, strict=True)]
            self.views = tuple([p[1] if p else None for p in parts])
        self.joins: list[Join] = []
        self.apart = self.results
        """Results that are arrays of their own."""
        if lax.concatenate_p in primitives:
            self.joins = joined_in(self, self.frame, readers)
        if self.joins:
            joined = {v for join in self.joins for v, _ in join.parts}
            self.apart = [v for v in self.results if v not in joined]
            self.gives = [*self.apart, *[join.variable for join in self.joins]]
            self.unread = self.unread.union(*[join.equations for join in self.joins])

    @property
    def pays(self) -> bool:
        """Whether there is anything to make, of few arrays, that XLA would not do as well."""
        n = len(self.results)
        if not n or len(self.operands) + n > _MOST_ARRAYS:
            return False
        if self.rows.ends or self.rows.saves_passes(self.members):
            return True
        # Its `erf`, one quotient of polynomials, takes half the time of ours: a group that only
        # computes functions is left to it, while one that saves passes over memory has `erf`, too.
        if any([self.rows.jaxpr.equations[k][0].primitive is lax.erf_p for k in self.members]):
            return False
        if self.rows.is_whole(self.members):
            return n <= _MOST_OF_FUNCTIONS
        computes = self.rows.is_costly(self.members)
        return (computes or bool(self.joins)) and self._is_alone()

    def _is_alone(self) -> bool:
        """Whether few arrays are read and written that XLA would not.

        What it computes within what reads it, it never writes.
        """
        rows = self.rows
        equations, inside = rows.jaxpr.equations, {*self.members, *self.copied}
        large = [v for v in self.given if _SMALL * rows.avals[v].size >= self.frame.n_elements]
        around = [rows.made_by[v] for v in large]
        around += [k for v in self.results for k in self.readers[v] if k not in inside]
        around += self._readers_of_joins()
        fused = [k for k in around if k >= 0 and equations[k][0].primitive.is_elementwise]
        return len(self.gives) <= _MOST_OF_FUNCTIONS and not fused

    def _readers_of_joins(self) -> list[int]:
        joined = {join.variable for join in self.joins}
        equations = self.rows.jaxpr.equations if joined else ()
        return [k for k, (_, args) in enumerate(equations) if not joined.isdisjoint(args)]

    def add_to(self, program: WithKernels) -> Sequence[int]:
        """Append the kernel, and what ends sums over parts of rows."""
        inside, numbers = self._program()
        params = {
            "program": inside,
            "frame": self.frame,
            "views": self.views,
            "written": self._written(inside),
            "numbers": numbers,
        }
        first = program.add_bound(row_kernel_p, self.operands, params)
        return [
            self.rests[v].end(program, first + i) if v in self.rests else first + i
            for i, v in enumerate(self.gives)
        ]

    def _written(self, program: Jaxpr) -> Written:
        """The arrays that it writes: results that stand apart, and what others are joined to."""
        n, avals = len(self.apart), self.rows.avals
        targets = [Target(i) for i in range(n)]
        for i, join in enumerate(self.joins, n):
            targets += [Target(i, view) for _, view in join.parts]
        whole = [avals[join.variable] for join in self.joins]
        return Written((*program.out_avals[:n], *whole), tuple(targets))

    def _program(self) -> WithPlaces:
        """The equations from the operands to the results."""
        groups, jaxpr = self.rows, self.rows.jaxpr
        written = RowEquations(groups, self.given, self.constants)
        at = 0
        for i, k in enumerate(self.members):
            if k not in groups.sums:
                continue
            app, args = jaxpr.equations[k]
            rest = Rest.of(app, self.frame)
            if rest is not None:
                written.add(self.members[at:i], groups)
                rest.begin(written, args[0], groups.first[k])
                self.rests[groups.first[k]] = rest
                at = i + 1
        written.add(self.members[at:], groups)
        made = [*self.apart, *[v for join in self.joins for v, _ in join.parts]]
        return written.program(made, groups.programs)
