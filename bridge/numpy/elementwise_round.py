"""Rounding."""

from __future__ import annotations

__all__ = ["around", "ceil", "floor", "rint", "round", "trunc"]

import math
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_float
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact, itemsize_bits
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.argument_errors import index_of
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.accepted_dtypes import check_ordinary
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import check_no_out, promote_inexact, strong_array
from tracebridge.numpy._staging import unary_by_name, unary_function


def _floor(x: Value) -> Any:
    return lax.floor(x) if is_inexact(x.aval.dtype) else x


def _ceil(x: Value) -> Any:
    return lax.ceil(x) if is_inexact(x.aval.dtype) else x


def _trunc(x: Value) -> Any:
    if not is_inexact(x.aval.dtype):
        return x
    return lax.select_n(lax.lt(x, 0.0), lax.floor(x), lax.ceil(x))


def _rint(x: Value) -> Any:
    if not is_inexact(x.aval.dtype):
        # Whole numbers as floats that decide about dtypes; NumPy too has 64 bits for 32.
        return lax.convert_dtype(x, default_float())
    if is_complex(x.aval.dtype):
        return lax.complex(_rint(lax.real(x)), _rint(lax.imag(x)))
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def _round(x: Value, decimals: int) -> Any:
    check_ordinary("round", x.aval)
    if not is_inexact(x.aval.dtype):
        if decimals >= 0:
            return x
        scale = 10**-decimals
        (y,) = promote_inexact(x)
        return lax.convert_dtype(
            lax.mul(_rint(lax.div(y, float(scale))), float(scale)), x.aval.dtype
        )
    if decimals == 0:
        return _rint(x)
    if is_complex(x.aval.dtype):
        parts = [_round(part, decimals) for part in (lax.real(x), lax.imag(x))]
        return lax.complex(*parts)
    return strong_array(_round_digits(x, decimals))


def _round_digits(x: Value, decimals: int, bits: tuple[int, int] | None = None) -> Any:
    """``x`` to a number of digits; itself where it has no more of them, so that none overflow.

    ``bits``: of the exponent and of the mantissa of the dtype that ``x`` had. What is rounded has
    no more of them, as in NumPy: they decide about halves.
    """
    dtype = x.aval.dtype
    if itemsize_bits(dtype) < 32:
        wide = lax.convert_dtype(x, np.dtype(np.float32), x.aval.weak_type)
        info = finfo(dtype)
        rounded = _round_digits(wide, decimals, (info.nexp, info.nmant))
        return lax.convert_dtype(rounded, dtype, x.aval.weak_type)
    # Up to here 10**exponent and its inverse are normal numbers; XLA multiplies by the inverse.
    exponent = int(-math.log10(float(finfo(dtype).tiny)))
    if decimals > exponent:
        return x
    if decimals < -exponent:
        return lax.select_n(lax.is_finite(x), x, lax.mul(x, 0.0))
    # No float is 1/1000: a quotient by it would not be a whole number of thousands.
    factor, few = 10.0 ** abs(decimals), decimals < 0
    scaled = (lax.div if few else lax.mul)(x, factor)
    if bits is not None:
        scaled = lax.reduce_precision(scaled, *bits)
    rounded = (lax.mul if few else lax.div)(_rint(scaled), factor)
    return lax.select_n(lax.is_finite(scaled), x, rounded)


floor = unary_function(
    _floor,
    "floor",
    """The largest integer not above, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.floor(-1.5))
    -2.0
    """,
)
ceil = unary_function(
    _ceil,
    "ceil",
    """The smallest integer not below, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.ceil(1.2))
    2.0
    """,
)
trunc = unary_by_name(
    _trunc,
    "trunc",
    """The integer part, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.trunc(-1.5))
    -1.0
    """,
)
rint = unary_function(
    _rint,
    "rint",
    """The nearest integer, halves to even, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.rint(2.5))
    2.0
    """,
)
_round_staged = StagedFunction(_round, "round")


@remembered
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """Round to ``decimals`` digits after the point, halves to even.

    >>> import tracebridge.numpy as tnp
    >>> round(float(tnp.round(2.345, 1)), 3)
    2.3
    """
    check_no_out("round", out)
    return _round_staged((a,), (index_of(decimals, "round", "decimals"),))


around = round
