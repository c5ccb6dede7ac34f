"""Splitting arrays: split and kin, unstack."""

from __future__ import annotations

__all__ = ["array_split", "dsplit", "hsplit", "split", "unstack", "vsplit"]

import itertools
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.errors.argument_errors import (
    ArgumentValueError,
    index_of,
    size_of,
)
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.shape.axes import surely_less
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.symbolic.dims import max_dim, min_dim
from tracebridge.numpy._promote import normalize_axis
from tracebridge.numpy._staging import settled, shape_of, value_of


def _split(x: Value, name: str, where: Any, axis: int, equal: bool) -> list[Any]:
    """``where``: the number of parts, or a tuple of positions to cut at."""
    if x.aval.ndim == 0:
        msg = f"{name}: got an array without axes, expected at least one axis"
        raise RankError(msg)
    axis = normalize_axis(axis, x.aval.ndim, name)
    size = x.aval.shape[axis]
    if isinstance(where, tuple):
        places = [_place(p, size) for p in where]
        bounds = [(a, max_dim(a, b)) for a, b in itertools.pairwise((0, *places, size))]
        return [lax.slice_in_dim(x, a, b, axis=axis) for a, b in bounds]
    if where < 1:
        msg = f"{name}: got {where} sections, expected at least one"
        raise ArgumentValueError(msg)
    part, remainder = divmod(size, where)
    if equal and remainder:
        msg = (
            f"{name}: axis {axis} of {x.aval.str_short()} has size {size}, which {where} equal "
            "sections do not divide"
        )
        raise ShapeMismatchError(msg, hint="use array_split for unequal parts")
    sizes = [part + 1] * remainder + [part] * (where - remainder)
    return [x] if where == 1 else list(lax.split(x, sizes, axis))


_split_staged = StagedFunction(_split, "split")


def _place(position: Any, size: Any) -> Any:
    """A position in ``[0, size]``; negative ones count from the end."""
    if surely_less(position, 0, decides=True):
        position = max_dim(position + size, 0)
    return min_dim(position, size)


def _cuts(name: str, where: Any) -> Any:
    where = settled(where)
    if isinstance(where, int | float | np.generic) or (hasattr(where, "ndim") and where.ndim == 0):
        return index_of(_whole(where), name, "indices_or_sections")
    if getattr(where, "is_symbolic_dim", False):
        msg = f"{name}: the number of sections must be an int, got the dimension {where}"
        raise ArgumentValueError(msg)
    positions = where if isinstance(where, list | tuple) else np.asarray(where).tolist()
    what = "an entry of indices_or_sections"
    return tuple([size_of(_whole(settled(p)), name, what) for p in positions])


def _whole(x: Any) -> Any:
    """A whole number as an integer, which it is not while it is differentiated."""
    if isinstance(x, Tracer) or getattr(x, "is_symbolic_dim", False):
        return x
    number = np.asarray(x).dtype.kind == "f"
    return int(x) if number and float(x).is_integer() else x


def split(
    ary: ArrayLike, indices_or_sections: ArrayLike | Sequence[SupportsIndex], axis: int = 0
) -> list[Array]:
    """Parts of ``ary`` along an axis.

    Args:
        ary: array with at least one axis.
        indices_or_sections: the number of equal parts, or sorted positions to cut at.
        axis: the axis to cut.

    Raises:
        ShapeMismatchError: the axis has no equal parts of that number.

    >>> import tracebridge.numpy as tnp
    >>> [x.tolist() for x in tnp.split(tnp.arange(5), [2, 3])]
    [[0, 1], [2], [3, 4]]
    """
    cuts = _cuts("split", indices_or_sections)
    return _split_staged((ary,), ("split", cuts, index_of(axis, "split", "axis"), True))


def array_split(
    ary: ArrayLike, indices_or_sections: ArrayLike | Sequence[SupportsIndex], axis: int = 0
) -> list[Array]:
    """Parts of ``ary`` along an axis; as ``split``, but the parts may differ in size by one.

    >>> import tracebridge.numpy as tnp
    >>> [x.tolist() for x in tnp.array_split(tnp.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    cuts = _cuts("array_split", indices_or_sections)
    return _split_staged(
        (ary,), ("array_split", cuts, index_of(axis, "array_split", "axis"), False)
    )


def vsplit(ary: ArrayLike, indices_or_sections: ArrayLike | Sequence[SupportsIndex]) -> list[Array]:
    """Parts of ``ary`` along axis 0; see ``split``.

    >>> import tracebridge.numpy as tnp
    >>> [x.shape for x in tnp.vsplit(tnp.ones((4, 2)), 2)]
    [(2, 2), (2, 2)]
    """
    return _split_staged((ary,), ("vsplit", _cuts("vsplit", indices_or_sections), 0, True))


def hsplit(ary: ArrayLike, indices_or_sections: ArrayLike | Sequence[SupportsIndex]) -> list[Array]:
    """Parts of ``ary`` along axis 1, of a vector along axis 0; see ``split``.

    >>> import tracebridge.numpy as tnp
    >>> [x.shape for x in tnp.hsplit(tnp.ones((4, 2)), 2)]
    [(4, 1), (4, 1)]
    """
    axis = 0 if len(shape_of(ary)) == 1 else 1
    return _split_staged((ary,), ("hsplit", _cuts("hsplit", indices_or_sections), axis, True))


def dsplit(ary: ArrayLike, indices_or_sections: ArrayLike | Sequence[SupportsIndex]) -> list[Array]:
    """Parts of ``ary`` along axis 2; see ``split``.

    >>> import tracebridge.numpy as tnp
    >>> [x.shape for x in tnp.dsplit(tnp.ones((4, 2, 2)), 2)]
    [(4, 2, 1), (4, 2, 1)]
    """
    return _split_staged((ary,), ("dsplit", _cuts("dsplit", indices_or_sections), 2, True))


def _unstack(x: Value, axis: int) -> list[Any]:
    if x.aval.ndim == 0:
        msg = "unstack: got an array without axes, expected at least one axis"
        raise RankError(msg)
    axis = normalize_axis(axis, x.aval.ndim, "unstack")
    count = x.aval.shape[axis]
    return [lax.index_in_dim(x, i, axis, keepdims=False) for i in range(count)]


_unstack_staged = StagedFunction(_unstack, "unstack")


def unstack(x: ArrayLike | None, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices of ``x`` along an axis, without that axis.

    >>> import tracebridge.numpy as tnp
    >>> [row.tolist() for row in tnp.unstack(tnp.array([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    value = value_of(x)
    shape = value.aval.shape
    if shape and shape[normalize_axis(axis, len(shape), "unstack")] == 0:
        return ()
    return tuple(_unstack_staged((value,), (index_of(axis, "unstack", "axis"),)))
