"""scatter_apply: a function applied to elements at computed positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.ir.aval import element_aval
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.indexing.scatter import window_of
from tracebridge.core.lax.shape.axes import as_shape

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value


_I32 = np.dtype(np.int32)


def scatter_apply(
    operand: Operand,
    scatter_indices: Operand,
    func: Callable[[Any], Any],
    dimension_numbers: Any,
    *,
    update_shape: object = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: object = None,
) -> Any:
    """``operand`` with ``func`` applied to windows at computed positions.

    Where windows overlap, an element is replaced by ``func`` as often as a window reaches it.
    Reverse-mode derivatives need ``unique_indices``: otherwise the number of applications is
    computed, and the loop over them has only a forward derivative.

    Args:
        operand: an array.
        scatter_indices: integers; the last axis holds the index vectors.
        func: function of a scalar that gives a scalar of the same dtype.
        dimension_numbers: a ScatterDimensionNumbers.
        update_shape: the shape that updates would have in ``scatter``.
        indices_are_sorted: a promise that index vectors come in increasing order.
        unique_indices: a promise that no two windows overlap.
        mode: a GatherScatterMode or its name, for windows that leave the operand; ``None`` leaves
            them out.

    Raises:
        ShapeMismatchError: dimension numbers and shapes do not fit together, or ``func`` does not
            give a scalar of the operand's dtype.

    >>> import tracebridge as tb
    >>> rows = tb.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x = tb.numpy.array([1.0, 4.0, 16.0])
    >>> indices = tb.numpy.array([[1], [2], [2]])
    >>> tb.lax.scatter_apply(x, indices, tb.lax.sqrt, rows, update_shape=(3,)).tolist()
    [1.0, 2.0, 2.0]
    """
    x, indices = as_value(operand), as_value(scatter_indices)
    shape = as_shape("scatter_apply", update_shape)
    updates = x.aval.update(shape=shape, weak_type=False)
    options: dict[str, Any] = {
        "indices_are_sorted": indices_are_sorted,
        "unique_indices": unique_indices,
        "mode": lax.GatherScatterMode.from_any(mode),
    }
    # Checks the arguments by the rules of scatter, and normalises the numbers.
    numbers = lax.ScatterDimensionNumbers(*[tuple(axes) for axes in dimension_numbers])
    if unique_indices:
        old = window_of(x, indices, updates, {"dimension_numbers": numbers, **options})
        return lax.scatter(x, indices, _mapped(func, old), numbers, **options)
    ones = lax.full(updates.shape, 1, _I32)
    zeros = lax.full(x.aval.shape, 0, _I32)
    counts = lax.scatter_add(zeros, indices, ones, numbers, **options)
    params = {"dimension_numbers": numbers, **options}
    old = window_of(x, indices, updates, params)
    count = window_of(counts, indices, updates, params)
    return lax.scatter(x, indices, _repeated(func, old, count), numbers, **options)


def _repeated(func: Callable[[Any], Any], x: object, count: Any) -> Any:
    """``func`` applied ``count`` times to each element of ``x``."""
    most = lax.reduce_max(count, tuple(range(count.aval.ndim)))

    def more(carry: Any) -> Any:
        return lax.lt(carry[0], most)

    def step(carry: Any) -> Any:
        done, y = carry
        return lax.add(done, 1), lax.select_n(lax.lt(done, count), y, _mapped(func, y))

    return while_loop(more, step, (lax.full((), 0, _I32), x))[1]


def _mapped(func: Callable[[Any], Any], x: Value) -> Any:
    """A function of scalars on each element."""
    size = x.aval.size
    flat = lax.reshape(x, (size,))
    (out,), (dim,) = batch_flat(lambda v: [func(v)], [flat], [0], size)
    aval = out.aval
    expected = (size,) if dim is not None else ()
    if aval.shape != expected or aval.dtype != x.aval.dtype:
        msg = (
            f"scatter_apply: func gave {element_aval(aval, dim).str_short()} for an "
            f"element, expected a scalar {x.aval.dtype.name}"
        )
        raise ShapeMismatchError(msg)
    if dim is None:
        return lax.broadcast_in_dim(out, x.aval.shape, ())
    return lax.reshape(out, x.aval.shape)
