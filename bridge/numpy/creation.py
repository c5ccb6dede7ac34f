"""Making arrays: from Python and foreign objects, and by formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.config.scopes import state
from tracebridge.core.dtypes.canonicalize import (
    canonicalize,
    canonicalize_explicit,
    default_float,
    default_int,
)
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact, is_integer, real_of
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
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.core.ir.float0 import float0_zeros, is_float0
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import ARRAY_METHODS, as_value
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.device_put import device_put_p
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.runtime.array import Array
from tracebridge.core.runtime.dispatch import to_array
from tracebridge.core.runtime.planned import Planned
from tracebridge.core.runtime.transfer import check_unmasked, move, put_numpy
from tracebridge.core.sharding.context import named_sharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.symbolic.dims import DimExpr, is_symbolic_dim
from tracebridge.core.tree.tree import leaves as tree_leaves
from tracebridge.interop.registry import import_tensor
from tracebridge.numpy._planning import settled
from tracebridge.numpy._promote import broadcast_operands, members, promote_inexact


def _placement(device: Any) -> Any:
    if device is None or isinstance(device, Sharding):
        return device
    if isinstance(device, PartitionSpec):
        return named_sharding("device", device)
    if not hasattr(device, "client"):
        msg = f"device is {kind_of(device)}, expected a device or a sharding"
        raise ArgumentTypeError(msg, hint="take one of tracebridge.devices()")
    return SingleDeviceSharding(device)


def on_device(x: Any, device: Any, out_sharding: Any = None, call: str = "") -> Any:
    """``x`` committed to ``device`` (a device or a sharding); ``x`` itself for None."""
    if out_sharding is not None:
        if device is not None:
            msg = f"{call}: both device and out_sharding are given"
            raise ArgumentValueError(msg, expected="one of them")
        return constrained_result(call, x, out_sharding)
    if device is None:
        return x
    placement = _placement(device)
    current = state()
    if type(x) is Array and (current is None or current.trace is None):
        return move(x, placement, committed=True)
    return device_put_p.bind(x, placement=placement, source=None)


def array(
    object: Any,
    dtype: Any = None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
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
        UnsupportedDtypeError: the object has elements that no device has (strings, objects).
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
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """An array of any array-like object, without a copy where that is safe.

    See ``array``; memory of tensors of other frameworks is shared where alignment and layout
    allow, NumPy arrays are copied (they could change later) unless ``copy=False``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.asarray(2.0).weak_type
    True
    """
    return array(a, dtype, copy=bool(copy), order=order, device=device, out_sharding=out_sharding)


def _convert(x: Any, dtype: Any, *, copy: bool) -> Any:
    """A value with the elements of ``x``, in ``dtype`` unless that is None."""
    if isinstance(x, Array):
        result = _copied(x) if copy and type(x) is Array else x
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
        return _in_dtype(as_value(x), dtype)
    if hasattr(x, "__array__") or hasattr(x, "__array_interface__"):
        return _of_numpy(np.asarray(x), dtype)
    view = _buffer_of(x)
    if view is not None:
        return _of_numpy(np.asarray(view), dtype)
    msg = f"array: cannot convert {x!r} of type {type(x).__name__} to an array"
    raise UnsupportedDtypeError(msg)


def _buffer_of(x: Any) -> memoryview | None:
    """Its memory, if it has the buffer protocol, which no attribute shows before Python 3.12."""
    try:
        return memoryview(x)
    except TypeError:
        return None


_copy = Planned(lambda x: lax.copy(x), "copy")


def _copied(x: Any) -> Any:
    return _copy((x,))


def _in_dtype(x: Any, dtype: Any) -> Any:
    return x if dtype is None or x.aval.dtype == dtype else lax.convert_dtype(x, dtype)


def _of_scalar(x: Any, dtype: Any) -> Any:
    if dtype is not None:
        if type(x) is int and is_integer(dtype):
            _check_range(x, x, dtype)
        if type(x) is complex and not is_complex(dtype):
            msg = f"array: a complex number does not fit {np.dtype(dtype).name}, got {x}"
            raise UnsupportedDtypeError(msg, hint="take its real part")
        return _of_numpy(np.asarray(x).astype(dtype), dtype)
    kind, weak = scalar_dtype(type(x))
    host = np.asarray(x)
    if host.dtype.kind == "i" and not np.iinfo(kind).min <= x <= np.iinfo(kind).max:
        msg = f"array: Python integer {x} does not fit {kind}; enable 64-bit types or pass dtype"
        raise IntegerRangeError(msg)
    return put_numpy(host.astype(kind), weak_type=weak)


def _of_numpy(host: np.ndarray[Any, Any], dtype: Any) -> Any:
    target = canonicalize(host.dtype) if dtype is None else np.dtype(dtype)
    if target != host.dtype:
        if host.dtype.kind == "c" and target.kind != "c":
            host = host.real
        host = host.astype(target)
    return put_numpy(host)


def _of_sequence(x: Sequence[Any], dtype: Any) -> Any:
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
        if dtype is None and all([is_python_scalar(leaf) for leaf in leaves]):
            kinds = {type(leaf): scalar_dtype(type(leaf)) for leaf in leaves}
            dtype = promote(tuple(kinds.values()))[0]
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


def _check_fits(host: np.ndarray[Any, Any], dtype: Any) -> None:
    if host.dtype.kind in "iuO" and host.size and is_integer(dtype):
        _check_range(host.min(), host.max(), dtype)


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


def _is_foreign(leaf: Any) -> bool:
    """Whether NumPy should not be asked to convert a leaf."""
    return isinstance(leaf, Array | Tracer | Literal | DimExpr) or (
        hasattr(leaf, "__dlpack__") and not (isinstance(leaf, np.ndarray))
    )


# by formula --------------------------------------------------------------------------------------


def canonical_shape(shape: Any, name: str) -> tuple[Any, ...]:
    """A shape argument of the public function ``name`` as a tuple of dimensions."""
    sizes = members(shape)
    return (_dim(shape, name),) if sizes is None else tuple([_dim(d, name) for d in sizes])


def _dim(d: Any, name: str) -> Any:
    if getattr(d, "is_symbolic_dim", False):
        return d
    size = index_of(d, name, "a size of the shape")
    if size < 0:
        msg = f"{name}: a size of the shape is {size}, expected no negative number"
        raise ArgumentValueError(msg)
    return size


def _full(value: Any, shape: Any, dtype: Any, weak: bool = False) -> Any:
    value = lax.convert_dtype(value, dtype, weak)
    return value if not shape else lax.broadcast_in_dim(value, shape, ())


_full_planned = Planned(_full, "full")


def _constant(name: str, shape: Any, dtype: Any, value: Any, device: Any, out_sharding: Any) -> Any:
    kind = default_float() if dtype is None else canonicalize_explicit(dtype, name)
    filled = _full_planned((value,), (canonical_shape(shape, name), kind))
    return on_device(filled, device, out_sharding, name)


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of zeros; the default dtype is float32 (float64 with enable_x64).

    >>> import tracebridge.numpy as tnp
    >>> tnp.zeros((2, 3)).shape
    (2, 3)
    """
    return _constant("zeros", shape, dtype, 0, device, out_sharding)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of ones; the default dtype is float32 (float64 with enable_x64).

    >>> import tracebridge.numpy as tnp
    >>> tnp.ones(2).tolist()
    [1.0, 1.0]
    """
    return _constant("ones", shape, dtype, 1, device, out_sharding)


def empty(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of zeros: uninitialised memory does not exist here.

    >>> import tracebridge.numpy as tnp
    >>> tnp.empty(2).tolist()
    [0.0, 0.0]
    """
    return _constant("empty", shape, dtype, 0, device, out_sharding)


