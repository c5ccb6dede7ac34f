"""scatter and its variants: updates of an array at computed positions."""

from __future__ import annotations

__all__ = ["scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub"]

from collections.abc import Callable
from typing import Any, Protocol

from tracebridge.core import lax
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import operands
from tracebridge.core.lax.indexing.modes import as_axes_tuple


class ScatterFunction(Protocol):
    """How each function of this file is called."""

    @property
    def __name__(self) -> str: ...

    def __call__(
        self,
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: object = None,
    ) -> Any: ...


def _scatter_function(name: str, primitive: Callable[[], Primitive], doc: str) -> ScatterFunction:
    """The function that binds a primitive, which exists when it is called first."""

    def function(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: object = None,
    ) -> Any:
        x, new = operands(name, operand, updates)
        modes = lax.GatherScatterMode
        parsed = modes.from_any(mode)
        return primitive().bind(
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

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _combining(
    name: str, primitive: Callable[[], Primitive], text: str, example: str
) -> ScatterFunction:
    """A function that combines windows with updates; ``example`` is its result."""
    return _scatter_function(
        name,
        primitive,
        f"""{text}

    Raises:
        ShapeMismatchError: dimension numbers and shapes do not fit together.
        DtypeMismatchError: dtypes differ, or the indices are no integers.

    >>> import tracebridge as tb
    >>> rows = tb.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x = tb.numpy.array([1.0, 2.0, 3.0])
    >>> tb.lax.{name}(x, tb.numpy.array([[2], [0]]), tb.numpy.array([7.0, 2.0]), rows).tolist()
    {example}
    """,
    )


scatter = _scatter_function(
    "scatter",
    lambda: lax.scatter_p,
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
    """,
)

scatter_add = _combining(
    "scatter_add",
    lambda: lax.scatter_add_p,
    """``operand`` with updates added to windows at computed positions.

    The arguments are those of ``scatter``. Where windows overlap, all updates count.""",
    "[3.0, 2.0, 10.0]",
)

scatter_sub = _combining(
    "scatter_sub",
    lambda: lax.scatter_sub_p,
    """``operand`` with updates subtracted from windows at computed positions.

    The arguments are those of ``scatter``. Where windows overlap, all updates count.""",
    "[-1.0, 2.0, -4.0]",
)

scatter_mul = _combining(
    "scatter_mul",
    lambda: lax.scatter_mul_p,
    """``operand`` with windows at computed positions multiplied by updates.

    The arguments are those of ``scatter``. Where windows overlap, all updates count.""",
    "[2.0, 2.0, 21.0]",
)

scatter_min = _combining(
    "scatter_min",
    lambda: lax.scatter_min_p,
    """``operand`` with the minimum of windows at computed positions and updates.

    The arguments are those of ``scatter``. The derivative at a tie is shared evenly.""",
    "[1.0, 2.0, 3.0]",
)

scatter_max = _combining(
    "scatter_max",
    lambda: lax.scatter_max_p,
    """``operand`` with the maximum of windows at computed positions and updates.

    The arguments are those of ``scatter``. The derivative at a tie is shared evenly.""",
    "[2.0, 2.0, 7.0]",
)
