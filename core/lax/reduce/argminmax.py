"""Positions of extreme elements: argmax, argmin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import int8, int32, is_bool, is_complex, is_float, is_integer
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value

_BOOL = np.dtype(np.bool_)
# From this length on two plain reductions beat one of (value, position) pairs on CPU: the former
# are vectorised, the latter is not. Short rows are cheaper in one pass.
_TWO_PASSES = 32


class _ArgExtremum(Primitive):
    """Parameters ``axes`` (one axis) and ``index_dtype``. Ties and NaNs: the first one wins."""

    maximum: bool

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        (axis,) = params["axes"]
        if is_complex(x.dtype):
            msg = f"{self.name} works on real numbers and booleans, got {x.dtype.name}"
            raise UnsupportedDtypeError(msg)
        if type(x.shape[axis]) is int and x.shape[axis] == 0:
            msg = f"{self.name}: axis {axis} of {x.str_short()} has no elements, expected at least one"
            raise ShapeMismatchError(msg)
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        return ShapedArray(shape, params["index_dtype"])

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        (x,) = operands
        (aval,) = ctx.avals_in
        (axis,) = params["axes"]
        if is_bool(aval.dtype):
            # i1 is neither ordered nor vectorised.
            aval = aval.update(dtype=int8)
            x = ctx.convert(x, aval)
        size = aval.shape[axis]
        # Positions fit 32 bits; index_dtype may be narrower than the positions on the way.
        positions = ShapedArray(aval.shape, int32)
        iota = ctx.iota(positions, axis)
        two_passes = ctx.platform == "cpu" and (type(size) is not int or size >= _TWO_PASSES)
        emit = self._in_two_passes if two_passes else self._in_one_pass
        index = emit(ctx, x, aval, iota, positions, axis)
        out = ctx.aval_out
        return index if out.dtype == int32 else ctx.convert(index, out)

    def _in_two_passes(
        self, ctx: Any, x: Any, aval: ShapedArray, iota: Any, positions: ShapedArray, axis: int
    ) -> Any:
        """The extreme value, then the smallest position that holds it (or a NaN)."""
        scalar = ShapedArray((), aval.dtype)
        hlo = "stablehlo.maximum" if self.maximum else "stablehlo.minimum"

        def extremum(a: Any, b: Any) -> list[Any]:
            return [ctx.op1(hlo, [a[0], b[0]], scalar)]

        reduced = ShapedArray(ctx.aval_out.shape, aval.dtype)
        worst = ctx.splat(_worst(aval.dtype, self.maximum), scalar)
        (best,) = ctx.reduce([x], [worst], [reduced], (axis,), extremum)
        dims = [i for i in range(aval.ndim) if i != axis]
        flags = aval.update(dtype=_BOOL)
        found = ctx.compare(x, ctx.broadcast_in_dim(best, aval, dims), flags, "EQ")
        if is_float(aval.dtype):
            nan = ctx.compare(x, x, flags, "NE")
            found = ctx.op1("stablehlo.or", [found, nan], flags)
        index = ShapedArray((), int32)
        candidates = ctx.select(found, iota, ctx.splat(2**31 - 1, positions), positions)

        def first(a: Any, b: Any) -> list[Any]:
            return [ctx.op1("stablehlo.minimum", [a[0], b[0]], index)]

        none = ctx.splat(2**31 - 1, index)
        out = ShapedArray(ctx.aval_out.shape, int32)
        return ctx.reduce([candidates], [none], [out], (axis,), first)[0]

    def _in_one_pass(
        self, ctx: Any, x: Any, aval: ShapedArray, iota: Any, positions: ShapedArray, axis: int
    ) -> Any:
        """One reduction of pairs (value, position)."""
        scalar, index = ShapedArray((), aval.dtype), ShapedArray((), int32)
        flag = ShapedArray((), _BOOL)
        direction = "GT" if self.maximum else "LT"

        def either(a: Any, b: Any) -> Any:
            return ctx.op1("stablehlo.or", [a, b], flag)

        def both(a: Any, b: Any) -> Any:
            return ctx.op1("stablehlo.and", [a, b], flag)

        def body(a: Any, b: Any) -> list[Any]:
            (x, i), (y, j) = a, b
            better = ctx.compare(x, y, flag, direction)
            tie = ctx.compare(x, y, flag, "EQ")
            if is_float(aval.dtype):
                x_nan, y_nan = ctx.compare(x, x, flag, "NE"), ctx.compare(y, y, flag, "NE")
                y_number = ctx.op1("stablehlo.not", [y_nan], flag)
                better = either(better, both(x_nan, y_number))
                tie = either(tie, both(x_nan, y_nan))
            first = either(better, both(tie, ctx.compare(i, j, flag, "LT")))
            return [ctx.select(first, x, y, scalar), ctx.select(first, i, j, index)]

        inits = [ctx.splat(_worst(aval.dtype, self.maximum), scalar), ctx.splat(0, index)]
        shape = ctx.aval_out.shape
        outs = [ShapedArray(shape, aval.dtype), ShapedArray(shape, int32)]
        return ctx.reduce([x, iota], inits, outs, (axis,), body)[1]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), None

    def batch(
        self, ctx: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        (axis,) = params["axes"]
        moved = axis + (axis >= d)
        return self.bind(x, axes=(moved,), index_dtype=params["index_dtype"]), d - (moved < d)


def _worst(dtype: Any, maximum: bool) -> Any:
    return lax.smallest(dtype) if maximum else lax.largest(dtype)


@final
class Argmax(_ArgExtremum):
    name = "argmax"
    maximum = True


@final
class Argmin(_ArgExtremum):
    name = "argmin"
    maximum = False


argmax_p = Argmax()
argmin_p = Argmin()


def _arg_extremum(primitive: _ArgExtremum, operand: Any, axis: int, index_dtype: Any) -> Any:
    x = as_value(operand)
    axis = lax.as_axis(primitive.name, axis, x.aval.ndim)
    dtype = canonicalize_explicit(index_dtype, primitive.name)
    if not is_integer(dtype):
        msg = f"{primitive.name}: index_dtype must be an integer dtype, got {dtype.name}"
        raise UnsupportedDtypeError(msg)
    return primitive.bind(x, axes=(axis,), index_dtype=dtype)


def argmax(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Position of the first largest element along ``axis``; a NaN counts as the largest.

    Args:
        operand: real or boolean array.
        axis: the axis to search; the result lacks it.
        index_dtype: integer dtype of the result.

    Raises:
        ShapeMismatchError: the axis has no elements.

    >>> import tracebridge as tb
    >>> int(tb.lax.argmax(tb.numpy.array([1.0, 5.0, 5.0]), 0, "int32"))
    1
    """
    return _arg_extremum(argmax_p, operand, axis, index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Position of the first smallest element along ``axis``; a NaN counts as the smallest.

    Args:
        operand: real or boolean array.
        axis: the axis to search; the result lacks it.
        index_dtype: integer dtype of the result.

    Raises:
        ShapeMismatchError: the axis has no elements.

    >>> import tracebridge as tb
    >>> int(tb.lax.argmin(tb.numpy.array([4.0, 1.0, 1.0]), 0, "int32"))
    1
    """
    return _arg_extremum(argmin_p, operand, axis, index_dtype)
