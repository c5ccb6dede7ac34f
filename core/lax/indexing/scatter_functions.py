"""scatter and its variants: updates of an array at computed positions."""

from __future__ import annotations

__all__ = ["scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub"]

from typing import TYPE_CHECKING, Any

from tracebridge.core import lax
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import operands
from tracebridge.core.lax.indexing.modes import as_axes_tuple

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand


def _bind(
    primitive: Primitive,
    operand: Operand,
    scatter_indices: Operand,
    updates: Operand,
    dimension_numbers: Any,
    how: tuple[bool, bool, Any],
) -> Any:
    indices_are_sorted, unique_indices, mode = how
    x, new = operands(primitive.name, operand, updates)
    modes = lax.GatherScatterMode
    parsed = modes.from_any(mode)
    return primitive.bind(
        x,
        as_value(scatter_indices),
        new,
        dimension_numbers=lax.ScatterDimensionNumbers(
            *[as_axes_tuple(axes) for axes in dimension_numbers]
        ),
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        mode=modes.FILL_OR_DROP if parsed is modes.ONE_HOT else parsed,
    )


def scatter(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: Any,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: object = None,
) -> Any:
    """``operand`` with windows replaced at the positions that ``scatter_indices`` holds.

    The axes of ``updates`` at ``update_window_dims`` are the window, the others those of
    ``scatter_indices`` but the last. ``updates[batch, offset]`` goes to
    ``operand[scatter_indices[batch] + offset]``, entries placed by
    ``scatter_dims_to_operand_dims``. Where windows overlap, one of the updates stays; which one
    is not defined.

    Args:
        operand: an array.
        scatter_indices: integers; the last axis holds the index vectors.
        updates: array of the operand's dtype.
        dimension_numbers: a ScatterDimensionNumbers.
        indices_are_sorted: a promise that index vectors come in increasing order.
        unique_indices: a promise that no two windows overlap.
        mode: a GatherScatterMode or its name, for windows that leave the operand; ``None`` drops
            them.

    Raises:
        ShapeMismatchError: dimension numbers and shapes do not fit together.
        DtypeMismatchError: dtypes differ, or the indices are no integers.

    >>> import tracebridge as tb
    >>> rows = tb.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x = tb.numpy.array([1.0, 2.0, 3.0])
    >>> tb.lax.scatter(x, tb.numpy.array([[2], [0]]), tb.numpy.array([7.0, 2.0]), rows).tolist()
    [2.0, 2.0, 7.0]
    """
    how = indices_are_sorted, unique_indices, mode
    return _bind(lax.scatter_p, operand, scatter_indices, updates, dimension_numbers, how)


def scatter_add(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: Any,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: object = None,
) -> Any:
    """``operand`` with updates added to windows at computed positions.

    The arguments are those of ``scatter``. Where windows overlap, all updates count.

    Raises:
        ShapeMismatchError: dimension numbers and shapes do not fit together.
        DtypeMismatchError: dtypes differ, or the indices are no integers.

    >>> import tracebridge as tb
    >>> rows = tb.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x = tb.numpy.array([1.0, 2.0, 3.0])
    >>> tb.lax.scatter_add(x, tb.numpy.array([[2], [0]]), tb.numpy.array([7.0, 2.0]), rows).tolist()
    [3.0, 2.0, 10.0]
    """
    how = indices_are_sorted, unique_indices, mode
    return _bind(lax.scatter_add_p, operand, scatter_indices, updates, dimension_numbers, how)


def scatter_sub(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: Any,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: object = None,
) -> Any:
    """``operand`` with updates subtracted from windows at computed positions.

    The arguments are those of ``scatter``. Where windows overlap, all updates count.

    Raises:
        ShapeMismatchError: dimension numbers and shapes do not fit together.
        DtypeMismatchError: dtypes differ, or the indices are no integers.

    >>> import tracebridge as tb
    >>> rows = tb.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x = tb.numpy.array([1.0, 2.0, 3.0])
    >>> tb.lax.scatter_sub(x, tb.numpy.array([[2], [0]]), tb.numpy.array([7.0, 2.0]), rows).tolist()
    [-1.0, 2.0, -4.0]
    """
    how = indices_are_sorted, unique_indices, mode
    return _bind(lax.scatter_sub_p, operand, scatter_indices, updates, dimension_numbers, how)


def scatter_mul(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: Any,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: object = None,
) -> Any:
    """``operand`` with windows at computed positions multiplied by updates.

    The arguments are those of ``scatter``. Where windows overlap, all updates count.

    Raises:
        ShapeMismatchError: dimension numbers and shapes do not fit together.
        DtypeMismatchError: dtypes differ, or the indices are no integers.

    >>> import tracebridge as tb
    >>> rows = tb.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x = tb.numpy.array([1.0, 2.0, 3.0])
    >>> tb.lax.scatter_mul(x, tb.numpy.array([[2], [0]]), tb.numpy.array([7.0, 2.0]), rows).tolist()
    [2.0, 2.0, 21.0]
    """
    how = indices_are_sorted, unique_indices, mode
    return _bind(lax.scatter_mul_p, operand, scatter_indices, updates, dimension_numbers, how)


def scatter_min(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: Any,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: object = None,
) -> Any:
    """``operand`` with the minimum of windows at computed positions and updates.

    The arguments are those of ``scatter``. The derivative at a tie is shared evenly.

    Raises:
        ShapeMismatchError: dimension numbers and shapes do not fit together.
        DtypeMismatchError: dtypes differ, or the indices are no integers.

    >>> import tracebridge as tb
    >>> rows = tb.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x = tb.numpy.array([1.0, 2.0, 3.0])
    >>> tb.lax.scatter_min(x, tb.numpy.array([[2], [0]]), tb.numpy.array([7.0, 2.0]), rows).tolist()
    [1.0, 2.0, 3.0]
    """
    how = indices_are_sorted, unique_indices, mode
    return _bind(lax.scatter_min_p, operand, scatter_indices, updates, dimension_numbers, how)


def scatter_max(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: Any,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: object = None,
) -> Any:
    """``operand`` with the maximum of windows at computed positions and updates.

    The arguments are those of ``scatter``. The derivative at a tie is shared evenly.

    Raises:
        ShapeMismatchError: dimension numbers and shapes do not fit together.
        DtypeMismatchError: dtypes differ, or the indices are no integers.

    >>> import tracebridge as tb
    >>> rows = tb.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x = tb.numpy.array([1.0, 2.0, 3.0])
    >>> tb.lax.scatter_max(x, tb.numpy.array([[2], [0]]), tb.numpy.array([7.0, 2.0]), rows).tolist()
    [2.0, 2.0, 7.0]
    """
    how = indices_are_sorted, unique_indices, mode
    return _bind(lax.scatter_max_p, operand, scatter_indices, updates, dimension_numbers, how)