def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
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
    if getattr(value, "ndim", 0):
        filled = _broadcast_full((value,), (sizes, kind))
    else:
        filled = _full_planned((value,), (sizes, kind, weak))
    return on_device(filled, device, out_sharding, "full")


def _broadcast_fill(value: Any, shape: Any, dtype: Any) -> Any:
    n = value.aval.ndim
    value = lax.convert_dtype(value, dtype, False)
    return lax.broadcast_in_dim(value, shape, tuple(range(len(shape) - n, len(shape))))


_broadcast_full = Planned(_broadcast_fill, "full")


def _like(name: str, a: Any, dtype: Any, shape: Any) -> tuple[Any, Any, bool]:
    """Shape, dtype and weak type of an array like ``a``."""
    value = a if hasattr(a, "shape") and hasattr(a, "dtype") else as_value(a)
    aval = getattr(value, "aval", None) or getattr(value, "__tracebridge_typeof__", None)
    weak = dtype is None and aval is not None and aval.weak_type
    if dtype is not None:
        kind = canonicalize_explicit(dtype, name)
    else:
        kind = canonicalize(value.dtype) if aval is None else aval.dtype
    return tuple(value.shape) if shape is None else canonical_shape(shape, name), kind, weak


def zeros_like(
    a: Any,
    dtype: Any = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Zeros of the shape and dtype of ``a``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.zeros_like(tnp.array([1, 2])).tolist()
    [0, 0]
    """
    if dtype is None and is_float0(a):
        return float0_zeros(a.shape if shape is None else canonical_shape(shape, "zeros_like"))
    filled = _full_planned((0,), _like("zeros_like", a, dtype, shape))
    return on_device(filled, device, out_sharding, "zeros_like")


def ones_like(
    a: Any,
    dtype: Any = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Ones of the shape and dtype of ``a``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.ones_like(tnp.array([1.5, 2.5])).tolist()
    [1.0, 1.0]
    """
    filled = _full_planned((1,), _like("ones_like", a, dtype, shape))
    return on_device(filled, device, out_sharding, "ones_like")


def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Zeros of the shape and dtype of ``prototype``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.empty_like(tnp.array([1, 2])).shape
    (2,)
    """
    return zeros_like(prototype, dtype, shape, device=device)


def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Copies of ``fill_value`` in the shape and dtype of ``a``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.full_like(tnp.array([1, 2]), 7).tolist()
    [7, 7]
    """
    sizes, kind, weak = _like("full_like", a, dtype, shape)
    value = fill_value if is_python_scalar(fill_value) else asarray(fill_value)
    if getattr(value, "ndim", 0):
        filled = _broadcast_full((value,), (sizes, kind))
    else:
        filled = _full_planned((value,), (sizes, kind, weak))
    return on_device(filled, device, out_sharding, "full_like")


def arange(
    start: Any,
    stop: Any = None,
    step: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
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
    if getattr(stop, "is_symbolic_dim", False) or getattr(start, "is_symbolic_dim", False):
        return _symbolic_arange(start, stop, step, dtype)
    start, stop, step = settled(start), settled(stop), settled(step)
    for v in (start, stop, step):
        if isinstance(v, Tracer):
            raise ConcretizationTypeError(
                v,
                "arange decides the size of its result by it.",
                hint="make it static (static_argnums), or mask an arange of the largest size",
            )
    given = [v if is_python_scalar(v) else np.asarray(v) for v in (start, stop, step or 1)]
    if step == 0:
        msg = "arange: step is zero"
        raise ZeroDivisionError(msg)
    kind = canonicalize_explicit(dtype, "arange") if dtype is not None else _arange_dtype(given)
    bounds: list[Any] = [np.asarray(g)[()] for g in given]
    host = np.arange(*bounds)
    return on_device(put_numpy(host.astype(kind)), device, out_sharding, "arange")


def _arange_dtype(given: list[Any]) -> Any:
    pairs = [
        scalar_dtype(type(g)) if is_python_scalar(g) else (canonicalize(g.dtype), False)
        for g in given
    ]
    return promote(tuple(pairs))[0]


def _symbolic_arange(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    if step not in (None, 1):
        msg = f"arange: a symbolic range has step 1, got {step}"
        raise ArgumentValueError(msg)
    kind = default_int() if dtype is None else canonicalize_explicit(dtype, "arange")
    numbers = lax.iota(kind, stop - start)
    return numbers if isinstance(start, int) and start == 0 else lax.add(numbers, start)


def spread(start: Any, stop: Any, num: int, endpoint: bool, axis: int) -> list[Any]:
    """The numbers, spread along a new axis, and the step."""
    start, stop = broadcast_operands("linspace", *promote_inexact(start, stop))
    start, stop = (lax.convert_dtype(v, v.aval.dtype) for v in (start, stop))
    aval = start.aval if start.aval.ndim else stop.aval
    parts = num - 1 if endpoint else num
    # A single number has no step.
    count = lax.full_of(stop.aval.update(shape=()), parts if parts > 0 else np.nan)
    step = lax.div(lax.sub(stop, start), count)
    axis = axis + aval.ndim + 1 if axis < 0 else axis
    shape = (*aval.shape[:axis], num, *aval.shape[axis:])
    kind = real_of(aval.dtype)
    steps = lax.iota_of(kind, shape, axis)
    weight = lax.div(steps, lax.full_of(steps.aval.update(shape=()), max(parts, 1)))
    rest = lax.sub(lax.full_of(steps.aval.update(shape=()), 1), weight)
    dims = tuple([i for i in range(len(shape)) if i != axis])
    first, last = (
        lax.broadcast_in_dim(v, shape, dims if v.aval.ndim else ()) for v in (start, stop)
    )
    weight, rest = (lax.convert_dtype(w, aval.dtype) for w in (weight, rest))
    return [lax.add(lax.mul(first, rest), lax.mul(last, weight)), step]


_linspace_planned = Planned(spread, "linspace")


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """``num`` evenly spaced numbers from ``start`` to ``stop``.

    Args:
        start: first number, or an array of them.
        stop: last number, left out unless ``endpoint``.
        num: how many.
        endpoint: whether ``stop`` is one of them.
        retstep: also give the step.
        dtype: dtype of the result; integers are rounded down.
        axis: where the new axis goes.
        device: where to put the array.

    Raises:
        ArgumentValueError: ``num`` is negative.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linspace(0.0, 1.0, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    count = index_of(num, "linspace", "num")
    if count < 0:
        msg = f"linspace: num={count} is negative"
        raise ArgumentValueError(msg)
    values, step = _linspace_planned(
        (start, stop), (count, bool(endpoint), index_of(axis, "linspace", "axis"))
    )
    if dtype is not None:
        kind = canonicalize_explicit(dtype, "linspace")
        values = lax.floor(values) if not is_inexact(kind) and is_inexact(values.dtype) else values
        values = lax.convert_dtype(values, kind)
    values = on_device(values, device)
    return (values, step) if retstep else values


def _eye(n: Any, m: Any, k: int, dtype: Any) -> Any:
    rows = lax.broadcasted_iota(np.dtype(np.int32), (n, m), 0)
    columns = lax.broadcasted_iota(np.dtype(np.int32), (n, m), 1)
    return lax.convert_dtype(lax.eq(lax.add(rows, k), columns), dtype)


_eye_planned = Planned(_eye, "eye")


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """A matrix of zeros with ones on diagonal ``k``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.eye(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    kind = default_float() if dtype is None else canonicalize_explicit(dtype, "eye")
    rows = _dim(N, "eye")
    columns = rows if M is None else _dim(M, "eye")
    return on_device(_eye_planned((), (rows, columns, index_of(k, "eye", "k"), kind)), device)


def identity(n: Any, dtype: Any = None) -> Any:
    """The identity matrix of size ``n``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.identity(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return eye(n, dtype=dtype)


def copy(a: Any, order: str | None = None) -> Any:
    """A copy with memory of its own.

    >>> import tracebridge.numpy as tnp
    >>> tnp.copy(tnp.array([1, 2])).tolist()
    [1, 2]
    """
    return array(as_value(a, "copy"), copy=True, order=order or "K")


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """``x`` with elements converted to ``dtype``; complex numbers lose their imaginary part.

    >>> import tracebridge.numpy as tnp
    >>> tnp.astype(tnp.array([1.7, 2.2]), int).tolist()
    [1, 2]
    """
    kind = default_float() if dtype is None else canonicalize_explicit(dtype, "astype")
    return on_device(_astype_planned((x,), (kind, bool(copy))), device)


def _astype(x: Any, dtype: Any, copy: bool) -> Any:
    source = x.aval.dtype
    if source.kind == "c" and dtype.kind != "c":
        x = lax.real(x) if dtype.kind != "b" else x
    if dtype.kind == "b" and source.kind != "b":
        return lax.ne(x, lax.zeros_of(x.aval.update(shape=())))
    result = lax.convert_dtype(x, dtype, False)
    return lax.copy(result) if copy and result is x else result


_astype_planned = Planned(_astype, "astype")
