"""The warning for values that an update converts to a dtype that may not hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge.core.dtypes.promotion import promote
from tracebridge.core.errors.dtype_errors import TypePromotionError
from tracebridge.core.errors.user_warnings import warn_user
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.array_like import ArrayLike


def warn_of_loss(call: str, x: ArrayLike, values: ArrayLike) -> np.dtype[Any] | None:
    """Warn where promotion of array and values would give another dtype than the array's.

    Returns the other dtype, or None.
    """
    array, new = as_value(x).aval, as_value(values).aval
    if array.dtype == new.dtype:
        return None
    try:
        joined = promote(((array.dtype, False), (new.dtype, new.weak_type)))[0]
    except TypePromotionError:
        return None  # the conversion says what is wrong; under "strict" nothing is promoted
    if joined == array.dtype:
        return None
    warn_user(
        f"{call}: values of {new.dtype} become {array.dtype}, the dtype of the array, which "
        "may not hold them. This will be an error; convert them, as in "
        f"values.astype({array.dtype.name!r})",
        FutureWarning,
    )
    return joined
