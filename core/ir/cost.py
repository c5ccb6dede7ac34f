"""What applying a primitive costs, in classes that decisions about memory and time need."""

from __future__ import annotations

import enum
from typing import final


@final
class Cost(enum.Enum):
    """Class of a primitive, as its attribute ``cost``.

    Who keeps values for later (backward passes, loops) asks it what is cheaper to do again.
    """

    FREE = "free"
    """Another view of the operand, or numbers made of nothing: the compiler makes it part of
    whatever reads it (broadcasts, reshapes, conversions, iota)."""

    MOVES_DATA = "moves data"
    """Copies elements to places that are known in advance (slice, transpose, concatenate)."""

    CHEAP = "cheap"
    """Elementwise, a few instructions: doing it again costs less than reading its result."""

    EXPENSIVE = "expensive"
    """Elementwise, some tens of instructions: reading its result costs less (exp, erfc, rem)."""

    COMPOSED = "composed"
    """Elementwise and expensive, but made of cheap instructions (sin, atan2): the compiler does not
    see that, and repeats it in each kernel that needs the result."""

    REDUCTION = "reduction"
    """Reads each element of its operand once."""

    CONTRACTION = "contraction"
    """Sums of products; many operations per element that is read."""

    OTHER = "other"
    """Everything else: sorts, gathers and scatters, loops, calls, communication, callbacks."""

    @property
    def is_repeatable(self) -> bool:
        """Whether doing it again costs less than keeping its result."""
        return self in _REPEATABLE


_REPEATABLE = frozenset({Cost.FREE, Cost.MOVES_DATA, Cost.CHEAP})
