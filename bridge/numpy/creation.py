"""Arrays by formula: of one value, ranges, diagonals."""

from __future__ import annotations

__all__ = [
    "arange", "empty", "empty_like", "full", "full_like", "ones", "ones_like", "zeros",
    "zeros_like",
]  # fmt: skip

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.config.state import state
from tracebridge.core.dtypes.canonicalize import (
    canonicalize,
    canonicalize_explicit,
    default_float,
)
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.dtypes.promotion import promote
from tracebridge.core.dtypes.weak_type import is_python_scalar, scalar_dtype
from tracebridge.core.errors.argument_errors import (
    IntegerRangeError,
    index_of,
)
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.core.ir.aval import Shape, ShapedArray
from tracebridge.core.ir.float0 import is_float0
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.ir.varied import varied
from tracebridge.core.lax.ad_util import copies_of, float0_of
from tracebridge.core.runtime.arrays.argument_types import (
    DeviceLike,
    DType,
    ShapeLike,
    ShardingLike,
)
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.arrays.transfer import put_copies, put_made
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.sharding.abstract_mesh import AbstractMesh
from tracebridge.numpy._arange import (
    comes_again,
    host_range,
    long_range,
    staged_range,
    symbolic_arange,
)
from tracebridge.numpy._promote import members
from tracebridge.numpy._ranges import wrapped
from tracebridge.numpy._staging import settled, unwrapped
from tracebridge.numpy.conversion import asarray, on_device


def canonical_shape(shape: Any, name: str) -> tuple[Any, ...]:
    """A shape argument of the public function ``name`` as a tuple of dimensions."""
    sizes = members(shape)
    return (
        (dimension(shape, name),) if sizes is None else tuple([dimension(d, name) for d in sizes])
    )


def dimension(d: object, name: str) -> Any:
    """A size that is an argument of the public function ``name``."""
    if getattr(d, "is_symbolic_dim", False):
        return d
    size = index_of(d, name, "a size of the shape")
    if size < 0:
        msg = f"{name}: a size of the shape is {size}, expected no negative number"
        raise ShapeMismatchError(msg)
    return size


def _full(value: Value, shape: Shape, dtype: DType, weak: bool = False) -> Any:
    return copies_of(value, shape, dtype, weak)


_full_staged = StagedFunction(_full, "full")


def _constant(
    name: str,
    shape: ShapeLike,
    dtype: DTypeLike | None,
    value: ArrayLike,
    device: DeviceLike | None,
    out_sharding: ShardingLike | None,
) -> Any:
    kind = default_float() if dtype is None else canonicalize_explicit(dtype, name)
    sizes = canonical_shape(shape, name)
    if kind == float0:
        return float0_of(sizes)
    filled = _full_staged((value,), (sizes, kind))
    if not sizes and state() is not None:
        # A number would stay a number: in a program it is a value of the program as arrays are.
        filled = lax.broadcast_in_dim_p.bind(filled, shape=(), broadcast_dimensions=())
    return on_device(filled, device, out_sharding, name)


