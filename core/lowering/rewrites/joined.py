"""Concatenations whose parts a kernel over rows writes where they belong: XLA would copy them.

The gradient of what was split, for example: the two halves of a gated linear unit.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, final

from tracebridge.core import lax
from tracebridge.core.kernels.rows.program import RESHAPES, View
from tracebridge.core.lowering.rewrites.parts import SHORTEST_PART, row_major
from tracebridge.core.lowering.rewrites.producers import GIVEN

if TYPE_CHECKING:
    from tracebridge.core.kernels.rows.frame import Frame
    from tracebridge.core.lowering.rewrites.groups import Readers
    from tracebridge.core.lowering.rewrites.with_kernels import Kernel


class Join(NamedTuple):
    """An array that a kernel writes by parts, in the place of ``equations``.

    ``parts``: the results of the kernel, and which part of the array each one is.
    """

    variable: int
    parts: tuple[tuple[int, View], ...]
    equations: frozenset[int]


def joined_in(kernel: Kernel, frame: Frame, readers: Readers) -> list[Join]:
    """The concatenations of results of a kernel that nobody else reads."""
    search = _Search(kernel, frame, readers)
    found = [search.join_at(k) for k in search.concatenations()]
    return [join for join in found if join is not None]


@final
class _Search:
    """What follows the results of a kernel."""

    def __init__(self, kernel: Kernel, frame: Frame, readers: Readers) -> None:
        self.groups, self.frame, self.readers = kernel.groups, frame, readers
        self.results, self.copied = set(kernel.results), set(kernel.copied)
        self.inside: Collection[int] = {*kernel.members, *kernel.unread}

    def concatenations(self) -> list[int]:
        """The equations that join what the kernel makes, perhaps with other arrays."""
        equations, firsts = self.groups.jaxpr.equations, self.groups.first
        made = [*self.results, *[firsts[k] for k in self.copied]]
        found = {k for v in made for k in self._outside(v) if k != GIVEN}
        return sorted([k for k in found if equations[k][0].primitive is lax.concatenate_p])

    def join_at(self, k: int) -> Join | None:
        """A concatenation, if the kernel can write all parts of it."""
        app, args = self.groups.jaxpr.equations[k]
        shape, axis = app.out.shape, app.params["dimension"]
        if app.out.vma or not all([type(n) is int for n in shape]):
            return None
        strides, start = row_major(shape), 0
        parts: list[tuple[int, View]] = []
        equations = {k}
        for a, aval in zip(args, app.avals, strict=True):
            result = self._result(a, k, equations)
            if result is None or aval.shape not in self.frame.shapes:
                return None
            steps = self.frame.strided(aval.shape, strides)
            if self.frame.tail(steps) < SHORTEST_PART:
                return None
            parts.append((result, View(steps, start * strides[axis])))
            start += aval.shape[axis]
        return Join(self.groups.first[k], tuple(parts), frozenset(equations))

    def _result(self, variable: int, reader: int, equations: set[int]) -> int | None:
        """The result of the kernel that a variable is, perhaps reshaped.

        Only ``reader`` reads it; reshapes are added to ``equations``.
        """
        made_by, equations_of = self.groups.made_by, self.groups.jaxpr.equations
        # Of other variables than those of the kernel it is not known who reads them.
        while variable in self.results or made_by[variable] in self.copied:
            if set(self._outside(variable)) != {reader}:
                return None
            if variable in self.results:
                return variable
            reader = made_by[variable]
            app, args = equations_of[reader]
            if app.primitive not in RESHAPES:
                return None
            equations.add(reader)
            (variable,) = args
        return None

    def _outside(self, variable: int) -> list[int]:
        """The equations without the kernel that read a variable of it."""
        found = self.readers[variable]
        return [k for k in found if k not in self.inside or k in self.copied]
