"""Axes along which a value is one slice, copied: what broadcasts made, and what is made of these.

jaxlib 0.10.2 compiles sums of products wrongly on the CPU, in its fusions for YNNPACK, where an
axis that stays is a broadcast of all factors: the result is what is in memory. Such a program is
compiled a second time (core/runtime/programs/library_fusions.py). A sum of one slice, broadcast
after it, is right at once, and less work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, final

from tracebridge.core import lax
from tracebridge.core.lowering.rewrites.factors import matching_groups

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.lowering.rewrites.factors import Producers

_KEEP = frozenset({lax.broadcast_in_dim_p, lax.transpose_p, lax.reshape_p})
_MOST_VISITS = 64  # equations that are looked at for one sum


@final
class Copies:
    """Looks for axes of copies, through broadcasts, transpositions and elementwise equations.

    Each value is looked at once, for all axes at a time, whatever number of sums depends on it.
    """

    __slots__ = ("_made_by", "_masks", "_visits")

    def __init__(self, made_by: Producers) -> None:
        self._made_by = made_by
        self._masks: dict[int, int] = {}
        self._visits = 0

    def of(self, number: int) -> int:
        """The axes of a value whose slices are all the same, as the bits of an integer."""
        self._visits = 0
        return self._mask(number)

    def _mask(self, number: int) -> int:
        mask = self._masks.get(number)
        if mask is None:
            self._visits += 1
            made = self._made_by.get(number) if self._visits <= _MOST_VISITS else None
            mask = self._masks[number] = 0 if made is None else self._made(*made)
        return mask

    def _made(self, app: Application, args: Sequence[int]) -> int:
        primitive = app.primitive
        if primitive.is_elementwise:
            return 0 if app.effects else self._of_all(app, args)
        if primitive is lax.broadcast_in_dim_p:
            return self._broadcast(app, args[0])
        if primitive is lax.transpose_p:
            before = self._mask(args[0])
            return _bits([before >> a & 1 for a in app.params["permutation"]])
        if primitive is lax.reshape_p:
            return self._reshaped(app, args[0])
        return 0

    def _of_all(self, app: Application, args: Sequence[int]) -> int:
        """The axes of copies that all operands with axes have: first those that are known."""
        mask, unknown = -1, []
        for number, aval in zip(args, app.avals, strict=True):
            if aval.ndim:
                known = self._masks.get(number)
                if known is None and self._has_copies(number):
                    unknown.append(number)
                else:
                    mask &= known or 0
        for number in unknown:
            if not mask:
                return 0
            mask &= self._mask(number)
        return mask

    def _has_copies(self, number: int) -> bool:
        """Whether the equation of a value may repeat, or keep what is repeated."""
        made = self._made_by.get(number)
        return made is not None and (made[0].primitive.is_elementwise or made[0].primitive in _KEEP)

    def _broadcast(self, app: Application, operand: int) -> int:
        dims, (aval,) = app.params["broadcast_dimensions"], app.avals
        before = self._mask(operand) if aval.ndim else 0
        mask = -1
        for i, axis in enumerate(dims):
            if aval.shape[i] == app.out.shape[axis] and not before >> i & 1:
                mask &= ~(1 << axis)
        return mask

    def _reshaped(self, app: Application, operand: int) -> int:
        before = self._mask(operand)
        mask = 0
        for group, after in (before and matching_groups(app.avals[0].shape, app.out.shape)) or ():
            if all([before >> i & 1 for i in group]):
                mask |= _bits_of(after)
        return mask


def _bits(flags: Iterable[int]) -> int:
    return sum([flag << i for i, flag in enumerate(flags)])


def _bits_of(axes: Iterable[int]) -> int:
    return sum([1 << axis for axis in axes])
