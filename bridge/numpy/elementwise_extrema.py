"""The larger and the smaller of two numbers, and limits, elementwise."""

from __future__ import annotations

__all__ = ["clip", "fmax", "fmin", "maximum", "minimum"]

from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import IntegerRangeError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.accepted_dtypes import check_ordinary
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import broadcast_operands, promote_dtypes, promoted_operands, select
from tracebridge.numpy._ranges import integer_limits, side_of
from tracebridge.numpy._staging import binary_by_name
from tracebridge.numpy._universal import universal_binary

maximum = universal_binary(
    promoted_operands("maximum", lambda x, y: lax.max(x, y)),
    "maximum",
    """The larger, elementwise; NaN if either is.

    >>> import tracebridge.numpy as tnp
    >>> tnp.maximum(tnp.array([1, 5]), 3).tolist()
    [3, 5]
    """,
)
minimum = universal_binary(
    promoted_operands("minimum", lambda x, y: lax.min(x, y)),
    "minimum",
    """The smaller, elementwise; NaN if either is.

    >>> import tracebridge.numpy as tnp
    >>> tnp.minimum(tnp.array([1, 5]), 3).tolist()
    [1, 3]
    """,
)


def lexicographic(strict: str, x: Value, y: Value) -> Any:
    """A comparison; complex numbers are compared by real part, then by imaginary part."""
    compare = getattr(lax, strict)
    if not is_complex(x.aval.dtype):
        return compare(x, y)
    parts = lax.eq(lax.real(x), lax.real(y))
    first = getattr(lax, strict[0] + "t")(lax.real(x), lax.real(y))
    # Beside NaN nothing is less or greater, whatever the real parts are.
    known = lax.bitwise_and(*[lax.eq(lax.imag(v), lax.imag(v)) for v in (x, y)])
    first = lax.bitwise_and(first, known)
    return lax.bitwise_or(first, lax.bitwise_and(parts, compare(lax.imag(x), lax.imag(y))))


def _fmax(x: Value, y: Value) -> Any:
    x, y = broadcast_operands("fmax", *promote_dtypes(x, y))
    return select(lax.bitwise_or(lexicographic("gt", x, y), lax.ne(y, y)), x, y)


def _fmin(x: Value, y: Value) -> Any:
    x, y = broadcast_operands("fmin", *promote_dtypes(x, y))
    return select(lax.bitwise_or(lexicographic("lt", x, y), lax.ne(y, y)), x, y)


fmax = binary_by_name(
    _fmax,
    "fmax",
    """The larger, elementwise; NaN only if both are.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.fmax(1.0, tnp.nan))
    1.0
    """,
)
fmin = binary_by_name(
    _fmin,
    "fmin",
    """The smaller, elementwise; NaN only if both are.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.fmin(1.0, tnp.nan))
    1.0
    """,
)


def _clip(*args: Value) -> Any:
    *xs, has_min = args
    values = promote_dtypes(*xs)
    x, *bounds = values
    check_ordinary("clip", x.aval)
    if is_complex(x.aval.dtype):
        got = x.aval.str_short()
        msg = f"clip: Complex values have no ordering and cannot be clipped, got {got}"
        raise UnsupportedDtypeError(msg, hint="clip the real and the imaginary part")
    if has_min:
        x = lax.max(*broadcast_operands("clip", bounds[0], x))
    if len(bounds) > has_min:
        x = lax.min(*broadcast_operands("clip", bounds[-1], x))
    return x


_clip_staged = StagedFunction(_clip, "clip")


def _loose_limits(arr: ArrayLike | None, low: Any, high: Any) -> list[Any] | None:
    """The limits, with those that no number of the dtype exceeds at its ends; None if none is so.

    A limit that no number of the dtype meets stays: it is an error.
    """
    ends = integer_limits([x for x in (arr, low, high) if x is not None])
    below, above = side_of(low, ends) < 0, side_of(high, ends) > 0
    if ends is None or not (below or above):
        return None
    limits = (ends[0] if below else low, ends[1] if above else high)
    return [x for x in limits if x is not None]


@remembered
def clip(
    arr: ArrayLike | None = None, /, min: ArrayLike | None = None, max: ArrayLike | None = None
) -> Array:
    """``arr`` limited to the range from ``min`` to ``max``; NaN stays.

    Args:
        arr: array, promoted together with the limits.
        min: lower limit, a number or an array that broadcasts; ``None`` for none. A Python int
            below all numbers of an integer dtype does not limit.
        max: upper limit, likewise; it wins where the lower one is larger.

    Raises:
        IntegerRangeError: a Python int is a lower limit above all numbers of the dtype, or an
            upper limit below them.
        UnsupportedDtypeError: complex numbers.

    >>> import tracebridge.numpy as tnp
    >>> tnp.clip(tnp.array([1, 5, 9]), 2, 7).tolist()
    [2, 5, 7]
    """
    try:
        bounds = [b for b in (min, max) if b is not None]
        try:
            return _clip_staged((arr, *bounds), (min is not None,))
        except IntegerRangeError:
            loose = _loose_limits(arr, min, max)
            if loose is None:
                raise
        return _clip_staged((arr, *loose), (min is not None,))
    except Exception as error:
        hide_internal_frames(error)
        raise
