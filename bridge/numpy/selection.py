"""Choosing among arrays: choose, select, piecewise, compress, extract."""

from __future__ import annotations

__all__ = ["choose", "compress", "extract", "piecewise", "select"]

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_integer
from tracebridge.core.errors.argument_errors import ArgumentValueError, IntegerRangeError, index_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import IndexingError, RankError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.reduce.positions import true_positions
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import (
    broadcast_shape,
    broadcast_to,
    check_no_out,
    normalize_axis,
    promote_dtypes,
)
from tracebridge.numpy._ranges import wrapped
from tracebridge.numpy._staging import (
    concrete,
    is_traced,
    settled,
    shape_of,
    unwrapped,
    value_of,
)
from tracebridge.numpy.elementwise_logic import truth
from tracebridge.numpy.indexing_functions import in_range, take, take_rows_of
from tracebridge.numpy.joining import array_sequence

_INT32 = np.dtype(np.int32)


def _choose(*args: Value) -> Any:
    which, *rest = args
    *choices, mode = rest
    choices = promote_dtypes(*choices)
    n = len(choices)
    which = lax.convert_dtype(which, _INT32)
    if mode == "wrap":
        which = in_range("choose", which, n, "wrap")
    shape = broadcast_shape("choose", [v.aval.shape for v in (which, *choices)])
    which, *choices = (broadcast_to(v, shape) for v in (which, *choices))
    # Out of range the first or the last is taken: that is mode "clip".
    found = lax.select_n(which, *choices)
    return lax.convert_dtype(found, found.aval.dtype)


_choose_staged = StagedFunction(_choose, "choose")


def choose(
    a: ArrayLike, choices: ArrayLike | Sequence[ArrayLike], out: None = None, mode: str = "raise"
) -> Array:
    """Elements of ``choices[a]``, elementwise.

    Args:
        a: integers.
        choices: sequence of arrays (or an array, whose rows they are); all are broadcast.
        out: not supported.
        mode: what to do with integers out of range: ``"raise"`` needs concrete ones, ``"clip"``,
            ``"wrap"``.

    Raises:
        ValueError: an integer is out of range.
        ArgumentValueError: ``mode`` is unknown, or with ``'raise'`` an integer is out of range.
        UnsupportedDtypeError: ``a`` does not hold integers.

    >>> import tracebridge.numpy as tnp
    >>> tnp.choose(tnp.array([1, 0]), [tnp.array([1, 2]), tnp.array([10, 20])]).tolist()
    [10, 2]
    """
    check_no_out("choose", out)
    xs = array_sequence("choose", choices)
    if mode not in ("raise", "clip", "wrap"):
        msg = f"choose: mode={mode!r}, expected 'raise', 'clip' or 'wrap'"
        raise ArgumentValueError(msg)
    which = value_of(a)
    if not (is_integer(which.aval.dtype) or is_bool(which.aval.dtype)):
        msg = f"choose: a must hold integers, got {which.aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    if mode == "raise":
        host = concrete(which, "mode='raise' checks it", "pass mode='clip' or mode='wrap'")
        if host.size and not (host.min() >= 0 and host.max() < len(xs)):
            msg = f"choose: an integer is out of range for {len(xs)} choices"
            raise ArgumentValueError(msg)
    try:
        return _choose_staged((which, *xs), (mode,))
    except IntegerRangeError:
        fitting = wrapped(xs)
        if fitting is None:
            raise
    return _choose_staged((which, *fitting), (mode,))


def _select(*args: Any) -> Any:
    *values, n = args
    conditions, choices = values[:n], promote_dtypes(*values[n:])
    bad = [c for c in conditions if not is_bool(c.aval.dtype)]
    if bad:
        msg = f"select: conditions must be boolean, got {bad[0].aval.str_short()}"
        raise UnsupportedDtypeError(msg)
    shape = broadcast_shape("select", [v.aval.shape for v in (*conditions, *choices)])
    out = broadcast_to(choices[-1], shape)
    for condition, choice in zip(conditions[::-1], choices[-2::-1], strict=True):
        out = lax.select_n(broadcast_to(condition, shape), out, broadcast_to(choice, shape))
    return out


