"""Arrays that a program compares with their own largest or smallest elements.

The derivative of a maximum asks which elements equal it. Where the array is computed once more for
that, in another loop of the compiled program or in another program, it may be rounded in another
way: a product and a sum are one instruction here and two there, exponentials of vectors are not
those of single numbers. Then nothing equals the maximum, and the gradient is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge.core import lax
from tracebridge.core.ir.cost import Cost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracebridge.core.ir.application import Application

EXTREMA = frozenset({lax.reduce_max_p, lax.reduce_min_p})
_VIEWS = frozenset({lax.broadcast_in_dim_p, lax.reshape_p, lax.squeeze_p, lax.stop_gradient_p})
_EXACT = frozenset({
    lax.neg_p, lax.abs_p, lax.sign_p, lax.max_p, lax.min_p, lax.clamp_p, lax.select_n_p,
    lax.floor_p, lax.ceil_p, lax.round_p, lax.stop_gradient_p,
})  # fmt: skip
_SEVERAL = 2  # one rounding is the same everywhere


def compared_with_extrema(
    equations: Sequence[tuple[Application, Sequence[int], int]],
) -> dict[int, int]:
    """By result of a comparison: the array, if it may be rounded in several ways.

    ``equations``: with what each reads, and the number of its first result.
    """
    if EXTREMA.isdisjoint([app.primitive for app, _, _ in equations]):
        return {}
    roundings: dict[int, int] = {}
    extremum_of: dict[int, int] = {}
    found: dict[int, int] = {}
    for app, args, first in equations:
        primitive = app.primitive
        if primitive in EXTREMA:
            extremum_of[first] = args[0]
        elif primitive in _VIEWS and args[0] in extremum_of:
            extremum_of[first] = extremum_of[args[0]]
        elif primitive is lax.eq_p:
            for x, y in (args, (args[1], args[0])):
                if extremum_of.get(y) == x and roundings.get(x, 0) >= _SEVERAL:
                    found[first] = x
        count = _roundings(app, args, roundings)
        if count:
            roundings.update(dict.fromkeys(range(first, first + len(app.outs)), count))
    return found


def _roundings(app: Application, args: Sequence[int], before: Mapping[int, int]) -> int:
    """How often numbers may have been rounded since they were in memory, two for more than one."""
    primitive = app.primitive
    match primitive.cost:
        case Cost.EXPENSIVE | Cost.COMPOSED | Cost.REDUCTION:
            return _SEVERAL
        case Cost.FREE | Cost.MOVES_DATA | Cost.CHEAP as cost:
            own = int(cost is Cost.CHEAP and primitive not in _EXACT)
            return min(_SEVERAL, own + sum([before.get(a, 0) for a in args]))
        case _:
            return _SEVERAL if primitive.computes or primitive.inlinable else 0
