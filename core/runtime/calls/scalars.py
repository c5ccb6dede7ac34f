"""Python numbers as arguments: the device scalars that stand for them, kept."""

from __future__ import annotations

from typing import Any

from tracebridge.core.config.state import state
from tracebridge.core.config.values import on_global_change
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.values import Literal, check_int_range, python_scalar, scalar_value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import put_literal
from tracebridge.core.util.caching import BoundedCache, register_table

SCALAR_TYPES = frozenset({float, int, bool, complex})
SCALARS: BoundedCache[Any] = BoundedCache("scalar operands", 8192)


def scalar_array(value: object, aval: ShapedArray | None) -> Array:
    """The device scalar of a Python number in the dtype of ``aval`` (bounded cache)."""
    # Zero is keyed by its text: 0.0 == -0.0. The dtype keeps True, 1 and 1.0 apart.
    key = (aval, value) if value else (aval, repr(value))
    found = SCALARS.get(key)
    if found is None or state() is not None:
        found = put_literal(coerce(value, aval))
        if state() is None:
            SCALARS.set(key, found)
    return found


# Default avals of Python numbers by class; they change with enable_x64 only.
_SCALAR_AVALS: dict[type, ShapedArray] = register_table("avals of Python numbers", {})


def scalar_argument(value: object) -> Array:
    """The device scalar of a Python number in its default dtype, weakly typed (bounded cache).

    Only for the default state: a thread-scoped option may change the dtype or the device.
    """
    kind = type(value)
    aval = _SCALAR_AVALS.get(kind)
    if aval is None:
        aval = _SCALAR_AVALS[kind] = scalar_value(kind()).aval
    return scalar_array(value, aval)


def coerce(value: Any, aval: Any) -> Literal:
    """A Python number as a Literal of ``aval``."""
    if type(value) is int and aval.dtype.kind in "iu":
        check_int_range(value, aval.dtype)
        return Literal(value, aval)
    if type(value) is complex and aval.dtype.kind not in "bc":
        value = value.real  # as the conversion does that this stands for
    return Literal(python_scalar(value, aval.dtype), aval)


@on_global_change
def _option_changed(name: str, value: object) -> None:
    del name, value
    SCALARS.clear()
    _SCALAR_AVALS.clear()
