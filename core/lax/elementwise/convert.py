"""Changes of dtype: convert_element_type, bitcast_convert_type, reduce_precision; copy."""

from __future__ import annotations

__all__ = [
    "bitcast_convert_type", "bitcast_convert_type_p", "convert_element_type",
    "convert_element_type_p", "copy_p", "reduce_precision", "reduce_precision_p",
]  # fmt: skip

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import (
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    itemsize_bits,
    real_of,
)
from tracebridge.core.dtypes.finfo import iinfo
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.user_warnings import warn_user
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import entries_of, split_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal, python_scalar
from tracebridge.core.lax.accepted_dtypes import EXTENDED_HINT, check_ordinary, is_ordinary
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.lax.elementwise.pair_roundings import rounded_pair
from tracebridge.core.lax.families import FloatUnary, UnaryElementwise
from tracebridge.core.mlir.attrs import i32

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class ConvertElementType(UnaryElementwise):
    """``new_dtype``, ``weak_type``: of the result. Complex to real takes the real part."""

    name = "convert_element_type"
    cost = Cost.FREE
    makes_nan = False

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,), new = avals, params["new_dtype"]
        if x.dtype != new and not (is_ordinary(x.dtype) and is_ordinary(new)):
            msg = f"{self.name}: there are no numbers for keys: got {x.str_short()} to {new.name}"
            raise UnsupportedDtypeError(msg, hint=EXTENDED_HINT)
        return x.update(dtype=new, weak_type=params["weak_type"])

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One operation, but for the real part of complex numbers and the test for zero."""
        old, new = avals[0].dtype, params["new_dtype"]
        if old == new or is_bool(new) or (is_complex(old) and not is_complex(new)):
            return None
        return "stablehlo.convert", None

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        (x,), aval = operands, ctx.avals_in[0]
        new = ctx.aval_out.dtype
        if is_complex(aval.dtype) and not is_complex(new):
            aval = aval.update(dtype=real_of(aval.dtype))
            x = ctx.op1("stablehlo.real", [x], aval)
        if aval.dtype == new:
            return x
        if is_bool(new):
            kind = "FLOAT" if is_float(aval.dtype) else None
            return ctx.compare(x, ctx.splat(0, aval), ctx.aval_out, "NE", kind)
        return ctx.convert(x, ctx.aval_out)

    def tangent(self, t: Any, x: Value, ans: Value, **params: Any) -> Any:
        return self.bind(t, **params) if is_inexact(params["new_dtype"]) else None

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        aval = args[0].aval
        return [lax.convert_dtype(ct, aval.dtype, aval.weak_type)]


@final
class BitcastConvertType(Primitive):
    """The bits of the elements as elements of ``new_dtype``; a last axis takes up the ratio."""

    name = "bitcast_convert_type"
    cost = Cost.FREE
    makes_nan = False

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        new = params["new_dtype"]
        check_ordinary(self.name, x, x.update(dtype=new, weak_type=False))
        if x.dtype != new and any([is_bool(d) or is_complex(d) for d in (x.dtype, new)]):
            msg = (
                f"bitcast_convert_type: bool and complex have no bit patterns of other dtypes, "
                f"got {x.dtype.name} to {new.name}"
            )
            raise UnsupportedDtypeError(msg)
        old_bits, new_bits = itemsize_bits(x.dtype), itemsize_bits(new)
        shape = x.shape
        if old_bits > new_bits:
            shape = (*shape, old_bits // new_bits)
        elif old_bits < new_bits:
            if not shape or shape[-1] != new_bits // old_bits:
                msg = (
                    f"bitcast_convert_type: {new.name} takes {new_bits // old_bits} elements of "
                    f"{x.dtype.name}, so the last axis must have that size, got {shape}"
                )
                raise ShapeMismatchError(msg)
            shape = shape[:-1]
        return x.update(shape=shape, dtype=new, weak_type=False)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del params
        rank = outs[0].ndim
        return [split_of(self.name, avals, (*entries_of(avals[0]), None)[:rank])]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        return ctx.op1("stablehlo.bitcast_convert", list(operands), ctx.aval_out)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return self.bind(*primals, **params), None

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        return self.bind(move_batch_axis(x, d, 0), **params), 0


@final
class ReducePrecision(FloatUnary):
    """Rounds to a format with ``exponent_bits`` and ``mantissa_bits``; keeps the dtype."""

    name = "reduce_precision"
    cost = Cost.CHEAP
    hlo = "stablehlo.reduce_precision"

    def attributes(self, *avals: ShapedArray, **params: Any) -> dict[str, Any] | None:
        return {name: i32(params[name]) for name in ("exponent_bits", "mantissa_bits")}

    def recipe(self, *avals: ShapedArray, **params: Any) -> tuple[str, Any] | None:
        # Of float64 it depends on the platform.
        return None if avals[0].dtype == np.float64 else super().recipe(*avals, **params)

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        ordinary = super().lower_full
        if ctx.aval_out.dtype != np.float64:
            return ordinary(ctx, *xs, **params)
        platforms = ctx.platforms or (ctx.platform,)
        rules = [_lower_pair if p == "tpu" else ordinary for p in platforms]
        if len(set(rules)) == 1:
            return rules[0](ctx, *xs, **params)
        return ctx.by_rules(rules, xs, params, multiple=False)

    def tangent(self, t: Any, x: Value, ans: Value, **params: Any) -> Any:
        return self.bind(t, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [self.bind(ct, **params)]


def _lower_pair(ctx: LoweringContext, x: IrValue, **params: Any) -> Any:
    return ctx.lower_fun(rounded_pair, x, **params)[0]


@final
class Copy(UnaryElementwise):
    """The operand; an eager copy has memory of its own."""

    name = "copy"
    cost = Cost.MOVES_DATA
    makes_nan = False

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        return operands[0]

    def tangent(self, t: Any, x: Value, ans: Value, **params: object) -> Any:
        return self.bind(t)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [self.bind(ct)]


convert_element_type_p = ConvertElementType()
bitcast_convert_type_p = BitcastConvertType()
reduce_precision_p = ReducePrecision()
copy_p = Copy()


def convert_dtype(x: Operand, dtype: np.dtype[Any], weak_type: bool = False) -> Any:
    """``x`` with ``dtype`` as it is (no 64-bit rule, no warnings); folds literals.

    For the rules of the engine and for promotion. May give a Literal.
    """
    value = as_value(x, "convert_dtype")
    aval = value.aval
    if aval.dtype == dtype and aval.weak_type is weak_type:
        return value
    if type(value) is Literal:
        return _fold(value, aval.update(dtype=dtype, weak_type=weak_type))
    return convert_element_type_p.bind(value, new_dtype=dtype, weak_type=weak_type)


def _fold(x: Literal, aval: ShapedArray) -> Literal:
    """The converted constant, rounded and wrapped as a device would."""
    value = np.asarray(x.value).astype(x.aval.dtype)
    dtype = aval.dtype
    if is_complex(value.dtype) and not is_complex(dtype):
        value = np.real(value)
    if is_integer(dtype) and is_float(value.dtype):
        # NumPy leaves these undefined; XLA gives 0 for NaN and saturates.
        limits = iinfo(dtype)
        number = float(value)
        number = 0.0 if math.isnan(number) else max(min(number, 2.0**70), -(2.0**70))
        value = np.asarray(max(min(int(number), int(limits.max)), int(limits.min)))
    return Literal(python_scalar(value.astype(dtype)[()], dtype), aval)


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """Convert elements to another dtype.

    Args:
        operand: array or scalar.
        new_dtype: dtype, its name, or a Python scalar class. Floats are truncated to integers,
            integers keep the lowest bits that fit, numbers become booleans by comparison with
            zero, complex numbers lose their imaginary part (with a warning).

    Returns:
        Array of the shape of ``operand``; the operand itself if it has the dtype already.

    >>> import tracebridge as tb
    >>> int(tb.lax.convert_element_type(2.75, "int32"))
    2
    """
    dtype = canonicalize_explicit(new_dtype, "convert_element_type")
    if type(operand) is int and operand.bit_length() > 31:
        operand = _of_any_size(operand, dtype)
    x = as_value(operand, "convert_element_type")
    if is_complex(x.aval.dtype) and not is_complex(dtype):
        message = "convert_element_type: complex to real discards the imaginary part"
        warn_user(message, np.exceptions.ComplexWarning)
    if x.aval.dtype == dtype and not x.aval.weak_type and type(x) is not Literal:
        return x
    return convert_element_type_p.bind(x, new_dtype=dtype, weak_type=False)


def _of_any_size(number: int, dtype: np.dtype[Any]) -> Any:
    """A Python integer, which may fit no dtype, as a scalar of ``dtype``."""
    if is_integer(dtype):
        info = iinfo(dtype)
        number = (number - info.min) % 2**info.bits + info.min
    elif is_inexact(dtype):
        return np.asarray(float(number)).astype(dtype)[()]
    return np.asarray(number != 0 if is_bool(dtype) else number).astype(dtype)[()]


def bitcast_convert_type(operand: Operand, new_dtype: Any) -> Any:
    """The bits of the elements as elements of another dtype.

    Args:
        operand: array of shape ``(*s)``.
        new_dtype: dtype of the same width (the shape stays), of a width ``n`` times smaller (the
            result has shape ``(*s, n)``), or ``n`` times larger (the last axis must have size
            ``n`` and disappears).

    Raises:
        UnsupportedDtypeError: bool or complex, unless the dtype stays the same.
        ShapeMismatchError: the last axis does not fit.

    >>> import tracebridge as tb
    >>> hex(int(tb.lax.bitcast_convert_type(tb.numpy.float32(1.0), "int32")))
    '0x3f800000'
    """
    dtype = canonicalize_explicit(new_dtype, "bitcast_convert_type")
    return bitcast_convert_type_p.bind(as_value(operand, "bitcast_convert_type"), new_dtype=dtype)


def reduce_precision(operand: Operand, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round floats to a format of fewer bits, elementwise; the dtype stays.

    Args:
        operand: float array.
        exponent_bits: bits of the exponent, at least 1.
        mantissa_bits: bits of the mantissa without the leading one, at least 0.

    Raises:
        ArgumentValueError: a number of bits is too small.

    >>> import tracebridge as tb
    >>> float(tb.lax.reduce_precision(1.3, exponent_bits=5, mantissa_bits=2))
    1.25
    """
    exponent, mantissa = (
        index_of(exponent_bits, "reduce_precision", "exponent_bits"),
        index_of(mantissa_bits, "reduce_precision", "mantissa_bits"),
    )
    if exponent < 1 or mantissa < 0:
        msg = (
            f"reduce_precision: exponent_bits must be at least 1 and mantissa_bits at least 0, "
            f"got {exponent} and {mantissa}"
        )
        raise ArgumentValueError(msg)
    return reduce_precision_p.bind(
        as_value(operand, "reduce_precision"), exponent_bits=exponent, mantissa_bits=mantissa
    )


def copy(x: Any) -> Any:
    """``x`` in memory of its own."""
    return copy_p.bind(as_value(x, "copy"))
