"""The dtype of anything that can be an operand."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge.core.ir.typeof import typeof


def dtype(x: Any) -> np.dtype[Any]:
    """The dtype that a value has as an operand.

    Args:
        x: array or number.

    >>> import tracebridge as tb
    >>> tb.lax.dtype(1.0), tb.lax.dtype(2)
    (dtype('float32'), dtype('int32'))
    """
    return typeof(x).dtype
