"""Numbers of a program that what is planned for it does not depend on.

Programs that differ in such numbers alone (a scale, a rate, a tolerance) have the same plans. Some
numbers are none of these: zeros, ones, small whole and half ones, infinities and NaN mean something
to rewrites and kernels, as exponents and as what starts a maximum do.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

from tracebridge.core.ir.values import Literal

# Whole and half numbers up to this one are special: as exponents they have forms of their own.
_MOST_SPECIAL = 8


def is_open(value: object) -> bool:
    """Whether ``value`` is a number like any other."""
    if type(value) is not float or not math.isfinite(value):
        return type(value) is OpenNumber
    return not (abs(value) <= _MOST_SPECIAL and (2 * value).is_integer())


def is_near_one(value: float | OpenNumber | Place) -> bool:
    """Whether a factor leaves what it multiplies about as large, or a little larger."""
    return value.near_one if isinstance(value, (OpenNumber, Place)) else 1 <= abs(value) <= 2


class Place(NamedTuple):
    """Where a plan has an open number: which one it is."""

    nth: int
    near_one: bool


@final
class OpenNumber:
    """The value of a literal in a program that is rewritten for all numbers at once.

    ``index``: which one it is. Who asks for the number itself makes what follows true of this
    number only: ``asked`` says so.
    """

    __slots__ = ("_value", "asked", "index", "near_one")

    def __init__(self, index: int, value: float) -> None:
        self.index, self.near_one = index, is_near_one(value)
        self._value, self.asked = value, False

    def __float__(self) -> float:
        self.asked = True
        return self._value

    def __abs__(self) -> float:
        return abs(float(self))

    def __repr__(self) -> str:
        return f"OpenNumber({self.index})"


def number_in(value: object) -> float | OpenNumber | None:
    """The open number that a constant of a program is, if it is one."""
    if type(value) is Literal and is_open(value.value):
        return value.value
    return None
