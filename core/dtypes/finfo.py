"""Machine limits of floating and integer dtypes, the narrow ones included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import ml_dtypes
import numpy as np

from tracebridge.core.dtypes import dtypes
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.dtypes.dtypes import DTypeLike


class _Limits(type):
    """The class of ``finfo`` and ``iinfo``: what they make are objects of NumPy or ml_dtypes."""

    made: tuple[type, ...]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.made)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.made)


@public_path("tracebridge.dtypes")
class finfo(metaclass=_Limits):
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

    made = (np.finfo, ml_dtypes.finfo)

    def __new__(cls, dtype: DTypeLike) -> Any:
        kind = dtypes.real_of(dtypes.as_dtype(dtype))
        if kind not in dtypes.floats:
            msg = (
                f"finfo: got {kind}, expected a floating or complex dtype; for integers call iinfo"
            )
            raise ValueError(msg)
        return ml_dtypes.finfo(kind) if _is_ml_dtype(kind) else np.finfo(kind)


@public_path("tracebridge.dtypes")
class iinfo(metaclass=_Limits):
    """Limits of an integer dtype: an object with ``bits``, ``min``, ``max`` and ``dtype``.

    Args:
        int_type: an integer dtype, its name or scalar class, an array, or an int (of 64 bits).

    Raises:
        ValueError: the dtype is not an integer dtype.

    >>> from tracebridge import dtypes
    >>> int(dtypes.iinfo('int8').max)
    127
    """

    made = (np.iinfo, ml_dtypes.iinfo)

    def __new__(cls, int_type: DTypeLike | int) -> Any:
        asked = np.int64 if type(int_type) is int else cast("DTypeLike", int_type)
        kind = dtypes.as_dtype(asked)
        if kind not in dtypes.integers:
            msg = f"iinfo: got {kind}, expected an integer dtype; for floating dtypes call finfo"
            raise ValueError(msg)
        return ml_dtypes.iinfo(kind) if _is_ml_dtype(kind) else np.iinfo(kind)


def _is_ml_dtype(dtype: Any) -> bool:
    # The kind does not tell: float8_e5m2 says "f", bfloat16 and int4 say "V".
    return dtype.type.__module__ == ml_dtypes.__name__
