"""Operations on bits: not, and, or, xor, shifts, population_count, clz."""

from __future__ import annotations

__all__ = [
    "and_p", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "clz", "clz_p", "not_p",
    "or_p", "population_count", "population_count_p", "shift_left", "shift_left_p",
    "shift_right_arithmetic", "shift_right_arithmetic_p", "shift_right_logical",
    "shift_right_logical_p", "xor_p",
]  # fmt: skip

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.dtypes.dtypes import is_integer
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.accepted_dtypes import is_bits
from tracebridge.core.lax.families import BinaryElementwise, UnaryElementwise, operands

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand


class BitsUnary(UnaryElementwise):
    """One operand of an integer dtype."""

    cost = Cost.CHEAP
    accepts = staticmethod(is_integer)
    accepts_text = "integers"
    differentiable = False


class Logical(BinaryElementwise):
    """Two operands of an integer dtype, or booleans."""

    cost = Cost.CHEAP
    accepts = staticmethod(is_bits)
    accepts_text = "integers and booleans"
    differentiable = False


class Shift(BinaryElementwise):
    """Two integer operands; distances outside the width shift everything out."""

    cost = Cost.CHEAP
    accepts = staticmethod(is_integer)
    accepts_text = "integers"
    differentiable = False


@final
class Not(BitsUnary):
    name = "not"
    public = "bitwise_not"
    hlo = "stablehlo.not"
    accepts = staticmethod(is_bits)
    accepts_text = "integers and booleans"


@final
class PopulationCount(BitsUnary):
    name = "population_count"
    hlo = "stablehlo.popcnt"


@final
class Clz(BitsUnary):
    name = "clz"
    hlo = "stablehlo.count_leading_zeros"


@final
class And(Logical):
    name = "and"
    public = "bitwise_and"
    hlo = "stablehlo.and"


@final
class Or(Logical):
    name = "or"
    public = "bitwise_or"
    hlo = "stablehlo.or"


@final
class Xor(Logical):
    name = "xor"
    public = "bitwise_xor"
    hlo = "stablehlo.xor"


@final
class ShiftLeft(Shift):
    name = "shift_left"
    hlo = "stablehlo.shift_left"


@final
class ShiftRightArithmetic(Shift):
    name = "shift_right_arithmetic"
    hlo = "stablehlo.shift_right_arithmetic"


@final
class ShiftRightLogical(Shift):
    name = "shift_right_logical"
    hlo = "stablehlo.shift_right_logical"


not_p = Not()
population_count_p = PopulationCount()
clz_p = Clz()
and_p = And()
or_p = Or()
xor_p = Xor()
shift_left_p = ShiftLeft()
shift_right_arithmetic_p = ShiftRightArithmetic()
shift_right_logical_p = ShiftRightLogical()


def bitwise_not(x: Operand) -> Any:
    """All bits inverted, elementwise; logical negation of booleans.

    >>> import tracebridge as tb
    >>> int(tb.lax.bitwise_not(5)), bool(tb.lax.bitwise_not(True))
    (-6, False)
    """
    return not_p.bind(as_value(x, "bitwise_not"))


def bitwise_and(x: Operand, y: Operand) -> Any:
    """Bits that both operands have, elementwise.

    >>> import tracebridge as tb
    >>> int(tb.lax.bitwise_and(6, 3))
    2
    """
    return and_p.bind(*operands("bitwise_and", x, y))


def bitwise_or(x: Operand, y: Operand) -> Any:
    """Bits that one of the operands has, elementwise.

    >>> import tracebridge as tb
    >>> int(tb.lax.bitwise_or(6, 3))
    7
    """
    return or_p.bind(*operands("bitwise_or", x, y))


def bitwise_xor(x: Operand, y: Operand) -> Any:
    """Bits that exactly one operand has, elementwise.

    >>> import tracebridge as tb
    >>> int(tb.lax.bitwise_xor(6, 3))
    5
    """
    return xor_p.bind(*operands("bitwise_xor", x, y))


def shift_left(x: Operand, y: Operand) -> Any:
    """``x`` shifted left by ``y`` bits, elementwise; 0 if ``y`` is negative or too large.

    >>> import tracebridge as tb
    >>> int(tb.lax.shift_left(3, 2))
    12
    """
    return shift_left_p.bind(*operands("shift_left", x, y))


def shift_right_arithmetic(x: Operand, y: Operand) -> Any:
    """``x`` shifted right by ``y`` bits, elementwise, filled with the sign bit.

    >>> import tracebridge as tb
    >>> int(tb.lax.shift_right_arithmetic(-8, 1))
    -4
    """
    return shift_right_arithmetic_p.bind(*operands("shift_right_arithmetic", x, y))


def shift_right_logical(x: Operand, y: Operand) -> Any:
    """``x`` shifted right by ``y`` bits, elementwise, filled with zeros.

    >>> import tracebridge as tb
    >>> int(tb.lax.shift_right_logical(-8, 1))
    2147483644
    """
    return shift_right_logical_p.bind(*operands("shift_right_logical", x, y))


def population_count(x: Operand) -> Any:
    """The number of bits that are set, elementwise.

    >>> import tracebridge as tb
    >>> int(tb.lax.population_count(7))
    3
    """
    return population_count_p.bind(as_value(x, "population_count"))


def clz(x: Operand) -> Any:
    """The number of zero bits before the highest one, elementwise.

    >>> import tracebridge as tb
    >>> int(tb.lax.clz(1))
    31
    """
    return clz_p.bind(as_value(x, "clz"))
