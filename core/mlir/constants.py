"""Constants: the dense attributes of NumPy arrays and of scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.mlir.types import element_type, tensor_type

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray


def splat_attr(value: Any, aval: ShapedArray) -> Any:
    """``dense<value>`` of the shape of ``aval``; ``value`` is a Python scalar."""
    ir = mlir.ir
    dtype = aval.dtype
    kind = dtype.kind
    if kind == "c":
        return dense_attr(np.full(aval.shape, value, dtype))
    element = element_type(dtype)
    is_flag = kind == "b" or dtype.fields is not None  # float0, held as booleans
    if is_flag or kind in "iu" or dtype.name.startswith(("int", "uint")):
        if is_flag:
            attr = ir.IntegerAttr.get(element, int(bool(value)))
        else:
            attr = _integer_attr(element, int(value))
    else:
        attr = ir.FloatAttr.get(element, float(value))
    return ir.DenseElementsAttr.get_splat(tensor_type(aval), attr)


def _integer_attr(element: object, value: int) -> Any:
    # The binding takes an int64; unsigned values above it wrap to the same bits.
    if value >= 2**63:
        value -= 2**64
    return mlir.ir.IntegerAttr.get(element, value)


def dense_attr(array: np.ndarray[Any, Any]) -> Any:
    """The dense attribute of an array of any dtype that StableHLO has."""
    ir = mlir.ir
    # ascontiguousarray would turn 0-d arrays into 1-d ones; reshape restores the rank.
    data = np.ascontiguousarray(array).reshape(array.shape)
    element = element_type(data.dtype)
    shape = list(data.shape)
    if data.dtype.kind == "V":
        data = _bits_of(data)
    return ir.DenseElementsAttr.get(data, type=element, shape=shape)


def _bits_of(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The storage of an ml_dtypes array as integers; sub-byte types keep one byte each."""
    name = data.dtype.name
    if name.startswith(("int", "uint")):
        return data.astype(np.int8 if name.startswith("int") else np.uint8)
    return data.view(np.uint16 if data.dtype.itemsize == 2 else np.uint8)
