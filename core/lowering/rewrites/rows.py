"""Equations over the rows of large arrays that become one kernel (``core/kernels/rows``).

A group is elementwise equations on arrays of one shape (the frame), broadcasts to it, reductions
of its rows, what is made of their results, and sums over other axes. XLA would make a pass over the
arrays for each reduction; a kernel reads them once.

Nothing in a group may depend on a member through an equation outside. So one scan over the program,
in which each value knows the groups that it depends on, finds all groups; a value that would close
a circle begins the next one. Parts of a group that share no value and no array are kernels of their
own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.equations import REDUCTIONS, exponent_of, is_handled
from tracebridge.core.kernels.functions import handles, is_easy_power
from tracebridge.core.kernels.machine import is_there
from tracebridge.core.kernels.rows.program import RESHAPES, kind_of_sum
from tracebridge.core.kernels.rows.row_kernel import row_kernel_p
from tracebridge.core.lowering.rewrites.flat import flat
from tracebridge.core.lowering.rewrites.frames import SHORTEST, Frames, has_rows, meaning
from tracebridge.core.lowering.rewrites.producers import GIVEN, producers

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.kernels.rows.frame import Frame, Shape

_MOST_EQUATIONS = 128
_MOST_ARRAYS = 24  # that a kernel reads and writes at the same time

_COPIES = RESHAPES | {lax.broadcast_in_dim_p, lax.iota_p}
_FLOAT = np.dtype(np.float32)


def with_row_kernels(jaxpr: Jaxpr) -> Jaxpr | None:
    """``jaxpr`` with kernels over rows; None if there are none.

    Frames that want the same arrays come one after another: what the first one leaves.
    """
    if not has_rows(jaxpr) or not is_there():
        return None
    program, made, frames = flat(jaxpr, meaning), None, Frames()
    while found := frames.next_ones(program):
        new = _Groups(program, found).result()
        if new is not None:
            made = program = new
    return made


@final
class _Groups:
    """One program while its groups are found; variables and equations are those of the Jaxpr."""

    def __init__(self, jaxpr: Jaxpr, frames: dict[tuple[int, ...], Frame]) -> None:
        self.jaxpr, self.frames = jaxpr, frames
        self.made_by, self.first = producers(jaxpr)
        self.avals = jaxpr.variable_avals()
        self.group_of: dict[int, int] = {}
        """Of member equations."""
        self.current: dict[Frame, int] = {}
        self.frame_of: list[Frame] = []
        self.needs: list[set[int]] = []
        """Of each group: those that it depends on."""
        self.depends: list[frozenset[int]] = []
        """Of each equation outside: the groups that it depends on; of members nothing."""
        self.sums: set[int] = set()
        """Members that sum over other axes: no other member of the group can read their results."""
        self.effects: set[int] = set()
        """The groups that equations with effects depend on so far: they keep their order."""
        for k in range(len(jaxpr.equations)):
            self._place(k)
        self.kernels = [c for c in self._components() if self._pays(c)]
        self.readers = self._readers() if self.kernels else {}

    def _readers(self) -> dict[int, list[int]]:
        """Of each variable the equations that read it, and ``GIVEN`` if it is a result."""
        readers = {v: [GIVEN] for v in self.jaxpr.outs}
        for k, (_, args) in enumerate(self.jaxpr.equations):
            for a in args:
                readers.setdefault(a, []).append(k)
        return readers

    # finding groups

    def _place(self, k: int) -> None:
        app, args = self.jaxpr.equations[k]
        frame = self._frame_for(app, args)
        if frame is not None:
            new = len(self.frame_of)
            group = self.current.get(frame, new)
            if group != new and self._reaches(args, group):
                group = new
            if self._joins(app, args, frame, group):
                if group == new:
                    self.frame_of.append(frame)
                    self.needs.append(set())
                    self.current[frame] = new
                self.group_of[k] = group
                if app.primitive in REDUCTIONS and kind_of_sum(app, frame) != "rows":
                    self.sums.add(k)
                self.needs[group] |= self._outside_of(args, group)
                self.depends.append(frozenset())
                return
        found = self._outside_of(args, None)
        if app.effects:
            self.effects |= found
            found = self.effects
        self.depends.append(frozenset(found))

    def _frame_for(self, app: Application, args: Sequence[int]) -> Frame | None:
        """The frame that an equation may belong to, by its shapes."""
        if app.multiple or app.effects or app.out.vma or app.primitive.has_rules_of_users:
            return None
        for aval in (*app.avals, app.out):
            if aval.shape in self.frames:
                return self.frames[aval.shape]
        for a in args:
            group = self._group(a)
            if group is not None and self.frame_of[group].is_by_row(app.out.shape):
                return self.frame_of[group]
        return None

    def _group(self, variable: int) -> int | None:
        """The group in which a variable can be read."""
        k = self.made_by[variable]
        return None if k == GIVEN or k in self.sums else self.group_of.get(k)

    def _outside_of(self, args: Sequence[int], group: int | None) -> set[int]:
        """The groups that these variables depend on without being members of ``group``."""
        found: set[int] = set()
        for a in args:
            k = self.made_by[a]
            if k != GIVEN:
                own = self.group_of.get(k)
                if own is None:
                    found |= self.depends[k]
                elif own != group or k in self.sums:
                    found.add(own)
        return found

    def _reaches(self, args: Sequence[int], group: int) -> bool:
        """Whether operands depend on a group by something that is not in it."""
        todo = list(self._outside_of(args, group))
        seen = set(todo)
        while todo:
            n = todo.pop()
            if n == group:
                return True
            new = self.needs[n] - seen
            seen |= new
            todo.extend(new)
        return False

    def _joins(self, app: Application, args: Sequence[int], frame: Frame, group: int) -> bool:
        """Whether an equation can be in a group."""
        primitive, out = app.primitive, app.out
        inside = [self._group(a) == group for a in args]
        whole = [aval.shape in frame.shapes for aval in app.avals]
        rows = [a and not b for a, b in zip(inside, whole, strict=True)]
        if primitive in REDUCTIONS:
            return whole[0] and self._can_reduce(app, frame)
        if primitive is lax.broadcast_in_dim_p:
            return self._can_broadcast(app, frame, rows[0])
        if primitive in RESHAPES:
            return frame.is_by_row(out.shape) if rows[0] else all(whole) and _is_in(out, frame)
        if primitive is lax.iota_p:
            return _is_in(out, frame) and out.dtype == np.int32 and self._can_count(app, frame)
        if primitive is lax.pow_p:
            y = exponent_of(self.jaxpr, args[1])
            if y is None or not is_easy_power(y) or out.dtype != _FLOAT:
                return False
        elif not is_handled(app):
            return False
        shapes = [a.shape for a in app.avals if a.ndim]
        if any([s != out.shape for s in shapes]):
            return False
        return _is_in(out, frame) or (any(rows) and frame.is_by_row(out.shape))

    def _can_reduce(self, app: Application, frame: Frame) -> bool:
        if app.out.dtype != _FLOAT or len(app.params) > 1:
            return False
        kind = kind_of_sum(app, frame)
        if kind != "parts":
            return kind is not None
        end = frame.end(frame.summed(app.avals[0].shape, app.params["axes"]))
        return math.prod([frame.sizes[i] for i in end]) >= SHORTEST

    def _can_broadcast(self, app: Application, frame: Frame, is_rows: bool) -> bool:
        axes, (aval,), shape = app.params["broadcast_dimensions"], app.avals, app.out.shape
        if not handles("select_n", {}, [np.dtype(bool), aval.dtype, aval.dtype], aval.dtype):
            return False
        if list(axes) != sorted(axes):
            return False
        if shape not in frame.shapes:
            return is_rows and frame.is_by_row(shape)
        steps = frame.steps(aval.shape, axes, shape)
        return steps == frame.by_row if is_rows else frame.tail(steps) >= SHORTEST

    def _can_count(self, app: Application, frame: Frame) -> bool:
        axis, shape = app.params["dimension"], app.out.shape
        return frame.tail(frame.steps((shape[axis],), (axis,), shape)) >= SHORTEST

    # kernels

    def _components(self) -> list[list[int]]:
        """The members of groups that share values or arrays, in the order of the program."""
        parent = {k: k for k in self.group_of}

        def root(k: int) -> int:
            while parent[k] != k:
                parent[k] = parent[parent[k]]
                k = parent[k]
            return k

        readers: dict[tuple[int, int], int] = {}
        for k, group in self.group_of.items():
            for a in self.jaxpr.equations[k][1]:
                if self._group(a) == group:
                    parent[root(k)] = root(self.made_by[a])
                elif self.avals[a].shape in self.frame_of[group].shapes:
                    parent[root(k)] = root(readers.setdefault((group, a), k))
        found: dict[int, list[int]] = {}
        for k in sorted(self.group_of):
            found.setdefault(root(k), []).append(k)
        return list(found.values())

    def _pays(self, members: Sequence[int]) -> bool:
        """Whether a kernel saves passes over memory: a row is read again after a reduction."""
        reductions = [k for k in members if self.jaxpr.equations[k][0].primitive in REDUCTIONS]
        if self.sums.issuperset(reductions) or len(members) > _MOST_EQUATIONS:
            return False
        inside = set(members)
        again = any(
            [
                app.primitive is lax.broadcast_in_dim_p and self.made_by[args[0]] in inside
                for app, args in [self.jaxpr.equations[k] for k in members]
            ]
        )
        return again or len(reductions) > 1

    def result(self) -> Jaxpr | None:
        """The program with its kernels, if it has any."""
        found = [_Kernel(self, members) for members in self.kernels]
        kernels = {kernel.members[-1]: kernel for kernel in found if kernel.is_small}
        if not kernels:
            return None
        return _Writer(self, kernels).program()


def _is_in(aval: ShapedArray, frame: Frame) -> bool:
    return aval.shape in frame.shapes


@final
class _Kernel:
    """The equations of a kernel, what they read, and what of theirs others read."""

    def __init__(self, groups: _Groups, members: Sequence[int]) -> None:
        jaxpr = groups.jaxpr
        self.frame = groups.frame_of[groups.group_of[members[0]]]
        inside = set(members)
        self.copied: list[int] = []
        """Members that are made outside as well: they only copy."""
        of_members = [groups.first[k] for k in members]
        read = {v for v in of_members if not inside.issuperset(groups.readers.get(v, ()))}
        for k in reversed(members):
            if groups.first[k] in read and jaxpr.equations[k][0].primitive in _COPIES:
                read.update(jaxpr.equations[k][1])
                self.copied.insert(0, k)
        made = {groups.first[k]: k for k in members if k not in self.copied}
        self.results = [v for v in made if v in read]
        self.rests: dict[int, _Rest] = {}
        """How sums over parts of rows are ended outside; known with the program."""
        self.members = self._needed(groups, members)
        self.unread = inside.difference(self.members, self.copied)
        operands = dict.fromkeys([a for k in self.members for a in jaxpr.equations[k][1]])
        own = {groups.first[k] for k in self.members}
        self.operands = [a for a in operands if a not in own and not _is_number(groups, a)]

    @property
    def is_small(self) -> bool:
        return bool(self.results) and len(self.operands) + len(self.results) <= _MOST_ARRAYS

    def _needed(self, groups: _Groups, members: Sequence[int]) -> list[int]:
        needed, kept = set(self.results), []
        for k in reversed(members):
            if groups.first[k] in needed:
                needed.update(groups.jaxpr.equations[k][1])
                kept.append(k)
        return kept[::-1]

    def program(self, groups: _Groups) -> Jaxpr:
        """The equations from the operands to the results."""
        jaxpr, graph = groups.jaxpr, Graph()
        inputs = graph.inputs([groups.avals[a] for a in self.operands])
        numbers = dict(zip(self.operands, inputs, strict=True))
        for k in self.members:
            app, args = jaxpr.equations[k]
            for a in args:
                if a not in numbers:
                    numbers[a] = graph.constant(jaxpr.consts[a - jaxpr.n_in])
            read = [numbers[a] for a in args]
            rest = _Rest.of(app, self.frame) if k in groups.sums else None
            if rest is None:
                numbers[groups.first[k]] = graph.add(app, read)
            else:
                numbers[groups.first[k]] = rest.begin(graph, read[0])
                self.rests[groups.first[k]] = rest
        program = graph.program(inputs, [numbers[v] for v in self.results], NO_DEBUG_INFO)
        program.cache["rewritten"] = None
        return program


@final
class _Rest:
    """A sum of which a kernel does the last axes of rows, ``inside``; others are ``outside``."""

    def __init__(
        self, frame: Frame, inside: Sequence[int], outside: Sequence[int], out: Shape
    ) -> None:
        self.frame, self.inside, self.outside, self.out = frame, inside, outside, out

    @classmethod
    def of(cls, app: Application, frame: Frame) -> _Rest | None:
        """None of a sum that a kernel ends."""
        if kind_of_sum(app, frame) != "parts":
            return None
        summed = frame.summed(app.avals[0].shape, app.params["axes"])
        end = frame.end(summed)
        left = [i for i in range(len(frame.sizes)) if i not in end]
        return cls(frame, end, [left.index(i) for i in summed if i not in end], app.out.shape)

    def begin(self, graph: Graph, x: int) -> int:
        """The sum over the end of rows."""
        whole = _reshaped(graph, x, self.frame.sizes)
        return graph.add_bound(lax.reduce_sum_p, [whole], {"axes": tuple(self.inside)})

    def end(self, graph: Graph, x: int) -> int:
        """The sum over what is left."""
        if self.outside:
            x = graph.add_bound(lax.reduce_sum_p, [x], {"axes": tuple(self.outside)})
        return _reshaped(graph, x, self.out)


def _reshaped(graph: Graph, x: int, shape: Shape) -> int:
    if graph.avals[x].shape == shape:
        return x
    return graph.add_bound(lax.reshape_p, [x], {"new_sizes": shape})


def _is_number(groups: _Groups, v: int) -> bool:
    """Whether a variable is a number that stands in the program."""
    i = v - groups.jaxpr.n_in
    consts = groups.jaxpr.consts
    return 0 <= i < len(consts) and isinstance(consts[i], Literal) and not consts[i].aval.ndim


@final
class _Writer:
    """Writes the program anew: kernels stand where their last member was, or where they can run."""

    def __init__(self, groups: _Groups, kernels: dict[int, _Kernel]) -> None:
        self.groups, self.kernels = groups, kernels
        self.inside = {k for kernel in kernels.values() for k in kernel.members}
        self.inside -= {k for kernel in kernels.values() for k in kernel.copied}
        self.unread = {k for kernel in kernels.values() for k in kernel.unread}
        self.graph = Graph()
        self.numbers: dict[int, int] = {}

    def program(self) -> Jaxpr:
        jaxpr, graph = self.groups.jaxpr, self.graph
        inputs = graph.inputs(jaxpr.in_avals)
        given = [*inputs, *[graph.constant(c) for c in jaxpr.consts]]
        self.numbers.update(enumerate(given))
        self._run()
        outs = [self.numbers[v] for v in jaxpr.outs]
        return graph.program(inputs, outs, jaxpr.debug)

    def _run(self) -> None:
        """Write each equation or kernel as soon as all is there that it reads, the first first."""
        readers: dict[object, list[int]] = {}
        missing: dict[int, int] = {}
        last_effect: object = None
        for k, (app, args) in enumerate(self.groups.jaxpr.equations):
            kernel = self.kernels.get(k)
            if kernel is None and (k in self.inside or k in self.unread):
                continue
            read: set[object] = set(args if kernel is None else kernel.operands)
            read.difference_update(self.numbers)
            if app.effects:  # those keep their order
                read |= {last_effect} - {None}
                last_effect = ("effect", k)
            missing[k] = len(read)
            for v in read:
                readers.setdefault(v, []).append(k)
        ready = [k for k, n in missing.items() if not n]
        n_written = 0
        while ready:
            k = heappop(ready)
            n_written += 1
            for v in [*self._emit(k), ("effect", k)]:
                for reader in readers.get(v, ()):
                    missing[reader] -= 1
                    if not missing[reader]:
                        heappush(ready, reader)
        assert n_written == len(missing)

    def _emit(self, k: int) -> Iterable[int]:
        """Write an equation or the kernel that ends with it; the variables that are there now."""
        groups, kernel = self.groups, self.kernels.get(k)
        app, args = groups.jaxpr.equations[k]
        if kernel is not None:
            params = {"program": kernel.program(groups), "frame": kernel.frame}
            numbers = [self.numbers[a] for a in kernel.operands]
            first = self.graph.add_bound(row_kernel_p, numbers, params)
            self.numbers.update({v: first + i for i, v in enumerate(kernel.results)})
            for v, rest in kernel.rests.items():
                self.numbers[v] = rest.end(self.graph, self.numbers[v])
            return kernel.results
        sources = groups.jaxpr.sources
        source = sources[k] if sources else None
        first = self.graph.add(app, [self.numbers[a] for a in args], source)
        made = range(groups.first[k], groups.first[k] + len(app.outs))
        self.numbers.update({v: first + i for i, v in enumerate(made)})
        return made
