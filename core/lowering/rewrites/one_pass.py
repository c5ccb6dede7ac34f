"""One pass over a program, in which each equation is given to the rewrite of its primitive."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.config.values import tracing_key
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.traverse import primitives_of
from tracebridge.core.lowering.rewrites.copies import Copies
from tracebridge.core.lowering.rewrites.emission import Emission
from tracebridge.core.lowering.rewrites.factors import is_outer_product
from tracebridge.core.lowering.rewrites.guarded import guarded_p
from tracebridge.core.lowering.rewrites.joins import Joins
from tracebridge.core.lowering.rewrites.producers import Reads, makers, producers, variable_avals
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.value import Value

_STAGED: BoundedCache[Jaxpr] = BoundedCache("what rewrites emit", 256)

_FUSED = frozenset({Cost.FREE, Cost.MOVES_DATA, Cost.CHEAP, Cost.EXPENSIVE, Cost.COMPOSED})

Made = dict[int, "tuple[Application, Sequence[int]]"]
Rewrites = dict[Any, Callable[..., "int | None"]]

_MULTIPLIES = frozenset({lax.mul_p, lax.square_p, lax.integer_pow_p})
_PLACES = frozenset(
    {lax.neg_p, lax.broadcast_in_dim_p, lax.transpose_p, lax.reshape_p, lax.squeeze_p}
)


@final
class Pass:
    """One Jaxpr while it is rewritten, by a list of rewrites.

    Most programs stay as they are. So rewrites look at the equations of their primitives in the
    program itself: values have the numbers of variables, and the graph knows their types only.
    Where a rewrite changes something, what is before it goes into the graph (``write``), and from
    there on the graph gets each equation.
    """

    def __init__(self, jaxpr: Jaxpr, rewrites: Rewrites) -> None:
        self.jaxpr, self.rewrites = jaxpr, rewrites
        self.graph = Graph()
        self.made_by: Made = {}
        self.copies = Copies(self.made_by)
        self.waves: dict[object, int] = {}
        self.written: dict[int, int] = {}
        """Values that are computed once and read from memory -> what stands for them."""
        self.joins = Joins(self.graph)
        self.changed = self.compares = False
        self.numbers: list[int] = []
        """Of the variables of the program."""
        self._products: dict[int, bool] = {}
        self._apart: dict[int, bool] = {}
        self._reads: Reads | None = None
        self.last = 0
        """The value whose equation is looked at."""
        self._is_written = False

    def result(self) -> Jaxpr | None:
        """The program, if anything changes."""
        jaxpr, rewrites = self.jaxpr, self.rewrites
        if primitives_of(jaxpr).isdisjoint(rewrites):
            return None
        self.made_by.update(makers(jaxpr))
        self.graph.variables(jaxpr, variable_avals(jaxpr))
        self.numbers.extend(range(len(self.graph.avals)))
        wanted = [item for item in self.made_by.items() if item[1][0].primitive in rewrites]
        for v, (app, args) in wanted:
            self.last = v
            new = rewrites[app.primitive](self, app, args, self._source_of(v))
            if new is not None or self._is_written:
                self.write()
                return self._rest(v, new)
        return None

    def _source_of(self, v: int) -> object:
        """Where the equation of a variable comes from."""
        sources = self.jaxpr.sources
        return None if sources is None else sources[producers(self.jaxpr)[0][v]]

    def write(self) -> None:
        """Begin the program, up to the equation that is looked at, if it has not been begun."""
        if self._is_written:
            return
        self._is_written = True
        jaxpr, n = self.jaxpr, self.last + 1
        made_by, first = producers(jaxpr)
        sources = jaxpr.sources or [None] * len(first)
        end = made_by[self.last] + 1
        equations = zip(jaxpr.equations[:end], first, sources, strict=False)
        self.graph.equations.extend([(app, args, v, s) for (app, args), v, s in equations])
        for v in range(n, len(self.numbers)):
            self.made_by.pop(v, None)
        del self.graph.avals[n:], self.numbers[n:]
        self._reads = None

    def _rest(self, v: int, new: int | None) -> Jaxpr | None:
        """The program, where the value of the variable ``v`` has become ``new``."""
        jaxpr, graph, numbers = self.jaxpr, self.graph, self.numbers
        avals, equations, made_by = graph.avals, graph.equations, self.made_by
        if new is not None:
            self.changed, numbers[v] = True, new
        begin = producers(jaxpr)[0][v] + 1
        sources, rewrite_of, written = jaxpr.sources, self.rewrites.get, self.written
        for k, (app, idx) in enumerate(jaxpr.equations[begin:], begin):
            source = sources[k] if sources else None
            args = [numbers[i] for i in idx]
            if written:
                args = [written.get(a, a) for a in args]
            if app.multiple:
                first = graph.add(app, args, source)
                numbers.extend(range(first, first + len(app.outs)))
                continue
            # As Graph.add does: this loop sees every equation.
            first = len(avals)
            avals.append(app.out)
            equations.append((app, args, first, source))
            made_by[first] = app, args
            rewrite, self.last = rewrite_of(app.primitive), first
            new = rewrite(self, app, args, source) if rewrite is not None else None
            self.changed |= new is not None
            numbers.append(first if new is None else new)
        if not self.changed:
            return None
        outs = [written.get(numbers[i], numbers[i]) for i in jaxpr.outs]
        return graph.program(range(jaxpr.n_in), outs, jaxpr.debug)

    def emit(
        self,
        run: Callable[..., object],
        args: Sequence[int],
        source: object,
        key: Hashable | None = None,
    ) -> int:
        """The equations of a function of values, which has one result.

        ``key``: all that the function depends on besides, if it may be remembered.
        """
        self.write()
        program = self.staged(run, args, key)
        (number,) = self.graph.inline(program, args, source)
        return number

    def staged(
        self, run: Callable[..., object], args: Sequence[int], key: Hashable | None
    ) -> Jaxpr:
        """A function of values as a program."""
        avals = [self.graph.avals[a] for a in args]

        def listed(*values: Value) -> list[Any]:
            out = run(*values)
            return list(out) if isinstance(out, tuple) else [out]

        def staged() -> Jaxpr:
            return stage(listed, avals, locate=False)

        if key is None:
            return staged()
        return _STAGED.get_or_make((key, tuple(avals), tracing_key()), staged)

    def write_equations(
        self, write: Callable[[Emission], int], leaves: Sequence[int], source: object
    ) -> int:
        """As ``emit``, of what puts equations into a graph itself."""
        self.write()
        return write(Emission(self.graph, leaves, source))

    def written_program(
        self, write: Callable[[Emission], list[int]], leaves: Sequence[int], key: Hashable
    ) -> Jaxpr:
        """What puts equations into a graph, as a program. ``key``: all that it depends on."""
        avals = [self.graph.avals[a] for a in leaves]

        def written() -> Jaxpr:
            graph = Graph()
            inputs = graph.inputs(avals)
            return graph.program(inputs, write(Emission(graph, inputs)), NO_DEBUG_INFO)

        return _STAGED.get_or_make((key, tuple(avals)), written)

    def guarded(self, fast: Jaxpr, leaves: Sequence[int]) -> int:
        """Flag and result of the program ``fast``, or the equation that was added last."""
        self.write()
        plain = self.graph.program(leaves, [len(self.graph.avals) - 1], NO_DEBUG_INFO)
        plain.cache["rewritten"] = None
        params = {"fast": fast, "plain": plain}
        return self.graph.add_bound(guarded_p, leaves, params)

    def readers(self, number: int) -> int:
        """How often the program, as it was written, reads a value of the graph."""
        if self._reads is None:
            self._reads = Reads(self.jaxpr)
        return self._reads.of(number, self.numbers)

    def is_product(self, number: int) -> bool:
        """Whether a value may have several factors: it is a product, moved about."""
        known = self._products.get(number)
        if known is None:
            made = self.made_by.get(number)
            known = self._products[number] = made is not None and self._multiplies(*made)
        return known

    def _multiplies(self, app: Application, args: Sequence[int]) -> bool:
        primitive = app.primitive
        if primitive is lax.dot_general_p:
            return is_outer_product(app)
        return primitive in _MULTIPLIES or (primitive in _PLACES and self.is_product(args[0]))

    def comes_apart(self, number: int) -> bool:
        """Whether a value may be a product of factors none of which has all of its axes."""
        known = self._apart.get(number)
        if known is None:
            made = self.made_by.get(number)
            known = self._apart[number] = made is not None and self._comes_apart(*made)
        return known

    def _comes_apart(self, app: Application, args: Sequence[int]) -> bool:
        primitive = app.primitive
        if primitive is lax.dot_general_p:
            return is_outer_product(app)
        if primitive is lax.broadcast_in_dim_p and _may_be_larger(app):
            return True
        if primitive in _MULTIPLIES:
            pairs = zip(args, app.avals, strict=True)
            return all([self.comes_apart(a) for a, aval in pairs if aval.ndim])
        return primitive in _PLACES and self.comes_apart(args[0])

    def is_fused(self, number: int) -> bool:
        """Whether XLA computes a value inside of what reads it, so that it is not in memory."""
        made = self.made_by.get(number)
        return made is not None and made[0].primitive.cost in _FUSED

    def is_static(self, app: Application) -> bool:
        """Whether all sizes are numbers, and there are elements."""
        return all([type(a.size) is int and a.size > 0 for a in (*app.avals, *app.outs)])


def _may_be_larger(app: Application) -> bool:
    """Whether a broadcast repeats elements."""
    x, out = app.avals[0].size, app.out.size
    return type(x) is not int or type(out) is not int or out > x
