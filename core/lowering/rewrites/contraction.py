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
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.lowering.rewrites.factors import Axes, Factor, Unfolding

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.value import Value

_LEAST_WORK = 1 << 13  # products; fewer take no time worth mentioning

Values = Sequence[Any]


class Term(NamedTuple):
    """A factor while a sum is planned: its axes, and how it is made of the leaves."""

    axes: tuple[int, ...]
    make: Callable[[Values], Any]


@final
class SumOfProducts:
    """A sum over axes of a product of leaves, planned; ``None`` from ``plan`` where nothing is won.

    ``leaves``: numbers of the values that it is made of. ``as_pair``: the two factors are
    contracted whatever their axes. ``sums``: what step 2 gives, which has to be looked at;
    ``others``: terms that it left as they were, which multiply the sums.
    """

    __slots__ = (
        "found", "key", "leaves", "others", "out_axes", "out_shape", "params", "result", "sums",
    )  # fmt: skip

    def __init__(
        self,
        found: Unfolding,
        factors: Sequence[Factor],
        out_axes: Axes,
        out_shape: tuple[int, ...],
        params: Params,
        *,
        as_pair: bool = False,
    ) -> None:
        self.found, self.out_shape, self.params = found, out_shape, params
        self.out_axes = found.resolved(out_axes)
        self.leaves = list(dict.fromkeys([f.number for f in factors]))
        self.sums: list[Term] = []
        self.others: list[Term] = []
        terms = [self._leaf(f) for f in factors]
        places = tuple([(self.leaves.index(f.number), f.axes) for f in factors])
        of_axes = tuple(found.sizes), tuple(found.parts.items()), found.sign
        self.key = places, of_axes, out_axes, out_shape, tuple(params.items()), as_pair
        """What the function ``run`` depends on."""
        self.result = (
            self._transposed(self._contracted(*terms), self.out_axes)
            if as_pair
            else self._plan(terms)
        )

    def run(self, leaves: Values) -> tuple[Any, Any]:
        """Whether the result can be trusted (None: always), and the result."""
        assert self.result is not None  # nothing is won: nobody asks
        out = self.result.make(leaves)
        trusted = self._trusted(leaves, out) if self.sums else None
        if self.found.sign < 0:
            out = lax.neg(out)
        return trusted, lax.reshape(out, self.out_shape)

    def _leaf(self, factor: Factor) -> Term:
        place = self.leaves.index(factor.number)
        axes = self.found.resolved(factor.axes)
        shape = self._shape(axes)
        return Term(axes, lambda leaves: _reshaped(leaves[place], shape))

    def _shape(self, axes: Sequence[int]) -> tuple[int, ...]:
        return tuple([self.found.sizes[a] for a in axes])

    def _plan(self, terms: list[Term]) -> Term | None:
        everything = {a for t in terms for a in t.axes}
        # An axis that was broadcast, and that no factor has, stands for copies that are summed.
        if everything != set(self.found.resolved(range(len(self.found.sizes)))):
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

        def make(leaves: Values) -> Any:
            x, y = large.make(leaves), small.make(leaves)
            # Scalars stand beside arrays as they are.
            return lax.mul(x, lax.broadcast_in_dim(y, shape, places) if places else y)

        return Term(large.axes, make)

    def _summed_alone(self, term: Term, terms: Sequence[Term]) -> Term:
        others = {a for t in terms if t is not term for a in t.axes}
        return self._sum(term, [a for a in term.axes if a not in others and a not in self.out_axes])

    def _sum(self, term: Term, over: Sequence[int]) -> Term:
        if not over:
            return term
        places = tuple([term.axes.index(a) for a in over])
        kept = tuple([a for a in term.axes if a not in over])
        return Term(kept, lambda leaves: lax.reduce_sum(term.make(leaves), places))

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

        def make(leaves: Values) -> Any:
            return lax.dot_general_p.bind(x.make(leaves), y.make(leaves), **params)

        return Term((*batch, *free), make)

    def _transposed(self, term: Term, axes: tuple[int, ...]) -> Term:
        if term.axes == axes:
            return term
        permutation = tuple([term.axes.index(a) for a in axes])
        return Term(axes, lambda leaves: lax.transpose(term.make(leaves), permutation))

    def _trusted(self, leaves: Values, out: Value) -> Any:
        """Whether no sum is too large, too small or not a number, and no other term too large.

        A sum of squares that is 0 may have lost numbers: no harm where all that it is multiplied
        by, together, is moderate.
        """
        tiny = float(np.finfo(out.aval.dtype).tiny)
        least, most = tiny**0.5, tiny ** (-1 / 3 / max(len(self.sums) + len(self.others) - 1, 1))
        trusted: Any = _all(lax.is_finite(out))
        for s in [lax.abs(s.make(leaves)) for s in self.sums]:
            moderate = lax.bitwise_and(lax.ge(s, least), lax.le(s, most))
            trusted = lax.bitwise_and(trusted, _all(lax.bitwise_or(lax.eq(s, 0.0), moderate)))
        for other in [lax.abs(t.make(leaves)) for t in self.others]:
            trusted = lax.bitwise_and(trusted, _all(lax.le(other, most)))
        return trusted


def _all(x: Value) -> Any:
    return lax.reduce_and(x, tuple(range(x.aval.ndim)))


def _reshaped(x: Value, shape: tuple[int, ...]) -> Any:
    return x if x.aval.shape == shape else lax.reshape(x, shape)
