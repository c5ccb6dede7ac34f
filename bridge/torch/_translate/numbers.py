"""Dtypes of ATen operators: the promotion of torch, and numbers as arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.value import Value
from tracebridge.interop.torch_adapter import DTYPES, ROWS, TORCH_DTYPES

DType = np.dtype[Any]
Operator = Callable[..., Any]


def is_array(x: object) -> bool:
    """Whether ``x`` is an array or traced, and no number or size."""
    return isinstance(x, EngineValue | np.ndarray)


def as_numpy_dtype(dtype: torch.dtype | None) -> DType:
    """The engine's dtype of a torch dtype; None is torch's default for floats.

    Raises:
        UnsupportedExchangeDtypeError: there is none, as for complex numbers of two halves.
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    found = DTYPES.get(dtype)
    return ROWS.ours(str(dtype).removeprefix("torch.")) if found is None else found


def dtype_of_number(x: object) -> torch.dtype:
    """The dtype that torch gives to a Python number or a size."""
    if isinstance(x, bool):
        return torch.bool
    if isinstance(x, float):
        return torch.get_default_dtype()
    if isinstance(x, complex):
        return torch.promote_types(torch.get_default_dtype(), torch.complex32)
    return torch.int64


def _combined(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """The dtype of operands of which the first kind decides unless the other is of a wider kind."""
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return higher.to_complex() if lower.is_complex else higher
    if higher == torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def common_dtype(*operands: Any, floats: bool = False) -> DType:
    """The dtype to which torch promotes the operands.

    Arrays with axes decide before those without, and these before numbers; ``floats`` is for
    operators that make floats of integers.
    """
    kinds: list[torch.dtype | None] = [None, None, None]
    for x in operands:
        if x is None:
            continue
        place = (0 if x.ndim else 1) if is_array(x) else 2
        dtype = TORCH_DTYPES[x.dtype] if is_array(x) else dtype_of_number(x)
        seen = kinds[place]
        kinds[place] = dtype if seen is None else torch.promote_types(seen, dtype)
    dtype = _combined(kinds[0], _combined(kinds[1], kinds[2]))
    assert dtype is not None  # there is an operand
    if floats and not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    return as_numpy_dtype(dtype)


def cast(x: Any, dtype: DType) -> Any:
    """An array or number with ``dtype``."""
    if is_array(x):
        return x if x.dtype == dtype else lax.convert_element_type(x, dtype)
    if isinstance(x, bool | int | float | complex):
        return np.asarray(x).astype(dtype)
    return lax.convert_element_type(tnp.asarray(x), dtype)


def as_float(x: Any) -> Any:
    """A size as a float; an element that has been read as an array."""
    return cast(x, tnp.result_type(float)) if is_array(x) else float(x)


def as_int(x: Any) -> Any:
    """A number cut to an integer, likewise."""
    return cast(tnp.trunc(x), np.dtype(np.int64)) if is_array(x) else int(x)


def negation(x: Any) -> Any:
    """What is true where ``x`` is not."""
    return tnp.logical_not(x) if is_array(x) else not x


def chosen(which: Any, x: Any, y: Any) -> Any:
    """One of two numbers."""
    return tnp.where(which, x, y) if is_array(which) else x if which else y


def promoted(*operands: object, floats: bool = False) -> list[Any]:
    """The operands with their common dtype."""
    dtype = common_dtype(*operands, floats=floats)
    return [cast(x, dtype) for x in operands]


def wide(x: Value) -> Any:
    """A float of 16 bits as float32, in which torch accumulates; others as they are."""
    return cast(x, np.dtype(np.float32)) if x.dtype.itemsize == 2 and x.dtype.kind != "i" else x


def axis_of(axis: int, ndim: int) -> int:
    """An axis counted from the front."""
    return axis + max(ndim, 1) if axis < 0 else axis


def axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes of a reduction counted from the front; None and an empty list are all."""
    if axes is None or (isinstance(axes, list | tuple) and not axes):
        return tuple(range(ndim))
    if isinstance(axes, int):
        axes = [axes]
    return tuple([axis_of(a, ndim) for a in axes]) if ndim else ()
