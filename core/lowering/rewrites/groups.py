"""Groups of equations that become one kernel each.

Nothing in a group may depend on a member through an equation outside. So one scan over the program,
in which each value knows the groups that it depends on, finds all groups; a value that would close
a circle begins the next one. Parts of a group that share no value are kernels of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from tracebridge.core.ir.values import Literal
from tracebridge.core.lowering.rewrites.producers import GIVEN, producers, variable_avals

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.primitive import Primitive


Readers = dict[int, list[int]]
"""Of variables the equations that read them."""


class Groups(ABC):
    """One program while its groups are found; variables and equations are those of the Jaxpr."""

    begins_with: ClassVar[Primitive | None] = None
    """What may begin a group by itself, where what is read decides about the others."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.made_by, self.first = producers(jaxpr)
        self.avals = variable_avals(jaxpr)
        self.sums: set[int] = set()
        """Members that sum over other axes: no other member of the group can read their results."""
        self._places: dict[Application, tuple[Hashable, bool]] = {}
        """``_place_of`` the equations so far."""
        self.group_of: dict[int, int] = {}
        """Of member equations."""
        self.within: list[int | None] = [None] * (jaxpr.n_in + len(jaxpr.consts))
        """Of each variable so far: the group whose other members can read it."""
        self.behind = [0] * len(self.within)
        """Of each variable so far: what depends on it from outside depends on these groups."""
        self.current: dict[int, int] = {}
        """The groups that grow, by the identity of their keys: equal keys are one object."""
        self.keys: list[Any] = []
        """Of each group what its members have in common."""
        self.needs: list[int] = []
        """Of each group: all that it depends on, as the bits of a number."""
        self.needed = 0
        """The groups that others depend on."""
        self.numbers = {
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

    def always_joins(self, app: Application, key: Any) -> bool | None:
        """Whether equations like this one join each group of their kind; None: ``joins`` tells."""
        del app, key
        return None

    @abstractmethod
    def key_for(self, app: Application, args: Sequence[int]) -> Hashable | None:
        """What the members of the group have in common that an equation may belong to.

        Asked where an equation reads members, and of those that begin groups.
        """

    @abstractmethod
    def joins(self, k: int, key: Any, group: int) -> bool:
        """Whether an equation can be in a group, which may be a new one."""

    def put(self, k: int, group: int) -> None:
        """Make an equation, which has one result, a member of a group."""
        self.group_of[k] = group
        self.within[self.first[k]] = None if k in self.sums else group

    def readers(self, of: Iterable[int]) -> Readers:
        """Of variables the equations that read them, and ``GIVEN`` first of results."""
        readers: dict[int, list[int]] = {v: [] for v in of}
        for v in self.jaxpr.outs:
            if v in readers:
                readers[v].append(GIVEN)
        wanted = readers.keys()
        for k, (_, args) in enumerate(self.jaxpr.equations):
            if not wanted.isdisjoint(args):
                for a in args:
                    if a in readers:
                        readers[a].append(k)
        return readers

    def is_number(self, v: int) -> bool:
        """Whether a variable is a number that stands in the program."""
        return v in self.numbers

    def _place_all(self) -> None:
        places, sums, group_of = self._places, self.sums, self.group_of
        behind, within, begins = self.behind, self.within, self.begins_with
        current, needs = self.current, self.needs
        for k, (app, args) in enumerate(self.jaxpr.equations):
            found = places.get(app)
            if found is None:
                found = places[app] = self._place_of(app)
            key, joins = found
            if key is True:
                key = None
                if app.primitive is begins:
                    key = self.key_for(app, args)
                elif current:
                    for a in args:
                        if within[a] is not None:
                            key = self.key_for(app, args)
                            break
            if key is not None:
                group, outside = current.get(id(key), -1), 0
                for a in args:
                    if within[a] != group:
                        outside |= behind[a]
                if group >= 0 and outside:
                    outside &= ~needs[group]  # mostly nothing is left
                    if outside:
                        outside = self._with_needs(outside)
                        if outside >> group & 1:
                            group = -1
                if group < 0:
                    group = self._begun(k, args, key, joins)
                elif not (joins or self.joins(k, key, group)):
                    group = -1
                elif outside:
                    self._depend(group, outside)
                if group >= 0:
                    group_of[k] = group
                    within.append(None if k in sums else group)
                    behind.append(1 << group)
                    continue
            depends = 0
            if current:  # nothing depends on groups before the first one
                for a in args:
                    depends |= behind[a]
            if app.effects:
                depends = self.effects = self.effects | depends
            if app.multiple:
                within += [None] * len(app.outs)
                behind += [depends] * len(app.outs)
            else:
                within.append(None)
                behind.append(depends)

    def _place_of(self, app: Application) -> tuple[Hashable, bool]:
        """Of all equations like this one: their key, as ``_place_all`` knows it, and ``joins``."""
        kind = self.kind_of(app)
        if kind is True:
            return True, False
        always = None if kind is False else self.always_joins(app, kind)
        return (None, False) if kind is False or always is False else (kind, always is True)

    def _begun(self, k: int, args: Sequence[int], key: Hashable, joins: bool) -> int:
        """The group that an equation begins; -1 if it cannot be in one."""
        group = len(self.keys)
        if not (joins or self.joins(k, key, group)):
            return -1
        self.keys.append(key)
        self.needs.append(0)
        self.current[id(key)] = group
        outside = 0
        for a in args:
            outside |= self.behind[a]
        if outside:
            self._depend(group, self._with_needs(outside))
        return group

    def _with_needs(self, groups: int) -> int:
        """Groups, and those that they depend on."""
        needs, found, left = self.needs, groups, groups
        while left:
            last = left.bit_length() - 1
            found |= needs[last]
            left = left & ~needs[last] & ~(1 << last)
        return found

    def _depend(self, group: int, further: int) -> None:
        """Let a group depend on others, which are given with those that they depend on."""
        needs = self.needs
        needs[group] |= further
        self.needed |= further
        if self.needed >> group & 1:
            for other, needed in enumerate(needs):
                if needed >> group & 1:
                    needs[other] |= further

    @abstractmethod
    def shares(self, variable: int, group: int) -> bool:
        """Whether members that read this variable of others should be in one kernel."""

    def components(self) -> list[list[int]]:
        """The members of groups that share values, in the order of the program."""
        parent = {k: k for k in self.group_of}
        equations, made_by, within, shares = (
            self.jaxpr.equations, self.made_by, self.within, self.shares,
        )  # fmt: skip

        def root(k: int) -> int:
            while (above := parent[k]) != k:
                parent[k] = k = parent[above]
            return k

        n, readers = len(within), dict[int, int]()  # by variable and group in one number
        for k, group in self.group_of.items():
            own = parent[k]
            if own != k:
                own = root(own)
            for a in equations[k][1]:
                if within[a] == group:
                    near = made_by[a]
                else:
                    near = readers.get(group * n + a, GIVEN)
                    if near == GIVEN:
                        if shares(a, group):
                            readers[group * n + a] = k
                        continue
                other = parent[near]
                if other != own:
                    parent[own] = own = root(other)
        found: dict[int, list[int]] = {}
        for k in sorted(self.group_of):
            own = parent[k]
            if own != k:
                own = root(own)
            if own in found:
                found[own].append(k)
            else:
                found[own] = [k]
        return list(found.values())
