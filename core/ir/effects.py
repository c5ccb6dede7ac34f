"""Effects: what an equation does besides computing its results."""

from __future__ import annotations


class Effect:
    """Base of effects. Equations with effects are kept by dead code elimination.

    ``ordered`` effects happen in program order, also between two calls.
    """

    __slots__ = ()
    ordered: bool = False

    def __repr__(self) -> str:
        return type(self).__name__


Effects = frozenset[Effect]
no_effects: Effects = frozenset()
