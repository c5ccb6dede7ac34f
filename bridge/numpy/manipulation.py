"""Shapes and axes: reshape, transpose, moving, broadcasting."""

from __future__ import annotations

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes",
    "broadcast_to", "expand_dims", "matrix_transpose", "moveaxis", "permute_dims", "ravel",
    "reshape", "squeeze", "swapaxes", "transpose",
]  # fmt: skip

from typing import Any, overload

import tracebridge.core.lax as lax
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError, ShapeMismatchError
from tracebridge.core.ir.aval import Shape
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.sharding_constraint import split_result
from tracebridge.core.runtime.arrays.argument_types import Axis, ShapeLike, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction, unary
from tracebridge.core.symbolic.compare import whole_quotient
from tracebridge.core.symbolic.dims import is_symbolic_dim
from tracebridge.numpy._promote import (
    broadcast_shape,
    hashable_axis,
    members,
    normalize_axes,
    normalize_axis,
)
from tracebridge.numpy._promote import broadcast_to as _broadcast_value
from tracebridge.numpy.conversion import asarray
from tracebridge.numpy.creation import canonical_shape


def _resolve_shape(x: Value, shape: Shape) -> tuple[Any, ...]:
    """``shape`` with one -1 replaced by what is left."""
    unknown = [i for i, d in enumerate(shape) if type(d) is int and d == -1]
    if not unknown:
        return shape
    if len(unknown) > 1:
        msg = f"reshape: only one size may be -1, got {shape}"
        raise ShapeMismatchError(msg)
    known: Any = 1
    for i, d in enumerate(shape):
        if i != unknown[0]:
            known = known * d
    size = x.aval.size
    if type(known) is int and known == 0:
        msg = f"reshape: cannot find the size -1 in {shape} for {x.aval.str_short()}"
        raise ShapeMismatchError(msg)
    # Of sizes that may be 0 as well: with no elements, every quotient fits.
    missing_size = whole_quotient(size, known)
    if missing_size is None:
        missing_size = size // known
    if missing_size * known != size:
        msg = (
            f"cannot reshape array of shape {x.aval.shape} (size {size}) into shape "
            f"{tuple(shape)}: {size} is not a multiple of {known}"
        )
        if is_symbolic_dim(size) or is_symbolic_dim(known):
            given = ", ".join(map(str, x.aval.shape))
            asked = ", ".join(map(str, shape))
            msg = f"{msg}. Cannot divide evenly the sizes of shapes ({given}) and ({asked})"
            raise InconclusiveDimensionError(msg)
        raise ShapeMismatchError(msg)
    return (*shape[: unknown[0]], missing_size, *shape[unknown[0] + 1 :])


def _reshape(x: Value, shape: Shape, order: str) -> Any:
    shape = _resolve_shape(x, shape)
    if order == "F":
        axes = tuple(range(x.aval.ndim))[::-1]
        x = lax.reshape(lax.transpose(x, axes), shape[::-1])
        return lax.transpose(x, tuple(range(len(shape)))[::-1])
    return lax.reshape(x, shape)


_reshape_staged = StagedFunction(_reshape, "reshape")


def _size(name: str, d: object) -> Any:
    if type(d) is int or getattr(d, "is_symbolic_dim", False):
        return d
    return index_of(d, name, "a size")


def shape_argument(name: str, shape: Any) -> tuple[Any, ...]:
    """A shape, or one size, as a tuple of sizes."""
    sizes = members(shape)
    return (_size(name, shape),) if sizes is None else tuple([_size(name, d) for d in sizes])


