"""Which equation of a Jaxpr makes which variable, and how many read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.ir.traverse import primitives_of

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Equation, Jaxpr

GIVEN = -1
"""The producer of arguments and constants."""


def facts_of(jaxpr: Jaxpr) -> dict[str, Any]:
    """What rewrites have found out about a program: each of them asks."""
    return jaxpr.cache.setdefault("facts", {})


def forget_facts(jaxpr: Jaxpr) -> None:
    """Let go of them: programs may be kept."""
    jaxpr.cache.pop("facts", None)


def producers(jaxpr: Jaxpr) -> tuple[list[int], list[int]]:
    """Of each variable its equation, or ``GIVEN``; of each equation its first result."""
    facts = facts_of(jaxpr)
    if "producers" not in facts:
        facts["producers"] = _producers(jaxpr)
    return facts["producers"]


def _producers(jaxpr: Jaxpr) -> tuple[list[int], list[int]]:
    n_given, n = jaxpr.n_in + len(jaxpr.consts), len(jaxpr.equations)
    made_by = [GIVEN] * n_given
    if not _has_several(jaxpr):
        return [*made_by, *range(n)], [*range(n_given, n_given + n)]
    first: list[int] = []
    for k, (app, _) in enumerate(jaxpr.equations):
        first.append(len(made_by))
        if app.multiple:
            made_by += [k] * len(app.outs)
        else:
            made_by.append(k)
    return made_by, first


def variable_avals(jaxpr: Jaxpr) -> list[ShapedArray]:
    """The aval of every variable."""
    facts = facts_of(jaxpr)
    if "avals" not in facts:
        facts["avals"] = jaxpr.variable_avals()
    return facts["avals"]


def makers(jaxpr: Jaxpr) -> dict[int, Equation]:
    """The equations that have one result, by the variable that it is."""
    facts = facts_of(jaxpr)
    if "makers" not in facts:
        facts["makers"] = _makers(jaxpr)
    return facts["makers"]


def _makers(jaxpr: Jaxpr) -> dict[int, Equation]:
    at = jaxpr.n_in + len(jaxpr.consts)
    if not _has_several(jaxpr):
        return dict(enumerate(jaxpr.equations, at))
    found: dict[int, Equation] = {}
    for equation in jaxpr.equations:
        app = equation[0]
        if app.multiple:
            at += len(app.outs)
        else:
            found[at] = equation
            at += 1
    return found


def _has_several(jaxpr: Jaxpr) -> bool:
    """Whether the number of an equation does not tell which variable it makes."""
    return any([p.multiple_results for p in primitives_of(jaxpr)])


def reads_of(jaxpr: Jaxpr) -> Counter[int]:
    """How often each variable is read, or a result."""
    facts = facts_of(jaxpr)
    if "reads" not in facts:
        read = chain.from_iterable([args for _, args in jaxpr.equations])
        facts["reads"] = Counter(chain(jaxpr.outs, read))
    return facts["reads"]


@final
class Reads:
    """How often a program reads values that have numbers in a graph, which grows meanwhile."""

    __slots__ = ("_counts", "_n_seen", "_variables")

    def __init__(self, jaxpr: Jaxpr) -> None:
        self._counts = reads_of(jaxpr)
        self._variables: dict[int, int] = {}
        """By number, of those that were seen when somebody asked."""
        self._n_seen = 0

    def of(self, number: int, numbers: Sequence[int]) -> int:
        """The reads of the first variable with this number; ``numbers``: of variables so far."""
        for variable in range(self._n_seen, len(numbers)):
            self._variables.setdefault(numbers[variable], variable)
        self._n_seen = len(numbers)
        return self._counts[self._variables[number]]
