"""pad: elements around and between those of an array; negative padding cuts."""

from __future__ import annotations

__all__ = ["pad", "pad_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import same_along_others
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.batch_util import broadcast_batch
from tracebridge.core.lax.families import operands
from tracebridge.core.lax.shape.axes import as_dims, surely_less
from tracebridge.core.mlir.attrs import i64_array
from tracebridge.core.symbolic.dims import max_dim

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


@final
class Pad(Primitive):
    """``padding_config``: per axis elements before, after and between the operand's elements."""

    name = "pad"
    cost = Cost.MOVES_DATA
    makes_nan = False
    moves_elements = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        x, value = avals
        config = params["padding_config"]
        if value.ndim:
            msg = f"pad: padding_value must be a scalar, got {value.str_short()}"
            raise RankError(msg)
        if value.dtype != x.dtype:
            msg = (
                f"pad: operand and padding_value need the same dtype, got {x.str_short()} and "
                f"{value.str_short()}"
            )
            raise DtypeMismatchError(msg)
        if len(config) != x.ndim:
            msg = (
                f"pad: padding_config has {len(config)} entries, expected one for each axis of "
                f"{x.str_short()}"
            )
            raise RankError(msg)
        shape: list[Any] = []
        for axis, (n, (low, high, interior)) in enumerate(zip(x.shape, config, strict=True)):
            if type(interior) is int and interior < 0:
                msg = (
                    "pad: interior padding in padding_config must be nonnegative, got "
                    f"{interior} for axis {axis}"
                )
                raise ShapeMismatchError(msg)
            size = low + high + n + _gaps(n) * interior if interior != 0 else low + high + n
            if surely_less(size, 0):
                msg = (
                    f"pad: padding {(low, high, interior)} leaves {size} elements of axis {axis} "
                    f"of shape {x.shape}, expected at least 0"
                )
                raise ShapeMismatchError(msg)
            shape.append(size)
        return result_aval(avals, shape)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del params
        return [same_along_others("padding", avals[0], outs[0].shape)]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        # A scalar has no axes to pad, so that there are no triples to take apart.
        parts = tuple(zip(*params["padding_config"], strict=True)) or ((), (), ())
        low, high, interior = parts
        if all([type(n) is int for part in parts for n in part]):
            attributes = {
                "edge_padding_low": i64_array(low),
                "edge_padding_high": i64_array(high),
                "interior_padding": i64_array(interior),
            }
            return ctx.op1("stablehlo.pad", operands, ctx.aval_out, attributes)
        tensors = [ctx.shape_tensor(part) for part in parts]
        return ctx.op1("stablehlo.dynamic_pad", [*operands, *tensors], ctx.aval_out)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        parts = [
            zeros_of(p.aval.tangent) if t is None else t
            for p, t in zip(primals, tangents, strict=True)
        ]
        return self.bind(*primals, **params), self.bind(*parts, **params)

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, value = args
        config = params["padding_config"]
        undo = tuple([(-low, -high, 0) for low, high, _ in config])
        inner = lax.pad(ct, full_of(ct.aval.update(shape=()), 0), undo)
        if any([interior != 0 for _, _, interior in config]):
            strides = tuple([interior + 1 for _, _, interior in config])
            inner = lax.slice(inner, (0,) * len(config), inner.aval.shape, strides)
            inner = with_sizes(inner, x.aval.shape)
        ct_x = inner if is_linear_input(x) else None
        if not is_linear_input(value):
            return [ct_x, None]
        axes = tuple(range(len(config)))
        return [ct_x, lax.sub(lax.reduce_sum(ct, axes), lax.reduce_sum(inner, axes))]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x, value), (d, value_dim) = args, dims
        config = params["padding_config"]
        if d is None:
            x, d = broadcast_batch(x, ctx.size, 0), 0
        config = (*config[:d], (0, 0, 0), *config[d:])
        if value_dim is None:
            return self.bind(x, value, padding_config=config), d
        # One padding value per element of the batch: mark what is padded, then choose.
        zero = zeros_of(value.aval.update(shape=()))
        padded = self.bind(x, zero, padding_config=config)
        inside = full_of(x.aval.update(dtype=bool, weak_type=False), True)
        outside = full_of(ShapedArray((), bool), False)
        mask = self.bind(inside, outside, padding_config=config)
        values = lax.broadcast_in_dim(value, padded.aval.shape, (d,))
        return lax.select_n(mask, values, padded), d


def with_sizes(x: Value, shape: Sequence[Any]) -> Any:
    """``x`` with its sizes written as in ``shape``: equal for all values of their variables.

    ``floordiv(3*n - 2, 3)`` is ``n - 1`` where n is not 0, say, which nobody proves.
    """
    if x.aval.shape == tuple(shape):
        return x
    # The difference, of no elements, is added.
    rest = tuple([(0, n - m, 0) for n, m in zip(shape, x.aval.shape, strict=True)])
    return lax.pad(x, full_of(x.aval.update(shape=()), 0), rest)


def _gaps(n: Any) -> Any:
    """How many places there are between ``n`` elements."""
    return max(n - 1, 0) if type(n) is int else max_dim(n - 1, 0)


pad_p = Pad()


def pad(
    operand: Operand, padding_value: Operand, padding_config: Sequence[tuple[int, int, int]]
) -> Any:
    """``operand`` with elements of ``padding_value`` around and between its own.

    Args:
        operand: an array of ``n`` axes.
        padding_value: scalar of the same dtype.
        padding_config: ``n`` triples ``(low, high, interior)``: how many elements go before the
            first, after the last, and between neighbours. Negative ``low`` and ``high`` cut
            elements off, after those between have been put in.

    Raises:
        DtypeMismatchError: the padding value has another dtype.
        ShapeMismatchError: the configuration does not fit, or cuts more than there is.

    >>> import tracebridge as tb
    >>> tb.lax.pad(tb.numpy.array([1, 2, 3]), 0, [(-1, 2, 1)]).tolist()
    [0, 2, 0, 3, 0, 0]
    """
    x, value = operands("pad", operand, padding_value)
    config = tuple([_triple(entry) for entry in padding_config])
    return pad_p.bind(x, value, padding_config=config)


def _triple(entry: Sequence[object]) -> tuple[Any, ...]:
    triple = as_dims(entry)
    if len(triple) != 3:
        msg = f"pad: padding_config needs (low, high, interior) for each axis, got {triple}"
        raise ShapeMismatchError(msg)
    return triple
