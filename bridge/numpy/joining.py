"""Joining arrays: concatenate, stack and kin, append, block."""

from __future__ import annotations

__all__ = [
    "append", "block", "column_stack", "concat", "concatenate", "dstack", "hstack", "stack",
    "vstack",
]  # fmt: skip

from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    TreeDepthError,
    index_of,
)
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.typeof import is_array_like
from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import check_no_out, normalize_axis, promote_dtypes
from tracebridge.numpy._staging import static_dtype
from tracebridge.numpy.splitting import unstack


def array_sequence(name: str, arrays: Any) -> Sequence[Any]:
    """The arrays of an argument that is a sequence of arrays, or one array whose rows they are.

    Classes of users can be sequences too, with ``__len__`` and ``__getitem__``.

    Raises:
        TypeError: a single number, or something that cannot be walked through twice.
        ValueError: no array at all.
    """
    if isinstance(arrays, list | tuple):
        parts: Sequence[Any] = arrays
    elif _is_sequence(arrays):
        parts = tuple(arrays)
    elif hasattr(arrays, "shape") and len(arrays.shape):
        parts = unstack(arrays)
    else:
        msg = (
            f"{name}: got {type(arrays).__name__}, expected a sequence of arrays; "
            f"write {name}([a, b])"
        )
        raise ArgumentTypeError(msg)
    if not parts:
        msg = f"{name}: got an empty sequence, expected at least one array"
        raise ArgumentValueError(msg)
    return parts


def _joined(
    staged: StagedFunction, arrays: Any, name: str, axis: int | None, dtype: DTypeLike | None
) -> Any:
    """The arrays joined by ``staged``, or the rows of one array by moves of its axes."""
    kind = static_dtype(name, dtype)
    if not isinstance(arrays, list | tuple) and _has_rows(arrays):
        return _join_rows_staged((arrays,), (name, axis, kind))
    return staged(array_sequence(name, arrays), (name, axis, kind))


def _has_rows(x: Any) -> bool:
    return not _is_sequence(x) and hasattr(x, "shape") and len(x.shape) > 0 and x.shape[0] != 0


def _is_sequence(x: object) -> bool:
    kind = type(x)
    steps = all([hasattr(kind, name) for name in ("__len__", "__getitem__")])
    return steps and not (is_array_like(x) or hasattr(x, "__array__") or hasattr(x, "__dlpack__"))


def _convert(xs: Sequence[Value], dtype: Any) -> list[Any]:
    if dtype is None:
        return promote_dtypes(*xs)
    return [lax.convert_dtype(x, dtype) for x in xs]


def _join(name: str, xs: Sequence[Value], axis: int) -> Any:
    """Concatenate along ``axis`` of arrays of one rank and dtype."""
    first = xs[0].aval
    axis = _axis_within(name, axis, first.ndim)
    for x in xs:
        shape = x.aval.shape
        if len(shape) != first.ndim or any(
            [i != axis and d != first.shape[i] for i, d in enumerate(shape)]
        ):
            got = ", ".join([y.aval.str_short() for y in xs[:8]])
            msg = f"{name}: arrays must agree in all axes but axis {axis}, got {got}"
            raise ShapeMismatchError(msg)
    return xs[0] if len(xs) == 1 else lax.concatenate(xs, axis)


def _axis_within(name: str, axis: int, ndim: int) -> int:
    if ndim == 0:
        msg = f"{name}: got arrays without axes, expected at least one axis"
        raise RankError(msg, hint="use stack, or give the numbers an axis with reshape(1)")
    return normalize_axis(axis, ndim, name)


def _join_rows(x: Value, name: str, axis: int | None, dtype: Any) -> Any:
    """The rows of one array joined: its first axis moves before ``axis``, and into it."""
    (x,) = _convert([x], dtype)
    n, *others = x.aval.shape
    row = tuple(others)
    if name == "stack":
        return _first_axis_at(normalize_axis(axis or 0, len(row) + 1, name), x)
    if name in _STACKS:
        form, axis = _STACKS[name]
        row = form(row)
        axis = min(len(row) - 1, 1) if axis is None else axis
    elif axis is None:
        return lax.reshape(x, (x.aval.size,))
    axis = _axis_within(name, axis, len(row))
    x = _first_axis_at(axis, _reshaped(x, (n, *row)))
    return lax.reshape(x, (*row[:axis], n * row[axis], *row[axis + 1 :]))


_join_rows_staged = StagedFunction(_join_rows, "join_rows")


