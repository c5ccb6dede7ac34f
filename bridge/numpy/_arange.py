"""How ``arange`` makes its numbers: on the host, as operations, or as a symbolic size says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit, default_int
from tracebridge.core.dtypes.dtypes import is_integer
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.symbolic.compare import at_least
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.runtime.arrays.array_like import DTypeLike

_LONG = 1 << 16
"""Ranges of more numbers are operations of a program; shorter ones constants, which fold."""
_FEW = 4000  # numbers that NumPy makes as soon in any dtype
_ASKED: BoundedCache[bool] = BoundedCache("long ranges", 64)


def _sign_of(step: Any) -> int:
    try:
        return 1 if step > 0 else -1
    except InconclusiveDimensionError as error:
        msg = f"arange: of the step {step} it must be resolved statically if it is > 0 or < 0"
        raise InconclusiveDimensionError(msg, hint=error.hint) from error


def symbolic_arange(start: Any, stop: Any, step: Any, dtype: DTypeLike | None) -> Any:
    """``arange`` of dimensions and integers; steps are 1 where ``step`` is None.

    Raises:
        ArgumentValueError: there are other numbers among them, or steps of 0.
    """
    step = 1 if step is None else step
    for v in (start, stop, step):
        if not (getattr(v, "is_symbolic_dim", False) or isinstance(v, int | np.integer)):
            msg = (
                f"arange: start, stop and step must be either dimension expressions or integers, "
                f"got {start}, {stop}, {step}"
            )
            raise ArgumentValueError(msg)
    if isinstance(step, int | np.integer) and step == 0:
        msg = f"arange: the range {start}, {stop}, {step} has step == 0"
        raise ArgumentValueError(msg)
    kind = default_int() if dtype is None else canonicalize_explicit(dtype, "arange")
    sign = _sign_of(step)
    length = (sign * (stop - start) + sign * step - 1) // (sign * step)
    numbers = lax.iota(kind, at_least(length, 0))
    if not (isinstance(step, int) and step == 1):
        numbers = lax.mul(numbers, lax.convert_dtype(as_value(step), kind))
    if isinstance(start, int) and start == 0:
        return numbers
    return lax.add(numbers, lax.convert_dtype(as_value(start), kind))


def long_range(bounds: Sequence[np.ndarray[Any, Any]], kind: Any) -> range | None:
    """The whole numbers of a range that operations are to make: it is long, and they are exact."""
    numbers = _whole_numbers(bounds, kind)
    return None if numbers is None or len(numbers) <= _LONG else numbers


def comes_again(numbers: range, kind: Any) -> bool:
    """Whether this range was asked for before; a program of a new one takes long to compile."""
    key = (numbers.start, len(numbers), numbers.step, kind)
    again = key in _ASKED
    _ASKED.set(key, True)
    return again


def _whole_numbers(bounds: Sequence[np.ndarray[Any, Any]], kind: Any) -> range | None:
    """The numbers of a range if they are whole, and if ``kind`` has them or wraps them around."""
    if all([is_integer(bound.dtype) for bound in bounds]):
        numbers = range(*map(int, bounds))
    elif is_integer(kind) or not _whole(bounds[0], bounds[2]):
        return None
    else:
        start, step = int(bounds[0]), int(bounds[2])
        length = math.ceil((float(bounds[1]) - start) / step) if np.isfinite(bounds[1]) else 0
        numbers = range(start, start + max(length, 0) * step, step)
    return numbers if is_integer(kind) or _exact(numbers, kind) else None


def _whole(*bounds: np.ndarray[Any, Any]) -> bool:
    return all([bound.dtype.kind in "iuf" and float(bound).is_integer() for bound in bounds])


def _exact(numbers: range, kind: Any) -> bool:
    """Whether positions times steps plus the start are rounded at most once in a float dtype."""
    if kind not in (np.float32, np.float64):
        return False
    if numbers.start == 0 and numbers.step == 1:
        return True
    most = max(abs(numbers.start), abs(numbers.stop), abs(numbers.step) * len(numbers))
    return most <= 2 ** (np.finfo(kind).nmant + 1)


def staged_range(numbers: range, dtype: Any) -> Any:
    """Whole numbers as operations of a program, which need no memory before it runs."""
    positions = lax.iota(dtype, len(numbers))
    step, start = [np.array([n]).astype(dtype)[0] for n in (numbers.step, numbers.start)]
    if step != 1:
        positions = lax.mul(positions, full_of(positions.aval, step))
    return lax.add(positions, full_of(positions.aval, start)) if start else positions


def _are_many(bounds: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Whether a range is so long that its dtype counts; bounds may be of any kind."""
    if any([bound.dtype.kind not in "iuf" for bound in bounds]):
        return False
    start, stop, step = map(float, bounds)
    return abs(stop - start) > _FEW * abs(step)


def _narrow_kind(numbers: range, kind: Any) -> np.dtype[Any] | None:
    """The dtype of integers in which NumPy makes them soonest; None if one does not fit."""
    ends = (numbers.start, numbers.stop, numbers.step)
    narrow = np.dtype(kind if is_integer(kind) else np.int32)
    info = np.iinfo(narrow)
    return narrow if all([info.min <= n <= info.max for n in ends]) else None


def host_range(bounds: Sequence[np.ndarray[Any, Any]], kind: Any) -> np.ndarray[Any, Any]:
    """``arange`` of NumPy; exact beyond 2**53, too, where it mixes uint64 with signed integers."""
    kinds = [bound.dtype for bound in bounds]
    if np.dtype(np.uint64) not in kinds or not all([is_integer(k) for k in kinds]):
        scalars: list[Any] = [bound[()] for bound in bounds]
        whole = _whole_numbers(bounds, kind) if _are_many(bounds) else None
        narrow = None if whole is None or len(whole) <= _FEW else _narrow_kind(whole, kind)
        if whole is None or narrow is None:
            return np.arange(*scalars).astype(kind)
        made = np.arange(whole.start, whole.stop, whole.step, dtype=narrow)
        return made.astype(kind, copy=False)
    numbers = range(*map(int, bounds))
    # Modulo 2**64 the sums are right, whichever sign the numbers have.
    step, start = [np.array([n % 2**64], np.uint64) for n in (numbers.step, numbers.start)]
    wrapped = np.arange(len(numbers), dtype=np.uint64) * step + start
    negative = len(numbers) and min(numbers[0], numbers[-1]) < 0
    return (wrapped.view(np.int64) if negative else wrapped).astype(kind)
