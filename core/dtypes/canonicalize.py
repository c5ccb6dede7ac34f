"""The 64-bit rule: which dtypes exist while the option ``enable_x64`` is off.

It acts where Python scalars and NumPy arrays enter and where a user requests a dtype. It never
acts on arrays that exist: a float64 array from another framework stays float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracebridge.core.config.values import option
from tracebridge.core.config.wide import INTEGERS
from tracebridge.core.dtypes import dtypes
from tracebridge.core.errors.dtype_errors import (
    ExplicitX64Error,
    ExplicitX64Warning,
    UnsupportedDtypeError,
)
from tracebridge.core.errors.user_warnings import warn_user
from tracebridge.core.util.caching import register_table

if TYPE_CHECKING:
    from tracebridge.core.dtypes.dtypes import DTypeLike


_NARROWED: Final = {
    dtypes.int64: dtypes.int32,
    dtypes.uint64: dtypes.uint32,
    dtypes.float64: dtypes.float32,
    dtypes.complex128: dtypes.complex64,
}

_WAYS_TO_64_BITS: Final = (
    "turn them on with tracebridge.config.update('enable_x64', True), or keep the ones you "
    "ask for with tracebridge.config.update('explicit_x64_dtypes', 'allow')"
)

# dtype-like -> (dtype with 64 bits allowed, dtype without). Small: filled by what programs name.
_known: dict[Any, tuple[dtypes.DType, dtypes.DType]] = register_table("canonical dtypes", {})


def canonicalize(dtype: DTypeLike) -> Any:
    """The dtype that the engine uses for ``dtype``: 64 bits become 32 unless enabled.

    Args:
        dtype: a dtype, a scalar class (Python's give the default dtypes), or a name. Foreign
            byte orders become native.

    Raises:
        UnsupportedDtypeError: a dtype that the engine does not have, such as object, str or
            longdouble, or no dtype at all.
    """
    wide, narrow = _known_or_resolved(dtype)
    if wide is narrow:
        return wide
    x64 = option("enable_x64")
    return wide if x64 is True or (x64 == INTEGERS and wide.kind in "iu") else narrow


def as_given(dtype: DTypeLike) -> Any:
    """The dtype that ``dtype`` asks for, whether or not it exists while ``enable_x64`` is off.

    Raises:
        UnsupportedDtypeError: a dtype that the engine does not have.
    """
    return _known_or_resolved(dtype)[0]


def _known_or_resolved(dtype: DTypeLike) -> tuple[dtypes.DType, dtypes.DType]:
    """``(dtype with 64 bits, dtype without)``: one object twice where they are equal."""
    try:
        found = _known.get(dtype)
    except TypeError:
        found = None
    # Outside the handler, so that errors have no TypeError as context.
    return _resolve(dtype) if found is None else found


def _resolve(dtype: DTypeLike) -> tuple[dtypes.DType, dtypes.DType]:
    wide = dtypes.native(dtypes.as_dtype(dtype))
    if not dtypes.is_supported(wide):
        raise UnsupportedDtypeError(
            call="dtype",
            got=f"{wide}, which does not exist on devices",
            expected="a boolean, integer, floating or complex dtype, such as float32",
            hint="convert the data with NumPy first",
        )
    pair = (wide, narrowed(wide))
    if isinstance(dtype, np.dtype | type | str):
        _known[dtype] = pair
    return pair


def narrowed(dtype: Any) -> Any:
    """The dtype of at most 32 bits per real number that stands for ``dtype``."""
    return _NARROWED.get(dtype, dtype)


def is_wide(dtype: DTypeLike) -> bool:
    """Whether ``dtype`` is one of the four that ``enable_x64`` is about."""
    return dtype in _NARROWED


def canonicalize_explicit(dtype: Any, where: str) -> Any:
    """The dtype for one that a user wrote down, by the option ``explicit_x64_dtypes``.

    ``allow`` keeps 64 bits although ``enable_x64`` is off, ``warn`` narrows with a warning,
    ``error`` raises. Python scalar classes ask for the default dtype and never warn.

    Args:
        dtype: what the user passed.
        where: the public function that was called, for the message.

    Raises:
        ExplicitX64Error: 64 bits were requested, are off, and the option says ``error``.
        UnsupportedDtypeError: a dtype that the engine does not have, or an array: a value in the
            place of a dtype is a mistake that would go unnoticed.
    """
    if not isinstance(dtype, type | str | np.dtype) and _is_array(dtype):
        raise UnsupportedDtypeError(
            call=f"{where}: dtype",
            got=f"an array of type {type(dtype).__name__}",
            expected="a dtype, a scalar class, or a name such as 'float32'",
            hint="pass the dtype of the array: x.dtype",
        )
    try:
        canonical = canonicalize(dtype)
    except UnsupportedDtypeError as error:
        raise UnsupportedDtypeError(
            call=f"{where}: dtype", got=error.got, expected=error.expected, hint=error.hint
        ) from None
    # Only classes are compared with the scalar classes: numpy.dtype("float64") == float is true.
    if isinstance(dtype, type) and dtype in dtypes.PYTHON_SCALARS:
        return canonical
    requested = _known_or_resolved(dtype)[0]
    if requested == canonical:
        return canonical
    policy = option("explicit_x64_dtypes")
    if policy == "allow":
        return requested
    if policy == "error":
        raise ExplicitX64Error(
            call=where,
            got=f"the dtype {requested}, while 64-bit dtypes are off",
            expected=f"{canonical} or another dtype of at most 32 bits",
            hint=_WAYS_TO_64_BITS,
        )
    message = f"Explicitly requested dtype {requested} is not available in {where} and becomes "
    message += f"{canonical}, because 64-bit dtypes are off; "
    warn_user(message + _WAYS_TO_64_BITS, ExplicitX64Warning)
    return canonical


def _is_array(x: object) -> bool:
    """Whether ``x`` is an array of NumPy or a value of the engine, which has an aval."""
    return isinstance(x, np.ndarray) or hasattr(type(x), "aval")


def default_int() -> np.dtype[Any]:
    """The dtype of Python ints: int32, or int64 with ``enable_x64``."""
    return dtypes.int64 if option("enable_x64") else dtypes.int32


def default_uint() -> np.dtype[Any]:
    """The default unsigned dtype: uint32, or uint64 with ``enable_x64``."""
    return dtypes.uint64 if option("enable_x64") else dtypes.uint32


def default_float() -> np.dtype[Any]:
    """The dtype of Python floats: float32, or float64 with ``enable_x64``."""
    return dtypes.float64 if option("enable_x64") is True else dtypes.float32


def default_complex() -> np.dtype[Any]:
    """The dtype of Python complex numbers: complex64, or complex128 with ``enable_x64``."""
    return dtypes.complex128 if option("enable_x64") is True else dtypes.complex64


def to_inexact(dtype: DTypeLike) -> Any:
    """The floating dtype in which means and quotients of ``dtype`` are computed.

    Inexact dtypes are their own. Wide integers give float64 where 64 bits are enabled, all other
    integers and booleans float32.
    """
    if dtype in dtypes.inexact:
        return dtype
    dtype = dtypes.as_dtype(dtype)
    if dtype in dtypes.inexact:
        return dtype
    if dtype in (dtypes.int64, dtypes.uint64):
        return default_float()
    if dtype in dtypes.integers or dtype in dtypes.bools:
        return dtypes.float32
    msg = f"to_inexact: {dtype} has no floating counterpart; expected a numeric dtype"
    raise TypeError(msg)