def _first_axis_at(axis: int, x: Value) -> Any:
    order = (*range(1, axis + 1), 0, *range(axis + 1, x.aval.ndim))
    return lax.transpose(x, order) if axis else x


def _reshaped(x: Value, shape: Any) -> Any:
    return x if shape == x.aval.shape else lax.reshape(x, shape)


def _concatenate(*args: Any) -> Any:
    *xs, name, axis, dtype = args
    if axis is None:
        xs = [lax.reshape(x, (x.aval.size,)) for x in xs]
    return _join(name, _convert(xs, dtype), axis or 0)


_concatenate_staged = StagedFunction(_concatenate, "concatenate")


def concatenate(
    arrays: ArrayLike | Sequence[ArrayLike], axis: int | None = 0, dtype: DTypeLike | None = None
) -> Array:
    """Arrays joined along an existing axis.

    Args:
        arrays: sequence of arrays of equal shapes but for ``axis``, or one array, whose rows are
            joined.
        axis: axis in ``[-ndim, ndim)``; ``None`` flattens the arrays first.
        dtype: dtype of the result (default: the promoted dtype of the arrays).

    Raises:
        ShapeMismatchError: the shapes differ in another axis.
        RankError: the arrays have no axes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.concatenate([tnp.array([1, 2]), tnp.array([3.5])]).tolist()
    [1.0, 2.0, 3.5]
    """
    try:
        where = None if axis is None else index_of(axis, "concatenate", "axis")
        return _joined(_concatenate_staged, arrays, "concatenate", where, dtype)
    except Exception as error:
        hide_internal_frames(error, "concatenate")
        raise


def concat(arrays: ArrayLike | Sequence[ArrayLike], /, *, axis: int | None = 0) -> Array:
    """Arrays joined along an existing axis: the array-API name of ``concatenate``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.concat([tnp.zeros((1, 2)), tnp.ones((1, 2))], axis=1).shape
    (1, 4)
    """
    return concatenate(arrays, axis)


def _stack(*args: Any) -> Any:
    *xs, name, axis, dtype = args
    first = xs[0].aval
    if any([x.aval.shape != first.shape for x in xs]):
        got = ", ".join([x.aval.str_short() for x in xs[:8]])
        msg = f"{name}: arrays must have one shape, got {got}"
        raise ShapeMismatchError(msg)
    axis = normalize_axis(axis, first.ndim + 1, name)
    shape = (*first.shape[:axis], 1, *first.shape[axis:])
    return _join(name, [lax.reshape(x, shape) for x in _convert(xs, dtype)], axis)


_stack_staged = StagedFunction(_stack, "stack")


