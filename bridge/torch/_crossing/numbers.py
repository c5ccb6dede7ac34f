"""Python numbers and NumPy arrays beside tensors, in dtypes wide enough for the tensors.

A number enters as a weakly typed float32, int32 or complex64, so that programs are like those of
``jit``; in a program of 64 bits (see core/dtypes/width.py) it enters with 64: rounding 0.1 to 32
bits first would spoil a float64 computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tracebridge._api.args.values import short_repr
from tracebridge.core.config.values import option
from tracebridge.core.config.wide import INTEGERS, Width, at_least
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.argument_errors import IntegerRangeError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import check_unmasked, put_numpy
from tracebridge.interop.torch_adapter import DTYPES, ROWS, torch_adapter
from tracebridge.torch._crossing.in_graphs import constant_in_graphs
from tracebridge.torch._crossing.structure import BOOL, COMPLEX, FLOAT, INT, TENSOR

LEAST, LARGEST = -(2**63), 2**63 - 1  # of the integers that may be arguments
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_WIDE = (torch.float64, torch.complex128)
_NARROWED = {torch.float64: torch.float32, torch.complex128: torch.complex64}
_NARROWED_INTEGERS = {torch.int64: torch.int32, torch.uint64: torch.uint32}
_WIDE_INTEGERS = (torch.int64, torch.uint64)


def width(x: Any) -> Any:
    """What of a Python number is part of a key: its type, and whether 32 bits hold it."""
    kind = type(x)
    return (kind, _INT32_MIN <= x <= _INT32_MAX) if kind is int else kind


def width_beside(dtypes: Sequence[torch.dtype]) -> Width:
    """``width_of`` for torch's dtypes. Dynamo reads these lines."""
    wide_integers = narrow_floats = False
    for dtype in dtypes:
        if dtype in _WIDE:
            return True
        if dtype in _WIDE_INTEGERS:
            wide_integers = True
        elif dtype.is_floating_point or dtype.is_complex:
            narrow_floats = True
    if not wide_integers:
        return _of_option()
    return INTEGERS if narrow_floats and _of_option() is not True else True


@constant_in_graphs
def _of_option() -> Width:
    return option("enable_x64")


def leaf_avals(leaves: Sequence[Any], kinds: Sequence[str]) -> list[ShapedArray]:
    """Strongly typed avals of tensors and Python numbers."""
    wide = width_beside([x.dtype for x, k in zip(leaves, kinds, strict=True) if k == TENSOR])
    return [
        aval_of(x) if k == TENSOR else ShapedArray((), DTYPES[_number_dtype(k, x, wide)])
        for x, k in zip(leaves, kinds, strict=True)
    ]


def number_tensors(leaves: Sequence[Any], kinds: Sequence[str]) -> list[torch.Tensor]:
    """The leaves with Python numbers as tensors without axes. Dynamo reads these lines."""
    dtypes: list[torch.dtype] = []
    device: Any = None
    for x, kind in zip(leaves, kinds, strict=True):
        if kind == TENSOR:
            device = x.device if device is None or x.ndim else device
            dtypes.append(x.dtype)
    wide = width_beside(dtypes)
    if device is None:
        device = "cpu"  # whatever device torch makes tensors on
    result: list[torch.Tensor] = []
    for x, kind in zip(leaves, kinds, strict=True):
        if kind == TENSOR:
            result.append(x)
        else:
            result.append(scalar_tensor(x, _number_dtype(kind, x, wide), device))
    if not result:
        # torch chooses kernels by tensors. The program drops it: see CallFamily.
        result.append(scalar_tensor(False, torch.bool, device))
    return result


def _number_dtype(kind: str, x: Any, wide: Width) -> torch.dtype:
    """The dtype in which a Python number enters. Dynamo reads these lines."""
    if kind == BOOL:
        return torch.bool
    if kind == INT:
        return torch.int32 if not wide and _fits(x) else torch.int64
    if kind == FLOAT:
        return torch.float64 if wide is True else torch.float32
    return torch.complex128 if wide is True else torch.complex64


