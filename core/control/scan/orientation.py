"""Matrices that each step of a loop multiplies by, the way round that the CPU's library wants them.

Few rows times a matrix are 1.3 to 2 times as fast where the sum runs over the first axis of the
matrix as over the last (jaxlib 0.10.2). Outside of a loop it makes no difference, because turning
the matrix costs as much; before a loop it is done once. The transpose of a layer multiplies by the
same matrix as the layer, turned: one of the two is always the wrong way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.dtypes import float32
from tracebridge.core.ir.jaxpr import Jaxpr

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import LoweringContext

_FEWEST_STEPS = 8
_ROWS = range(2, 33)
_LEAST_MATRIX = 1 << 10


def turned(
    ctx: LoweringContext, jaxpr: Jaxpr, consts: Sequence[IrValue], length: object
) -> tuple[Jaxpr, Sequence[IrValue]]:
    """A body and its consts, of which some matrices are turned."""
    if ctx.platform != "cpu" or not option("platform_rules"):
        return jaxpr, consts
    if not (isinstance(length, int) and length >= _FEWEST_STEPS):
        return jaxpr, consts
    key = ("turned", len(consts))
    known = jaxpr.cache.get(key)
    if known is None:
        known = jaxpr.cache[key] = _turn(jaxpr, len(consts))
    body, places = known
    if body is None:
        return jaxpr, consts
    consts = list(consts)
    for i in places:
        consts[i] = ctx.transpose(consts[i], body.in_avals[i], (1, 0))
    return body, consts


def _turn(jaxpr: Jaxpr, n_consts: int) -> tuple[Jaxpr | None, list[int]]:
    """The body for turned matrices, and which consts these are; no body if there are none."""
    uses: dict[int, list[int]] = {}
    for k, (_, args) in enumerate(jaxpr.equations):
        for a in set(args):
            if a < n_consts:
                uses.setdefault(a, []).append(k)
    places = [
        i
        for i, where in uses.items()
        if i not in jaxpr.outs and all([_is_slow(*jaxpr.equations[k], i) for k in where])
    ]
    if not places:
        return None, []
    avals = list(jaxpr.in_avals)
    equations = list(jaxpr.equations)
    for i in places:
        avals[i] = avals[i].update(shape=avals[i].shape[::-1])
        for k in uses[i]:
            app, args = equations[k]
            (contracted, _), batch = app.params["dimension_numbers"]
            numbers = ((contracted, (0,)), batch)
            params: dict[str, Any] = {**app.params, "dimension_numbers": numbers}
            equations[k] = app.primitive.application((app.avals[0], avals[i]), params), args
    body = Jaxpr(
        avals, jaxpr.consts, equations, jaxpr.outs, jaxpr.out_avals, jaxpr.sources, jaxpr.debug
    )
    return body, places


def _is_slow(app: Application, args: Sequence[int], number: int) -> bool:
    """Whether an equation multiplies few rows by a matrix, summing over its last axis."""
    if app.primitive is not lax.dot_general_p or args[0] == number or args[1] != number:
        return False
    x, matrix = app.avals
    (x_contracted, contracted), (batch, _) = app.params["dimension_numbers"]
    if matrix.ndim != 2 or contracted != (1,) or batch or matrix.dtype != float32:
        return False
    sizes = [n for i, n in enumerate(x.shape) if i not in x_contracted]
    if not all([isinstance(n, int) for n in (*sizes, *matrix.shape)]) or x.dtype != float32:
        return False
    rows = 1
    for n in sizes:
        rows *= n
    return rows in _ROWS and matrix.size >= _LEAST_MATRIX
