"""Which dtype of torch holds the elements of an array inside a graph.

torch stores unsigned integers of 16 bits and more but does not compute with them. Inside graphs
they are signed integers: 16 and 32 bits are held by the next wider type, with the high bits zero
after each operation; 64 bits by ``int64`` as they are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.dtypes.dtypes import is_complex, is_float
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError

# A dtype of NumPy: one of ours.
DType = np.dtype[Any]

EXACT: dict[np.dtype[Any], torch.dtype] = {
    d.bool_: torch.bool,
    d.int8: torch.int8,
    d.int16: torch.int16,
    d.int32: torch.int32,
    d.int64: torch.int64,
    d.uint8: torch.uint8,
    d.uint16: torch.uint16,
    d.uint32: torch.uint32,
    d.uint64: torch.uint64,
    d.float16: torch.float16,
    d.bfloat16: torch.bfloat16,
    d.float32: torch.float32,
    d.float64: torch.float64,
    d.complex64: torch.complex64,
    d.complex128: torch.complex128,
}
OF_TORCH = {theirs: ours for ours, theirs in EXACT.items()}
_WIDER = {d.uint16: torch.int32, d.uint32: torch.int64, d.uint64: torch.int64}
# The signed dtype with the same bits.
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
LEAST = -(2**63)


def exact(dtype: DType) -> torch.dtype:
    """The dtype of torch with the same elements."""
    found = EXACT.get(dtype)
    if found is None:
        msg = f"to_graph_module: torch has no operations on {getattr(dtype, 'name', dtype)}"
        raise UnsupportedDtypeError(msg, hint="convert to another dtype inside the function")
    return found


def carrier(dtype: DType) -> torch.dtype:
    """The dtype of torch that holds elements of ``dtype`` inside graphs."""
    found = _WIDER.get(dtype)
    return exact(dtype) if found is None else found


def is_carried(dtype: DType) -> bool:
    """Whether another dtype of torch holds the elements."""
    return dtype in _WIDER


def is_wide_unsigned(dtype: DType) -> bool:
    """Whether ``int64`` holds the bits of unsigned numbers, so that order needs care."""
    return dtype == d.uint64


def real_of(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the parts of complex numbers."""
    return torch.float64 if dtype == torch.complex128 else torch.float32


def number(value: object, dtype: DType) -> bool | int | float | complex:
    """A Python number as arrays of ``dtype`` hold it inside graphs."""
    element = np.asarray(value).astype(dtype)
    if dtype == d.bool_:
        return bool(element)
    if is_complex(dtype):
        return complex(element)
    if is_float(dtype):
        return float(element)
    found = int(element)
    return found - 2**64 if is_wide_unsigned(dtype) and found >= 2**63 else found


def smallest(dtype: DType) -> bool | int | float | complex:
    """The least element, as graphs hold it; -inf of floats."""
    if dtype == d.bool_:
        return False
    if is_complex(dtype):
        return complex(-math.inf, -math.inf)
    return -float("inf") if is_float(dtype) else int(np.iinfo(dtype).min)


def largest(dtype: DType) -> bool | int | float | complex:
    """The greatest element, as graphs hold it; inf of floats."""
    if dtype == d.bool_:
        return True
    if is_complex(dtype):
        return complex(math.inf, math.inf)
    if is_float(dtype):
        return float("inf")
    return -1 if is_wide_unsigned(dtype) else int(np.iinfo(dtype).max)


def host_bits(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A NumPy array as a tensor of its carrier, with memory of its own."""
    dtype = array.dtype
    if dtype == d.bfloat16:
        bits = np.array(array, order="C", ndmin=0).view(np.int16)
        return torch.from_numpy(bits.copy()).view(torch.bfloat16)
    if is_wide_unsigned(dtype):
        array = array.view(np.int64)
    elif dtype in _WIDER:
        array = array.astype(np.int32 if dtype == d.uint16 else np.int64)
    exact(dtype)
    return torch.from_numpy(np.array(array, order="C"))
