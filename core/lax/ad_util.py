"""What interpreters need of operations: zeros, additions of cotangents; stop_gradient."""

from __future__ import annotations

__all__ = ["stop_gradient", "stop_gradient_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import float0, is_extended, is_inexact
from tracebridge.core.errors.base import InternalError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.float0 import float0_zeros, is_float0
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.user_type import is_user_type
from tracebridge.core.ir.values import Literal, python_scalar
from tracebridge.core.symbolic.dims import DimExpr, is_static
from tracebridge.core.tree import tree

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.values import Value
    from tracebridge.core.sharding.named import NamedSharding


def full_of(aval: ShapedArray, value: Any) -> Value:
    """A value of ``aval`` with all elements ``value``: a number or a symbolic dimension."""
    scalar: Value
    if isinstance(value, DimExpr):
        scalar = lax.dimension_size(value, aval.dtype)
    else:
        scalar = Literal(python_scalar(value, aval.dtype), aval.update(shape=()))
    if not aval.ndim:
        return scalar
    full = lax.broadcast_in_dim(scalar, aval.shape, ())
    if aval.split is None:
        return full
    return lax.sharding_constraint_p.bind(full, sharding=aval.split)


def zeros_of(aval: Any) -> Value:
    """Zeros of ``aval``; of an extended dtype the values that zeros store."""
    if is_user_type(aval):
        return as_value(aval.vspace_zero())
    if is_extended(aval.dtype):
        dtype: Any = aval.dtype
        shape = (*aval.shape, *dtype.element_shape)
        return dtype.from_blocks(zeros_of(aval.update(shape, dtype.element_dtype, False)))
    return full_of(aval, 0)


def copies_of(scalar: Value, shape: Sequence[Any], dtype: Any, weak: bool = False) -> Any:
    """An array of copies of a scalar, converted to ``dtype``.

    A number stands for all words of keys: there are arrays that keys are written into.
    """
    if is_extended(dtype) and scalar.aval.dtype != dtype:
        blocks = copies_of(scalar, (*shape, *dtype.element_shape), dtype.element_dtype)
        return dtype.from_blocks(blocks)
    scalar = lax.convert_dtype(scalar, dtype, weak)
    return lax.broadcast_in_dim(scalar, tuple(shape), ())


def float0_of(shape: Sequence[object]) -> Any:
    """The tangent or cotangent of an integer or boolean array.

    A NumPy array, or a traced value where sizes are symbolic: NumPy has no such arrays.
    """
    if is_static(shape):
        return float0_zeros(shape)
    return zeros_of(ShapedArray(tuple(shape), float0))


def add_application(aval: ShapedArray) -> Application:
    """The application that adds two cotangents of ``aval``."""
    if is_user_type(aval):
        return add_of_users_p.application((aval, aval), {})
    return lax.add_p.application((aval, aval), {})


def weak_type_application(aval: ShapedArray, weak_type: bool) -> Application:
    """The application that makes a value of ``aval`` weakly or strongly typed; it is free."""
    return lax.convert_element_type_p.application(
        (aval,), {"new_dtype": aval.dtype, "weak_type": weak_type}
    )


def constraint_application(aval: ShapedArray, sharding: NamedSharding) -> Application:
    """The application that splits a value of ``aval`` as ``sharding`` says."""
    return lax.sharding_constraint_p.application((aval,), {"sharding": sharding})


class _Undifferentiated(Primitive):
    """The identity with a derivative of zero."""

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        return avals[0]

    def evaluate(self, arrays: Sequence[object], **params: object) -> Any:
        """Outside traces there is nothing to do."""
        return arrays[0]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        return operands[0]

    def jvp(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: object
    ) -> Any:
        return self.bind(primals[0]), None

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: object
    ) -> tuple[Any, Any]:
        return self.bind(args[0]), dims[0]


@final
class AddOfUsers(Primitive):
    """The sum of two tangents of a type of users, which says how they are added."""

    name = "add_of_users"
    cost = Cost.OTHER
    makes_nan = False

    def abstract_eval(self, *avals: Any, **params: object) -> Any:
        return avals[0]

    def low(self, args: Sequence[Any], outs: Sequence[Any], **params: Any) -> Any:
        return outs[0].vspace_add(*args)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        raise InternalError("a sum of values of users reached the lowering")

    def jvp(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: object
    ) -> Any:
        given = [t for t in tangents if t is not None]
        return self.bind(*primals), given[0] if len(given) == 1 else self.bind(*given)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [ct if is_linear_input(a) else None for a in args]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[Any], **params: object
    ) -> tuple[Any, Any]:
        if dims[0] != dims[1]:
            raise AxisSpecError(f"vmap: two tangents are mapped as {dims[0]} and {dims[1]}")
        return self.bind(*args), dims[0]


@final
class StopGradient(_Undifferentiated):
    """The identity with a derivative of zero. On tangents it is the linear identity that it is."""

    name = "stop_gradient"
    cost = Cost.FREE
    makes_nan = False

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [ct]


@final
class Unchosen(_Undifferentiated):
    """Operands of a branch that runs though its results are thrown away.

    Nothing comes back from there: cotangents of tangents are zero too, not 0 times whatever the
    branch makes of values that it is not made for.
    """

    name = "unchosen"
    cost = Cost.OTHER
    makes_nan = False

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [None]


add_of_users_p = AddOfUsers()
stop_gradient_p = StopGradient()
unchosen_p = Unchosen()


def stop_gradient(x: object) -> Any:
    """``x`` itself, as a constant for differentiation.

    Args:
        x: pytree of arrays and numbers; leaves that carry no derivative are left alone.

    >>> import tracebridge as tb
    >>> tb.grad(lambda x: x * tb.lax.stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return tree.map(_stop, x)


def _stop(leaf: object) -> Any:
    if is_float0(leaf):
        return leaf
    value = as_value(leaf)
    return stop_gradient_p.bind(value) if is_inexact(value.aval.dtype) else leaf