_select_staged = StagedFunction(_select, "select")


def select(
    condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0
) -> Array:
    """Elements of the first choice whose condition is true, else ``default``, elementwise.

    Raises:
        ArgumentValueError: the lists differ in length, or are empty.

    >>> import tracebridge.numpy as tnp
    >>> x = tnp.arange(5)
    >>> tnp.select([x < 2, x > 3], [x, x * 10], default=-1).tolist()
    [0, 1, -1, -1, 40]
    """
    if len(condlist) != len(choicelist) or not len(condlist):  # arrays are lists of rows
        msg = (
            f"select: got {len(condlist)} conditions and {len(choicelist)} choices, expected "
            "equally many, at least one"
        )
        raise ArgumentValueError(msg)
    try:
        return _select_staged((*condlist, *choicelist, default), (len(condlist),))
    except IntegerRangeError:
        choices = wrapped((*choicelist, default))
        if choices is None:
            raise
    return _select_staged((*condlist, *choices), (len(condlist),))


def _piecewise(*args: Any) -> Any:
    x, *rest = args
    *values, n = rest
    conditions, pieces = values[:n], values[n:]
    shape = x.aval.shape
    out = pieces[-1]
    for condition, piece in zip(conditions, pieces[:-1], strict=True):
        old, new = broadcast_to(out, shape), broadcast_to(piece, shape)
        out = lax.select_n(broadcast_to(truth(condition), shape), old, new)
    return broadcast_to(out, shape)


_piecewise_staged = StagedFunction(_piecewise, "piecewise")


def piecewise(
    x: ArrayLike,
    condlist: ArrayLike | Sequence[ArrayLike],
    funclist: Sequence[object],
    *args: ArrayLike,
    **kw: object,
) -> Array:
    """A function given by pieces: where a condition is true, its function or number.

    Args:
        x: array; the result has its shape and dtype.
        condlist: boolean arrays; where several are true the last one counts.
        funclist: a function or number for each, and possibly one more for where none is true
            (default 0). All functions are applied to all elements.
        *args: passed on to the functions.
        **kw: passed on to the functions.

    Raises:
        ArgumentValueError: there are not as many functions as conditions, or one more.

    >>> import tracebridge.numpy as tnp
    >>> x = tnp.array([-2.0, 0.0, 3.0])
    >>> tnp.piecewise(x, [x < 0, x > 0], [lambda v: -v, lambda v: v * v, 5.0]).tolist()
    [2.0, 5.0, 9.0]
    """
    x = value_of(x)
    conditions = _condition_list(x, condlist)
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        msg = (
            f"piecewise: got {len(funclist)} functions for {len(conditions)} conditions, expected "
            "as many or one more"
        )
        raise ArgumentValueError(msg)
    functions = list(funclist) + ([0] if len(funclist) == len(conditions) else [])
    pieces = [_piece(f, x, args, kw) for f in functions]
    return _piecewise_staged((x, *conditions, *pieces), (len(conditions),))


def _condition_list(x: Any, condlist: Any) -> list[Any]:
    if isinstance(condlist, list | tuple):
        # Nested lists are conditions, each an array.
        condlist = [
            np.asarray(c) if isinstance(c, list | tuple) else unwrapped(c) for c in condlist
        ]
        if condlist and not hasattr(condlist[0], "shape") and x.aval.ndim:
            # A plain list of bools is one condition.
            return [np.asarray(condlist)]
        return list(condlist)
    shape = shape_of(condlist)
    # A vector that is no mask of a vector says for each function whether it applies to all.
    scalars = len(shape) == 1 and shape != x.aval.shape and x.aval.ndim == 1
    if scalars or len(shape) > x.aval.ndim or (x.aval.ndim == 0 and len(shape)):
        return list(array_sequence("piecewise", condlist))
    return [condlist]


