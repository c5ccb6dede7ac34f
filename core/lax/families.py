"""Families of primitives: the rules that kin have in common.

Elementwise primitives take operands of one shape; rank-0 operands may stand beside arrays, so that
a scalar costs no broadcast equation. The families put the broadcasts back where a tangent,
a cotangent or a batch needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_float, is_inexact, is_integer, itemsize_bits
from tracebridge.core.errors.base import InternalError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import merged, split_of
from tracebridge.core.ir.typeof import array_value
from tracebridge.core.ir.values import Literal, check_int_range, python_scalar
from tracebridge.core.lax.accepted_dtypes import any_dtype
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis
from tracebridge.core.lax.elementwise.accuracy import accuracy_attributes

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.values import Value

_BOOL = np.dtype(np.bool_)
Accepts = Callable[[Any], bool]
CONVERT_HINT = "convert with convert_element_type, or use tracebridge.numpy, which promotes dtypes"


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype has floats of fewer than 32 bits."""
    return is_float(dtype) and itemsize_bits(dtype) < 32


def logistic_slope(x: Value) -> Any:
    """The derivative of the logistic function of floats of 16 bits, computed in float32.

    A result close to 1 that was rounded to so few bits says nothing about its distance to 1.
    """
    wide = lax.convert_element_type(x, np.dtype(np.float32))
    slope = lax.mul(lax.logistic(wide), lax.logistic(lax.neg(wide)))
    return lax.convert_element_type(slope, x.aval.dtype)


def scalar_like(x: Value, value: object) -> Literal:
    """A constant of the dtype of ``x``."""
    aval = x.aval
    return Literal(python_scalar(value, aval.dtype), aval.update(shape=()))


def shifted(z: Any, real: float) -> Any:
    """``z + real`` of complex numbers; a zero imaginary part keeps its sign, as no sum does."""
    return lax.complex(lax.add(lax.real(z), real), lax.imag(z))


def one_less_square(x: Value) -> Any:
    """``1 - x * x`` with the digits of the product near 1, and with the derivative ``-2 x``.

    The slopes of the two factors cancel near 0, and of one at its zero nothing is left that an
    infinite cotangent could have as factor. Complex numbers get the product.
    """
    product = lax.mul(lax.sub(1.0, x), lax.add(x, 1.0))
    if not is_float(x.aval.dtype):
        return product
    square = lax.square(x)
    nothing = lax.sub(square, lax.stop_gradient(square))
    return lax.sub(lax.stop_gradient(product), nothing)


def operands(name: str, *xs: object) -> list[Value]:
    """Values of the arguments of an n-ary operation; Python scalars take the arrays' dtype."""
    values = [array_value(x, name) for x in xs]
    dtype = None
    for v in values:
        if not (type(v) is Literal and v.aval.weak_type):
            dtype = v.aval.dtype
            break
    if dtype is None:
        return values
    for i, v in enumerate(values):
        if type(v) is Literal and v.aval.weak_type and v.aval.dtype != dtype:
            values[i] = _as_dtype(name, v, dtype)
    return values


def _as_dtype(name: str, v: Literal, dtype: np.dtype[Any]) -> Literal:
    """A Python scalar as a literal of ``dtype``, if that loses nothing of its kind."""
    kind = v.aval.dtype.kind
    if (kind == "c" and dtype.kind != "c") or (kind == "f" and not is_inexact(dtype)):
        msg = f"{name}: a Python {type(v.value).__name__} cannot be an operand beside {dtype.name}"
        raise DtypeMismatchError(msg, hint="convert the array with convert_element_type first")
    if is_integer(dtype):
        check_int_range(int(v.value), dtype)
    # Still weakly typed, so that the result is weak if the arrays are.
    return Literal(python_scalar(v.value, dtype), v.aval.update(dtype=dtype))


