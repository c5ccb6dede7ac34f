"""Equations over the rows of large arrays that become one kernel (``core/kernels/rows``).

A group is elementwise equations on arrays of one shape (the frame), broadcasts to it, reductions
along its last axis, what is made of their results, and sums over all other axes. XLA would make a
pass over the arrays for each reduction; a kernel reads them once.

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
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.equations import REDUCTIONS, exponent_of, is_handled
from tracebridge.core.kernels.functions import handles, is_easy_power
from tracebridge.core.kernels.machine import is_there
from tracebridge.core.kernels.rows.frame import RESHAPES, can_be_read, is_rows_shape
from tracebridge.core.kernels.rows.row_kernel import row_kernel_p
from tracebridge.core.lax.reduce.exp_sums import by_largest, shifted_exp_sum_p
from tracebridge.core.lowering.rewrites.flat import computed_by, flat
from tracebridge.core.lowering.rewrites.producers import GIVEN, producers

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

_LEAST = 1 << 15  # elements of the frame: less is done before a kernel is called
_SHORTEST, _LONGEST = 16, 1 << 13  # rows
_MOST_EQUATIONS = 128
_MOST_ARRAYS = 24  # that a kernel reads and writes at the same time

_COPIES = RESHAPES | {lax.broadcast_in_dim_p, lax.iota_p}
_FLOAT = np.dtype(np.float32)
_NOTHING: frozenset[int] = frozenset()


def with_row_kernels(jaxpr: Jaxpr) -> Jaxpr | None:
    """``jaxpr`` with kernels over rows; None if there are none."""
    if not _frames(jaxpr) or not is_there():
        return None
    program = flat(jaxpr, _meaning)
    return _Groups(program, _frames(program)).result()


def _frames(jaxpr: Jaxpr) -> set[tuple[int, ...]]:
    """The shapes of large arrays that are reduced along the last axis, in called functions too."""
    found: set[tuple[int, ...]] = set()
    for app, _ in jaxpr.equations:
        called = computed_by(app)
        if called is not None:
            found |= _frames(called)
        elif app.primitive in REDUCTIONS or app.primitive is shifted_exp_sum_p:
            (aval,) = app.avals
            if tuple(app.params["axes"]) == (aval.ndim - 1,) and _is_frame(aval):
                found.add(aval.shape)
    return found


def _is_frame(aval: ShapedArray) -> bool:
    shape = aval.shape
    if aval.dtype != _FLOAT or aval.ndim < 2 or not all([type(n) is int for n in shape]):
        return False
    return _SHORTEST <= shape[-1] <= _LONGEST and math.prod(shape) >= _LEAST


def _meaning(app: Application) -> Jaxpr | None:
    """What a call computes, and a sum of shifted exponentials with the largest one as the shift."""
    if app.primitive is shifted_exp_sum_p and _is_frame(app.avals[0]):
        return stage(lambda x: list(by_largest(x, **app.params)), app.avals, locate=False)
    return computed_by(app)


@final
class _Groups:
    """One program while its groups are found; variables and equations are those of the Jaxpr."""

    def __init__(self, jaxpr: Jaxpr, frames: set[tuple[int, ...]]) -> None:
        self.jaxpr, self.frames = jaxpr, frames
        self.made_by, self.first = producers(jaxpr)
        self.avals = jaxpr.variable_avals()
        self.group_of: dict[int, int] = {}
        """Of member equations."""
        self.current: dict[tuple[int, ...], int] = {}
        self.frame_of: list[tuple[int, ...]] = []
        self.needs: list[set[int]] = []
        """Of each group: those that it depends on."""
        self.depends: list[frozenset[int]] = []
        """Of each equation outside: the groups that it depends on; of members nothing."""
        self.columns: set[int] = set()
        """Members that sum columns up: no other member of the group can read their results."""
        self.effects: set[int] = set()
        """The groups that equations with effects depend on so far: they keep their order."""
        for k in range(len(jaxpr.equations)):
            self._place(k)
        self.kernels = [c for c in self._components() if self._pays(c)]
        self.readers = self._readers() if self.kernels else {}

    def _readers(self) -> dict[int, list[int]]:
        """The equations that read results of members, and ``GIVEN`` if they are results."""
        readers: dict[int, list[int]] = {
            self.first[k]: [] for members in self.kernels for k in members
        }
        for v in self.jaxpr.outs:
            if v in readers:
                readers[v].append(GIVEN)
        for k, (_, args) in enumerate(self.jaxpr.equations):
            for a in args:
                if a in readers:
                    readers[a].append(k)
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
                if app.primitive in REDUCTIONS and not _is_along(app):
                    self.columns.add(k)
                self.needs[group] |= self._outside_of(args, group)
                self.depends.append(_NOTHING)
                return
        found = self._outside_of(args, None)
        if app.effects:
            self.effects |= found
            found = self.effects
        self.depends.append(frozenset(found) if found else _NOTHING)

    def _frame_for(self, app: Application, args: Sequence[int]) -> tuple[int, ...] | None:
        """The frame that an equation may belong to, by its shapes."""
        if app.multiple or app.effects or app.out.vma or app.primitive.has_rules_of_users:
            return None
        for aval in (*app.avals, app.out):
            if aval.shape in self.frames:
                return aval.shape
        for a in args:
            group = self._group(a)
            if group is not None and is_rows_shape(app.out.shape, self.frame_of[group]):
                return self.frame_of[group]
        return None

    def _group(self, variable: int) -> int | None:
        """The group in which a variable can be read."""
        k = self.made_by[variable]
        return None if k == GIVEN or k in self.columns else self.group_of.get(k)

    def _outside_of(self, args: Sequence[int], group: int | None) -> set[int]:
        """The groups that these variables depend on without being members of ``group``."""
        found: set[int] = set()
        for a in args:
            k = self.made_by[a]
            if k != GIVEN:
                own = self.group_of.get(k)
                if own is None:
                    found |= self.depends[k]
                elif own != group or k in self.columns:
                    found.add(own)
        return found

    def _reaches(self, args: Sequence[int], group: int) -> bool:
        """Whether operands depend on a group by something that is not in it."""
        seen = self._outside_of(args, group)
        todo = list(seen)
        while todo:
            n = todo.pop()
            if n == group:
                return True
            new = self.needs[n] - seen
            seen |= new
            todo.extend(new)
        return False

    def _joins(
        self, app: Application, args: Sequence[int], frame: tuple[int, ...], group: int
    ) -> bool:
        """Whether an equation can be in a group."""
        primitive, out, n = app.primitive, app.out, len(frame)
        if primitive in REDUCTIONS:
            return self._can_reduce(app, n) and app.avals[0].shape == frame
        if primitive is lax.broadcast_in_dim_p:
            return self._can_broadcast(app, frame, self._is_rows(args[0], frame, group))
        if primitive in RESHAPES:
            return self._is_rows(args[0], frame, group) and is_rows_shape(out.shape, frame)
        if primitive is lax.iota_p:
            return out.shape == frame and out.dtype == np.int32
        if primitive is lax.pow_p:
            y = exponent_of(self.jaxpr, args[1])
            if y is None or not is_easy_power(y) or out.dtype != _FLOAT:
                return False
        elif not is_handled(app):
            return False
        shape = out.shape
        for a in app.avals:
            if a.ndim and a.shape != shape:
                return False
        if shape == frame:
            return True
        return is_rows_shape(shape, frame) and any([self._is_rows(a, frame, group) for a in args])

    def _is_rows(self, variable: int, frame: tuple[int, ...], group: int) -> bool:
        """Whether a variable is a member of the group that is no array of the frame."""
        return self._group(variable) == group and self.avals[variable].shape != frame

    def _can_reduce(self, app: Application, n: int) -> bool:
        if app.out.dtype != _FLOAT or len(app.params) > 1:
            return False
        axes = sorted(app.params["axes"])
        return _is_along(app) or (app.primitive is lax.reduce_sum_p and axes == list(range(n - 1)))

    def _can_broadcast(self, app: Application, frame: tuple[int, ...], is_rows: bool) -> bool:
        axes, (aval,), shape = app.params["broadcast_dimensions"], app.avals, app.out.shape
        if not handles("select_n", {}, [np.dtype(bool), aval.dtype, aval.dtype], aval.dtype):
            return False
        if is_rows:
            kept = list(axes)[: len(frame) - 1] == list(range(len(frame) - 1))
            return kept and (shape == frame or is_rows_shape(shape, frame))
        return shape == frame and can_be_read(aval, axes, frame)

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
                elif self.avals[a].shape == self.frame_of[group]:
                    parent[root(k)] = root(readers.setdefault((group, a), k))
        found: dict[int, list[int]] = {}
        for k in sorted(self.group_of):
            found.setdefault(root(k), []).append(k)
        return list(found.values())

    def _pays(self, members: Sequence[int]) -> bool:
        """Whether a kernel saves passes over memory: a row is read again after a reduction."""
        apps = [self.jaxpr.equations[k][0] for k in members]
        reductions = [app for app in apps if app.primitive in REDUCTIONS]
        if not any([_is_along(app) for app in reductions]) or len(members) > _MOST_EQUATIONS:
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


def _is_along(app: Application) -> bool:
    """Whether a reduction is one along rows, not over all other axes."""
    return tuple(app.params["axes"]) == (app.avals[0].ndim - 1,)


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
            numbers[groups.first[k]] = graph.add(app, [numbers[a] for a in args])
        program = graph.program(inputs, [numbers[v] for v in self.results], NO_DEBUG_INFO)
        program.cache["rewritten"] = None
        return program


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
        """Write each equation or kernel as soon as all is there that it reads, the first first.

        Few wait: those that read results of a kernel whose last member comes later.
        """
        numbers, kernels = self.numbers, self.kernels
        readers: dict[object, list[int]] = {}
        missing: dict[int, int] = {}
        last_effect: object = None
        absent: set[object] = set()
        """Effects that have not been written yet."""
        for k, (app, args) in enumerate(self.groups.jaxpr.equations):
            kernel = kernels.get(k)
            if kernel is None and (k in self.inside or k in self.unread):
                continue
            operands = args if kernel is None else kernel.operands
            waits: set[object] = {v for v in operands if v not in numbers}
            if app.effects:  # those keep their order
                waits |= absent & {last_effect}
                last_effect = ("effect", k)
                absent.add(last_effect)
            if not waits:
                self._write(k, readers, missing, absent)
                continue
            missing[k] = len(waits)
            for v in waits:
                readers.setdefault(v, []).append(k)
        assert not missing

    def _write(
        self,
        k: int,
        readers: dict[object, list[int]],
        missing: dict[int, int],
        absent: set[object],
    ) -> None:
        """Write an equation or kernel, and those that have waited for it."""
        ready = [k]
        while ready:
            k = heappop(ready)
            made = self._emit(k)
            if not readers and not absent:
                continue
            effect = ("effect", k)
            absent.discard(effect)
            for v in [*made, effect]:
                for reader in readers.pop(v, ()):
                    missing[reader] -= 1
                    if not missing[reader]:
                        del missing[reader]
                        heappush(ready, reader)

    def _emit(self, k: int) -> Iterable[int]:
        """Write an equation or the kernel that ends with it; the variables that are there now."""
        groups, kernel = self.groups, self.kernels.get(k)
        app, args = groups.jaxpr.equations[k]
        if kernel is not None:
            params = {"program": kernel.program(groups), "frame": kernel.frame}
            numbers = [self.numbers[a] for a in kernel.operands]
            first, made = self.graph.add_bound(row_kernel_p, numbers, params), kernel.results
        else:
            sources = groups.jaxpr.sources
            source = sources[k] if sources else None
            first = self.graph.add(app, [self.numbers[a] for a in args], source)
            made = range(groups.first[k], groups.first[k] + len(app.outs))
        for i, v in enumerate(made):
            self.numbers[v] = first + i
        return made
