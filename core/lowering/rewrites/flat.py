"""Programs without calls: what some equations stand for in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.config.values import option
from tracebridge.core.interpreters.graph import Graph, joined
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import Jaxpr, renumbered
from tracebridge.core.ir.traverse import distinct_applications, primitives_of
from tracebridge.core.lax.reduce.exp_sums import by_largest, shifted_exp_sum_p
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Equation
    from tracebridge.core.ir.primitive import Primitive


_SHIFTED: BoundedCache[Jaxpr] = BoundedCache("shifted sums by equation", 64)


def computed_by(app: Application) -> Jaxpr | None:
    """What a call computes of a function with derivatives of its own."""
    called = app.primitive.computes
    return None if called is None else app.params[called]


def with_shifts(app: Application) -> Jaxpr | None:
    """As ``computed_by``, and a sum of shifted exponentials with the largest one as the shift."""
    if app.primitive is shifted_exp_sum_p:
        return _SHIFTED.get_or_make(app, lambda: _by_largest(app))
    return computed_by(app)


def _by_largest(app: Application) -> Jaxpr:
    return stage(lambda x: list(by_largest(x, **app.params)), app.avals, locate=False)


def is_call(primitive: Primitive) -> bool:
    """Whether an equation may stand for others."""
    return bool(primitive.computes or primitive.inlinable or primitive is shifted_exp_sum_p)


def flat(jaxpr: Jaxpr, meaning: Callable[[Application], Jaxpr | None]) -> Jaxpr:
    """The program with the equations of ``meaning(app)`` for each ``app`` that has one."""
    calls = {p for p in primitives_of(jaxpr) if is_call(p)}
    if not calls:
        return jaxpr
    meanings: dict[Application, Jaxpr] = {}
    for app in distinct_applications(jaxpr):
        meant = meaning(app) if app.primitive in calls else None
        if meant is not None:
            meanings[app] = flat(meant, meaning)
    if not meanings:
        return jaxpr
    return _Flat(jaxpr, meanings).program()


@final
class _Flat:
    """A program without calls while it is written; ``meanings`` have none either.

    Mostly all equations are needed: they get their numbers at once.
    """

    def __init__(self, jaxpr: Jaxpr, meanings: dict[Application, Jaxpr]) -> None:
        self.jaxpr, self.meanings = jaxpr, meanings
        self.equations: list[Equation] = []
        self.sources: list[Any] = []
        objects = {id(c): c for program in (jaxpr, *meanings.values()) for c in program.consts}
        self.consts = list(objects.values())
        n_in = jaxpr.n_in
        self.of_object = dict(zip(objects, range(n_in, n_in + len(objects)), strict=True))
        """The same object is one constant."""
        self.n_variables = n_in + len(objects)

    def program(self) -> Jaxpr:
        """The program."""
        jaxpr = self.jaxpr
        outs = self._write(jaxpr, range(jaxpr.n_in), None)
        read = {*range(jaxpr.n_in), *outs}.union(*[args for _, args in self.equations])
        if len(read) < self.n_variables or option("enable_checks"):
            return self._needed(outs)
        is_located = any(s is not None for s in self.sources)  # mostly the first one tells
        sources = self.sources if is_located else None
        in_avals, out_avals, debug = jaxpr.in_avals, jaxpr.out_avals, jaxpr.debug
        return Jaxpr(in_avals, self.consts, self.equations, outs, out_avals, sources, debug)

    def _needed(self, outs: Sequence[int]) -> Jaxpr:
        """The program without what nobody needs."""
        graph = Graph()
        inputs = graph.inputs(self.jaxpr.in_avals)
        for const in self.consts:
            graph.constant(const)
        for (app, args), source in zip(self.equations, self.sources, strict=True):
            graph.add(app, args, source)
        return graph.program(inputs, outs, self.jaxpr.debug)

    def _write(self, program: Jaxpr, args: Sequence[int], source: object) -> list[int]:
        """The equations of a program; the variables that are its results."""
        env = [*args, *[self.of_object[id(c)] for c in program.consts]]
        equations, meanings, begin = program.equations, self.meanings, 0
        for k in [k for k, (app, _) in enumerate(equations) if app in meanings]:
            app, idx = equations[k]
            self._copy(program, begin, k, env, source)
            begin = k + 1
            here = source if program.sources is None else joined(source, program.sources[k])
            env.extend(self._write(meanings[app], [env[i] for i in idx], here))
        self._copy(program, begin, len(equations), env, source)
        return [env[v] for v in program.outs]

    def _copy(self, program: Jaxpr, begin: int, end: int, env: list[int], source: object) -> None:
        """The equations of a part of a program that has no calls.

        ``env``: the new numbers of its variables before.
        """
        equations, sources = program.equations[begin:end], program.sources
        # Results have numbers one after another: all of them are known at once.
        n = len(equations) + sum([len(app.outs) - 1 for app, _ in equations if app.multiple])
        env.extend(range(self.n_variables, self.n_variables + n))
        self.n_variables += n
        self.equations += renumbered(equations, env)
        if sources is None:
            self.sources += [source] * len(equations)
        elif source is None:
            self.sources += sources[begin:end]
        else:
            self.sources += [joined(source, s) for s in sources[begin:end]]
