"""The dtype of anything that can be an operand, or that names a dtype."""

from __future__ import annotations

__all__ = ["dtype"]

from typing import Any

import numpy as np

from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.extended import ExtendedDType
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import typeof


def dtype(x: Any) -> np.dtype[Any]:
    """The dtype that a value has as an operand, or that a dtype, a name or a class stands for.

    Args:
        x: array or number; the type of an array; or a dtype, its name or a scalar class.

    Raises:
        UnsupportedDtypeError: `x` has no dtype, or one that the engine does not have.

    >>> import tracebridge as tb
    >>> tb.lax.dtype(1.0), tb.lax.dtype(2), tb.lax.dtype(bool)
    (dtype('float32'), dtype('int32'), dtype('bool'))
    """
    if isinstance(x, str | type | np.dtype | ExtendedDType):
        return canonicalize_explicit(x, "dtype")
    return x.dtype if type(x) is ShapedArray else typeof(x).dtype
