"""MLIR types of dtypes and avals, cached (they belong to the one context)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.aval import stored

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray

_FLOATS = {
    "float16": "F16Type",
    "bfloat16": "BF16Type",
    "float32": "F32Type",
    "float64": "F64Type",
    "float8_e3m4": "Float8E3M4Type",
    "float8_e4m3": "Float8E4M3Type",
    "float8_e4m3fn": "Float8E4M3FNType",
    "float8_e4m3b11fnuz": "Float8E4M3B11FNUZType",
    "float8_e4m3fnuz": "Float8E4M3FNUZType",
    "float8_e5m2": "Float8E5M2Type",
    "float8_e5m2fnuz": "Float8E5M2FNUZType",
    "float8_e8m0fnu": "Float8E8M0FNUType",
    "float4_e2m1fn": "Float4E2M1FNType",
}
_TOO_MANY = 2**63
_ELEMENT_TYPES: dict[np.dtype[Any], Any] = {}


def element_type(dtype: np.dtype[Any]) -> Any:
    """The MLIR type of one element. The context must be entered."""
    found = _ELEMENT_TYPES.get(dtype)
    if found is None:
        found = _ELEMENT_TYPES[dtype] = _make_element_type(dtype)
    return found


def _make_element_type(dtype: np.dtype[Any]) -> Any:
    ir = mlir.ir
    name = dtype.name
    if name == "bool":
        return ir.IntegerType.get_signless(1)
    if name in _FLOATS:
        return getattr(ir, _FLOATS[name]).get()
    if name.startswith("uint"):
        return ir.IntegerType.get_unsigned(int(name[4:]))
    if name.startswith("int"):
        return ir.IntegerType.get_signless(int(name[3:]))
    if name == "complex64":
        return ir.ComplexType.get(ir.F32Type.get())
    if name == "complex128":
        return ir.ComplexType.get(ir.F64Type.get())
    if dtype.fields is not None and "float0" in (dtype.names or ()):
        return ir.IntegerType.get_signless(1)
    msg = f"dtype {name} has no StableHLO type"
    raise UnsupportedDtypeError(msg)


def tensor_type(aval: ShapedArray) -> Any:
    """The ranked tensor type of ``aval``; symbolic dimensions become dynamic."""
    found = aval.mlir_type
    if found is None:
        ir = mlir.ir
        _check_size(aval)
        kept = stored(aval)
        sizes = [d if type(d) is int else ir.ShapedType.get_dynamic_size() for d in kept.shape]
        found = ir.RankedTensorType.get(sizes, element_type(kept.dtype))
        aval.mlir_type = found
    return found


def _check_size(aval: ShapedArray) -> None:
    """Refuse shapes whose bytes XLA can't count: it would end the process."""
    sizes = [d for d in aval.shape if type(d) is int]
    n_bytes = math.prod(sizes) * max(aval.dtype.itemsize, 1)
    if max(n_bytes, *sizes, 0) >= _TOO_MANY:
        raise ArgumentValueError(
            got=f"an array {aval.str_short()} of {n_bytes:.3g} bytes",
            expected="fewer than 2**63 bytes",
            hint="check the sizes: one may be multiplied twice",
        )


def is_static(aval: ShapedArray) -> bool:
    """Whether every dimension is an int."""
    return all([type(d) is int for d in aval.shape])
