"""Groups of equations that become one kernel each.

Nothing in a group may depend on a member through an equation outside. So one scan over the program,
in which each value knows the groups that it depends on, finds all groups; a value that would close
a circle begins the next one. Parts of a group that share no value are kernels of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.ir.values import Literal
from tracebridge.core.lowering.rewrites.producers import GIVEN, producers

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.primitive import Primitive


_ABSENT = -1  # the number of a variable that is not written yet


class Groups(ABC):
    """One program while its groups are found; variables and equations are those of the Jaxpr."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.made_by, self.first = producers(jaxpr)
        self.avals = jaxpr.variable_avals()
        self.sums: set[int] = set()
        """Members that sum over other axes: no other member of the group can read their results."""
        self.kinds: dict[Application, Hashable] = {}
        """``kind_of`` the equations so far."""
        self.group_of: dict[int, int] = {}
        """Of member equations."""
        self.within: list[int | None] = [None] * (jaxpr.n_in + len(jaxpr.consts))
        """Of each variable so far: the group whose other members can read it."""
        self.behind = [0] * len(self.within)
        """Of each variable so far: what depends on it from outside depends on these groups."""
        self.current: dict[Hashable, int] = {}
        """By key the group that grows."""
        self.keys: list[Any] = []
        """Of each group what its members have in common."""
        self.needs: list[int] = []
        """Of each group: all that it depends on, as the bits of a number."""
        self.needed_by: list[int] = []
        """Of each group: all that depend on it, and itself."""
        self._numbers = {
            v
            for v, const in enumerate(jaxpr.consts, jaxpr.n_in)
            if isinstance(const, Literal) and not const.aval.ndim
        }
        self.effects = 0
        """The groups that equations with effects depend on so far: they keep their order."""
        self._place_all()

    @abstractmethod
    def kind_of(self, app: Application) -> Hashable:
        """What ``key_for`` gives for all equations like this one.

        False: none of them is in a group. True: what they read decides. Else the key.
        """

    @abstractmethod
    def key_for(self, app: Application, args: Sequence[int]) -> Hashable | None:
        """What the members of the group have in common that an equation may belong to."""

    @abstractmethod
    def joins(self, k: int, key: Any, group: int) -> bool:
        """Whether an equation can be in a group, which may be a new one."""

    def member(self, variable: int) -> int | None:
        """The group in which a variable can be read."""
        return self.within[variable]

    def put(self, k: int, group: int) -> None:
        """Make an equation, which has one result, a member of a group."""
        self.group_of[k] = group
        self.within[self.first[k]] = None if k in self.sums else group

    def readers(self, members: Iterable[Sequence[int]]) -> dict[int, list[int]]:
        """The equations that read results of members, and ``GIVEN`` if they are results."""
        read = {self.first[k] for some in members for k in some}
        readers: dict[int, list[int]] = defaultdict(list)
        for v in self.jaxpr.outs:
            if v in read:
                readers[v].append(GIVEN)
        for k, (_, args) in enumerate(self.jaxpr.equations):
            for a in args:
                if a in read:
                    readers[a].append(k)
        return readers

    def is_number(self, v: int) -> bool:
        """Whether a variable is a number that stands in the program."""
        return v in self._numbers

    def _place_all(self) -> None:
        kinds, place, sums = self.kinds, self._place, self.sums
        behind, within = self.behind, self.within
        for k, (app, args) in enumerate(self.jaxpr.equations):
            kind = kinds.get(app)
            if kind is None:
                kind = kinds[app] = self.kind_of(app)
            if kind is not False:
                key = self.key_for(app, args) if kind is True else kind
                group = None if key is None else place(k, args, key)
                if group is not None:
                    self.group_of[k] = group
                    within.append(None if k in sums else group)
                    behind.append(1 << group)
                    continue
            found = 0
            if self.keys:  # nothing depends on groups before the first one
                for a in args:
                    found |= behind[a]
            if app.effects:
                found = self.effects = self.effects | found
            if app.multiple:
                within += [None] * len(app.outs)
                behind += [found] * len(app.outs)
            else:
                within.append(None)
                behind.append(found)

    def _place(self, k: int, args: Sequence[int], key: Hashable) -> int | None:
        """The group of an equation, if it can be in one."""
        new = len(self.keys)
        group = self.current.get(key, new)
        outside = self._outside_of(args, group)
        if group != new and outside & self.needed_by[group]:
            group, outside = new, self._outside_of(args, new)
        if not self.joins(k, key, group):
            return None
        if group == new:
            self.keys.append(key)
            self.needs.append(0)
            self.needed_by.append(1 << new)
            self.current[key] = new
        further = outside & ~self.needs[group]
        if further:
            self._depend(group, further)
        return group

    def _outside_of(self, args: Sequence[int], group: int) -> int:
        """The groups that these variables depend on without being members of ``group``."""
        found, behind, within = 0, self.behind, self.within
        for a in args:
            if within[a] != group:
                found |= behind[a]
        return found

    def _depend(self, group: int, further: int) -> None:
        """Let a group depend on others, and on what these depend on."""
        needs, needed_by = self.needs, self.needed_by
        found, above = further, needed_by[group]
        for n in _bits(further):
            found |= needs[n]
        for n in _bits(above):
            needs[n] |= found
        for n in _bits(found):
            needed_by[n] |= above

    @abstractmethod
    def shares(self, variable: int, group: int) -> bool:
        """Whether members that read this variable of others should be in one kernel."""

    def components(self) -> list[list[int]]:
        """The members of groups that share values, in the order of the program."""
        parent = {k: k for k in self.group_of}
        equations, made_by, within = self.jaxpr.equations, self.made_by, self.within

        def root(k: int) -> int:
            while (above := parent[k]) != k:
                parent[k] = k = parent[above]
            return k

        readers: dict[tuple[int, int], int] = {}
        for k, group in self.group_of.items():
            own = root(k)
            for a in equations[k][1]:
                if within[a] == group:
                    other = root(made_by[a])
                elif (group, a) in readers:
                    other = root(readers[group, a])
                elif self.shares(a, group):
                    readers[group, a] = k
                    continue
                else:
                    continue
                parent[own] = own = other
        found: dict[int, list[int]] = {}
        for k in sorted(self.group_of):
            found.setdefault(root(k), []).append(k)
        return list(found.values())