def _piece(f: object, x: Any, args: tuple[Any, ...], kw: Mapping[str, object]) -> Any:
    value = value_of(f(x, *args, **kw) if isinstance(f, Callable) else f)
    return lax.convert_dtype(value, x.aval.dtype)


# masks -------------------------------------------------------------------------------------------


def _compress(mask: Value, x: Value, fill: Value, axis: int, size: int) -> Any:
    """The rows of ``x`` under a mask along ``axis``, ``size`` of them."""
    n = x.aval.shape[axis]
    found, total = true_positions(mask, size)
    missing = lax.ge(lax.iota(_INT32, size), total)
    positions = lax.select_n(missing, found, full_of(found.aval, 2**31 - 1))
    rows = take_rows_of(x, positions, axis, "clip" if n else "fill", False, False, None)
    dims = [axis]
    missing = lax.broadcast_in_dim(missing, rows.aval.shape, tuple(dims))
    filler = broadcast_to(lax.convert_dtype(fill, rows.aval.dtype), rows.aval.shape)
    return lax.select_n(missing, rows, filler)


_compress_staged = StagedFunction(
    lambda c, x, f, axis, size: _compress(truth(c), x, f, axis, size), "compress"
)


def compress(
    condition: ArrayLike,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = 0,
    out: None = None,
) -> Array:
    """The slices along an axis where ``condition`` is true.

    Args:
        condition: boolean vector, not longer than the axis.
        a: array.
        axis: axis in ``[-ndim, ndim)``; ``None`` compresses the flattened array.
        size: how many slices to give; needed while tracing, where the number is not known.
        fill_value: what to fill with if there are fewer.
        out: not supported.

    Raises:
        RankError: the condition is no vector.
        IndexingError: the condition is true behind the end of the axis.

    >>> import tracebridge.numpy as tnp
    >>> tnp.compress(tnp.array([True, False, True]), tnp.array([1, 2, 3])).tolist()
    [1, 3]
    """
    check_no_out("compress", out)
    mask, x = settled(value_of(condition)), value_of(a)
    if mask.aval.ndim != 1:
        msg = f"compress: the condition must be a vector, got {mask.aval.str_short()}"
        raise RankError(msg)
    if axis is None:
        x, axis = _flat_staged((x,)), 0
    axis = normalize_axis(axis, x.aval.ndim, "compress")
    if not is_traced(mask):
        rows = np.flatnonzero(np.asarray(mask))
        if rows.size and rows[-1] >= x.aval.shape[axis]:
            where = f"axis {axis} of {x.aval.str_short()}"
            msg = f"compress: position {rows[-1]} is out of bounds for {where}"
            raise IndexingError(msg)
        if size is None:
            return take(x, rows, axis, mode="promise_in_bounds", indices_are_sorted=True)
    elif size is None:
        concrete(mask, "The number of true elements is the size of the result", "pass size=")
    return _compress_staged((mask, x, fill_value), (axis, index_of(size or 0, "compress", "size")))


_flat_staged = StagedFunction(lambda x: lax.reshape(x, (x.aval.size,)), "ravel")


def extract(
    condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0
) -> Array:
    """The elements of ``arr`` where ``condition`` is true, in one axis; see ``compress``.

    >>> import tracebridge.numpy as tnp
    >>> x = tnp.arange(6).reshape(2, 3)
    >>> tnp.extract(x % 2 == 0, x).tolist()
    [0, 2, 4]
    """
    # A concrete condition stays concrete while something else is traced.
    mask = settled(condition)
    flat = _flat_staged((mask,)) if is_traced(mask) else np.ravel(concrete(mask, ""))
    return compress(flat, arr, size=size, fill_value=fill_value)
