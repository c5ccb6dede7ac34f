"""Checks of axes and shapes that the operations of this folder and its kin share."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from tracebridge.core.errors.shape_errors import (
    AxisError,
    InconclusiveDimensionError,
    ShapeMismatchError,
)
from tracebridge.core.symbolic.compare import allows_empty, assume_at_least


def as_axis(call: str, axis: Any, ndim: int) -> int:
    """``axis`` as an int in ``[0, ndim)``; negative ones count from the end."""
    index = operator.index(axis)
    if not -ndim <= index < ndim:
        raise AxisError(index, ndim, call=call)
    return index + ndim if index < 0 else index


def as_axes(call: str, axes: Iterable[Any], ndim: int) -> tuple[int, ...]:
    """``axes`` as distinct ints in ``[0, ndim)``, in the order given."""
    found = tuple([as_axis(call, a, ndim) for a in axes])
    if len(set(found)) != len(found):
        msg = f"{call}: axes {found} name an axis twice, expected distinct axes"
        raise AxisError(msg)
    return found


def as_dim(size: Any) -> Any:
    """A dimension as an int, or as the symbolic expression it is."""
    if type(size) is int or getattr(size, "is_symbolic_dim", False):
        return size
    return operator.index(size)


def as_dims(sizes: Iterable[Any]) -> tuple[Any, ...]:
    """Dimensions, offsets or limits as ints or symbolic expressions."""
    return tuple([s if type(s) is int else as_dim(s) for s in sizes])


def as_shape(call: str, shape: object) -> tuple[Any, ...]:
    """``shape`` (a sequence, or one dimension) as a tuple of dimensions, none negative."""
    # Arrays without axes can be asked for an iterator, too: they are one size.
    if isinstance(shape, Iterable) and getattr(shape, "ndim", None) != 0:
        dims = as_dims(shape)
    else:
        dims = (as_dim(shape),)
    for d in dims:
        if type(d) is int and d < 0:
            msg = f"{call}: shape {dims} has a negative size, expected sizes of at least 0"
            raise ShapeMismatchError(msg)
    return dims


def surely_less(a: Any, b: Any, *, decides: bool = False) -> bool:
    """Whether ``a < b`` for all values of symbolic dimensions; False where nobody can say.

    Then ``a >= b`` is checked when the program runs, unless the answer ``decides`` what it is.

    Raises:
        InconclusiveDimensionError: nobody can say, arrays may be empty, and the answer
            ``decides`` what is computed.
    """
    try:
        return bool(a < b)
    except InconclusiveDimensionError:
        if not decides:
            assume_at_least(a, b)
        elif allows_empty(a) or allows_empty(b):
            raise
        return False


def joined_axes(
    shape: Sequence[int], axes: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and reduced axes after neighbours that are both reduced or both kept are one."""
    sizes: list[int] = []
    kinds: list[bool] = []
    for i, size in enumerate(shape):
        if size == 1:
            continue
        if kinds and kinds[-1] == (i in axes):
            sizes[-1] *= size
        else:
            sizes.append(size)
            kinds.append(i in axes)
    return tuple(sizes), tuple([i for i, reduced in enumerate(kinds) if reduced])
