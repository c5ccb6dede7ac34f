"""Checks of the axes that reductions and scans take."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from tracebridge.core.errors.shape_errors import AxisError


def reduction_axes(name: str, axes: Sequence[Any], ndim: int) -> tuple[int, ...]:
    """``axes`` as distinct ints in ``[0, ndim)``, in increasing order."""
    found = [reduction_axis(name, a, ndim) for a in axes]
    if len(set(found)) != len(found):
        msg = f"{name}: axes {tuple(axes)} name an axis twice, expected distinct axes"
        raise AxisError(msg)
    found.sort()
    return tuple(found)


def reduction_axis(name: str, axis: Any, ndim: int) -> int:
    """``axis`` as an int in ``[0, ndim)``; negative ones count from the end."""
    index = operator.index(axis)
    if not -ndim <= index < ndim:
        raise AxisError(index, ndim, call=name)
    return index + ndim if index < 0 else index