@remembered
def reshape(
    a: ArrayLike,
    shape: object,
    order: str = "C",
    *,
    copy: bool | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """The same elements in another shape; one size may be -1.

    Raises:
        ShapeMismatchError: the number of elements does not fit.
        ArgumentValueError: ``order`` is unknown.

    >>> import tracebridge.numpy as tnp
    >>> tnp.reshape(tnp.arange(6), (2, -1)).shape
    (2, 3)
    """
    if out_sharding is not None:
        return split_result("reshape", out_sharding, reshape, a, shape, order)
    try:
        if order not in ("C", "F"):
            msg = f"reshape: order must be 'C' or 'F', got {order!r}"
            raise ArgumentValueError(msg)
        del copy
        return _reshape_staged((a,), (shape_argument("reshape", shape), order))
    except Exception as error:
        hide_internal_frames(error)
        raise


@remembered
def ravel(a: ArrayLike, order: str = "C", *, out_sharding: ShardingLike | None = None) -> Array:
    """All elements in one axis.

    Raises:
        ArgumentValueError: ``order`` is unknown.

    >>> import tracebridge.numpy as tnp
    >>> tnp.ravel(tnp.ones((2, 3))).shape
    (6,)
    """
    if out_sharding is not None:
        return split_result("ravel", out_sharding, ravel, a, order)
    try:
        if order not in ("C", "F", "K", "A"):
            msg = f"ravel: order must be 'C', 'F', 'A' or 'K', got {order!r}"
            raise ArgumentValueError(msg)
        return reshape(a, (-1,), "C" if order in ("K", "A") else order)
    except Exception as error:
        hide_internal_frames(error, "ravel")
        raise


def _transpose(x: Value, axes: Any) -> Any:
    n = x.aval.ndim
    order = range(n)[::-1] if axes is None else [normalize_axis(a, n, "transpose") for a in axes]
    return lax.transpose(x, tuple(order))


_transpose_staged = StagedFunction(_transpose, "transpose")


def transpose(a: ArrayLike, axes: object = None) -> Array:
    """``a`` with its axes in another order (default: reversed).

    >>> import tracebridge.numpy as tnp
    >>> tnp.transpose(tnp.ones((2, 3, 4))).shape
    (4, 3, 2)
    """
    try:
        order = None if axes is None else _axes_tuple(axes, "transpose")
        return _transpose_staged((a,), (order,))
    except Exception as error:
        hide_internal_frames(error)
        raise


def permute_dims(a: ArrayLike, /, axes: tuple[int, ...]) -> Array:
    """``a`` with its axes in the order ``axes``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.permute_dims(tnp.ones((2, 3, 4)), (1, 2, 0)).shape
    (3, 4, 2)
    """
    return transpose(a, axes)


def _matrix_transpose(x: Value) -> Any:
    n = x.aval.ndim
    if n < 2:
        msg = f"matrix_transpose: needs at least two axes, got {x.aval.str_short()}"
        raise ShapeMismatchError(msg)
    return lax.transpose(x, (*range(n - 2), n - 1, n - 2))


_matrix_transpose_fast = unary(StagedFunction(_matrix_transpose, "matrix_transpose"))


def matrix_transpose(x: ArrayLike, /) -> Array:
    """``x`` with its last two axes exchanged.

    >>> import tracebridge.numpy as tnp
    >>> tnp.matrix_transpose(tnp.ones((2, 3, 4))).shape
    (2, 4, 3)
    """
    return _matrix_transpose_fast(x)


def _swapaxes(x: Value, axis1: int, axis2: int) -> Any:
    n = x.aval.ndim
    i, j = normalize_axis(axis1, n, "swapaxes"), normalize_axis(axis2, n, "swapaxes")
    order = list(range(n))
    order[i], order[j] = order[j], order[i]
    return lax.transpose(x, tuple(order))


_swapaxes_staged = StagedFunction(_swapaxes, "swapaxes")


@remembered
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """``a`` with two axes exchanged.

    >>> import tracebridge.numpy as tnp
    >>> tnp.swapaxes(tnp.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    try:
        return _swapaxes_staged(
            (a,), (index_of(axis1, "swapaxes", "axis1"), index_of(axis2, "swapaxes", "axis2"))
        )
    except Exception as error:
        hide_internal_frames(error)
        raise


def _moveaxis(x: Value, source: tuple[int, ...], target: tuple[int, ...]) -> Any:
    n = x.aval.ndim
    sources = [normalize_axis(a, n, "moveaxis") for a in source]
    targets = [normalize_axis(a, n, "moveaxis") for a in target]
    if len(sources) != len(targets) or len(set(sources)) != len(sources):
        msg = f"moveaxis: source {source} and destination {target} must be equally many, distinct"
        raise ArgumentValueError(msg)
    order = [i for i in range(n) if i not in sources]
    for where, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(where, axis)
    return lax.transpose(x, tuple(order))


_moveaxis_staged = StagedFunction(_moveaxis, "moveaxis")


@remembered
def moveaxis(a: ArrayLike, source: Axis, destination: Axis) -> Array:
    """``a`` with axes ``source`` moved to ``destination``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.moveaxis(tnp.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    try:
        return _moveaxis_staged(
            (a,), (_axes_tuple(source, "moveaxis"), _axes_tuple(destination, "moveaxis"))
        )
    except Exception as error:
        hide_internal_frames(error)
        raise


def _axes_tuple(axes: Any, name: str) -> tuple[int, ...]:
    found = hashable_axis(axes, name)
    return found if isinstance(found, tuple) else (found,)


def _expand_dims(x: Value, axis: tuple[int, ...]) -> Any:
    n = x.aval.ndim + len(axis)
    new = sorted([normalize_axis(a, n, "expand_dims") for a in axis])
    if len(set(new)) != len(new):
        msg = f"expand_dims: repeated axis in {axis}"
        raise ArgumentValueError(msg)
    sizes = iter(x.aval.shape)
    shape = tuple([1 if i in new else next(sizes) for i in range(n)])
    return lax.reshape(x, shape)


_expand_dims_staged = StagedFunction(_expand_dims, "expand_dims")


@remembered
def expand_dims(a: ArrayLike | None, axis: Axis) -> Array:
    """``a`` with new axes of size 1 at ``axis``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.expand_dims(tnp.ones(3), 0).shape
    (1, 3)
    """
    try:
        return _expand_dims_staged((a,), (_axes_tuple(axis, "expand_dims"),))
    except Exception as error:
        hide_internal_frames(error)
        raise


def _squeeze(x: Value, axis: Axis) -> Any:
    shape = x.aval.shape
    if axis is None:
        axes = tuple([i for i, d in enumerate(shape) if type(d) is int and d == 1])
    else:
        axes = normalize_axes(axis, x.aval.ndim, "squeeze")
    bad = [i for i in axes if shape[i] != 1]
    if bad:
        msg = f"squeeze: axis {bad[0]} of {x.aval.str_short()} has size {shape[bad[0]]}, not 1"
        raise ArgumentValueError(msg)
    return lax.reshape(x, tuple([d for i, d in enumerate(shape) if i not in axes]))


_squeeze_staged = StagedFunction(_squeeze, "squeeze")


@remembered
def squeeze(a: ArrayLike, axis: Axis = None) -> Array:
    """``a`` without axes of size 1 (all of them, or those of ``axis``).

    >>> import tracebridge.numpy as tnp
    >>> tnp.squeeze(tnp.ones((1, 3, 1))).shape
    (3,)
    """
    try:
        return _squeeze_staged((a,), (hashable_axis(axis, "squeeze"),))
    except Exception as error:
        hide_internal_frames(error)
        raise


def _broadcast(x: Value, shape: Shape) -> Any:
    return _broadcast_value(x, shape)


_broadcast_staged = StagedFunction(_broadcast, "broadcast_to")


@remembered
def broadcast_to(
    array: ArrayLike, shape: ShapeLike, *, out_sharding: ShardingLike | None = None
) -> Array:
    """``array`` repeated to ``shape`` by NumPy's rules.

    Raises:
        BroadcastError: the shape does not fit.

    >>> import tracebridge.numpy as tnp
    >>> tnp.broadcast_to(tnp.array([1, 2]), (2, 2)).tolist()
    [[1, 2], [1, 2]]
    """
    if out_sharding is not None:
        return split_result("broadcast_to", out_sharding, broadcast_to, array, shape)
    try:
        return _broadcast_staged((array,), (canonical_shape(shape, "broadcast_to"),))
    except Exception as error:
        hide_internal_frames(error)
        raise


def broadcast_shapes(*shapes: ShapeLike) -> tuple[Any, ...]:
    """The common shape of arrays of these shapes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    return broadcast_shape(
        "broadcast_shapes", [canonical_shape(s, "broadcast_shapes") for s in shapes]
    )


def broadcast_arrays(*args: ArrayLike) -> list[Array]:
    """The arrays, repeated to their common shape.

    >>> import tracebridge.numpy as tnp
    >>> [x.shape for x in tnp.broadcast_arrays(tnp.ones((3, 1)), tnp.ones(4))]
    [(3, 4), (3, 4)]
    """
    arrays = [asarray(as_value(a, "broadcast_arrays")) for a in args]
    shape = broadcast_shape("broadcast_arrays", [a.shape for a in arrays])
    return [broadcast_to(a, shape) for a in arrays]


def _atleast(name: str, n: int) -> Any:
    def run(x: Value) -> Any:
        ndim, shape = x.aval.ndim, x.aval.shape
        if ndim >= n:
            return x
        if n == 3 and ndim:
            return lax.reshape(x, (1, *shape, 1) if ndim == 1 else (*shape, 1))
        return lax.reshape(x, (*(1,) * (n - ndim), *shape))

    return unary(StagedFunction(run, name))


_atleast_1d, _atleast_2d, _atleast_3d = (_atleast(f"atleast_{n}d", n) for n in (1, 2, 3))


@overload
def atleast_1d(ary: ArrayLike, /) -> Array: ...


@overload
def atleast_1d(*arys: ArrayLike) -> Any: ...
def atleast_1d(*arys: ArrayLike) -> Any:
    """Arrays with at least one axis.

    >>> import tracebridge.numpy as tnp
    >>> tnp.atleast_1d(5).shape
    (1,)
    """
    return _atleast_1d(arys[0]) if len(arys) == 1 else [_atleast_1d(a) for a in arys]


@overload
def atleast_2d(ary: ArrayLike, /) -> Array: ...


@overload
def atleast_2d(*arys: ArrayLike) -> Any: ...
def atleast_2d(*arys: ArrayLike) -> Any:
    """Arrays with at least two axes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.atleast_2d(tnp.ones(3)).shape
    (1, 3)
    """
    return _atleast_2d(arys[0]) if len(arys) == 1 else [_atleast_2d(a) for a in arys]


@overload
def atleast_3d(ary: ArrayLike, /) -> Array: ...


@overload
def atleast_3d(*arys: ArrayLike) -> Any: ...
def atleast_3d(*arys: ArrayLike) -> Any:
    """Arrays with at least three axes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.atleast_3d(tnp.ones(3)).shape
    (1, 3, 1)
    """
    return _atleast_3d(arys[0]) if len(arys) == 1 else [_atleast_3d(a) for a in arys]
