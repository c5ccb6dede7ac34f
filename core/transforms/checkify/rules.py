"""What can go wrong in single operations: a table of checks by primitive.

This transformation is out of tree: primitives do not know of it, and have no method for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact
from tracebridge.core.errors.check_errors import (
    DivisionByZeroError,
    NanError,
    OutOfBoundsError,
)
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.transforms.checkify.error import Category
from tracebridge.core.transforms.checkify.state import State

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


# Gets the state, the application, its arguments and the line.
ArgumentCheck = Callable[[State, Application, Sequence[Any], str], None]


def check_nan(state: State, app: Application, outs: Sequence[Any], line: str) -> None:
    """Look for NaN in the results."""
    for out in outs:
        dtype = out.aval.dtype
        if not is_inexact(dtype):
            continue
        found = lax.ne(out, out)
        if is_complex(dtype):
            parts = lax.real(out), lax.imag(out)
            found = lax.bitwise_or(*[lax.ne(p, p) for p in parts])
        state.record(NanError, _any(found), f"nan came out of {app.primitive.name}", line, ())


def _any(x: Value) -> Any:
    return lax.reduce_or(x, tuple(range(x.aval.ndim))) if x.aval.ndim else x


def _division(state: State, app: Application, args: Sequence[Value], line: str) -> None:
    divisor = args[1]
    is_zero = lax.eq(divisor, full_of(divisor.aval, 0))
    state.record(
        DivisionByZeroError, _any(is_zero), f"division by zero in {app.primitive.name}", line, ()
    )


def _gather(state: State, app: Application, args: Sequence[Value], line: str) -> None:
    params = app.params
    axes = params["dimension_numbers"].start_index_map
    _indices(state, app, args[1], axes, params["slice_sizes"], line)


def _scatter(state: State, app: Application, args: Sequence[Value], line: str) -> None:
    numbers = app.params["dimension_numbers"]
    windows = iter([args[2].aval.shape[d] for d in numbers.update_window_dims])
    single = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    sizes = [1 if d in single else next(windows) for d in range(args[0].aval.ndim)]
    _indices(state, app, args[1], numbers.scatter_dims_to_operand_dims, sizes, line)


def _indices(
    state: State,
    app: Application,
    indices: Value,
    axes: Sequence[int],
    sizes: Sequence[object],
    line: str,
) -> None:
    """Index vectors in the last axis of ``indices``, one entry for each of ``axes``."""
    if app.params["mode"] is lax.GatherScatterMode.CLIP or not axes:
        return
    rows = indices.aval.shape[:-1]
    n = math.prod(rows)
    if n == 0:
        return
    flat = lax.reshape(indices, (n, len(axes)))
    columns = [lax.index_in_dim(flat, k, 1, keepdims=False) for k in range(len(axes))]
    _bounds(state, app, columns, axes, sizes, line)


def _dynamic_slice(state: State, app: Application, args: Sequence[Value], line: str) -> None:
    starts = [lax.reshape(s, (1,)) for s in args[1:]]
    axes = range(args[0].aval.ndim)
    _bounds(state, app, starts, axes, app.params["slice_sizes"], line)


def _dynamic_update_slice(state: State, app: Application, args: Sequence[Value], line: str) -> None:
    starts = [lax.reshape(s, (1,)) for s in args[2:]]
    axes = range(args[0].aval.ndim)
    _bounds(state, app, starts, axes, args[1].aval.shape, line)


def _bounds(
    state: State,
    app: Application,
    starts: Sequence[Any],
    axes: Sequence[int],
    sizes: Sequence[Any],
    line: str,
) -> None:
    """``starts[k]`` are positions along ``axes[k]`` where windows of ``sizes`` begin."""
    shape = app.avals[0].shape
    for start, axis in zip(starts, axes, strict=True):
        kind = start.aval.dtype.kind
        wide = lax.convert_element_type(start, np.uint32 if kind == "u" else np.int32)
        if start.aval.dtype.itemsize == 8:
            wide = start
        last = shape[axis] - sizes[axis]
        outside = lax.gt(wide, full_of(wide.aval, last))
        if kind != "u":
            outside = lax.bitwise_or(outside, lax.lt(wide, full_of(wide.aval, 0)))
        first = lax.argmax(outside, 0, np.int32)
        index = lax.dynamic_index_in_dim(wide, first, keepdims=False)
        template = (
            f"out-of-bounds index {{}} in {app.primitive.name}: axis {axis} of an array of shape "
            f"{shape} has size {shape[axis]}"
        )
        if sizes[axis] != 1:
            template += f", and {sizes[axis]} elements are taken"
        state.record(OutOfBoundsError, _any(outside), template, line, (index,))


# primitive -> which kind of error, and how to look for it among the arguments
CHECKS: dict[Primitive, tuple[Category, ArgumentCheck]] = {
    lax.div_p: (DivisionByZeroError, _division),
    lax.gather_p: (OutOfBoundsError, _gather),
    lax.dynamic_slice_p: (OutOfBoundsError, _dynamic_slice),
    lax.dynamic_update_slice_p: (OutOfBoundsError, _dynamic_update_slice),
    **dict.fromkeys(
        (
            lax.scatter_p,
            lax.scatter_add_p,
            lax.scatter_sub_p,
            lax.scatter_mul_p,
            lax.scatter_min_p,
            lax.scatter_max_p,
        ),
        (OutOfBoundsError, _scatter),
    ),
}
