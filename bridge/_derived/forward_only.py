"""Functions that have values but no gradients: only a backward pass says so.

A loop of unknown length or a callback can be computed where parameters require gradients: models
are evaluated without ``torch.no_grad`` more often than not, and torch itself traces the forward
pass of a model for ``torch.export`` with gradients enabled.
"""

from __future__ import annotations

from typing import Any, final

from tracebridge._derived.families import Avals, Family, split
from tracebridge._derived.handles import Mask
from tracebridge._derived.residuals import Split


@final
class NoSplit:
    """In the place of a ``Split``: keeps nothing, and raises when a backward pass asks for it."""

    __slots__ = ("_active", "_avals", "_family")
    inputs: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    redo: tuple[int, ...] = ()
    n_residuals = 0

    def __init__(self, family: Family, active: Mask, avals: Avals) -> None:
        self._family = family
        self._active = active
        self._avals = avals

    @property
    def forward(self) -> Any:
        """The program itself."""
        return self._family.program(self._avals)

    def backward_for(self, cotangents: Mask) -> Any:
        """Raise what deriving the backward program raises."""
        return split(self._family, self._active, self._avals).backward_for(cotangents)


def split_if_possible(family: Family, active: Mask, avals: Avals) -> Split | NoSplit:
    """The forward and backward program, or what says at the backward pass why there are none."""
    try:
        return split(family, active, avals)
    except Exception:  # noqa: BLE001 - rules of users raise anything, and do so again when asked
        return NoSplit(family, active, avals)
