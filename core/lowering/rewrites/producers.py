"""Which equation of a Jaxpr makes which variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr

GIVEN = -1
"""The producer of arguments and constants."""


def producers(jaxpr: Jaxpr) -> tuple[list[int], list[int]]:
    """Of each variable its equation, or ``GIVEN``; of each equation its first result."""
    made_by = [GIVEN] * (jaxpr.n_in + len(jaxpr.consts))
    first: list[int] = []
    for k, (app, _) in enumerate(jaxpr.equations):
        first.append(len(made_by))
        made_by.extend([k] * len(app.outs))
    return made_by, first
