"""Machine limits of floating and integer dtypes, the narrow ones included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import ml_dtypes
import numpy as np

from tracebridge.core.dtypes import dtypes

if TYPE_CHECKING:
    from tracebridge.core.dtypes.dtypes import DTypeLike


def finfo(dtype: DTypeLike) -> Any:
    """Limits of a floating dtype (of the real part of a complex one).

    Args:
        dtype: a floating or complex dtype, its name or scalar class, or an array.

    Returns:
        An object with ``bits``, ``eps``, ``max``, ``min``, ``tiny``, ``smallest_subnormal``,
        ``dtype`` and the other attributes of ``numpy.finfo``.

    Raises:
        ValueError: the dtype is not inexact.

    >>> from tracebridge import dtypes
    >>> int(dtypes.finfo('bfloat16').bits)
    16
    """
    kind = dtypes.real_of(dtypes.as_dtype(dtype))
    if kind not in dtypes.floats:
        msg = f"finfo: got {kind}, expected a floating or complex dtype; for integers call iinfo"
        raise ValueError(msg)
    return ml_dtypes.finfo(kind) if _is_ml_dtype(kind) else np.finfo(kind)


def iinfo(int_type: DTypeLike | int) -> Any:
    """Limits of an integer dtype: an object with ``bits``, ``min``, ``max`` and ``dtype``.

    Args:
        int_type: an integer dtype, its name or scalar class, an array, or an int (of 64 bits).

    Raises:
        ValueError: the dtype is not an integer dtype.

    >>> from tracebridge import dtypes
    >>> int(dtypes.iinfo('int8').max)
    127
    """
    kind = dtypes.as_dtype(np.int64 if type(int_type) is int else cast("DTypeLike", int_type))
    if kind not in dtypes.integers:
        msg = f"iinfo: got {kind}, expected an integer dtype; for floating dtypes call finfo"
        raise ValueError(msg)
    return ml_dtypes.iinfo(kind) if _is_ml_dtype(kind) else np.iinfo(kind)


def _is_ml_dtype(dtype: Any) -> bool:
    # The kind does not tell: float8_e5m2 says "f", bfloat16 and int4 say "V".
    return dtype.type.__module__ == ml_dtypes.__name__
