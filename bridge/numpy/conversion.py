"""Arrays of Python and foreign objects; copies, and other dtypes."""

from __future__ import annotations

__all__ = ["array", "asarray", "astype", "copy"]

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.config.state import settled_state
from tracebridge.core.dtypes.canonicalize import (
    canonicalize,
    canonicalize_explicit,
    default_float,
    default_int,
)
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_integer
from tracebridge.core.dtypes.finfo import iinfo
from tracebridge.core.dtypes.promotion import promote
from tracebridge.core.dtypes.weak_type import is_python_scalar, scalar_dtype
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    IntegerRangeError,
    index_of,
    kind_of,
)
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.shown import shown
from tracebridge.core.interpreters.staging import StagingTrace
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import ARRAY_METHODS, array_value
from tracebridge.core.ir.value import Value
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.device_put import device_put_p
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.runtime.arrays.argument_types import DeviceLike, DType, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.arrays.transfer import check_unmasked, move, put_numpy
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.sharding.context import named_sharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.symbolic.dims import DimExpr, is_symbolic_dim
from tracebridge.core.tree.tree import leaves as tree_leaves
from tracebridge.interop.registry import import_tensor
from tracebridge.numpy._promote import as_strong


def _placement(device: Any) -> Any:
    if device is None or isinstance(device, Sharding):
        return device
    if isinstance(device, PartitionSpec):
        return named_sharding("device", device)
    if not hasattr(device, "client"):
        msg = f"device is {kind_of(device)}, expected a device or a sharding"
        raise ArgumentTypeError(msg, hint="take one of tracebridge.devices()")
    return SingleDeviceSharding(device)


def on_device(x: Any, device: object, out_sharding: object = None, call: str = "") -> Any:
    """``x`` committed to ``device`` (a device or a sharding); ``x`` itself for None."""
    if out_sharding is not None:
        if device is not None:
            msg = f"{call}: both device and out_sharding are given"
            raise ArgumentValueError(msg, expected="one of them")
        return constrained_result(call, x, out_sharding)
    if device is None:
        return x
    placement = _placement(device)
    current = settled_state()
    if type(x) is Array and (current is None or current.trace is None):
        return move(x, placement, committed=True)
    return device_put_p.bind(x, placement=placement, source=None)


