"""Arrays of extended dtypes: what moves elements about moves the blocks that store them."""

from __future__ import annotations

from typing import Any

from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.interpreters.staged_rules import BatchInfo
from tracebridge.core.ir.application import Application
from tracebridge.core.lax.batch_util import move_batch_axis


def on_blocks(app: Application, *values: Any) -> list[Any]:
    """``app`` on stored arrays: the axis of the blocks, the last one, is as good as a mapped one.

    So no primitive needs a rule of its own for keys.
    """
    dims = [
        v.aval.ndim - 1 if is_extended(a.dtype) else None
        for v, a in zip(values, app.avals, strict=True)
    ]
    dtype: Any = app.outs[0].dtype
    (size,) = dtype.element_shape
    out, where = app.primitive.batch(BatchInfo(size, None), list(values), dims, **app.params)
    outs, axes = (out, where) if app.multiple else ([out], [where])
    return [move_batch_axis(o, d, o.aval.ndim - 1) for o, d in zip(outs, axes, strict=True)]
