"""Comparisons: eq, ne, lt, le, gt, ge, and the total order of floats."""

from __future__ import annotations

__all__ = [
    "eq", "eq_p", "eq_to_p", "ge", "ge_p", "gt", "gt_p", "le", "le_p", "le_to_p", "lt", "lt_p",
    "lt_to_p", "ne", "ne_p",
]  # fmt: skip

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, final

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_bool, is_complex, is_extended, is_float, is_unsigned
from tracebridge.core.ir.aval import ShapedArray, stored
from tracebridge.core.lax.families import Comparison, operands
from tracebridge.core.mlir.attrs import comparison

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value


class Compare(Comparison):
    """One ``stablehlo.compare``."""

    hlo = "stablehlo.compare"
    # Floats by the total order -NaN < -inf < ... < -0 < 0 < ... < inf < NaN.
    total: ClassVar[bool] = False

    def attributes(self, *avals: ShapedArray, **params: object) -> dict[str, Any] | None:
        dtype = avals[0].dtype
        if is_float(dtype):
            kind = "TOTALORDER" if self.total else "FLOAT"
        elif is_complex(dtype):
            kind = "FLOAT"
        else:
            kind = "UNSIGNED" if is_unsigned(dtype) or is_bool(dtype) else "SIGNED"
        return comparison(self.direction, kind)

    def lower(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        if not is_extended(ctx.avals_in[0].dtype):
            return super().lower(ctx, *xs, **params)
        same = partial(_same_blocks, shape=ctx.aval_out.shape)
        equal = ctx.lower_fun(same, *xs, avals_in=[stored(a) for a in ctx.avals_in])[0]
        return equal if self.direction == "EQ" else ctx.op1("stablehlo.not", [equal], ctx.aval_out)


def _same_blocks(x: Value, y: Value, shape: tuple[Any, ...]) -> Any:
    """Whether elements of an extended dtype, such as keys, are stored as the same blocks."""
    whole = (*shape, x.aval.shape[-1])
    blocks: list[Any] = []
    for v in (x, y):
        # A scalar among arrays is compared with each element.
        dims = tuple(range(len(whole) - v.aval.ndim, len(whole)))
        blocks.append(v if v.aval.shape == whole else lax.broadcast_in_dim(v, whole, dims))
    return lax.reduce_and_p.bind(lax.eq(*blocks), axes=(len(shape),))


class Order(Compare):
    """A comparison that needs an order, which complex numbers and keys have not."""

    accepts_text = "booleans, integers and floats"

    @staticmethod
    def accepts(dtype: DTypeLike) -> bool:
        """Every dtype but the complex and the extended ones."""
        return not (is_complex(dtype) or is_extended(dtype))


@final
class Eq(Compare):
    name = "eq"
    direction = "EQ"


@final
class Ne(Compare):
    name = "ne"
    direction = "NE"


@final
class Lt(Order):
    name = "lt"
    direction = "LT"


@final
class Le(Order):
    name = "le"
    direction = "LE"


@final
class Gt(Order):
    name = "gt"
    direction = "GT"


@final
class Ge(Order):
    name = "ge"
    direction = "GE"


@final
class EqTotal(Order):
    name = "eq_to"
    direction = "EQ"
    total = True


@final
class LtTotal(Order):
    name = "lt_to"
    direction = "LT"
    total = True


@final
class LeTotal(Order):
    name = "le_to"
    direction = "LE"
    total = True


eq_p = Eq()
ne_p = Ne()
lt_p = Lt()
le_p = Le()
gt_p = Gt()
ge_p = Ge()
eq_to_p = EqTotal()
lt_to_p = LtTotal()
le_to_p = LeTotal()


def eq(x: Any, y: Operand) -> Any:
    """``x == y``, elementwise.

    >>> import tracebridge as tb
    >>> bool(tb.lax.eq(2, 2))
    True
    """
    return eq_p.bind(*operands("eq", x, y))


def ne(x: Any, y: Any) -> Any:
    """``x != y``, elementwise.

    >>> import tracebridge as tb
    >>> bool(tb.lax.ne(2, 2))
    False
    """
    return ne_p.bind(*operands("ne", x, y))


def lt(x: Any, y: Operand) -> Any:
    """``x < y``, elementwise, of real numbers.

    >>> import tracebridge as tb
    >>> bool(tb.lax.lt(2, 3))
    True
    """
    return lt_p.bind(*operands("lt", x, y))


def le(x: Operand, y: Operand) -> Any:
    """``x <= y``, elementwise, of real numbers.

    >>> import tracebridge as tb
    >>> bool(tb.lax.le(2, 2))
    True
    """
    return le_p.bind(*operands("le", x, y))


def gt(x: Any, y: Operand) -> Any:
    """``x > y``, elementwise, of real numbers.

    >>> import tracebridge as tb
    >>> bool(tb.lax.gt(2, 3))
    False
    """
    return gt_p.bind(*operands("gt", x, y))


def ge(x: Operand, y: Operand) -> Any:
    """``x >= y``, elementwise, of real numbers.

    >>> import tracebridge as tb
    >>> bool(tb.lax.ge(2, 3))
    False
    """
    return ge_p.bind(*operands("ge", x, y))


def eq_to(x: Operand, y: Operand) -> Any:
    """``x == y``, elementwise, in the total order of floats: NaN equals NaN, -0 is not 0.

    >>> import tracebridge as tb
    >>> bool(tb.lax.eq_to(0.0, -0.0))
    False
    """
    return eq_to_p.bind(*operands("eq_to", x, y))


def lt_to(x: Operand, y: Operand) -> Any:
    """``x < y``, elementwise, in the total order of floats: -0 < 0, and NaN comes last.

    >>> import tracebridge as tb
    >>> bool(tb.lax.lt_to(-0.0, 0.0))
    True
    """
    return lt_to_p.bind(*operands("lt_to", x, y))


def le_to(x: Operand, y: Operand) -> Any:
    """``x <= y``, elementwise, in the total order of floats.

    >>> import tracebridge as tb
    >>> bool(tb.lax.le_to(0.0, -0.0))
    False
    """
    return le_to_p.bind(*operands("le_to", x, y))
