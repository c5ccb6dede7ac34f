"""Programs of elementwise kernels whose rows XLA's emitter for tiles is slow at.

jaxlib 0.10.2 makes kernels for the CPU that are elementwise, without constants and broadcasts, by
an emitter that works on tiles of rows. Where rows are no whole number of vectors it takes up to
2.5 times as long as the emitter for loops, which it is an option to turn off for a whole module.
That is no choice for most modules: transpositions would take 2 to 7 times as long, short rows 2
to 5 times, and one-dimensional arrays of odd sizes on several cores 2 to 9 times.

Time without tiles by time with them, arrays of 1e6 float32 on two cores, (1e6 / n, n):

| n | exp | tanh | log | x + y | tanh(x) * exp(y) |
|---|---|---|---|---|---|
| 36 | 2.47 | 2.55 | 4.47 | 0.64 | 0.88 |
| 65 | 0.53 | 0.50 | 0.61 | 0.62 | 0.71 |
| 72 | 0.51 | 0.57 | 0.65 | 0.60 | 0.64 |
| 100 | 0.45 | 0.57 | 0.78 | 0.44 | 0.92 |
| 128 | 0.99 | 1.08 | 1.03 | 0.92 | 1.03 |
| 1000 | 0.53 | 0.68 | 0.72 | 0.55 | 0.67 |

Other dtypes of at most 4 bytes gain as much (bool, int8, int32, bfloat16); float64 a little less,
and nothing where 8 of them divide a row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracebridge.core.dtypes.dtypes import bfloat16
from tracebridge.core.ir.cost import Cost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

_LEAST = 1 << 13  # elements: what takes a microsecond decides nothing
_LEAST_ROW = 64
_LEAST_ROWS = 64  # with fewer, XLA may give parts of rows to its threads


def is_faster_without_tiles(jaxpr: Jaxpr) -> bool:
    """Whether a program is elementwise, and all its large arrays have rows that tiles do not fit.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> [is_faster_without_tiles(tb.make_jaxpr(tnp.exp)(tnp.ones((300, n)))) for n in (100, 128)]
    [True, False]
    """
    found = False
    for app in called_applications(jaxpr):
        if not _is_elementwise(app):
            return False
        for aval in (*app.avals, *app.outs):
            if not isinstance(aval.size, int):
                return False
            if aval.size >= _LEAST:
                if not _is_split(aval):
                    return False
                found = True
    return found


def called_applications(jaxpr: Jaxpr) -> Iterator[Application]:
    """The applications of a program and of the functions that it calls, which XLA inlines."""
    for app, _ in jaxpr.equations:
        called = "jaxpr" if app.primitive.inlinable else app.primitive.computes
        if called is None:
            yield app
        else:
            yield from called_applications(app.params[called])


def _is_elementwise(app: Application) -> bool:
    is_plain = app.primitive.cost in (Cost.FREE, Cost.CHEAP, Cost.EXPENSIVE)
    return app.primitive.is_elementwise and is_plain and not app.effects


def _is_split(aval: ShapedArray) -> bool:
    """Whether rows are long, many, and no whole number of vectors."""
    dtype, row = aval.dtype, aval.shape[-1]
    if dtype.kind not in "biufc" and dtype != bfloat16:
        return False
    vector = 8 if dtype.itemsize > 4 else 16
    if row < _LEAST_ROW or row % vector == 0:
        return False
    return math.prod(aval.shape[:-1]) >= _LEAST_ROWS
