"""Elementwise programs that keep zeros as a whole, though not each of their operations does.

``x * sigmoid(x)`` is zero where ``x`` is, by way of ``sigmoid(x)``, which is not. Such values are
elements at the coordinates of ``x``, and the number that all its zeros have become.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tracebridge.core.compat.traces import is_concrete
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.trace import use_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.families import Elementwise
from tracebridge.experimental.sparse._base import with_elements
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcsr import BCSR


def dense_type(mat: Any) -> ShapedArray:
    """The type of the dense array that a sparse one stands for."""
    return ShapedArray(mat.shape, mat.dtype)


@final
class Region:
    """Elements at the coordinates of ``mat``, and ``rest`` everywhere else.

    ``why`` is what an error says if a program needs the array itself.
    """

    __slots__ = ("mat", "rest", "why")

    def __init__(self, mat: BCOO | BCSR, rest: Any, why: str) -> None:
        self.mat = mat
        self.rest = rest
        self.why = why

    @property
    def aval(self) -> ShapedArray:
        """The type of the array that it stands for."""
        return dense_type(self.mat)


def settled(x: Any) -> Any:
    """The value itself, unless it is a region.

    Raises:
        UnsupportedArgumentError: it is one, and so its array would be dense.
    """
    if type(x) is not Region:
        return x
    raise UnsupportedArgumentError(
        x.why,
        expected="operations that keep zeros",
        hint="convert the array with todense before",
    )


def elementwise(app: Application, args: Sequence[Any], why: str) -> Any:
    """The result of an elementwise operation of arrays with the same coordinates, and of numbers.

    A sparse array if zeros stay zeros, else a region; NotImplemented for other operands.
    """
    if not isinstance(app.primitive, Elementwise):
        return NotImplemented
    mats = [x.mat if type(x) is Region else x for x in args]
    arrays = [x for x in mats if isinstance(x, BCOO | BCSR)]
    first = arrays[0] if arrays else None
    if first is None or not first.unique_indices:
        return NotImplemented
    if not all([_at_same_places(first, x) for x in arrays]):
        return NotImplemented
    elements: list[Any] = []
    rest: list[Any] = []
    for x, mat in zip(args, mats, strict=True):
        if isinstance(mat, BCOO | BCSR):
            elements.append(as_value(mat.data))
            rest.append(x.rest if type(x) is Region else np.zeros((), mat.dtype))
        elif x.aval.ndim == 0 and is_concrete(x):
            elements.append(x)
            rest.append(x)
        else:
            return NotImplemented
    out = with_elements(first, app.primitive.bind(*elements, **app.params))
    with use_trace(None):  # numbers that are known now
        found = np.asarray(app.primitive.bind(*[as_value(x) for x in rest], **app.params))
    return out if np.all(found == 0) else Region(out, found, why)


def _at_same_places(a: BCOO | BCSR, b: BCOO | BCSR) -> bool:
    """Whether elements are known to have the same coordinates: these are the same arrays."""
    if type(a) is not type(b) or (a.shape, a.data.shape) != (b.shape, b.data.shape):
        return False
    (_, *left), (_, *right) = a.tree_flatten()[0], b.tree_flatten()[0]
    return all([x is y for x, y in zip(left, right, strict=True)])