def array(
    object: object,
    dtype: DTypeLike | None = None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: DeviceLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array of any array-like object: numbers, nested sequences, arrays of any framework.

    Args:
        object: what to convert. Python scalars give weakly typed arrays; NumPy arrays are
            canonicalised to 32 bits unless enable_x64; tensors of other frameworks keep their
            dtype.
        dtype: dtype of the result (default: by the elements).
        copy: whether the result must have memory of its own.
        order: accepted for NumPy's sake; arrays are row-major.
        ndmin: least number of axes; axes of size 1 are added in front.
        device: where to put the array (default: the default device, uncommitted).
        out_sharding: how to split it over a mesh with axes of the type Explicit.

    Raises:
        UnsupportedDtypeError: the object has elements that no device has (objects, and strings
            where no ``dtype`` is given, in which they are numbers).
        ArgumentValueError: ``order`` asks for columns first.

    >>> import tracebridge.numpy as tnp
    >>> tnp.array([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if order not in (None, "K", "C", "A"):
        msg = f"array: order={order!r}; arrays are row-major, use order='K' or 'C'"
        raise ArgumentValueError(msg)
    wanted = None if dtype is None else canonicalize_explicit(dtype, "array")
    result = _convert(object, wanted, copy=copy)
    if dtype is not None and result.aval.weak_type:
        result = lax.convert_dtype(result, result.aval.dtype, False)
    if result.aval.ndim < index_of(ndmin, "array", "ndmin"):
        result = lax.reshape(result, (*(1,) * (ndmin - result.aval.ndim), *result.aval.shape))
    return on_device(result, device, out_sharding, "array")


def asarray(
    a: object,
    dtype: DTypeLike | None = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: DeviceLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array of any array-like object, without a copy where that is safe.

    See ``array``; memory of tensors of other frameworks is shared where alignment and layout
    allow, NumPy arrays are copied (they could change later) unless ``copy=False``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.asarray(2.0).weak_type
    True
    """
    return array(a, dtype, copy=bool(copy), order=order, device=device, out_sharding=out_sharding)


def _convert(x: object, dtype: DType | None, *, copy: bool) -> Any:
    """A value with the elements of ``x``, in ``dtype`` unless that is None."""
    if isinstance(x, Array):
        result = _copied(x) if copy and _becomes_array(x) else x
        return _in_dtype(result, dtype)
    if is_python_scalar(x):
        return _of_scalar(x, dtype)
    if isinstance(x, np.ndarray | np.generic):
        check_unmasked(x)
        return _of_numpy(np.asarray(x), dtype)
    if isinstance(x, Literal):
        return _in_dtype(to_array(x), dtype)
    imported = import_tensor(x)
    if imported is not None:
        return _in_dtype(_copied(imported) if copy else imported, dtype)
    if isinstance(x, list | tuple | range):
        return _of_sequence(x, dtype)
    if any([hasattr(type(x), name) for name in ARRAY_METHODS]) or is_symbolic_dim(x):
        return _in_dtype(array_value(x), dtype)
    if hasattr(x, "__array__") or hasattr(x, "__array_interface__"):
        return _of_numpy(np.asarray(x), dtype)
    if isinstance(x, str) and dtype is not None:
        return _of_numpy(np.asarray(x), dtype)
    view = _buffer_of(x)
    if view is not None:
        return _of_numpy(np.asarray(view), dtype)
    msg = f"array: cannot convert {shown(x)} of type {type(x).__name__} to an array"
    raise UnsupportedDtypeError(msg)


def _buffer_of(x: Any) -> memoryview | None:
    """Its memory, if it has the buffer protocol, which no attribute shows before Python 3.12."""
    try:
        return memoryview(x)
    except TypeError:
        return None


def _becomes_array(x: Any) -> bool:
    """Whether ``x`` is no value of a program, whose results have memory of their own."""
    trace: Any = None if type(x) is Array else current_trace()
    while trace is not None and not isinstance(trace, StagingTrace):
        trace = trace.parent_trace
    return trace is None


_copy = StagedFunction(lambda x: lax.copy(x), "copy")


def _copied(x: Value) -> Any:
    return _copy((x,))


def _in_dtype(x: Value, dtype: DType | None) -> Any:
    return x if dtype is None or x.aval.dtype == dtype else lax.convert_dtype(x, dtype)


def _of_scalar(x: Any, dtype: DType | None) -> Any:
    if dtype is not None:
        if type(x) in (int, float) and is_integer(dtype):
            _check_number(x, dtype)
        if type(x) is complex and not is_complex(dtype) and not is_bool(dtype):
            msg = f"array: a complex number does not fit {np.dtype(dtype).name}, got {x}"
            raise UnsupportedDtypeError(msg, hint="take its real part")
        return _of_numpy(np.asarray(x).astype(dtype), dtype)
    kind, weak = scalar_dtype(type(x))
    host = np.asarray(x)
    if host.dtype.kind == "i" and not np.iinfo(kind).min <= x <= np.iinfo(kind).max:
        msg = f"array: Python integer {x} does not fit {kind}; enable 64-bit types or pass dtype"
        raise IntegerRangeError(msg)
    return put_numpy(host.astype(kind), weak_type=weak)


def _of_numpy(host: np.ndarray[Any, Any], dtype: DType | None) -> Any:
    target = canonicalize(host.dtype) if dtype is None else np.dtype(dtype)
    if target != host.dtype:
        if host.dtype.kind == "c" and target.kind != "c":
            host = host.real
        host = host.astype(target)
    return put_numpy(host)


def _of_sequence(x: Sequence[object], dtype: DType | None) -> Any:
    """Nested sequences; those that hold arrays or tracers are stacked by the engine."""
    if isinstance(x, range):
        return _of_numpy(np.asarray(x, dtype=np.int64), dtype or default_int())
    leaves = _with_none(x)
    if any([leaf is None for leaf in leaves]):
        msg = "array: None is no number; got it in a nested sequence"
        raise UnsupportedDtypeError(msg, hint="write nan for a missing number")
    if not leaves:
        return put_numpy(np.asarray(x, dtype=dtype or default_float()))
    if not any([_is_foreign(leaf) for leaf in leaves]):
        host = _nested_numpy(x)
        if dtype is not None and all([type(leaf) is int for leaf in leaves]):
            _check_fits(host, dtype)
        elif dtype is not None and is_integer(dtype) and host.dtype.kind == "f":
            for leaf in leaves:
                if type(leaf) is float:
                    _check_number(leaf, dtype)
        if dtype is None and all([_has_dtype(leaf) for leaf in leaves]):
            # As in arithmetic: numbers of Python follow the others.
            dtype = promote(tuple({_pair_of(leaf): None for leaf in leaves}))[0]
            _check_fits(host, dtype)
        return _of_numpy(host, dtype)
    parts = [_convert(e, None, copy=False) for e in x]
    shapes = {p.aval.shape for p in parts}
    if len(shapes) > 1:
        msg = f"array: elements have different shapes: {sorted(map(str, shapes))}"
        raise ShapeMismatchError(msg)
    # Sequences are strongly typed, also those of weakly typed scalars.
    target = dtype or promote(tuple([(p.aval.dtype, p.aval.weak_type) for p in parts]))[0]
    rows = [lax.reshape(lax.convert_dtype(p, target), (1, *p.aval.shape)) for p in parts]
    return lax.concatenate(rows, 0) if len(rows) > 1 else rows[0]


def _has_dtype(leaf: object) -> bool:
    return is_python_scalar(leaf) or isinstance(leaf, np.generic | np.ndarray)


def _pair_of(leaf: Any) -> tuple[Any, bool]:
    if is_python_scalar(leaf):
        return scalar_dtype(type(leaf))
    return canonicalize(leaf.dtype), False


def _check_fits(host: np.ndarray[Any, Any], dtype: DType | None) -> None:
    if host.dtype.kind in "iuO" and host.size and is_integer(dtype):
        _check_range(host.min(), host.max(), dtype)


def _check_number(x: float, dtype: Any) -> None:
    """Raise if the whole part of a Python number is none of an integer dtype."""
    if not math.isfinite(x):
        msg = f"array: the Python float {x} does not fit {np.dtype(dtype).name}"
        raise IntegerRangeError(msg, hint="use a floating dtype, or where(isfinite(x), x, 0)")
    _check_range(int(x), int(x), dtype)


def _check_range(low: Any, high: Any, dtype: Any) -> None:
    info = iinfo(dtype)
    if high > info.max or low < info.min:
        given = f"integer {low} does" if low == high else f"integers from {low} to {high} do"
        msg = f"array: the Python {given} not fit {np.dtype(dtype).name}"
        raise IntegerRangeError(msg, hint="use a wider dtype, or wrap around with astype")


def _with_none(x: Any) -> list[Any]:
    return tree_leaves(x, is_leaf=lambda leaf: leaf is None)


def _nested_numpy(x: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(x)
    except ValueError as error:
        msg = f"array: the nested sequence is ragged: {error}"
        raise ShapeMismatchError(msg) from error


def _is_foreign(leaf: object) -> bool:
    """Whether NumPy should not be asked to convert a leaf."""
    return isinstance(leaf, Array | Tracer | Literal | DimExpr) or (
        hasattr(leaf, "__dlpack__") and not (isinstance(leaf, np.ndarray))
    )


def copy(a: object, order: str | None = None) -> Array:
    """A copy with memory of its own.

    >>> import tracebridge.numpy as tnp
    >>> tnp.copy(tnp.array([1, 2])).tolist()
    [1, 2]
    """
    return array(array_value(a, "copy"), copy=True, order=order or "K")


def astype(
    x: ArrayLike,
    dtype: DTypeLike | None,
    /,
    *,
    copy: bool = False,
    device: DeviceLike | None = None,
) -> Array:
    """``x`` with elements converted to ``dtype``; complex numbers lose their imaginary part.

    >>> import tracebridge.numpy as tnp
    >>> tnp.astype(tnp.array([1.7, 2.2]), int).tolist()
    [1, 2]
    """
    kind = default_float() if dtype is None else canonicalize_explicit(dtype, "astype")
    return on_device(_astype_staged((x,), (kind, bool(copy))), device)


def _astype(x: Value, dtype: DType, copy: bool) -> Any:
    source = x.aval.dtype
    if source.kind == "c" and dtype.kind != "c":
        x = lax.real(x) if dtype.kind != "b" else x
    if dtype.kind == "b" and source.kind != "b":
        return as_strong(lax.ne(x, zeros_of(x.aval.update(shape=()))))
    result = lax.convert_dtype(x, dtype, False)
    return lax.copy(result) if copy and result is x else result


_astype_staged = StagedFunction(_astype, "astype")
