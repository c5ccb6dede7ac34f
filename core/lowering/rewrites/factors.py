"""Values as products of factors with named axes, which broadcasts and outer products hide.

``x[:, None] * y[None]`` is a product of two factors, one with the axis a, one with the axis b. A
sum over such a product need not make the product: ``sum_a s_a x_ab g_ac`` is one contraction.
Axes are numbers here; ``None`` stands for an axis of size 1, which says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, final

from tracebridge.core import lax
from tracebridge.core.lax.contract.precision import is_pair

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application

Axes = tuple["int | None", ...]
Producers = Mapping[int, "tuple[Application, Sequence[int]]"]

_MOST_FACTORS = 12  # squares of squares of squares double each time
_MOST_VISITS = 48  # equations that are looked at for one sum
_PLACES = frozenset({lax.broadcast_in_dim_p, lax.transpose_p, lax.reshape_p, lax.squeeze_p})
_COMES_APART = _PLACES | {lax.mul_p, lax.square_p, lax.integer_pow_p, lax.neg_p, lax.dot_general_p}


class Factor(NamedTuple):
    """A value of the program, and which axis of the product each of its axes is."""

    number: int
    axes: Axes


@final
class Unfolding:
    """Takes values apart into factors.

    ``sizes``: of the axes. ``parts``: axes that a reshape made of several ones, which take their
    place. ``sign``: of the product. ``failed``: some value could not be understood together with
    the others.
    """

    __slots__ = ("failed", "made_by", "parts", "sign", "sizes", "visits")

    def __init__(self, made_by: Producers) -> None:
        self.made_by = made_by
        self.sizes: list[int] = []
        self.parts: dict[int, tuple[int, ...]] = {}
        self.sign = 1
        self.failed = False
        self.visits = 0

    def new_axes(self, shape: Sequence[int]) -> Axes:
        """Axes of these sizes."""
        axes: list[int | None] = []
        for size in shape:
            axes.append(None if size == 1 else len(self.sizes))
            if size != 1:
                self.sizes.append(size)
        return tuple(axes)

    def resolved(self, axes: Sequence[int | None]) -> tuple[int, ...]:
        """Axes after those that were made of several have become these; none of size 1."""
        if not self.parts:
            return tuple([a for a in axes if a is not None])
        found: list[int] = []
        for a in axes:
            if a is not None:
                found.extend(self.resolved(self.parts[a]) if a in self.parts else (a,))
        return tuple(found)

    def of(self, number: int, axes: Axes, *, whole: bool = True) -> list[Factor]:
        """The factors of a value.

        ``whole``: a value with a factor that has all its axes is one factor, because nothing is
        won by taking it apart.
        """
        made = self.made_by.get(number)
        if made is None or made[0].primitive not in _COMES_APART:
            self.visits += 1
            self.failed |= self.visits > _MOST_VISITS
            return [Factor(number, axes)]
        parts, sign, n_sizes = dict(self.parts), self.sign, len(self.sizes)
        factors = self._factors(number, axes)
        if len(factors) > 1 and whole:
            wanted = set(self.resolved(axes))
            if any([wanted <= set(self.resolved(f.axes)) for f in factors]):
                self.parts, self.sign = parts, sign
                del self.sizes[n_sizes:]
                return [Factor(number, axes)]
        self.failed |= len(factors) > _MOST_FACTORS
        return factors

    def _factors(self, number: int, axes: Axes) -> list[Factor]:
        """The factors by the equation that makes the value."""
        made = self.made_by.get(number)
        self.visits += 1
        self.failed |= self.visits > _MOST_VISITS
        if made is None or self.failed:
            return [Factor(number, axes)]
        app, args = made
        primitive = app.primitive
        if primitive is lax.mul_p and args[0] == args[1] and app.avals[0].ndim:
            return self._squared(args[0], axes)
        if primitive is lax.mul_p:
            pairs = zip(args, app.avals, strict=True)
            parts = [self.of(x, axes if a.ndim else ()) for x, a in pairs]
            return [f for some in parts for f in some]
        if primitive is lax.square_p or (
            primitive is lax.integer_pow_p and app.params["y"] == 2 and app.avals[0].ndim
        ):
            return self._squared(args[0], axes)
        if primitive is lax.neg_p:
            self.sign = -self.sign
            return self.of(args[0], axes)
        inner = self._axes_of_operand(app, axes)
        if inner is not None:
            return self.of(args[0], inner)
        if primitive is lax.dot_general_p and is_outer_product(app):
            x_axes, y_axes = _axes_of_outer(app, axes)
            return [*self.of(args[0], x_axes), *self.of(args[1], y_axes)]
        return [Factor(number, axes)]

    def _squared(self, number: int, axes: Axes) -> list[Factor]:
        """The factors of the square of a value."""
        sign = self.sign
        factors = self.of(number, axes)
        self.sign = sign
        return [*factors, *factors]

    def _axes_of_operand(self, app: Application, axes: Axes) -> Axes | None:
        """The axes of the operand of an equation that only places its elements."""
        primitive, params = app.primitive, app.params
        if primitive is lax.broadcast_in_dim_p:
            return tuple(
                [
                    axes[d] if n == app.out.shape[d] else None
                    for n, d in zip(app.avals[0].shape, params["broadcast_dimensions"], strict=True)
                ]
            )
        if primitive is lax.transpose_p:
            permutation = params["permutation"]
            return tuple([axes[permutation.index(i)] for i in range(len(axes))])
        if primitive in (lax.reshape_p, lax.squeeze_p):
            return self._before_reshape(app.avals[0].shape, app.out.shape, axes)
        return None

    def _before_reshape(self, shape: Sequence[int], out: Sequence[int], axes: Axes) -> Axes | None:
        """The axes of the operand of a reshape that only splits axes of the operand together."""
        groups = matching_groups(shape, out)
        if groups is None or any([len(after) != 1 for _, after in groups]):
            return None
        inner: list[int | None] = [None] * len(shape)
        for before, (after,) in groups:
            axis = axes[after]
            if axis is None or len(before) == 1:
                inner[before[0]] = axis
                continue
            made = self.parts.get(axis)
            if made is None:
                made = self.parts[axis] = tuple(
                    [a for a in self.new_axes([shape[i] for i in before]) if a is not None]
                )
            if [self.sizes[a] for a in made] != [shape[i] for i in before]:
                return None
            for i, a in zip(before, made, strict=True):
                inner[i] = a
        return tuple(inner)


def is_outer_product(app: Application) -> bool:
    """Whether a dot_general sums nothing up, and rounds nothing on its way."""
    (contracted, _), _ = app.params["dimension_numbers"]
    x, y = app.avals
    return not contracted and x.dtype == y.dtype == app.out.dtype and is_plain(app)


def is_plain(app: Application) -> bool:
    """Whether a dot_general multiplies in the dtype of its operands, by no algorithm of its own."""
    precision = app.params["precision"]
    return precision is None or is_pair(precision)


def _axes_of_outer(app: Application, axes: Axes) -> tuple[Axes, Axes]:
    """The axes of both operands of an outer product."""
    _, batches = app.params["dimension_numbers"]
    n_batch = len(batches[0])
    remaining = iter(axes[n_batch:])
    found: list[Axes] = []
    for aval, batch in zip(app.avals, batches, strict=True):
        found.append(
            tuple(
                [axes[batch.index(i)] if i in batch else next(remaining) for i in range(aval.ndim)]
            )
        )
    return found[0], found[1]


def matching_groups(
    shape: Sequence[int], out: Sequence[int]
) -> list[tuple[list[int], list[int]]] | None:
    """Smallest groups of neighbouring axes of both shapes with equal numbers of elements.

    Axes of size 1 are in none. None for arrays without elements.
    """
    if 0 in shape:
        return None
    groups: list[tuple[list[int], list[int]]] = []
    before = [i for i, n in enumerate(shape) if n != 1]
    after = [i for i, n in enumerate(out) if n != 1]
    i = j = 0
    while i < len(before):
        group = [before[i]], [after[j]]
        a, b = shape[before[i]], out[after[j]]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                group[0].append(before[i])
                a *= shape[before[i]]
                i += 1
            else:
                group[1].append(after[j])
                b *= out[after[j]]
                j += 1
        groups.append(group)
    return groups
