"""Long programs in pieces, for compilers that take too long for a whole one.

A TPU has no float64: each of its operations becomes dozens, XLA fuses the whole formula, and the
time to compile a fusion grows with the square of its operations: minutes to an hour for one
function. Nothing is fused across a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracebridge.core.interpreters.staging import stage
from tracebridge.core.lax.barriers import optimization_barrier_p

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value

# The 570 equations of random_gamma_grad compile for 17 s of a core with 20 each, and with 40.
_LENGTH: Final = 40
_F64: Final = np.dtype(np.float64)


def wants_pieces(ctx: LoweringContext, aval: ShapedArray) -> bool:
    """Whether formulas of this kind of number are emulated on the platform."""
    return ctx.platform == "tpu" and aval.dtype == _F64


def in_pieces(jaxpr: Jaxpr) -> Jaxpr:
    """The same program with a barrier after every 40 equations, of all that is used later."""
    found = jaxpr.cache.get("in pieces")
    if found is None:
        found = stage(lambda *xs: _run(jaxpr, xs), jaxpr.in_avals, jaxpr.debug, locate=False)
        jaxpr.cache["in pieces"] = found
    return found


def _run(jaxpr: Jaxpr, xs: tuple[Value, ...]) -> list[Any]:
    env: list[Any] = [*xs, *jaxpr.consts]
    cuts = dict(_cuts(jaxpr))
    for n, (app, idx) in enumerate(jaxpr.equations):
        result = app.primitive.bind(*[env[i] for i in idx], **app.params)
        env.extend(result if app.multiple else (result,))
        alive = cuts.get(n)
        if alive:
            held = optimization_barrier_p.bind(*[env[i] for i in alive])
            for i, x in zip(alive, held, strict=True):
                env[i] = x
    return [env[i] for i in jaxpr.outs]


def _cuts(jaxpr: Jaxpr) -> Iterator[tuple[int, list[int]]]:
    """Each equation with a barrier after it, and which of its and earlier results it is of.

    Constants stay constants.
    """
    last = {i: n for n, (_, idx) in enumerate(jaxpr.equations) for i in idx}
    last.update(dict.fromkeys(jaxpr.outs, len(jaxpr.equations)))
    computed: list[int] = []
    given = set(range(jaxpr.n_in))
    size, since = jaxpr.n_in + len(jaxpr.consts), 0
    for n, (app, idx) in enumerate(jaxpr.equations):
        results = range(size, size + len(app.outs))
        size += len(app.outs)
        if given.isdisjoint(idx):
            continue
        given.update(results)
        computed.extend(results)
        since += 1
        if since == _LENGTH and n + 1 < len(jaxpr.equations):
            computed = [i for i in computed if last.get(i, -1) > n]
            since = 0
            yield n, computed.copy()
