"""Dtypes that NumPy does not have, and questions about dtypes."""

from __future__ import annotations

from tracebridge._api.programs.dtype_functions import (
    canonicalize_dtype,
    issubdtype,
    itemsize_bits,
    result_type,
    scalar_type_of,
)
from tracebridge.core.dtypes.dtypes import bfloat16 as _bfloat16
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.dtypes.extended import extended, prng_key
from tracebridge.core.dtypes.finfo import finfo, iinfo
from tracebridge.core.errors.dtype_errors import TypePromotionError
from tracebridge.core.errors.filtering import shield as _shield

# The class of its elements, as ``numpy.float32`` is one: it makes scalars and stands for the dtype.
bfloat16 = _bfloat16.type

__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "result_type",
    "scalar_type_of",
]

_shield(globals(), __name__)
