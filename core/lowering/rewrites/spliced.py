"""Programs in which other programs stand for some equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

from tracebridge.core.config.values import option
from tracebridge.core.interpreters.graph import joined
from tracebridge.core.ir.check import check_jaxpr
from tracebridge.core.ir.jaxpr import Jaxpr, renumbered
from tracebridge.core.lowering.rewrites.producers import producers

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Equation
    from tracebridge.core.ir.values import Value


class Instead(NamedTuple):
    """A program with one result that needs all equations, and the variables that it is given."""

    program: Jaxpr
    args: Sequence[int]


def spliced(jaxpr: Jaxpr, instead: Mapping[int, Instead]) -> Jaxpr:
    """``jaxpr`` with other programs for some of its equations, without what nobody needs then.

    ``instead``: by the place of an equation that has one result and no effects.
    """
    return _Spliced(jaxpr, instead).program()


@final
class _Spliced:
    def __init__(self, jaxpr: Jaxpr, instead: Mapping[int, Instead]) -> None:
        self.jaxpr, self.instead = jaxpr, instead
        self.made_by, self.first = producers(jaxpr)
        self.variables = [-1] * len(self.made_by)
        """Of the variables so far: their numbers in the new program."""
        self.of_object: dict[int, int] = {}
        """The same object is one constant."""
        self.equations: list[Equation] = []
        self.sources: list[Any] = []

    def program(self) -> Jaxpr:
        """The program."""
        jaxpr = self.jaxpr
        kept, needed = self._needed()
        consts = self._numbered_consts(needed, kept)
        self._write(kept, jaxpr.n_in + len(consts))
        outs = [self.variables[v] for v in jaxpr.outs]
        sources = self.sources if any(s is not None for s in self.sources) else None
        debug, out_avals = jaxpr.debug, jaxpr.out_avals
        new = Jaxpr(jaxpr.in_avals, consts, self.equations, outs, out_avals, sources, debug)
        if option("enable_checks"):
            check_jaxpr(new)
        return new

    def _needed(self) -> tuple[list[int], bytearray]:
        """Equations that somebody needs, and those that stay anyway; and which variables are."""
        kept: list[int] = []
        needed = bytearray(len(self.made_by))
        equations, first, instead = self.jaxpr.equations, self.first, self.instead
        for v in self.jaxpr.outs:
            needed[v] = 1
        for k in range(len(equations) - 1, -1, -1):
            (app, args), v = equations[k], first[k]
            is_needed = 1 in needed[v : v + len(app.outs)] if app.multiple else needed[v]
            if is_needed or app.effects or app.primitive.has_rules_of_users:
                kept.append(k)
                for a in args if k not in instead else _read(instead[k]):
                    needed[a] = 1
        kept.reverse()
        return kept, needed

    def _numbered_consts(self, needed: bytearray, kept: Sequence[int]) -> list[Value]:
        """The constants that are needed, with numbers behind the inputs."""
        jaxpr, variables, of_object = self.jaxpr, self.variables, self.of_object
        consts: list[Value] = []
        variables[: jaxpr.n_in] = range(jaxpr.n_in)
        programs = [self.instead[k].program for k in kept if k in self.instead]
        also = {id(c) for program in programs for c in program.consts}
        for v, const in enumerate(jaxpr.consts, jaxpr.n_in):
            if needed[v] or (id(const) in also and id(const) not in of_object):
                variables[v] = jaxpr.n_in + len(consts)
                of_object.setdefault(id(const), variables[v])
                consts.append(const)
        for program in programs:
            for const in program.consts:
                if id(const) not in of_object:
                    of_object[id(const)] = jaxpr.n_in + len(consts)
                    consts.append(const)
        return consts

    def _write(self, kept: Sequence[int], number: int) -> None:
        """The equations; results have numbers from ``number`` on."""
        jaxpr, variables, first, instead = self.jaxpr, self.variables, self.first, self.instead
        equations, sources = jaxpr.equations, jaxpr.sources or [None] * len(first)
        stay: list[int] = []  # equations that are written when all that they read has its number
        for k in kept:
            if k in instead:
                self._copy(stay, sources)
                stay = []
                variables[first[k]] = self._inline(instead[k], number, sources[k])
                number += sum([len(app.outs) for app, _ in instead[k].program.equations])
                continue
            stay.append(k)
            app = equations[k][0]
            if app.multiple:
                n = len(app.outs)
                variables[first[k] : first[k] + n] = range(number, number + n)
                number += n
            else:
                variables[first[k]] = number
                number += 1
        self._copy(stay, sources)

    def _copy(self, places: Sequence[int], sources: Sequence[Any]) -> None:
        """Equations of the program one after another."""
        equations = self.jaxpr.equations
        self.equations += renumbered([equations[k] for k in places], self.variables)
        self.sources += [sources[k] for k in places]

    def _inline(self, instead: Instead, number: int, source: object) -> int:
        """The equations of a program; its result."""
        program, variables = instead.program, self.variables
        env = [variables[a] for a in instead.args]
        env += [self.of_object[id(c)] for c in program.consts]
        n = sum([len(app.outs) for app, _ in program.equations])
        env += range(number, number + n)
        self.equations += renumbered(program.equations, env)
        inner = program.sources or [None] * len(program.equations)
        self.sources += [joined(source, s) for s in inner]
        return env[program.outs[0]]


def _read(instead: Instead) -> set[int]:
    """The variables that a program reads of those that it is given."""
    program, given = instead.program, instead.args
    read = set(program.outs).union(*[args for _, args in program.equations])
    return {given[a] for a in read if a < len(given)}
