"""Arrays with one column among equal elements, as comparisons of positions.

The cotangent of a column that is picked from rows (``log_softmax(x)[:, 0]``) is that column with
zeros beside it. A kernel over the rows compares positions where it would read such an array.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import float32, float64, int32
from tracebridge.core.ir.traverse import primitives_of
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lowering.rewrites.one_pass import Pass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.value import Value

_LEAST = 1 << 15  # elements: fewer are read where they are written


def with_columns(jaxpr: Jaxpr) -> Jaxpr:
    """``jaxpr`` with comparisons for large pads of single columns."""
    if lax.pad_p not in primitives_of(jaxpr):
        return jaxpr
    return Pass(jaxpr, {lax.pad_p: _compared}).result() or jaxpr


def _compared(here: Pass, app: Application, args: Sequence[int], source: object) -> int | None:
    if not _is_column(app):
        return None
    shape, low = app.out.shape, app.params["padding_config"][-1][0]
    run = functools.partial(_column, shape, low)
    return here.emit(run, args, source, (lax.pad_p, shape, low))


def _is_column(app: Application) -> bool:
    """Whether a pad puts elements beside one column, along the last axis and no other."""
    shape, given = app.out.shape, app.avals[0].shape
    if app.out.dtype not in (float32, float64) or app.out.vma:
        return False
    if not all([type(n) is int for n in shape]):
        return False
    if math.prod(shape) < _LEAST or given[-1] != 1 or given[:-1] != shape[:-1]:
        return False
    *others, (low, high, _) = app.params["padding_config"]
    return not any([any(widths) for widths in others]) and low >= 0 and high >= 0


def _column(shape: tuple[int, ...], low: int, x: Value, beside: Value) -> Any:
    axis = len(shape) - 1
    position = lax.broadcasted_iota(int32, shape, axis)
    is_here = lax.eq(position, full_of(position.aval, low))
    spread = lax.broadcast_in_dim(x, shape, range(len(shape)))
    return lax.select_n(is_here, lax.broadcast_in_dim(beside, shape, ()), spread)