def zeros(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array of zeros; the default dtype is float32 (float64 with enable_x64).

    >>> import tracebridge.numpy as tnp
    >>> tnp.zeros((2, 3)).shape
    (2, 3)
    """
    return _constant("zeros", shape, dtype, 0, device, out_sharding)


def ones(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array of ones; the default dtype is float32 (float64 with enable_x64).

    >>> import tracebridge.numpy as tnp
    >>> tnp.ones(2).tolist()
    [1.0, 1.0]
    """
    return _constant("ones", shape, dtype, 1, device, out_sharding)


def empty(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """An array of zeros: uninitialised memory does not exist here.

    >>> import tracebridge.numpy as tnp
    >>> tnp.empty(2).tolist()
    [0.0, 0.0]
    """
    return _constant("empty", shape, dtype, 0, device, out_sharding)


def _fill(value: Any, statics: tuple[Any, ...]) -> Any:
    """An array of one value; a Python integer wraps into the dtype that is asked for."""
    try:
        return _full_staged((value,), statics)
    except IntegerRangeError:
        fitting = wrapped((value, np.zeros((), statics[1])))
        if fitting is None:
            raise
    return _full_staged((fitting[0],), statics)


def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """An array of copies of ``fill_value``, which is broadcast to ``shape``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.full((2,), 7).tolist()
    [7, 7]
    """
    value = fill_value if is_python_scalar(fill_value) else asarray(fill_value)
    if dtype is None:
        scalar = is_python_scalar(value)
        kind, weak = (
            scalar_dtype(type(value)) if scalar else (value.aval.dtype, value.aval.weak_type)
        )
    else:
        kind, weak = canonicalize_explicit(dtype, "full"), False
    sizes = canonical_shape(shape, "full")
    if kind == float0:
        return float0_of(sizes)
    if getattr(value, "ndim", 0):
        filled = _broadcast_full((value,), (sizes, kind))
    else:
        filled = _fill(value, (sizes, kind, weak))
    return on_device(filled, device, out_sharding, "full")


def _broadcast_fill(value: Value, shape: Shape, dtype: DType) -> Any:
    n = value.aval.ndim
    value = lax.convert_dtype(value, dtype, False)
    return lax.broadcast_in_dim(value, shape, tuple(range(len(shape) - n, len(shape))))


_broadcast_full = StagedFunction(_broadcast_fill, "full")


def _like(name: str, a: Any, dtype: Any, shape: Any) -> tuple[Any, Any, bool]:
    """Shape, dtype and weak type of an array like ``a``."""
    value = a if hasattr(a, "shape") and hasattr(a, "dtype") else as_value(a)
    aval = getattr(value, "aval", None) or getattr(value, "__tracebridge_typeof__", None)
    aval = aval if isinstance(aval, ShapedArray) else None  # else of another library
    weak = dtype is None and aval is not None and aval.weak_type
    if dtype is not None:
        kind = canonicalize_explicit(dtype, name)
    else:
        kind = canonicalize(value.dtype) if aval is None else aval.dtype
    return tuple(value.shape) if shape is None else canonical_shape(shape, name), kind, weak


def _own_place(a: object) -> Any:
    """Where the user has put ``a``, or wants it; None if that is left open."""
    if type(a) is Array:
        return a._sig.sharding if a._sig.committed else None
    found = a.sharding if type(a) is ShapeDtypeStruct else None
    return None if isinstance(getattr(found, "mesh", None), AbstractMesh) else found


def _filled_like(
    name: str, a: Any, value: Any, dtype: Any, shape: Any, device: Any, out_sharding: Any
) -> Any:
    """An array of one value like ``a``; where ``a`` is, if the user has put it there."""
    a = unwrapped(a)  # the array that it stands for, which says where it is
    sizes, kind, weak = _like(name, a, dtype, shape)
    is_free = shape is device is out_sharding is None
    place = _own_place(a) if is_free and not weak else None
    if place is not None:
        # Made part by part: the whole of an array that is split may be too large for one device.
        part = _fill(value, (place.shard_shape(sizes), kind, weak))
        if type(part) is Array:
            return put_copies(part, ShapedArray(sizes, kind, weak), place)
    filled = _fill(value, (sizes, kind, weak))
    aval = getattr(a, "aval", None)
    if not isinstance(aval, ShapedArray):
        return on_device(filled, device, out_sharding, name)
    if is_free and aval.split is not None:
        filled = lax.sharding_constraint_p.bind(filled, sharding=aval.split)
    return varied(on_device(filled, device, out_sharding, name), aval.vma)


def zeros_like(
    a: Any,
    dtype: DTypeLike | None = None,
    shape: Any = None,
    *,
    device: DeviceLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Zeros of the shape and dtype of ``a``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.zeros_like(tnp.array([1, 2])).tolist()
    [0, 0]
    """
    if dtype is None and is_float0(a):
        return float0_of(a.shape if shape is None else canonical_shape(shape, "zeros_like"))
    return _filled_like("zeros_like", a, 0, dtype, shape, device, out_sharding)


def ones_like(
    a: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: DeviceLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Ones of the shape and dtype of ``a``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.ones_like(tnp.array([1.5, 2.5])).tolist()
    [1.0, 1.0]
    """
    return _filled_like("ones_like", a, 1, dtype, shape, device, out_sharding)


def empty_like(
    prototype: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: DeviceLike | None = None,
) -> Array:
    """Zeros of the shape and dtype of ``prototype``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.empty_like(tnp.array([1, 2])).shape
    (2,)
    """
    return zeros_like(prototype, dtype, shape, device=device)


def full_like(
    a: ArrayLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: DeviceLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Copies of ``fill_value`` in the shape and dtype of ``a``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.full_like(tnp.array([1, 2]), 7).tolist()
    [7, 7]
    """
    value = fill_value if is_python_scalar(fill_value) else asarray(fill_value)
    if not getattr(value, "ndim", 0):
        return _filled_like("full_like", a, value, dtype, shape, device, out_sharding)
    sizes, kind, _ = _like("full_like", a, dtype, shape)
    filled = _broadcast_full((value,), (sizes, kind))
    return on_device(filled, device, out_sharding, "full_like")


def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Numbers from ``start`` (default 0) up to ``stop`` (not included) by ``step`` (default 1).

    The arguments must be concrete: they decide the shape.

    Raises:
        ConcretizationTypeError: an argument is traced: the size of the result depends on it.

    >>> import tracebridge.numpy as tnp
    >>> tnp.arange(1, 7, 2).tolist()
    [1, 3, 5]
    """
    if stop is None:
        start, stop = 0, start
    if any([getattr(v, "is_symbolic_dim", False) for v in (start, stop, step)]):
        return symbolic_arange(start, stop, step, dtype)
    start, stop, step = settled(start), settled(stop), settled(step)
    for v in (start, stop, step):
        if isinstance(v, Tracer):
            raise ConcretizationTypeError(
                v,
                "arange decides the size of its result by it.",
                hint="make it static (static_argnums), or mask an arange of the largest size",
            )
    static_bounds = [v if is_python_scalar(v) else np.asarray(v) for v in (start, stop, step or 1)]
    if step == 0:
        msg = "arange: step is zero"
        raise ZeroDivisionError(msg)
    kind = (
        canonicalize_explicit(dtype, "arange")
        if dtype is not None
        else _arange_dtype(static_bounds)
    )
    bounds = [np.asarray(g) for g in static_bounds]
    numbers = long_range(bounds, kind)
    if numbers is not None and not is_eager():
        return on_device(staged_range(numbers, kind), device, out_sharding, "arange")
    if numbers is not None and comes_again(numbers, kind):
        made = _range_staged((), (numbers, kind))
        return on_device(made, device, out_sharding, "arange")
    made = put_made("arange", lambda: host_range(bounds, kind))
    return on_device(made, device, out_sharding, "arange")


_range_staged = StagedFunction(staged_range, "arange")


def _arange_dtype(bounds: list[Any]) -> Any:
    pairs = [
        scalar_dtype(type(g)) if is_python_scalar(g) else (canonicalize(g.dtype), False)
        for g in bounds
    ]
    return promote(tuple(pairs))[0]
