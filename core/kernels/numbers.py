"""Numbers in kernels: a kernel is planned and described for any numbers in its places.

The text has a mark where such a number stands, and gets the numbers at the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.open_numbers import OpenNumber, Place, is_near_one, number_in
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.text import constant_text

if TYPE_CHECKING:
    from tracebridge.core.ir.values import Value

Numbers = tuple["float | OpenNumber", ...]
"""What stands in the places of a kernel."""

_MARK = re.compile(r"\?(\d+):(\w+)\?")


class WithPlaces(NamedTuple):
    """A program that has places instead of numbers, and those numbers."""

    program: Jaxpr
    numbers: Numbers


def with_places(program: Jaxpr) -> WithPlaces:
    """``program`` with a place for each of its open numbers."""
    if all([number_in(c) is None for c in program.consts]):
        return WithPlaces(program, ())
    places: dict[float | OpenNumber, int] = {}

    def with_place(const: Value) -> Value:
        number = number_in(const)
        if number is None:
            return const
        place = Place(places.setdefault(number, len(places)), is_near_one(number))
        return Literal(place, const.aval)

    consts = [with_place(c) for c in program.consts]
    outs, out_avals, sources = program.outs, program.out_avals, program.sources
    made = Jaxpr(program.in_avals, consts, program.equations, outs, out_avals, sources)
    return WithPlaces(made, tuple(places))


def filled(text: str, numbers: Sequence[float]) -> str:
    """A text with numbers where it has marks for them."""
    return _MARK.sub(lambda mark: constant_text(numbers[int(mark[1])], mark[2]), text)
