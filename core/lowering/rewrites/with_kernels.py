"""Kernels of groups of equations, and programs that are written anew with them.

Nearly all equations stay what they are. So variables keep the numbers of the program that is
rewritten until the end, what kernels add gets numbers behind them, and one walk backwards and one
forwards give all of them their places in the new program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.config.values import option
from tracebridge.core.ir.check import check_jaxpr
from tracebridge.core.ir.jaxpr import Jaxpr, renumbered

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Equation
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.values import Value
    from tracebridge.core.lowering.rewrites.groups import Groups, Readers


class Kernel(ABC):
    """The equations of a kernel, what they read, and what of theirs others read.

    ``copies``: primitives of members that others do again where they read the results.
    """

    def __init__(
        self,
        groups: Groups,
        members: Sequence[int],
        readers: Readers,
        copies: frozenset[Primitive],
    ) -> None:
        self.groups = groups
        self.key = groups.keys[groups.group_of[members[0]]]
        first, equations = groups.first, groups.jaxpr.equations
        inside = set(members)
        copied, results, kept = list[int](), list[int](), list[int]()
        read, needed = set[int](), set[int]()  # outside, and inside
        for k in reversed(members):
            v, (app, args) = first[k], equations[k]
            if v in read or not inside.issuperset(readers[v]):
                if app.primitive in copies:
                    read.update(args)
                    copied.append(k)
                else:
                    results.append(v)
                    needed.add(v)
            if v in needed:
                needed.update(args)
                kept.append(k)
        for places in (copied, results, kept):
            places.reverse()
        self.copied = copied
        """Members that are made outside as well: they only copy."""
        self.results = results
        self.gives = results
        """The variables that the kernel makes for others: results, or what is joined of these."""
        self.members = kept
        self.unread = inside.difference(kept, copied)
        """Equations that are written neither inside nor outside."""
        operands = dict.fromkeys([a for k in kept for a in equations[k][1]])
        numbers, own = groups.numbers, {first[k] for k in kept}
        self.operands = [a for a in operands if a not in own and a not in numbers]
        self.constants = [a for a in operands if a in numbers]

    @abstractmethod
    def add_to(self, program: WithKernels) -> Sequence[int]:
        """Append its equations to a program; the variables that are what it gives there."""


@final
class WithKernels:
    """Writes a program anew: kernels stand where their last member was, or where they can run.

    ``avals``: of the variables of the program, and of those that kernels add.
    """

    def __init__(self, groups: Groups, kernels: Sequence[Kernel]) -> None:
        self.groups = groups
        self.kernels = {kernel.members[-1]: kernel for kernel in kernels}
        self.idle = {k for kernel in kernels for k in kernel.members}
        """Equations that are written inside of kernels only, or not at all."""
        self.idle -= {k for kernel in kernels for k in kernel.copied}
        self.idle |= {k for kernel in kernels for k in kernel.unread}
        self.avals: list[ShapedArray] = list(groups.avals)
        self._equations: list[Equation] = list(groups.jaxpr.equations)
        self._first = list(groups.first)
        self._n_own = len(self._equations)
        """The equations behind these are added."""
        self._given: dict[int, list[tuple[int, int]]] = {}
        """By the last equation of a kernel: variables that it gives, and what they are there."""

    def add_bound(self, primitive: Primitive, args: Sequence[int], params: Params) -> int:
        """Append an equation of a kernel; its first result."""
        avals, first = self.avals, len(self.avals)
        app = primitive.application(tuple([avals[a] for a in args]), params)
        avals.extend(app.outs)
        self._equations.append((app, tuple(args)))
        self._first.append(first)
        return first

    def program(self) -> Jaxpr:
        """The program with its kernels."""
        order: list[int] = []
        for k in _Order(self.groups, self.kernels, self.idle).found():
            kernel = self.kernels.get(k)
            if kernel is None:
                order.append(k)
            else:
                order.extend(self._added(kernel))
        jaxpr = self.groups.jaxpr
        needed = bytearray(len(self.avals))
        for v in jaxpr.outs:
            needed[v] = True
        order = self._needed(order, needed)
        variables, consts = self._numbered_consts(needed)
        equations = self._numbered(order, variables, jaxpr.n_in + len(consts))
        sources: list[Any] | None = None
        if jaxpr.sources is not None:
            own, n = jaxpr.sources, self._n_own
            sources = [own[k] if k < n else None for k in order]
            sources = sources if any(s is not None for s in sources) else None
        outs, out_avals = [variables[v] for v in jaxpr.outs], [self.avals[v] for v in jaxpr.outs]
        new = Jaxpr(jaxpr.in_avals, consts, equations, outs, out_avals, sources, jaxpr.debug)
        if option("enable_checks"):
            check_jaxpr(new)
        return new

    def _added(self, kernel: Kernel) -> range:
        """The equations of a kernel."""
        begin, avals = len(self._equations), self.avals
        given = list(zip(kernel.gives, kernel.add_to(self), strict=True))
        for v, new in given:
            avals[v] = avals[new]
        end = len(self._equations)
        self._given[end - 1] = given
        return range(begin, end)

    def _needed(self, order: Sequence[int], needed: bytearray) -> list[int]:
        """Equations that somebody needs, and those that stay anyway; marks variables."""
        kept: list[int] = []
        equations, firsts, n_own = self._equations, self._first, self._n_own
        for k in reversed(order):
            if k >= n_own:
                for v, new in self._given.get(k, ()):
                    needed[new] |= needed[v]
            (app, args), first = equations[k], firsts[k]
            if app.multiple:
                is_needed = 1 in needed[first : first + len(app.outs)]
            else:
                is_needed = needed[first] == 1
            if is_needed or app.effects or app.primitive.has_rules_of_users:
                kept.append(k)
                for a in args:
                    needed[a] = 1
        kept.reverse()
        return kept

    def _numbered_consts(self, needed: bytearray) -> tuple[list[int], list[Value]]:
        """Of each variable its new number, of constants so far; and the constants.

        The same object is one constant.
        """
        jaxpr, variables = self.groups.jaxpr, list(range(len(self.avals)))
        wanted = {id(c) for v, c in enumerate(jaxpr.consts, jaxpr.n_in) if needed[v]}
        consts: list[Value] = []
        of_object: dict[int, int] = {}
        for v, const in enumerate(jaxpr.consts, jaxpr.n_in):
            if id(const) in wanted:
                if id(const) not in of_object:
                    of_object[id(const)] = jaxpr.n_in + len(consts)
                    consts.append(const)
                variables[v] = of_object[id(const)]
        return variables, consts

    def _numbered(self, order: Sequence[int], variables: list[int], at: int) -> list[Equation]:
        """The equations, with results from the number ``at`` on."""
        equations, firsts, n_own = self._equations, self._first, self._n_own
        unchanged = 0
        if at == self.groups.jaxpr.n_in + len(self.groups.jaxpr.consts):
            while unchanged < len(order) and order[unchanged] == unchanged < n_own - 1:
                unchanged += 1
        if 0 < unchanged < n_own:
            at = firsts[unchanged]
        # The order tells all numbers: equations are written when these are known.
        others = order[unchanged:]
        for k in others:
            app = equations[k][0]
            if app.multiple:
                n, first = len(app.outs), firsts[k]
                variables[first : first + n] = range(at, at + n)
                at += n
            else:
                variables[firsts[k]] = at
                at += 1
            if k >= n_own:
                for v, new in self._given.get(k, ()):
                    variables[v] = variables[new]
        return equations[:unchanged] + renumbered([equations[k] for k in others], variables)


@final
class _Order:
    """In which order equations and kernels are written.

    An equation may read results of a kernel whose last member comes later: it waits for that.
    """

    def __init__(self, groups: Groups, kernels: dict[int, Kernel], idle: set[int]) -> None:
        self.groups, self.kernels, self.idle = groups, kernels, idle
        self.order: list[int] = []
        self.late: set[object] = {v for kernel in kernels.values() for v in kernel.gives}
        """What others read that is not written yet: variables, and effects."""
        self.readers: dict[object, list[int]] = {}
        self.missing: dict[int, int] = {}

    def found(self) -> list[int]:
        """The places of equations, and of the last members of kernels."""
        kernels, idle, late, order = self.kernels, self.idle, self.late, self.order
        readers = self.readers
        last_effect: object = None
        for k, (app, args) in enumerate(self.groups.jaxpr.equations):
            kernel = None
            if k in idle:
                kernel = kernels.get(k)  # the last member of one stands for it
                if kernel is None:
                    continue
            elif not app.effects and late.isdisjoint(args):  # as most equations
                order.append(k)
                continue
            waits = late.intersection(args if kernel is None else kernel.operands)
            if app.effects:  # those keep their order
                waits |= late & {last_effect}
                last_effect = ("effect", k)
                late.add(last_effect)
            if not waits:
                self._write(k)
                continue
            late.update(self._made(k))
            self.missing[k] = len(waits)
            for v in waits:
                if v in readers:
                    readers[v].append(k)
                else:
                    readers[v] = [k]
        assert not self.missing
        return order

    def _made(self, k: int) -> Collection[int]:
        """The variables that are there when an equation or the kernel of it is written."""
        kernel, first = self.kernels.get(k), self.groups.first[k]
        if kernel is not None:
            return kernel.gives
        app, _ = self.groups.jaxpr.equations[k]
        return range(first, first + len(app.outs)) if app.multiple else (first,)

    def _write(self, k: int) -> None:
        """Write an equation or kernel, and those that have waited for it."""
        ready, readers, missing, late = [k], self.readers, self.missing, self.late
        equations = self.groups.jaxpr.equations
        while ready:
            k = heappop(ready)
            self.order.append(k)
            made: Collection[object] = self._made(k)
            if equations[k][0].effects:
                made = [*made, ("effect", k)]
            late.difference_update(made)
            for v in made if readers else ():
                for reader in readers.pop(v, ()):
                    missing[reader] -= 1
                    if not missing[reader]:
                        del missing[reader]
                        heappush(ready, reader)
