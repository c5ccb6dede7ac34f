"""Which results depend on which inputs in a way that torch would put into its graph.

Torch cuts the graph at integers, at bools and at ``detach``; here they are values of dtypes without
tangents, and ``stop_gradient``. An input with no path to a result has the gradient None, not zeros:
optimizers skip it, and unused parameters are found. A derivative that happens to be zero (of
``floor``, say) is zeros, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.lax.ad_util import stop_gradient_p

Mask = tuple[bool, ...]
# Per result the inputs that it depends on.
Paths = tuple[Mask, ...]


def paths_of(jaxpr: Jaxpr) -> Paths:
    """Per result, for each input whether there is a path of inexact values.

    In loops and branches every result depends on every operand.
    """
    found = jaxpr.cache.get("torch paths")
    if found is None:
        found = jaxpr.cache["torch paths"] = _paths(inline_calls(jaxpr))
    return found


def _paths(jaxpr: Jaxpr) -> Paths:
    n = jaxpr.n_in
    # A set of inputs is the bits of an integer.
    sets = [1 << i if is_inexact(a.dtype) else 0 for i, a in enumerate(jaxpr.in_avals)]
    sets += [0] * len(jaxpr.consts)
    for app, operands in jaxpr.equations:
        union = 0
        if app.primitive is not stop_gradient_p:
            for variable in operands:
                union |= sets[variable]
        sets += [union if is_inexact(aval.dtype) else 0 for aval in app.outs]
    return tuple(
        [tuple([bool(sets[variable] >> i & 1) for i in range(n)]) for variable in jaxpr.outs]
    )


def reached(
    active: Sequence[bool], paths: Sequence[Sequence[bool]], results: Sequence[bool]
) -> Mask:
    """The inputs among ``active`` that a result among ``results`` depends on. Dynamo reads this."""
    rows = [row for row, here in zip(paths, results, strict=True) if here]
    return tuple([a and any([row[i] for row in rows]) for i, a in enumerate(active)])


def attached(active: Sequence[bool], paths: Sequence[Sequence[bool]]) -> Mask:
    """The results that depend on an input among ``active``."""
    return tuple([any([a and d for a, d in zip(active, row, strict=True)]) for row in paths])