def stack(
    arrays: ArrayLike | Sequence[ArrayLike],
    axis: int = 0,
    out: None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Arrays of one shape joined along a new axis.

    Args:
        arrays: sequence of arrays, or one array, whose rows are stacked.
        axis: position of the new axis in the result.
        out: not supported.
        dtype: dtype of the result (default: the promoted dtype of the arrays).

    Raises:
        ShapeMismatchError: the shapes differ.

    >>> import tracebridge.numpy as tnp
    >>> tnp.stack([tnp.array([1, 2]), tnp.array([3, 4])], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    try:
        check_no_out("stack", out)
        return _joined(_stack_staged, arrays, "stack", index_of(axis, "stack", "axis"), dtype)
    except Exception as error:
        hide_internal_frames(error, "stack")
        raise


def at_least(x: Value, n: int) -> Any:
    """``x`` with at least ``n`` axes, placed as ``atleast_1d``, ``2d`` and ``3d`` do."""
    return _reshaped(x, _shape_of_at_least(x.aval.shape, n))


def _shape_of_at_least(shape: Any, n: int) -> Any:
    if len(shape) >= n:
        return shape
    if n == 3 and shape:
        return (1, *shape, 1) if len(shape) == 1 else (*shape, 1)
    return (*(1,) * (n - len(shape)), *shape)


def _shape_of_column(shape: Any) -> Any:
    return shape if len(shape) > 1 else (shape[0] if shape else 1, 1)


# Function -> the shape that each array gets first, and the axis (None: by the first array's rank).
_STACKS: dict[str, tuple[Callable[[Any], Any], int | None]] = {
    "vstack": (lambda shape: _shape_of_at_least(shape, 2), 0),
    "hstack": (lambda shape: _shape_of_at_least(shape, 1), None),
    "dstack": (lambda shape: _shape_of_at_least(shape, 3), 2),
    "column_stack": (_shape_of_column, 1),
}


def _stack_along(*args: Any) -> Any:
    *xs, name, _, dtype = args
    form, axis = _STACKS[name]
    xs = [_reshaped(x, form(x.aval.shape)) for x in _convert(xs, dtype)]
    if axis is None:
        axis = 0 if xs[0].aval.ndim == 1 else 1
    return _join(name, xs, axis)


_stack_along_staged = StagedFunction(_stack_along, "stack")


def vstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Arrays joined along axis 0; vectors are rows.

    >>> import tracebridge.numpy as tnp
    >>> tnp.vstack([tnp.array([1, 2]), tnp.array([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return _joined(_stack_along_staged, tup, "vstack", None, dtype)


def hstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Arrays joined along axis 1; vectors along axis 0.

    >>> import tracebridge.numpy as tnp
    >>> tnp.hstack([tnp.array([1, 2]), tnp.array([3])]).tolist()
    [1, 2, 3]
    """
    return _joined(_stack_along_staged, tup, "hstack", None, dtype)


def dstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Arrays joined along axis 2, which vectors and matrices get first.

    >>> import tracebridge.numpy as tnp
    >>> tnp.dstack([tnp.array([1, 2]), tnp.array([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """
    return _joined(_stack_along_staged, tup, "dstack", None, dtype)


def column_stack(tup: ArrayLike | Sequence[ArrayLike]) -> Array:
    """Arrays joined along axis 1; vectors are columns.

    >>> import tracebridge.numpy as tnp
    >>> tnp.column_stack([tnp.array([1, 2]), tnp.array([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    return _joined(_stack_along_staged, tup, "column_stack", None, None)


@remembered
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """``values`` joined to the end of ``arr``; both are flattened without ``axis``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.append(tnp.array([1, 2]), 3).tolist()
    [1, 2, 3]
    """
    where = None if axis is None else index_of(axis, "append", "axis")
    return _concatenate_staged((arr, values), ("append", where, None))


def _block(*args: Value) -> Any:
    *xs, form = args
    ndim = max([x.aval.ndim for x in xs], default=0)
    depth = _depth(form)
    values = iter(promote_dtypes(*[_with_leading_axes(x, max(ndim, depth)) for x in xs]))
    return _assemble(form, values, depth)


def _with_leading_axes(x: Value, n: int) -> Any:
    return lax.reshape(x, (*(1,) * (n - x.aval.ndim), *x.aval.shape)) if x.aval.ndim < n else x


def _depth(form: Any) -> int:
    return 0 if form is None else 1 + _depth(form[0])


def _assemble(form: Any, values: Any, depth: int) -> Any:
    """Join the blocks of ``form``: lists at depth 1 along the last axis, and so on outwards."""
    if form is None:
        return next(values)
    parts = [_assemble(f, values, depth - 1) for f in form]
    return _join("block", parts, -depth)


_block_staged = StagedFunction(_block, "block")


@remembered
def block(arrays: object) -> Array:
    """An array put together from nested lists of blocks.

    Args:
        arrays: an array, or lists of lists of arrays, all equally deep. Innermost lists are
            joined along the last axis, the next along the one before, and so on.

    Raises:
        ValueError: lists are empty or unequally deep.
        TreeDepthError: lists are nested deeper than the interpreter follows.
        ShapeMismatchError: blocks do not fit together.

    >>> import tracebridge.numpy as tnp
    >>> tnp.block([[tnp.ones((2, 2)), tnp.zeros((2, 1))], [tnp.zeros((1, 3))]]).shape
    (3, 3)
    """
    leaves: list[Any] = []
    try:
        form = _form_of(arrays, leaves)
    except RecursionError as error:
        raise TreeDepthError(
            "block: the lists are deeper than Python's recursion limit allows, or one contains "
            "itself"
        ) from error
    return _block_staged(leaves, (form,))


def _form_of(arrays: Any, leaves: list[Any]) -> Any:
    """The nesting of lists as tuples with None for each block."""
    if type(arrays) is list and arrays and all([type(a) is Array for a in arrays]):
        leaves.extend(arrays)
        return (None,) * len(arrays)
    if isinstance(arrays, tuple):
        msg = "block: got a tuple, expected lists; write [a, b]"
        raise ArgumentTypeError(msg)
    if not isinstance(arrays, list):
        leaves.append(arrays)
        return None
    if not arrays:
        msg = "block: got an empty list, expected at least one block in each list"
        raise ArgumentValueError(msg)
    form = tuple([_form_of(a, leaves) for a in arrays])
    if len({_depth(f) for f in form}) > 1:
        msg = "block: lists must be equally deep; put single blocks into lists too"
        raise ArgumentValueError(msg)
    return form
