"""How wide a program must be for the data that it gets, and the numbers beside the data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tracebridge.core.config.values import option
from tracebridge.core.config.wide import INTEGERS, Width
from tracebridge.core.dtypes import dtypes

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


def width_of(dtypes_of_inputs: Iterable[Any]) -> Width:
    """How wide a program is whose inputs have these dtypes, Python numbers left out.

    Wide floats make everything wide; so do wide integers alone. Wide integers beside narrow floats
    (token ids beside parameters) say nothing of floats: only integers are wide then.
    """
    wide_ints = narrow_floats = False
    for dtype in dtypes_of_inputs:
        if dtype in (dtypes.float64, dtypes.complex128):
            return True
        if dtype in (dtypes.int64, dtypes.uint64):
            wide_ints = True
        elif dtype in dtypes.inexact:
            narrow_floats = True
    if not wide_ints:
        return False
    return INTEGERS if narrow_floats else True


def number_dtype(value: object, width: Width) -> np.dtype[Any]:
    """The dtype in which a Python number enters a program of this width.

    Integers that 32 bits do not hold are wide everywhere.
    """
    x64 = option("enable_x64")
    wide = width is True or x64 is True
    if isinstance(value, bool):
        return dtypes.bool_
    if isinstance(value, int):
        fits = _INT32_MIN <= value <= _INT32_MAX
        return dtypes.int32 if fits and not width and not x64 else dtypes.int64
    if isinstance(value, float):
        return dtypes.float64 if wide else dtypes.float32
    return dtypes.complex128 if wide else dtypes.complex64


def with_numbers(width: Width, dtypes_of_numbers: Iterable[Any]) -> Width:
    """``width``, where the dtypes of Python numbers beside the data are these."""
    return width or (INTEGERS if dtypes.int64 in dtypes_of_numbers else False)
