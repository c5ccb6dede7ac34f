"""Arrays of extended dtypes: what moves elements about moves the blocks that store them."""

from __future__ import annotations

import math
from typing import Any

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.interpreters.staged_rules import BatchInfo
from tracebridge.core.ir.application import Application
from tracebridge.core.lax.batch_util import move_batch_axis


def on_blocks(app: Application, *values: Any) -> list[Any]:
    """``app`` on stored arrays: the axis of the blocks, the last one, is as good as a mapped one.

    So no primitive needs a rule of its own for keys. Blocks of several axes are one axis here.
    """
    dtype: Any = app.outs[0].dtype
    block = dtype.element_shape
    size = math.prod(block)
    stored = [is_extended(a.dtype) for a in app.avals]
    given = [
        _with_blocks(v, block, (size,)) if s else v for v, s in zip(values, stored, strict=True)
    ]
    dims = [v.aval.ndim - 1 if s else None for v, s in zip(given, stored, strict=True)]
    out, where = app.primitive.batch(BatchInfo(size, None), given, dims, **app.params)
    outs, axes = (out, where) if app.multiple else ([out], [where])
    moved = [move_batch_axis(o, d, o.aval.ndim - 1) for o, d in zip(outs, axes, strict=True)]
    return [_with_blocks(o, (size,), block) for o in moved]


def _with_blocks(x: Any, old: tuple[int, ...], new: tuple[int, ...]) -> Any:
    """``x``, whose last axes are ``old``, with the axes ``new`` in their place."""
    if len(old) == len(new) == 1:
        return x
    return lax.reshape(x, (*x.aval.shape[: x.aval.ndim - len(old)], *new))
