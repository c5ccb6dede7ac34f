"""Arrays made of sizes: iota, and symbolic dimensions as values."""

from __future__ import annotations

__all__ = ["broadcasted_iota", "iota", "iota_p", "shape_as_value"]

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit, default_int
from tracebridge.core.dtypes.dtypes import is_bool
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import AxisError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import register_value_type
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.shape.axes import as_shape
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.symbolic.answers import no_value
from tracebridge.core.symbolic.dims import DimExpr

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


_I32 = np.dtype(np.int32)


class _OfSizes(Primitive):
    """No operands, so there is nothing to differentiate, transpose or batch."""

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return self.bind(**params), None

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return []

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        return self.bind(**params), None


@final
class Iota(_OfSizes):
    """Positions along ``dimension`` in an array of ``shape`` and ``dtype``."""

    name = "iota"
    cost = Cost.FREE
    makes_nan = False

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        shape, axis, dtype = params["shape"], params["dimension"], params["dtype"]
        if is_bool(dtype):
            msg = "iota: dtype must be an integer, floating or complex dtype, got bool"
            raise UnsupportedDtypeError(msg)
        if not 0 <= axis < len(shape):
            msg = (
                f"broadcasted_iota: dimension {axis} is out of bounds for shape {shape}, "
                f"expected 0 <= dimension < {len(shape)}"
            )
            raise AxisError(msg)
        return ShapedArray(shape, dtype)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.iota(ctx.aval_out, params["dimension"])


@final
class DimensionSize(_OfSizes):
    """A symbolic dimension ``dim`` as a scalar of ``dtype``."""

    name = "dimension_size"
    cost = Cost.OTHER

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        return ShapedArray((), params["dtype"], "weak_type" in params)

    def evaluate(self, arrays: Sequence[object], **params: Any) -> Any:
        """Outside traces a size has no value."""
        raise no_value(str(params["dim"]))

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        size = ctx.dim(params["dim"])
        return size if params["dtype"] == _I32 else ctx.convert(size, ctx.aval_out)


iota_p = Iota()
dimension_size_p = DimensionSize()


def iota(dtype: DTypeLike, size: int) -> Any:
    """The numbers 0 to ``size - 1``.

    Args:
        dtype: an integer, floating or complex dtype.
        size: how many.

    >>> import tracebridge as tb
    >>> tb.lax.iota("int32", 3).tolist()
    [0, 1, 2]
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(
    dtype: DTypeLike, shape: object, dimension: int, *, out_sharding: object = None
) -> Any:
    """Positions along one axis of an array.

    Args:
        dtype: an integer, floating or complex dtype.
        shape: shape of the result.
        dimension: the axis, in ``[0, len(shape))``.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        UnsupportedDtypeError: bool has no positions.

    >>> import tracebridge as tb
    >>> tb.lax.broadcasted_iota("int32", (2, 3), 1).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    out = iota_p.bind(
        dtype=canonicalize_explicit(dtype, "iota"),
        shape=as_shape("iota", shape),
        dimension=operator.index(dimension),
    )
    if out_sharding is not None:
        return constrained_result("broadcasted_iota", out, out_sharding)
    return out


def iota_of(dtype: DTypeLike, shape: tuple[object, ...], axis: int) -> Any:
    """Positions along ``axis``, in the dtype of an array that exists: no 64-bit rule for it."""
    return iota_p.bind(dtype=dtype, shape=shape, dimension=axis)


def dimension_size(dim: object, like: Any = None) -> Any:
    """A dimension as a scalar, of the dtype of ``like`` (an array or dtype; default: int)."""
    dtype = default_int() if like is None else np.dtype(getattr(like, "dtype", like))
    if type(dim) is int:
        return literal(dim, dtype)
    return dimension_size_p.bind(dim=dim, dtype=dtype)


def shape_as_value(shape: object) -> Any:
    """``shape`` as an integer array of rank 1.

    >>> import tracebridge as tb
    >>> tb.lax.shape_as_value((2, 3)).tolist()
    [2, 3]
    """
    dims = as_shape("shape_as_value", shape)
    if not dims:
        return lax.full((0,), 0, default_int())
    return lax.concatenate([lax.reshape(dimension_size(d), (1,)) for d in dims], 0)


def size_value(dim: object) -> Any:
    """A dimension as an operand: weakly typed, as Python integers are."""
    return dimension_size_p.bind(dim=dim, dtype=default_int(), weak_type=True)


_OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


def array_operation(symbol: str, left: Any, right: Any) -> Any:
    """An operation of a dimension and a number or an array, on arrays."""
    a, b = [size_value(x) if isinstance(x, DimExpr) else x for x in (left, right)]
    return _OPERATORS[symbol](a, b)


# A symbolic size may stand wherever a number may: ``x / x.shape[0]``.
register_value_type(DimExpr, size_value)
