"""Start indices of slices as scalars: what counts from the end, and of which dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.canonicalize import default_int
from tracebridge.core.dtypes.dtypes import is_integer, is_unsigned
from tracebridge.core.errors.shape_errors import IndexingError, RankError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal, literal
from tracebridge.core.lax.families import operands
from tracebridge.core.lax.shape.axes import as_dims, surely_less
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand


_I32 = np.dtype(np.int32)
_I64 = np.dtype(np.int64)
_INTEGERS = (int, np.integer)
_BOOLS = (bool, np.bool_)
_POSITIONS: BoundedCache[Literal] = BoundedCache("literals of positions", 512)


def start_values(call: str, x: Any, starts: Any, allow_negative: Any) -> list[Any]:
    """Start indices as scalars of one dtype; negative ones count from the end if allowed."""
    shape = x.aval.shape
    if hasattr(starts, "shape"):
        vector = as_value(starts)
        if vector.aval.ndim != 1 or vector.aval.shape[0] != len(shape):
            msg = (
                f"{call}: start_indices must have shape ({len(shape)},) for "
                f"{x.aval.str_short()}, got {vector.aval.str_short()}"
            )
            raise RankError(msg)
        starts = [lax.index_in_dim(vector, i, 0, keepdims=False) for i in range(len(shape))]
    if len(starts) != len(shape):
        msg = (
            f"{call}: got {len(starts)} start indices, expected {len(shape)} for "
            f"{x.aval.str_short()}"
        )
        raise RankError(msg)
    allowed = allow_negative
    if isinstance(allowed, _BOOLS):
        allowed = [allowed] * len(shape)
    values = [
        _wrapped(call, s, n, bool(wrap)) for s, n, wrap in zip(starts, shape, allowed, strict=True)
    ]
    return _one_dtype(call, values)


def _wrapped(call: str, start: Operand, size: object, wrap: bool) -> Any:
    """A start that counts from the front."""
    if isinstance(start, _INTEGERS) or getattr(start, "is_symbolic_dim", False):
        position = as_dims((start,))[0]
        if surely_less(position, 0, decides=True):
            if not wrap:
                msg = f"{call}: start index {position} is negative, allow_negative_indices=False"
                raise IndexingError(msg)
            position = position + size
        if type(position) is not int:
            return lax.dimension_size(position, _I32)
        # The operation clamps; here the number only has to fit index dtypes.
        return _constant(max(min(position, 2**31 - 1), -(2**31)), default_int(), True)
    value = as_value(start)
    dtype = value.aval.dtype
    if not is_integer(dtype):
        return value
    if dtype.itemsize < 4:  # the sum below must not wrap
        value, dtype = lax.convert_dtype(value, _I32), _I32
    if not wrap or is_unsigned(dtype):
        return value
    symbolic = type(size) is not int
    length = lax.dimension_size(size, dtype) if symbolic else _constant(size, dtype, False)
    below = lax.lt(value, _constant(0, dtype, False))
    return lax.select_n(below, value, lax.add(value, length))


def _constant(value: int, dtype: np.dtype[Any], weak_type: bool) -> Literal:
    """The same literal each time: eager operations keep its buffer."""
    key = (value, dtype, weak_type)
    found = _POSITIONS.get(key)
    if found is None:
        found = literal(value, dtype, weak_type)
        _POSITIONS.set(key, found)
    return found


def _one_dtype(call: str, values: list[Any]) -> list[Any]:
    """Python ints take the dtype of the others; if those differ, all become int64."""
    found = {v.aval.dtype for v in values if not (type(v) is Literal and v.aval.weak_type)}
    if not all([is_integer(d) for d in found]):
        return values
    if len(found) > 1:
        return [lax.convert_dtype(v, _I64) for v in values]
    if any([is_unsigned(d) for d in found]):
        values = [_at_least_zero(v) if type(v) is Literal else v for v in values]
    return operands(call, *values)


def _at_least_zero(value: Literal) -> Literal:
    """What a position is clamped to below, for dtypes without negative numbers."""
    aval = value.aval
    return value if value.value >= 0 else _constant(0, aval.dtype, aval.weak_type)
