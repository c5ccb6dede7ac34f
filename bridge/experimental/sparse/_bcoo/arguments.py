"""Checks of arguments that the functions of BCOO arrays share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    index_of,
    kind_of,
)
from tracebridge.core.errors.shape_errors import AxisError, RankError
from tracebridge.experimental.sparse._bcoo.array import BCOO


def check_bcoo(call: str, x: object, name: str = "mat") -> None:
    """Raise ArgumentTypeError unless ``x`` is a BCOO array."""
    if not isinstance(x, BCOO):
        msg = f"{call}: {name} is {kind_of(x)}, expected a BCOO array"
        raise ArgumentTypeError(msg, hint="BCOO.fromdense makes one of a dense array")


def checked_axes(call: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes as different numbers in ``[0, ndim)``."""
    sequence = list(axes) if isinstance(axes, Sequence) or hasattr(axes, "__iter__") else [axes]
    found = [index_of(a, call, "an axis") for a in sequence]
    for axis in found:
        if not -ndim <= axis < ndim:
            raise AxisError(axis, ndim, call=call)
    found = [a % ndim for a in found]
    if len(set(found)) != len(found):
        msg = f"{call}: axes {sequence} name an axis twice"
        raise ArgumentValueError(msg)
    return tuple(found)


def check_kinds(call: str, n_batch: int, n_dense: int, ndim: int) -> tuple[int, int]:
    """Numbers of axes of batches and of dense axes that an array of ``ndim`` axes can have."""
    batch, dense = index_of(n_batch, call, "n_batch"), index_of(n_dense, call, "n_dense")
    if batch < 0 or dense < 0 or batch + dense > ndim:
        msg = f"{call}: n_batch={batch}, n_dense={dense} for an array of {ndim} axes"
        raise ArgumentValueError(msg, expected="at least 0, and together no more than its axes")
    return batch, dense


def check_length(call: str, name: str, values: Sequence[Any], ndim: int) -> tuple[Any, ...]:
    """One value for each axis."""
    found = tuple(values)
    if len(found) != ndim:
        msg = f"{call}: {name} has {len(found)} entries for an array of {ndim} axes"
        raise RankError(msg)
    return found