def _fits(x: Any) -> bool:
    """Whether 32 bits hold an int. What only the run knows may be of any size."""
    low, high = x >= _INT32_MIN, x <= _INT32_MAX
    if not (torch.compiler.is_dynamo_compiling() or isinstance(x, torch.SymInt)):
        return low and high
    shapes = torch.fx.experimental.symbolic_shapes  # pyright: ignore[reportAttributeAccessIssue] - see in_graphs.py
    if torch.compiler.is_exporting():
        # An exported program is for all values: it must not ask for some of them.
        return shapes.statically_known_true(low) and shapes.statically_known_true(high)
    return shapes.guard_or_false(low) and shapes.guard_or_false(high)


def host_tensors(leaves: Sequence[Any]) -> list[Any]:
    """The leaves with NumPy arrays as tensors: of 64 bits where the tensors beside them have 64."""
    wide = width_beside([x.dtype for x in leaves if isinstance(x, torch.Tensor)])
    with at_least(wide):
        return [
            _of_host(np.asarray(x)) if isinstance(x, np.ndarray | np.generic) else x for x in leaves
        ]


def host_tensor(x: Any, wide: Width) -> torch.Tensor:
    """The same for one array of a graph. Dynamo reads these lines."""
    tensor = torch.as_tensor(x)
    if wide is not True and tensor.dtype in _NARROWED:
        return tensor.to(_NARROWED[tensor.dtype])
    if not wide and tensor.dtype in _NARROWED_INTEGERS:
        return tensor.to(_NARROWED_INTEGERS[tensor.dtype])
    return tensor


def _of_host(host: np.ndarray[Any, Any]) -> Any:
    array = put_numpy(host.astype(canonicalize(host.dtype), copy=False))
    return torch_adapter.export(array)


def converted(leaf: Any) -> tuple[str, Any]:
    """A leaf that is no tensor as (kind, tensor, NumPy array or number); "" if it is unusable.

    Raises:
        ArgumentValueError: a masked array, whose hidden elements would come to light.
    """
    if type(leaf) is Array:
        return TENSOR, torch_adapter.export(leaf)
    if isinstance(leaf, np.ndarray | np.generic):
        check_unmasked(leaf)
        return (TENSOR if _has_counterpart(leaf.dtype) else ""), leaf
    # Subclasses of Python's numbers, such as members of an IntEnum.
    if isinstance(leaf, int):
        return INT, int(leaf)
    if isinstance(leaf, float):
        return FLOAT, float(leaf)
    if isinstance(leaf, complex):
        return COMPLEX, complex(leaf)
    return "", leaf


def _has_counterpart(dtype: np.dtype[Any]) -> bool:
    """Whether devices have a dtype of NumPy: no objects, strings, dates and structures."""
    try:
        canonicalize(dtype)
    except UnsupportedDtypeError:
        return False
    return True


def unusable(function: str, argument: str, leaf: object) -> Exception:
    """The error for an argument that is neither tensor nor number, or is beyond 64 bits."""
    what = f"wrap({function}): argument {argument} is"
    if isinstance(leaf, int):
        return IntegerRangeError(f"{what} {leaf}", expected="an integer of 64 bits, or a float")
    return UnsupportedDtypeError(
        f"{what} {short_repr(leaf)} of type {type(leaf).__name__}; arguments are tensors, arrays, "
        "numbers, and trees of them",
        hint="mark it static (static_argnums, static_argnames) if it is a constant",
    )


def aval_of(x: torch.Tensor) -> ShapedArray:
    """Shape and dtype of a tensor.

    Raises:
        UnsupportedExchangeDtypeError: the engine has no such dtype.
    """
    dtype = DTYPES.get(x.dtype)
    if dtype is None:
        dtype = ROWS.ours(str(x.dtype).removeprefix("torch."))
    return ShapedArray(tuple([int(d) for d in x.shape]), dtype)


# What may be larger than the dtype holds is rounded to infinity by a cast, refused by ``full``.
_EXACT_FIRST = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def scalar_tensor(x: Any, dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """A Python number as a tensor without axes. Dynamo reads these lines."""
    if dtype in _EXACT_FIRST:
        return torch.full((), x, dtype=_EXACT_FIRST[dtype], device=device).to(dtype)
    return torch.full((), x, dtype=dtype, device=device)
