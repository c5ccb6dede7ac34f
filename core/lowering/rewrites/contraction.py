"""Sums over products of factors, without the product: merged, summed and contracted in pairs.

The steps, each only where it saves work:

1. a factor whose axes another one has too is multiplied into that one,
2. an axis that only one factor has is summed there (``(sum_b x_ab) (sum_c y_ac)``),
3. two factors that remain are one ``dot_general``.

Products keep their NaNs: ``0 * inf`` is one in whatever order. Step 2 is different, because a sum
may be infinite where a product of an element is not a number, and squares of small numbers vanish
that a product would have brought back: its result is trusted where all sums have ordinary sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.lowering.rewrites.emission import Emission
    from tracebridge.core.lowering.rewrites.factors import Axes, Factor, Unfolding

_PLANS: BoundedCache[SumOfProducts] = BoundedCache("sums of products", 256)

_LEAST_WORK = 1 << 13  # products; fewer take no time worth mentioning


class Term(NamedTuple):
    """A factor while a sum is planned: its axes, and how it is made of the leaves."""

    axes: tuple[int, ...]
    make: Callable[[Emission], int]


class Product(NamedTuple):
    """A product of values with named axes, and which of these a sum of it keeps.

    ``factors``: of each the place of its value among those that ``leaves`` of `product_of` names,
    and its axes. ``sizes``: of the axes.
    """

    factors: tuple[tuple[int, tuple[int, ...]], ...]
    sizes: tuple[int, ...]
    everything: tuple[int, ...]
    sign: int
    kept: tuple[int, ...]
    out_shape: tuple[int, ...]


def product_of(
    found: Unfolding, factors: Sequence[Factor], kept: Axes, out_shape: tuple[int, ...]
) -> tuple[Product, list[int]]:
    """The product of ``factors``, and the numbers of its values."""
    leaves = list(dict.fromkeys([f.number for f in factors]))
    product = Product(
        tuple([(leaves.index(f.number), found.resolved(f.axes)) for f in factors]),
        tuple(found.sizes),
        found.resolved(range(len(found.sizes))),
        found.sign,
        found.resolved(kept),
        out_shape,
    )
    return product, leaves


def planned(product: Product, params: Params, *, as_pair: bool = False) -> SumOfProducts:
    """The plan of a sum, the same one for equal sums."""
    key = product, tuple(params.items()), as_pair
    return _PLANS.get_or_make(key, lambda: SumOfProducts(product, params, as_pair=as_pair))


@final
class SumOfProducts:
    """A sum over axes of a product, planned; its ``result`` is None where nothing is won.

    ``as_pair``: the two factors are contracted whatever their axes. ``sums``: what step 2 gives,
    which has to be looked at; ``others``: terms that it left as they were, which multiply the sums.
    """

    __slots__ = ("others", "out_axes", "params", "product", "result", "sums")

    def __init__(self, product: Product, params: Params, *, as_pair: bool) -> None:
        self.product, self.params, self.out_axes = product, params, product.kept
        self.sums: list[Term] = []
        self.others: list[Term] = []
        terms = [self._leaf(place, axes) for place, axes in product.factors]
        self.result = (
            self._transposed(self._contracted(*terms), self.out_axes)
            if as_pair
            else self._plan(terms)
        )

    def write(self, here: Emission) -> int:
        """Add the result."""
        assert self.result is not None  # nothing is won: nobody asks
        return self._finished(here, here.made(self.result.make))

    def write_guarded(self, here: Emission) -> list[int]:
        """Add whether the result can be trusted, and the result."""
        assert self.result is not None  # nothing is won: nobody asks
        out = here.made(self.result.make)
        return [self._trusted(here, out), self._finished(here, out)]

    def _finished(self, here: Emission, out: int) -> int:
        if self.product.sign < 0:
            out = here.apply(lax.neg_p, out)
        return here.reshape(out, self.product.out_shape)

    def _leaf(self, place: int, axes: tuple[int, ...]) -> Term:
        shape = self._shape(axes)
        return Term(axes, lambda here: here.reshape(here.leaves[place], shape))

    def _shape(self, axes: Sequence[int]) -> tuple[int, ...]:
        sizes = self.product.sizes
        return tuple([sizes[a] for a in axes])

    def _plan(self, terms: list[Term]) -> Term | None:
        everything = {a for t in terms for a in t.axes}
        # An axis that was broadcast, and that no factor has, stands for copies that are summed.
        if everything != set(self.product.everything):
            return None
        if math.prod(self._shape(tuple(everything))) < _LEAST_WORK:
            return None
        terms = self._merged(terms)
        # A factor with all axes stays: it is the product itself.
        if any([everything <= set(t.axes) for t in terms]):
            return None
        summed = [self._summed_alone(t, terms) for t in terms]
        self.sums = [new for new, old in zip(summed, terms, strict=True) if new is not old]
        self.others = [new for new, old in zip(summed, terms, strict=True) if new is old]
        if self.sums:
            terms = self._merged(summed)
        if len(terms) > 2:
            return None
        out = terms[0] if len(terms) == 1 else self._contracted(*terms)
        gone = [a for a in out.axes if a not in self.out_axes]
        return self._transposed(self._sum(out, gone), self.out_axes)

    def _merged(self, terms: Sequence[Term]) -> list[Term]:
        """Terms whose axes another one has are multiplied into the smallest such one."""
        left = sorted(terms, key=lambda t: math.prod(self._shape(t.axes)))
        merged: list[Term] = []
        while left:
            term = left.pop(0)
            fits = [i for i, t in enumerate(left) if set(term.axes) <= set(t.axes)]
            if fits:
                left[fits[0]] = self._product(left[fits[0]], term)
            else:
                merged.append(term)
        return merged

    def _product(self, large: Term, small: Term) -> Term:
        order = [a for a in large.axes if a in small.axes]
        small = self._transposed(small, tuple(order))
        shape, places = self._shape(large.axes), tuple([large.axes.index(a) for a in order])

        def make(here: Emission) -> int:
            x, y = here.made(large.make), here.made(small.make)
            # Scalars stand beside arrays as they are.
            return here.apply(lax.mul_p, x, here.broadcast(y, shape, places) if places else y)

        return Term(large.axes, make)

    def _summed_alone(self, term: Term, terms: Sequence[Term]) -> Term:
        others = {a for t in terms if t is not term for a in t.axes}
        return self._sum(term, [a for a in term.axes if a not in others and a not in self.out_axes])

    def _sum(self, term: Term, over: Sequence[int]) -> Term:
        if not over:
            return term
        places = tuple([term.axes.index(a) for a in over])
        kept = tuple([a for a in term.axes if a not in over])
        return Term(kept, lambda here: here.over(lax.reduce_sum_p, here.made(term.make), places))

    def _contracted(self, x: Term, y: Term) -> Term:
        shared = [a for a in x.axes if a in y.axes]
        batch = [a for a in shared if a in self.out_axes]
        summed = [a for a in shared if a not in self.out_axes]
        contracting, batches = [
            tuple([tuple([t.axes.index(a) for a in axes]) for t in (x, y)])
            for axes in (summed, batch)
        ]
        params = {**self.params, "dimension_numbers": (contracting, batches)}
        free = [a for t in (x, y) for a in t.axes if a not in shared]

        def make(here: Emission) -> int:
            return here.apply(lax.dot_general_p, here.made(x.make), here.made(y.make), **params)

        return Term((*batch, *free), make)

    def _transposed(self, term: Term, axes: tuple[int, ...]) -> Term:
        if term.axes == axes:
            return term
        permutation = tuple([term.axes.index(a) for a in axes])

        def make(here: Emission) -> int:
            return here.apply(lax.transpose_p, here.made(term.make), permutation=permutation)

        return Term(axes, make)

    def _trusted(self, here: Emission, out: int) -> int:
        """Whether no sum is too large, too small or not a number, and no other term too large.

        A sum of squares that is 0 may have lost numbers: no harm where all that it is multiplied
        by, together, is moderate.
        """
        tiny = float(np.finfo(here.graph.avals[out].dtype).tiny)
        least, most = tiny**0.5, tiny ** (-1 / 3 / max(len(self.sums) + len(self.others) - 1, 1))
        trusted = _all(here, here.apply(lax.is_finite_p, out))
        for s in [here.apply(lax.abs_p, here.made(t.make)) for t in self.sums]:
            is_large = here.apply(lax.ge_p, s, here.number(least, s))
            is_small = here.apply(lax.le_p, s, here.number(most, s))
            moderate = here.apply(lax.and_p, is_large, is_small)
            is_zero = here.apply(lax.eq_p, s, here.number(0.0, s))
            each = _all(here, here.apply(lax.or_p, is_zero, moderate))
            trusted = here.apply(lax.and_p, trusted, each)
        for other in [here.apply(lax.abs_p, here.made(t.make)) for t in self.others]:
            each = _all(here, here.apply(lax.le_p, other, here.number(most, other)))
            trusted = here.apply(lax.and_p, trusted, each)
        return trusted


def _all(here: Emission, flags: int) -> int:
    return here.over(lax.reduce_and_p, flags, range(len(here.shape(flags))))
