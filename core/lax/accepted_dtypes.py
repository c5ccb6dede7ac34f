"""Which dtypes the operands of primitives may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge.core.dtypes.dtypes import is_bool, is_extended, is_integer
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError

if TYPE_CHECKING:
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.aval import ShapedArray

EXTENDED_HINT = "the words of keys are numbers: tracebridge.random.key_data"


def any_dtype(dtype: DTypeLike) -> bool:
    """Accepts every dtype."""
    del dtype
    return True


def is_ordinary(dtype: DTypeLike) -> bool:
    """Accepts booleans and numbers: every dtype but keys and other extended ones."""
    return not is_extended(dtype)


def is_numeric(dtype: DTypeLike) -> bool:
    """Accepts integers, floats and complex numbers."""
    return is_ordinary(dtype) and not is_bool(dtype)


def check_ordinary(call: str, *avals: ShapedArray) -> None:
    """Raise where an operand is an array of keys or of another extended dtype."""
    for aval in avals:
        if not is_ordinary(aval.dtype):
            msg = f"{call} works on numbers and booleans, got {aval.str_short()}"
            raise UnsupportedDtypeError(msg, hint=EXTENDED_HINT)


def is_bits(dtype: DTypeLike) -> bool:
    """Accepts integers and booleans."""
    return is_integer(dtype) or is_bool(dtype)
