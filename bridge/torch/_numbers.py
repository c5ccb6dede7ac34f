"""Python numbers beside tensors: weakly typed scalars, in a dtype wide enough for the tensors.

A number enters as float32, int32 or complex64, so that programs are like those of ``jit``. Beside a
tensor of a 64-bit dtype it enters with 64 bits: rounding 0.1 to 32 bits first would spoil a
float64 computation. Its weak type lets the tensors decide the dtype of results all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tracebridge.core.dtypes.dtypes import (
    bool_,
    complex64,
    complex128,
    float32,
    float64,
    int32,
    int64,
)
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.torch import _eager
from tracebridge.torch._structure import BOOL, FLOAT, INT, TENSOR

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_WIDE_BYTES = 8
_WIDE = (torch.float64, torch.complex128)


def width(x: Any) -> Any:
    """What of a Python number is part of a key: its type, and whether 32 bits hold it."""
    kind = type(x)
    return (kind, _INT32_MIN <= x <= _INT32_MAX) if kind is int else kind


def leaf_avals(leaves: Sequence[Any], kinds: Sequence[str]) -> list[ShapedArray]:
    """Strongly typed avals of tensors and Python numbers."""
    tensors = [
        _eager.aval_of(x) if k == TENSOR else None for x, k in zip(leaves, kinds, strict=True)
    ]
    wide_float = any([a is not None and a.dtype in (float64, complex128) for a in tensors])
    wide_int = any([a is not None and a.dtype.itemsize >= _WIDE_BYTES for a in tensors])
    return [
        ShapedArray((), number_dtype(k, x, wide_float, wide_int)) if a is None else a
        for x, k, a in zip(leaves, kinds, tensors, strict=True)
    ]


def number_dtype(kind: str, value: Any, wide_float: bool, wide_int: bool) -> np.dtype[Any]:
    """The dtype in which a Python number enters."""
    if kind == BOOL:
        return bool_
    if kind == INT:
        return int64 if wide_int or not _INT32_MIN <= value <= _INT32_MAX else int32
    if kind == FLOAT:
        return float64 if wide_float else float32
    return complex128 if wide_float else complex64


def number_tensors(leaves: Sequence[Any], kinds: Sequence[str]) -> list[torch.Tensor]:
    """The leaves with Python numbers as tensors without axes. Dynamo reads these lines."""
    wide_float = wide_int = False
    device = None
    for x, kind in zip(leaves, kinds, strict=True):
        if kind == TENSOR:
            device = x.device if device is None or x.ndim else device
            wide_int = wide_int or x.dtype.itemsize >= _WIDE_BYTES
            wide_float = wide_float or x.dtype in _WIDE
    result: list[torch.Tensor] = []
    for x, kind in zip(leaves, kinds, strict=True):
        if kind == TENSOR:
            result.append(x)
        else:
            dtype = _torch_dtype(kind, x, wide_float, wide_int)
            result.append(torch.full((), x, dtype=dtype, device=device))
    return result


def _torch_dtype(kind: str, x: Any, wide_float: bool, wide_int: bool) -> torch.dtype:
    if kind == BOOL:
        return torch.bool
    if kind == INT:
        return torch.int64 if wide_int or not _INT32_MIN <= x <= _INT32_MAX else torch.int32
    if kind == FLOAT:
        return torch.float64 if wide_float else torch.float32
    return torch.complex128 if wide_float else torch.complex64