class Elementwise(Primitive):
    """n operands of one shape (or rank 0), one result of that shape."""

    is_elementwise: ClassVar[bool] = True
    # Which dtypes the operands may have; the text is for messages.
    accepts: ClassVar[Accepts] = staticmethod(any_dtype)
    accepts_text: ClassVar[str] = "any dtype"
    # What messages call the operation, where it is not called like the primitive.
    public: ClassVar[str | None] = None
    # StableHLO or CHLO operation, if one does it all.
    hlo: ClassVar[str] = ""
    # Whether axes of size 1 are repeated, by equations of their own.
    repeats_axes: ClassVar[bool] = True

    def fitted(
        self, args: tuple[Value, ...], avals: tuple[ShapedArray, ...], params: Params
    ) -> tuple[tuple[Value, ...], Application]:
        """Repeats axes of size 1 where the shapes differ in nothing else."""
        try:
            return args, self.application(avals, params)
        except ShapeMismatchError:
            repeated = _repeated(args) if self.repeats_axes else None
            if repeated is None:
                raise
        return repeated, self.application(tuple([a.aval for a in repeated]), params)

    def result_dtype(self, *avals: ShapedArray, **params: object) -> Any:
        """The dtype of the result; that of the first operand by default."""
        del params
        return avals[0].dtype

    def check_dtypes(self, *avals: ShapedArray) -> None:
        """Raise unless all operands have one dtype that the primitive accepts."""
        dtype = avals[0].dtype
        for a in avals:
            if a.dtype != dtype:
                got = ", ".join([b.str_short() for b in avals])
                name = self.public or self.name
                msg = f"{name}: it requires arguments to have the same dtypes, got {got}"
                raise DtypeMismatchError(msg, hint=CONVERT_HINT)
        if not type(self).accepts(dtype):
            name = self.public or self.name
            msg = f"{name} does not accept dtype {dtype.name}, it works on {self.accepts_text}"
            raise UnsupportedDtypeError(msg, hint=CONVERT_HINT)

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        self.check_dtypes(*avals)
        shape = common_shape(self.public or self.name, avals)
        return result_aval(avals, shape, self.result_dtype(*avals, **params))

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        (out,) = outs
        full = [a for a in avals if a.ndim]
        if not full:
            return [None]
        name = self.public or self.name
        return [split_of(name, full, merged(name, full))] if out.ndim else [None]

    def attributes(self, *avals: ShapedArray, **params: object) -> dict[str, Any] | None:
        """Attributes of the StableHLO operation."""
        del avals, params
        return None

    def recipe(self, *avals: ShapedArray, **params: Any) -> tuple[str, Any] | None:
        """Operation name and attributes, where the primitive is one operation."""
        if not self.hlo:
            return None
        return self.hlo, self.attributes(*avals, **params)

    def lower(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        xs = tuple(full_operands(ctx, xs))
        return self.lower_full(ctx, *xs, **params)

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        """Emit the operation for operands that all have the result's shape."""
        return ctx.op1(self.hlo, xs, ctx.aval_out, self.attributes(*ctx.avals_in, **params))

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        return batch_elementwise(self, ctx, args, dims, params)


def _repeated(values: Sequence[Value]) -> tuple[Value, ...] | None:
    """Operands of one rank with axes of size 1 repeated, if that gives them one shape."""
    shapes = [v.aval.shape for v in values if v.aval.ndim]
    if len({len(shape) for shape in shapes}) != 1:
        return None
    sizes = [[n for n in axis if n != 1] or [1] for axis in zip(*shapes, strict=True)]
    if any([n != axis[0] for axis in sizes for n in axis]):
        return None
    full = tuple([axis[0] for axis in sizes])
    axes = tuple(range(len(full)))
    return tuple(
        [
            v if not v.aval.ndim or v.aval.shape == full else lax.broadcast_in_dim(v, full, axes)
            for v in values
        ]
    )


def common_shape(name: str, avals: Sequence[ShapedArray]) -> tuple[Any, ...]:
    """The shape of the operands that are not rank 0."""
    shape: tuple[Any, ...] = ()
    for a in avals:
        if a.ndim and a.shape != shape:
            if shape:
                got = ", ".join([str(b.shape) for b in avals])
                msg = f"{name}: operands need the same shape (or no axes), got {got}"
                raise ShapeMismatchError(
                    msg, hint="broadcast them first; tracebridge.numpy functions do"
                )
            shape = a.shape
    return shape


def full_operands(ctx: LoweringContext, xs: Sequence[IrValue]) -> list[Any]:
    """While lowering: rank-0 operands repeated to the shape of the result."""
    shape = ctx.aval_out.shape
    full: list[Any] = []
    for x, aval in zip(xs, ctx.avals_in, strict=True):
        if aval.ndim or not shape:
            full.append(x)
        else:
            full.append(ctx.broadcast_in_dim(x, aval.update(shape=shape), ()))
    return full


def batch_elementwise(
    primitive: Primitive,
    ctx: BatchContext,
    args: Sequence[Value],
    dims: Sequence[int | None],
    params: Params,
) -> tuple[Any, int]:
    """Batch operands of one shape along one axis; scalars stay scalars where they can."""
    pairs = list(zip(args, dims, strict=True))
    ndim = max([a.aval.ndim - (d is not None) for a, d in pairs])
    # The new axis goes where an operand of full rank has it; in front if only scalars have it.
    dim = next((d for a, d in pairs if d is not None and a.aval.ndim > ndim), 0)
    moved: list[Any] = []
    for a, d in pairs:
        rank = a.aval.ndim - (d is not None)
        if d is None:
            moved.append(a if rank == 0 else broadcast_batch(a, ctx.size, dim))
        elif rank == ndim:
            moved.append(move_batch_axis(a, d, dim))
        else:
            shape = _shape_of_rank(pairs, ndim)
            full = (*shape[:dim], ctx.size, *shape[dim:])
            moved.append(lax.broadcast_in_dim(a, full, (dim,)))
    return primitive.bind(*moved, **params), dim


def _shape_of_rank(pairs: Sequence[tuple[Any, int | None]], ndim: int) -> tuple[Any, ...]:
    """The shape, without the batch axis, of an operand that has ``ndim`` axes besides it."""
    for a, d in pairs:
        shape = a.aval.shape
        if d is not None and len(shape) > ndim:
            return (*shape[:d], *shape[d + 1 :])
        if d is None and len(shape) == ndim:
            return shape
    msg = f"no operand has {ndim} axes"
    raise InternalError(msg)


def fit_tangent(t: Value, out: ShapedArray) -> Value:
    """A tangent of a rank-0 operand repeated to the shape of the result."""
    if t.aval.shape == out.shape:
        return t
    return lax.broadcast_in_dim(t, out.shape, ())


def unbroadcast(ct: Value, aval: ShapedArray) -> Value:
    """A cotangent summed to the shape of a rank-0 operand."""
    if ct.aval.ndim == aval.ndim:
        return ct
    return lax.reduce_sum(ct, tuple(range(ct.aval.ndim)))


class UnaryElementwise(Elementwise):
    """One operand. Give ``derivative`` or ``tangent``.

    Step functions set ``differentiable = False``.
    """

    differentiable: ClassVar[bool] = True

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        (x,), (t,) = primals, tangents
        ans = self.bind(x, **params)
        if not self.differentiable:
            return ans, None
        return ans, self.tangent(t, x, ans, **params)

    def tangent(self, t: Value, x: Value, ans: Value, **params: Any) -> Value | None:
        """The tangent of the result; ``t`` times the derivative by default."""
        return lax.mul(t, self.derivative(x, ans, **params))

    def derivative(self, x: Value, ans: Value, **params: object) -> Value:
        """The derivative at ``x``; ``ans`` is the result there."""
        del x, ans, params
        msg = f"{self.name} defines neither derivative nor tangent nor jvp"
        raise TypeError(msg)


class FloatUnary(UnaryElementwise):
    """One operand of a real floating dtype."""

    accepts = staticmethod(is_float)
    accepts_text = "floats"


class InexactUnary(UnaryElementwise):
    """One operand of a floating or complex dtype.

    Parameter ``accuracy``, if there is one and it is not None, becomes the attribute
    ``result_accuracy`` of the operation.
    """

    cost = Cost.EXPENSIVE
    accepts = staticmethod(is_inexact)
    accepts_text = "floats and complex numbers"
    # Whether narrower floats are computed in float32 and rounded once: the compiler would take
    # several steps in them, each of which rounds.
    by_float32: ClassVar[bool] = False

    def recipe(self, *avals: ShapedArray, **params: Any) -> tuple[str, Any] | None:
        if self.by_float32 and is_narrow(avals[0].dtype):
            return None
        return super().recipe(*avals, **params)

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        if not (self.by_float32 and is_narrow(ctx.aval_out.dtype)):
            return self.lower_wide(ctx, xs, ctx.aval_out, **params)
        aval = ctx.aval_out.update(dtype=np.dtype(np.float32))
        wide = self.lower_wide(ctx, [ctx.convert(x, aval) for x in xs], aval, **params)
        return ctx.convert(wide, ctx.aval_out)

    def lower_wide(
        self, ctx: LoweringContext, xs: Sequence[IrValue], aval: ShapedArray, **params: Any
    ) -> Any:
        """Emit the operation for operands of ``aval``, whose floats have as many bits as needed."""
        return ctx.op1(self.hlo, xs, aval, self.attributes(*ctx.avals_in, **params))

    def attributes(self, *avals: ShapedArray, **params: Any) -> dict[str, Any] | None:
        del avals
        accuracy = params.get("accuracy")
        return None if accuracy is None else accuracy_attributes(accuracy)


class BinaryElementwise(Elementwise):
    """Two operands. Give ``partial``, or set ``differentiable = False`` for step functions."""

    differentiable: ClassVar[bool] = True

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        ans = self.bind(*primals, **params)
        if not self.differentiable:
            return ans, None
        total = None
        for i, t in enumerate(tangents):
            if t is not None:
                part = self.partial(i, t, ans, *primals, **params)
                if part is not None:
                    part = fit_tangent(part, ans.aval)
                    total = part if total is None else lax.add(total, part)
        return ans, total

    def partial(
        self, i: int, t: Value, ans: Value, x: Value, y: Value, **params: object
    ) -> Value | None:
        """The tangent of the result due to tangent ``t`` of operand ``i``."""
        del i, t, ans, x, y, params
        msg = f"{self.name} defines neither partial nor jvp"
        raise TypeError(msg)


class Comparison(BinaryElementwise):
    """Two operands, a boolean result, no derivative."""

    cost = Cost.CHEAP
    differentiable = False
    direction: ClassVar[str]

    def result_dtype(self, *avals: ShapedArray, **params: object) -> Any:
        del avals, params
        return _BOOL


class Linear(Primitive):
    """One operand, linear in it: the tangent goes through the same primitive."""

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        return self.bind(*primals, **params), self.bind(*tangents, **params)


class Constraint(Linear):
    """The operand itself, at another place or in another order; its cotangent is treated alike."""

    cost = Cost.OTHER

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        return avals[0]

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs, params
        return [avals[0].split]

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [self.bind(ct, **params)]

    def with_axis(self, ctx: BatchContext, axis: int, params: Params) -> dict[str, Any]:
        """The parameters for an operand that has a mapped axis."""
        del ctx, axis
        return params

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        return self.bind(x, **(params if d is None else self.with_axis(ctx, d, params))), d


class Structural(Linear):
    """Moves elements about: linear in the first operand, works on every dtype.

    Further operands (start indices and the like) have no tangents.
    """

    cost = Cost.MOVES_DATA
    makes_nan = False
    moves_elements = True

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: Any) -> Any:
        x, *rest = primals
        return self.bind(x, *rest, **params), self.bind(tangents[0], *rest, **params)