def _bits(number: int) -> list[int]:
    """The places of the bits of a number that are set."""
    found: list[int] = []
    while number:
        n = number.bit_length() - 1
        found.append(n)
        number ^= 1 << n
    return found


class Kernel(ABC):
    """The equations of a kernel, what they read, and what of theirs others read.

    ``copies``: primitives of members that others do again where they read the results.
    """

    def __init__(
        self,
        groups: Groups,
        members: Sequence[int],
        readers: Mapping[int, Sequence[int]],
        copies: frozenset[Primitive],
    ) -> None:
        jaxpr = groups.jaxpr
        self.groups = groups
        self.key = groups.keys[groups.group_of[members[0]]]
        inside = set(members)
        self.copied: list[int] = []
        """Members that are made outside as well: they only copy."""
        of_members = [groups.first[k] for k in members]
        read = {v for v in of_members if not inside.issuperset(readers.get(v, ()))}
        for k in reversed(members):
            if groups.first[k] in read and jaxpr.equations[k][0].primitive in copies:
                read.update(jaxpr.equations[k][1])
                self.copied.insert(0, k)
        made = {groups.first[k]: k for k in members if k not in self.copied}
        self.results = [v for v in made if v in read]
        self.gives = self.results
        """The variables that the kernel makes for others: results, or what is joined of these."""
        self.members = self._needed(members)
        self.unread = inside.difference(self.members, self.copied)
        """Equations that are written neither inside nor outside."""
        operands = dict.fromkeys([a for k in self.members for a in jaxpr.equations[k][1]])
        own = {groups.first[k] for k in self.members}
        self.operands = [a for a in operands if a not in own and not groups.is_number(a)]

    def _needed(self, members: Sequence[int]) -> list[int]:
        needed, kept = set(self.results), []
        for k in reversed(members):
            if self.groups.first[k] in needed:
                needed.update(self.groups.jaxpr.equations[k][1])
                kept.append(k)
        return kept[::-1]

    @abstractmethod
    def add_to(self, graph: Graph, operands: Sequence[int]) -> Sequence[int]:
        """Append its equations to a graph; the numbers of what it gives."""


@final
class WithKernels:
    """Writes a program anew: kernels stand where their last member was, or where they can run."""

    def __init__(self, groups: Groups, kernels: Sequence[Kernel]) -> None:
        self.groups = groups
        self.kernels = {kernel.members[-1]: kernel for kernel in kernels}
        self.idle = {k for kernel in kernels for k in kernel.members}
        """Equations that are written inside of kernels only, or not at all."""
        self.idle -= {k for kernel in kernels for k in kernel.copied}
        self.idle |= {k for kernel in kernels for k in kernel.unread}
        self.graph = Graph()
        self.numbers = [_ABSENT] * len(groups.avals)
        """In the graph, of the variables that are there."""

    def program(self) -> Jaxpr:
        """The program with its kernels."""
        jaxpr, graph = self.groups.jaxpr, self.graph
        inputs = graph.inputs(jaxpr.in_avals)
        given = [*inputs, *[graph.constant(c) for c in jaxpr.consts]]
        self.numbers[: len(given)] = given
        self._run()
        outs = [self.numbers[v] for v in jaxpr.outs]
        return graph.program(inputs, outs, jaxpr.debug)

    def _run(self) -> None:
        """Write each equation or kernel as soon as all is there that it reads, the first first.

        Few wait: those that read results of a kernel whose last member comes later.
        """
        numbers, kernels, idle = self.numbers, self.kernels, self.idle
        avals, equations = self.graph.avals, self.graph.equations
        firsts, sources = self.groups.first, self.groups.jaxpr.sources
        readers: dict[object, list[int]] = {}
        missing: dict[int, int] = {}
        last_effect: object = None
        absent: set[object] = set()
        """Effects that have not been written yet."""
        for k, (app, args) in enumerate(self.groups.jaxpr.equations):
            kernel = kernels.get(k)
            if kernel is None:
                if k in idle:
                    continue
                if not (readers or app.effects):  # as most equations
                    read = [numbers[a] for a in args]
                    if _ABSENT not in read:
                        # As Graph.add does.
                        first = len(avals)
                        equations.append((app, read, first, sources[k] if sources else None))
                        if app.multiple:
                            avals.extend(app.outs)
                            start, n = firsts[k], len(app.outs)
                            numbers[start : start + n] = range(first, first + n)
                        else:
                            avals.append(app.out)
                            numbers[firsts[k]] = first
                        continue
            operands = args if kernel is None else kernel.operands
            waits: set[object] = {v for v in operands if numbers[v] == _ABSENT}
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
        if kernel is not None:
            found = kernel.add_to(self.graph, [self.numbers[a] for a in kernel.operands])
            for v, number in zip(kernel.gives, found, strict=True):
                self.numbers[v] = number
            return kernel.gives
        app, args = groups.jaxpr.equations[k]
        sources = groups.jaxpr.sources
        source = sources[k] if sources else None
        first = self.graph.add(app, [self.numbers[a] for a in args], source)
        made = range(groups.first[k], groups.first[k] + len(app.outs))
        for i, v in enumerate(made):
            self.numbers[v] = first + i
        return made
