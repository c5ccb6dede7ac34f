"""Choices: select_n, select, clamp."""

from __future__ import annotations

__all__ = ["clamp", "clamp_p", "select", "select_n", "select_n_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_integer, itemsize_bits
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.transform_errors import ShardingTypeError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.accepted_dtypes import is_ordinary
from tracebridge.core.lax.families import (
    Elementwise,
    common_shape,
    fit_tangent,
    operands,
    scalar_like,
    unbroadcast,
)

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


_INT32 = np.dtype(np.int32)


@final
class SelectN(Elementwise):
    """``which`` is bool (two cases) or int32 (any number); the cases have one dtype."""

    name = "select_n"
    cost = Cost.CHEAP
    makes_nan = False
    moves_elements = True
    repeats_axes = False

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        which, *cases = avals
        if not cases:
            msg = "select_n: at least one case is needed"
            raise ArgumentTypeError(msg)
        if not is_bool(which.dtype) and which.dtype != _INT32:
            msg = f"select_n: which must be of booleans or integers, got {which.dtype.name}"
            raise DtypeMismatchError(msg, hint="convert it with convert_element_type")
        if is_bool(which.dtype) and len(cases) > 2:
            msg = f"select_n: a boolean which chooses between two cases, got {len(cases)}"
            raise ArgumentTypeError(msg)
        self.check_dtypes(*cases)
        weak = all([a.weak_type for a in cases])
        return result_aval(avals, common_shape(self.name, avals), cases[0].dtype, weak)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        split = [a for a in avals[1:] if a.split is not None]
        if any([a.split is not split[0].split for a in split]):
            got = ", ".join([a.str_short() for a in avals])
            raise ShardingTypeError(
                f"select_n: select cases must have the same shardings: {got}",
                hint="reshard one first: tracebridge.sharding.reshard",
            )
        return super().split_results(avals, outs, **params)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        which, *cases = operands
        aval, which_aval = ctx.aval_out, ctx.avals_in[0]
        for i, case in enumerate(cases):
            if aval.ndim and not ctx.avals_in[i + 1].ndim:
                cases[i] = ctx.broadcast_in_dim(case, aval, ())
        if is_bool(which_aval.dtype):
            return cases[0] if len(cases) == 1 else ctx.select(which, cases[1], cases[0], aval)
        return _choose(ctx, which, which_aval, cases, 0, aval)

    def jvp(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: object
    ) -> Any:
        which = primals[0]
        ans = self.bind(*primals)
        zero = scalar_like(ans, 0)
        parts = [zero if t is None else t for t in tangents[1:]]
        return ans, fit_tangent(self.bind(which, *parts), ans.aval)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        which, *cases = args
        zero = scalar_like(ct, 0)
        cts: list[Any] = [None]
        for i, case in enumerate(cases):
            if not is_linear_input(case):
                cts.append(None)
                continue
            parts = [ct if k == i else zero for k in range(len(cases))]
            cts.append(unbroadcast(self.bind(which, *parts), case.aval))
        return cts


def _choose(
    ctx: LoweringContext,
    which: Any,
    which_aval: ShapedArray,
    cases: Sequence[object],
    first: int,
    aval: ShapedArray,
) -> Any:
    """Emit a tree of selects over cases ``first ...``; indices out of range take the end cases."""
    if len(cases) == 1:
        return cases[0]
    half = len(cases) // 2
    middle = ctx.splat(first + half, which_aval)
    is_low = ctx.compare(which, middle, which_aval.update(dtype=bool), "LT", "SIGNED")
    low = _choose(ctx, which, which_aval, cases[:half], first, aval)
    high = _choose(ctx, which, which_aval, cases[half:], first + half, aval)
    return ctx.select(is_low, low, high, aval)


@final
class Clamp(Elementwise):
    """Operands ``low, x, high``; the bounds may be scalars. NaN stays."""

    name = "clamp"
    cost = Cost.CHEAP
    makes_nan = False
    repeats_axes = False
    hlo = "stablehlo.clamp"
    accepts_text = "booleans, integers and floats"

    @staticmethod
    def accepts(dtype: DTypeLike) -> bool:
        """Every dtype but the complex ones, which have no order."""
        return is_ordinary(dtype) and not is_complex(dtype)

    def jvp(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: object
    ) -> Any:
        low, x, high = primals
        ans = self.bind(*primals)
        total = None
        for i, t in enumerate(tangents):
            if t is None:
                continue
            if i == 0:
                active = lax.bitwise_and(lax.gt(low, x), lax.lt(low, high))
            elif i == 1:
                active = lax.bitwise_and(lax.gt(x, low), lax.lt(x, high))
            else:
                active = lax.lt(high, x)
            part = fit_tangent(lax.select_n(active, scalar_like(t, 0), t), ans.aval)
            total = part if total is None else lax.add(total, part)
        return ans, total


select_n_p = SelectN()
clamp_p = Clamp()


def select_n(which: object, *cases: object) -> Any:
    """Elements of ``cases[which]``.

    Args:
        which: bool (False takes the first of two cases) or integers; a scalar, or of the shape
            of the cases. Indices out of range take the first or the last case.
        *cases: arrays of one dtype and shape; scalars are repeated.

    Raises:
        DtypeMismatchError: the cases have different dtypes, or ``which`` holds neither booleans
            nor integers.
        ShapeMismatchError: the shapes differ.

    >>> import tracebridge as tb
    >>> tb.lax.select_n(tb.numpy.array([False, True]), tb.numpy.array([1, 2]), 0).tolist()
    [1, 0]
    """
    index = as_value(which, "select_n")
    if is_integer(index.aval.dtype) and index.aval.dtype != _INT32:
        index = _as_int32(index, len(cases))
    values = operands("select_n", *cases)
    if len(values) == 1 and values[0].aval.ndim >= index.aval.ndim:
        select_n_p.application((index.aval, values[0].aval), {})  # checks the arguments
        return values[0]
    return select_n_p.bind(index, *values)


def _as_int32(index: Value, count: int) -> Any:
    """The index of the primitive, for indices of another dtype."""
    if itemsize_bits(index.aval.dtype) >= 32:
        # The conversion takes bits away: numbers that are out of range must stay so.
        index = lax.clamp(scalar_like(index, 0), index, scalar_like(index, max(count - 1, 0)))
    return lax.convert_dtype(index, _INT32)


def select(pred: object, on_true: Any, on_false: Any) -> Any:
    """``on_true`` where ``pred`` is true, else ``on_false``.

    Args:
        pred: bool, a scalar or of the shape of the cases.
        on_true: array of the same dtype and shape as ``on_false``.
        on_false: array.

    >>> import tracebridge as tb
    >>> tb.lax.select(tb.numpy.array([False, True]), tb.numpy.array([1, 2]), 0).tolist()
    [0, 2]
    """
    return select_n(pred, on_false, on_true)


def clamp(min: object, x: Operand, max: object) -> Any:
    """``x`` limited to ``[min, max]``, elementwise. NaN stays NaN.

    Args:
        min: lower bound, a scalar or of the shape of ``x``.
        x: array.
        max: upper bound; it wins where it is below ``min``.

    >>> import tracebridge as tb
    >>> tb.lax.clamp(0.0, tb.numpy.array([-1.0, 0.5, 2.0]), 1.0).tolist()
    [0.0, 0.5, 1.0]
    """
    return clamp_p.bind(*operands("clamp", min, x, max))
