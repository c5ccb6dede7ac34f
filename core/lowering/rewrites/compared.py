"""Arrays that are compared with their own extreme elements: they stand in memory before.

XLA computes such an array once more where its elements are compared, and of 800 rows of 7 of
``max(c * b + x)`` 144 lost their gradients (core/interpreters/own_extrema.py). Within kernels over
rows both read the same number.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from tracebridge.core.interpreters.own_extrema import compared_with_extrema
from tracebridge.core.lowering.rewrites.repeated import program_with_stored

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr


def with_compared(jaxpr: Jaxpr) -> Jaxpr | None:
    """``jaxpr`` with such arrays in memory; None if there are none."""
    sizes = [len(app.outs) for app, _ in jaxpr.equations]
    firsts = accumulate(sizes, initial=jaxpr.n_in + len(jaxpr.consts))
    found = compared_with_extrema(
        [(app, args, first) for (app, args), first in zip(jaxpr.equations, firsts, strict=False)]
    )
    return program_with_stored(jaxpr, set(found.values())) if found else None
