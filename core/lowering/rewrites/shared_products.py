"""Sums of the same product with different weights: it is written once, and each sum is a product.

The backward pass of a normalisation sums ``dy * (x - mean)`` up by rows and by columns, times a
scale of the columns or divided by a deviation of the rows. XLA writes three arrays for that, each
almost the same. Here the factors that have all axes are multiplied and written once; weights along
what is summed make a product of a matrix and a vector of the sum, and the others multiply its
result. Microseconds with jaxlib 0.10.2 of backward passes, (4096, 256), beside other work:

| norm of | as it is | one product | temporary arrays |
|---|---|---|---|
| layers; the same in a training step | 1847; 1613 | 873; 985 | 12.6 MB; 0.1 MB |
| layers, multiplied by an inverse root | 690 | 568 | 8.4 MB; 0.1 MB |
| batches; root mean squares | 2048; 1233 | 1000; 634 | |

The forward pass of a training step takes 457 instead of 689: its arrays stay in the caches.

What multiplies a whole sum was inside of it: an infinity times a sum is not the sum of infinities,
and small numbers vanish that a large weight would have brought back. So weights and sums are looked
at; the plain sum runs where one of them has an unusual size. Weights may be 0, divisors may not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.config.values import tracing_key
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.debug_info import NO_DEBUG_INFO
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.reduce.cpu_sums import COLUMN_BLOCK, block_length
from tracebridge.core.lowering.rewrites.guarded import guarded_p
from tracebridge.core.lowering.rewrites.producers import producers
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.value import Value

_LEAST = 1 << 17  # elements; what is smaller stays in the caches near a core
_MOST_FACTORS = 8
_MOST_EQUATIONS = 64  # of a plain sum, which is there a second time
_LONGEST_ROW = 1 << 12  # longer ones lose digits in one product
_LARGE = float(2**20)  # for weights and their products; four of them are far from overflow
_SMALL_SUM = 1e-19  # below that, parts may have vanished
_SMALL_PART = 16  # so many times smaller than the product: written in any case

_FUSED = frozenset({Cost.FREE, Cost.MOVES_DATA, Cost.CHEAP, Cost.EXPENSIVE, Cost.COMPOSED})

_STAGED: BoundedCache[Jaxpr] = BoundedCache("sums by weights", 64)


def with_shared_products(jaxpr: Jaxpr) -> Jaxpr | None:
    """``jaxpr`` with products written once that several sums share; None if there are none."""
    found = [k for k, (app, _) in enumerate(jaxpr.equations) if app.primitive is lax.reduce_sum_p]
    sums = [k for k in found if _is_candidate(jaxpr.equations[k][0])]
    return _Shared(jaxpr, sums).result() if len(sums) > 1 else None


def _is_candidate(app: Application) -> bool:
    """Whether a sum is one of many elements, of which whole rows or columns are left."""
    if app.out.dtype != np.float32:
        return False
    (x,), axes = app.avals, app.params["axes"]
    if any([type(n) is not int for n in x.shape]) or x.size < _LEAST:
        return False
    n, length = len(axes), math.prod([x.shape[i] for i in axes])
    leads, trails = [sorted(axes) == list(range(s, s + n)) for s in (0, x.ndim - n)]
    if leads and block_length(length, COLUMN_BLOCK):
        return 0 < n < x.ndim
    return trails and 0 < n < x.ndim and length <= _LONGEST_ROW


class Weight(NamedTuple):
    """A factor without some of the axes: its variable, its axes, and whether it divides."""

    var: int
    axes: tuple[int, ...]
    divides: bool


class Product(NamedTuple):
    """Factors with all axes, those without some, and a number."""

    full: tuple[int, ...]
    weights: tuple[Weight, ...]
    number: float

    def read_at(self, places: dict[int, int]) -> Product:
        """The product without its full factors, weights by where they are among operands."""
        weights = tuple([w._replace(var=places[w.var]) for w in self.weights])
        return Product((), weights, self.number)


class _Sum(NamedTuple):
    """A sum: its equation, its factors, what it reads, and the equations between."""

    equation: int
    product: Product
    reads: tuple[int, ...]
    between: Sequence[int]


@final
class _Shared:
    """One program while its sums are compared; variables are those of the Jaxpr."""

    def __init__(self, jaxpr: Jaxpr, sums: Sequence[int]) -> None:
        self.jaxpr = jaxpr
        self.n_given = jaxpr.n_in + len(jaxpr.consts)
        self.made_by, self.first = producers(jaxpr)
        self.graph = Graph()
        self.numbers: list[int] = []
        self.written: dict[tuple[int, ...], int] = {}
        self.groups: dict[int, list[_Sum]] = {}
        """By the first one: sums that are computed together."""
        found = [(k, self._product_of(k)) for k in sums]
        shared: Counter[tuple[int, ...]] = Counter()
        shared.update([p.full for _, p in found if p is not None and len(p.full) > 1])
        for k, p in found:
            if p is not None and shared[p.full] > 1:
                self._join(k, p)

    def result(self) -> Jaxpr | None:
        """The program, if any product is shared."""
        if sum([len(group) for group in self.groups.values()]) < 2:
            return None
        jaxpr, graph, numbers = self.jaxpr, self.graph, self.numbers
        inputs = graph.inputs(jaxpr.in_avals)
        numbers.extend([*inputs, *[graph.constant(c) for c in jaxpr.consts]])
        results: dict[int, int] = {}
        for k, (app, idx) in enumerate(jaxpr.equations):
            source = jaxpr.sources[k] if jaxpr.sources else None
            if k in self.groups:
                group = self.groups[k]
                first = self._guarded(group)
                results.update({s.equation: first + i for i, s in enumerate(group)})
            first = graph.add(app, [numbers[v] for v in idx], source)
            numbers.extend(range(first, first + len(app.outs)))
            if k in results:
                numbers[-1] = results[k]
        return graph.program(inputs, [numbers[v] for v in jaxpr.outs], jaxpr.debug)

    def _guarded(self, group: Sequence[_Sum]) -> int:
        """The sums of a group by the product that they share, or as they were."""
        graph, numbers = self.graph, self.numbers
        variables = list(dict.fromkeys([v for s in group for v in s.reads]))
        operands = [self._written(group[0].product.full), *[numbers[v] for v in variables]]
        avals = [graph.avals[n] for n in operands]
        places = {v: i + 1 for i, v in enumerate(variables)}
        apps = [self.jaxpr.equations[s.equation][0] for s in group]

        # The same weights and sizes make the same program, whatever the variables are called.
        products = [s.product.read_at(places) for s in group]
        kinds = [(a.out, a.avals, a.params["axes"]) for a in apps]
        # Their text keeps 0.0 and -0.0 apart.
        key = tuple(avals), tuple(kinds), tuple(products), repr(products), tracing_key()
        fast = _STAGED.get(key)
        if fast is None:

            def weighted(*values: Value) -> list[Any]:
                sums = [
                    _WeightedSum(app, product, values)
                    for app, product in zip(apps, products, strict=True)
                ]
                outs = [s.run() for s in sums]
                return [_all([u for s in sums for u in s.usual]), *outs]

            fast = stage(weighted, avals, locate=False)
            _STAGED.set(key, fast)
        plain = self._plain(group, variables, avals)
        plain.cache["rewritten"] = fast.cache["rewritten"] = None
        return graph.add_bound(guarded_p, operands, {"fast": fast, "plain": plain})

    def _plain(
        self, group: Sequence[_Sum], variables: Sequence[int], avals: Sequence[ShapedArray]
    ) -> Jaxpr:
        """The sums as they were, of a product and of these variables."""
        jaxpr, graph = self.jaxpr, Graph()
        operands = graph.inputs(avals)
        numbers = dict(zip(variables, operands[1:], strict=True))
        between = {k for s in group for k in (*s.between, s.equation)}
        for k in sorted(between):
            app, args = jaxpr.equations[k]
            for v in args:
                if v not in numbers:
                    numbers[v] = graph.constant(jaxpr.consts[v - jaxpr.n_in])
            numbers[self.first[k]] = graph.add(app, [numbers[v] for v in args])
        outs = [numbers[self.first[s.equation]] for s in group]
        return graph.program(operands, outs, NO_DEBUG_INFO)

    def _written(self, full: tuple[int, ...]) -> int:
        number = self.written.get(full)
        if number is None:
            factors = [self.numbers[v] for v in full]
            avals = [self.graph.avals[n] for n in factors]
            program = stage(lambda *xs: [_multiplied(xs)], avals, locate=False)
            (number,) = self.graph.inline(program, factors)
            self.written[full] = number
        return number

    # plans ---------------------------------------------------------------------------------------

    def _join(self, k: int, product: Product) -> None:
        """Put a sum into the first group that all it reads is there for, or into a new one."""
        found = self._between(self.jaxpr.equations[k][1][0])
        if found is None:
            return
        reads = tuple(dict.fromkeys([*[w.var for w in product.weights], *found[0]]))
        new = _Sum(k, product, reads, found[1])
        last = max([self.made_by[v] for v in (*reads, *product.full)])
        for leader, group in self.groups.items():
            if group[0].product.full == product.full and last < leader:
                group.append(new)
                return
        self.groups[k] = [new]

    def _product_of(self, k: int) -> Product | None:
        """The factors of what an equation sums up, if its weights have fitting axes."""
        app, (operand,) = self.jaxpr.equations[k]
        found = self._factors(operand, app.avals[0])
        if found is None or len(found.full) + len(found.weights) > _MOST_FACTORS:
            return None
        summed = set(app.params["axes"])
        fits = all([summed.issuperset(w.axes) or summed.isdisjoint(w.axes) for w in found.weights])
        ordinary = 1 / _LARGE <= abs(found.number) <= _LARGE
        return found._replace(full=tuple(sorted(found.full))) if fits and ordinary else None

    def _factors(self, var: int, aval: ShapedArray, depth: int = 0) -> Product | None:
        """The factors of a value; None where there are too many."""
        if depth > _MOST_FACTORS:
            return None
        number = self._number(var)
        if number is not None:
            return Product((), (), number)
        if not aval.ndim:
            return Product((), (Weight(var, (), False),), 1.0)
        alone, k = Product((var,), (), 1.0), self.made_by[var]
        if k < 0:
            return alone
        app, args = self.jaxpr.equations[k]
        primitive = app.primitive
        if primitive is lax.broadcast_in_dim_p:
            return self._repeated(app, args[0]) or alone
        is_square = primitive is lax.square_p or (
            primitive is lax.integer_pow_p and app.params["y"] == 2
        )
        if not is_square and primitive not in (lax.mul_p, lax.div_p, lax.neg_p):
            return alone
        parts = [self._factors(v, a, depth + 1) for v, a in zip(args, app.avals, strict=True)]
        if is_square:
            parts *= 2
        if any([p is None for p in parts]):
            return None
        number = -1.0 if primitive is lax.neg_p else 1.0
        if primitive is lax.div_p:
            divided = _inverse(parts.pop())
            if divided is None:
                return alone
            parts.append(divided)
        return _together(number, [p for p in parts if p is not None])

    def _repeated(self, app: Application, operand: int) -> Product | None:
        """What is the same along some axis; None for what has all elements already."""
        (aval,), dims = app.avals, app.params["broadcast_dimensions"]
        number = self._number(operand)
        if number is not None:
            return Product((), (), number)
        if aval.size * _SMALL_PART > app.out.size:
            return None
        axes = tuple([d for n, d in zip(aval.shape, dims, strict=True) if n != 1])
        return Product((), (Weight(operand, axes, False),), 1.0)

    def _number(self, var: int) -> float | None:
        n_in = self.jaxpr.n_in
        const = self.jaxpr.consts[var - n_in] if n_in <= var < self.n_given else None
        return float(const.value) if isinstance(const, Literal) and not const.aval.ndim else None

    def _between(self, operand: int) -> tuple[list[int], list[int]] | None:
        """What a plain sum is made of that is in memory, and the equations between.

        None if there are too many.
        """
        leaves: list[int] = []
        between: list[int] = []
        seen, waiting = {operand}, [operand]
        size = self.jaxpr.equations[self.made_by[operand]][0].out.size
        while waiting and len(between) <= _MOST_EQUATIONS:
            v = waiting.pop()
            k = self.made_by[v]
            if k < 0:
                if self._number(v) is None:
                    leaves.append(v)
                continue
            app, args = self.jaxpr.equations[k]
            small = app.multiple or app.out.size * _SMALL_PART <= size
            if small or app.effects or app.primitive.cost not in _FUSED:
                leaves.append(v)
                continue
            between.append(k)
            new = [a for a in dict.fromkeys(args) if a not in seen]
            seen.update(new)
            waiting.extend(new)
        return None if waiting else (leaves, between)


def _together(number: float, parts: Sequence[Product]) -> Product:
    """The product of products and a number."""
    full = tuple([v for p in parts for v in p.full])
    weights = tuple([w for p in parts for w in p.weights])
    return Product(full, weights, number * math.prod([p.number for p in parts]))


def _inverse(divisor: Product | None) -> Product | None:
    """One by a product of weights; None for factors with all axes."""
    if divisor is None or divisor.full or divisor.number == 0:
        return None
    weights = tuple([w._replace(divides=not w.divides) for w in divisor.weights])
    return Product((), weights, 1 / divisor.number)


def _multiplied(factors: Sequence[Value]) -> Any:
    """The product, which nothing that reads it computes again."""
    out: Any = factors[0]
    for x in factors[1:]:
        out = lax.mul(out, x)
    return lax.optimization_barrier(out)


@final
class _WeightedSum:
    """The sum of a product that is in memory, by its weights; ``values``: it, and they."""

    def __init__(self, app: Application, product: Product, values: Sequence[Value]) -> None:
        self.out, self.shape, self.product = app.out, app.avals[0].shape, product
        self.summed = sorted(app.params["axes"])
        self.kept = [i for i in range(len(self.shape)) if i not in self.summed]
        self.values = values
        self.usual: list[Any] = []
        """Whether the elements of sums and weights have usual sizes."""

    def run(self) -> Any:
        """The sum."""
        weights = self.product.weights
        inner = self._weight([w for w in weights if self._is_summed(w)], self.summed)
        outer = self._weight([w for w in weights if not self._is_summed(w)], self.kept)
        total = self._total(inner)
        size = lax.abs(total)
        usual = lax.bitwise_or(lax.eq(size, 0.0), lax.ge(size, _SMALL_SUM))
        out = total if outer is None else lax.mul(total, outer)
        if self.product.number != 1:
            out = lax.mul(out, self.product.number)
        self.usual.append(lax.bitwise_and(usual, lax.is_finite(out)))
        return lax.reshape(out, self.out.shape)

    def _size(self, axes: Sequence[int]) -> int:
        return math.prod([self.shape[i] for i in axes])

    def _total(self, weight: Any) -> Any:
        """One number for each slice that stays, by a sum or a product of matrix and vector."""
        length, kept = self._size(self.summed), self._size(self.kept)
        if self.summed[0]:
            matrix = lax.reshape(self.values[0], (kept, length))
            if weight is None:
                return lax.reduce_sum(matrix, (1,))
            return lax.dot_general(matrix, weight, (((1,), (0,)), ((), ())))
        matrix = lax.reshape(self.values[0], (length, kept))
        if weight is None:
            return lax.reduce_sum(matrix, (0,))
        block = block_length(length, COLUMN_BLOCK)
        parts = lax.reshape(matrix, (length // block, block, kept))
        weight = lax.reshape(weight, (length // block, block))
        sums = lax.dot_general(weight, parts, (((1,), (1,)), ((0,), (0,))))
        return lax.reduce_sum(lax.optimization_barrier(sums), (0,))

    def _is_summed(self, weight: Weight) -> bool:
        return bool(weight.axes) and weight.axes[0] in self.summed

    def _weight(self, weights: Sequence[Weight], axes: Sequence[int]) -> Any:
        """The product of weights along ``axes``, as a vector; None if there are none."""
        if not weights:
            return None
        together: Any = None
        for weight, times in Counter(weights).items():
            x = self._spread(weight, axes)
            size = lax.abs(x)
            usual = lax.bitwise_and(lax.ge(size, 1 / _LARGE), lax.le(size, _LARGE))
            self.usual.append(usual if weight.divides else lax.bitwise_or(usual, lax.eq(x, 0.0)))
            x = lax.div(lax.full_like(x, 1), x) if weight.divides else x
            for _ in range(times):
                together = x if together is None else lax.mul(together, x)
        self.usual.append(lax.le(lax.abs(together), _LARGE))
        return together

    def _spread(self, weight: Weight, axes: Sequence[int]) -> Any:
        """A weight as a vector over all of ``axes``."""
        x: Any = self.values[weight.var]
        shape = tuple([self.shape[i] for i in axes])
        x = lax.reshape(x, tuple([self.shape[i] for i in weight.axes]))
        x = lax.broadcast_in_dim(x, shape, tuple([axes.index(i) for i in weight.axes]))
        return lax.reshape(x, (math.prod(shape),))


def _all(flags: Sequence[Value]) -> Any:
    """Whether all elements of some vectors are true; vectors of one length are joined first."""
    by_shape: dict[tuple[int, ...], Any] = {}
    for x in flags:
        shape = x.aval.shape
        by_shape[shape] = lax.bitwise_and(by_shape[shape], x) if shape in by_shape else x
    out: Any = None
    for x in by_shape.values():
        together = lax.reduce_and(x, (0,))
        out = together if out is None else lax.bitwise_and(out, together)
    return out
