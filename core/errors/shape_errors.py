"""Errors about shapes, ranks and axes.

Operations in lax raise TypeError and NumPy-level broadcasting raises ValueError in comparable
libraries; the classes below derive from both, so that code that catches either keeps working.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge.core.errors.base import TracebridgeError


class ShapeMismatchError(TracebridgeError, TypeError, ValueError):
    """Shapes that must agree do not.

    Arguments of one operation have shapes that do not fit each other. Functions of `tb.lax`
    repeat axes of size 1 and Python numbers; they add no axes, as those of `tb.numpy` do.

    Wrong::

        tb.lax.add(tnp.ones((2, 3)), tnp.ones(3))

    Right::

        tnp.add(tnp.ones((2, 3)), tnp.ones(3))

    The class is a `TypeError` and a `ValueError`.
    """


class BroadcastError(ShapeMismatchError):
    """Shapes cannot be broadcast together.

    Two shapes cannot be broadcast together: counted from the right, two sizes differ and neither
    is 1.

    Wrong::

        tnp.ones((2, 3)) + tnp.ones(2)

    Right::

        tnp.ones((2, 3)) + tnp.ones(2)[:, None]
    """


class RankError(ShapeMismatchError):
    """An array has the wrong number of dimensions.

    An array has more or fewer dimensions than the function works on.

    Wrong::

        tnp.bincount(tnp.array([[0, 1], [1, 2]]))

    Right::

        tnp.bincount(tnp.array([[0, 1], [1, 2]]).ravel())
    """


class AxisError(TracebridgeError, np.exceptions.AxisError, TypeError):
    """An axis is out of range; also NumPy's AxisError (a ValueError, an IndexError), a TypeError.

    An axis is out of range. An array with n dimensions has the axes 0 to n - 1, or -n to -1 from
    the right.

    Wrong::

        tnp.ones((2, 3)).sum(axis=2)

    Right::

        tnp.ones((2, 3)).sum(axis=1)

    The class is also `numpy.exceptions.AxisError`, and a `TypeError` as other errors of shapes.
    """

    def __init__(self, axis: int | str, ndim: int | None = None, *, call: str = "") -> None:
        if isinstance(axis, str):
            message = axis
        else:
            size = ndim or 0
            allowed = f"an integer from {-size} to {size - 1}" if size else "no axis at all"
            message = (
                f"{call + ': ' if call else ''}axis {axis} is out of bounds for an array of "
                f"dimension {size}, expected {allowed}"
            )
        super().__init__(message)  # reaches NumPy's __init__ with the text, which keeps no args
        self.args = (self._msg,)
        if not isinstance(axis, str):
            self.axis, self.ndim = axis, ndim

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, (cls, args, state) = super().__reduce__()
        # NumPy's class has these three as slots.
        slots = {"_msg": self._msg, "axis": self.axis, "ndim": self.ndim}
        return rebuild, (cls, args, {**state, **slots})


class IndexingError(TracebridgeError, IndexError, ValueError):
    """An index has too many entries, or a static index is out of range.

    An index has more entries than the array has dimensions, or a static index lies outside it
    where that is checked.

    Wrong::

        tnp.ones((2, 3))[0, 0, 0]

    Right::

        tnp.ones((2, 3))[0, 0]
    """


class InconclusiveDimensionError(TracebridgeError, ValueError):
    """A comparison of symbolic dimensions has no answer that holds for all their values.

    A program with symbolic dimensions compares sizes, and the answer differs with the values that
    the dimensions may take.

    Wrong::

        (a,) = tb.export.symbolic_shape("a")
        if a > 3:  # true for some values, false for others
            ...

    Right::

        (a,) = tb.export.symbolic_shape("a", constraints=("a >= 4",))
        if a > 3:  # always true
            ...
    """
