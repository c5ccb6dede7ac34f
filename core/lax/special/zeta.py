"""Hurwitz' zeta function and the derivatives of digamma, which are multiples of it.

CHLO's expansions stop before their sums have come to their tails: below about -9, and where the
exponent and the shift are both large. These sums of Euler and Maclaurin are relative to their first
term, so that neither it nor a factorial before it overflows or vanishes alone.

Sums over all whole numbers do not change when their argument moves by one: they lead from a
negative argument to its distances from the whole numbers beside it.

Source: NIST DLMF 2.10, 5.11, 5.15 and 25.11.
"""

from __future__ import annotations

__all__ = ["polygamma", "polygamma_p", "zeta", "zeta_p"]

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_float
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.lax.elementwise.cpu_lowerings import horner
from tracebridge.core.lax.families import BinaryElementwise, operands
from tracebridge.core.lax.special import zeta_slopes

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Operand, Value

_F32 = np.dtype(np.float32)
_COUNT = ShapedArray((), np.dtype(np.int32))
_FLAG = ShapedArray((), np.dtype(np.bool_))
_TERMS = 10
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip
# Of Euler and Maclaurin's sum, and of the logarithm of Stirling's.
_TAIL = [b / math.factorial(2 * k) for k, b in enumerate(_BERNOULLI, 1)]
_STIRLING = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI[:8], 1)][::-1]
_STIRLING_FROM = 10.0


def _term(k: Value, s: Value, q: Value) -> Any:
    """Term ``k`` over the first, counted from the smallest that is needed."""
    ratio = lax.div(lax.convert_dtype(lax.sub(np.int32(_TERMS), k), q.aval.dtype), q)
    return lax.exp(lax.neg(lax.mul(s, lax.log1p(ratio))))


def _sum(k: Value, total: Value, term: Value) -> Any:
    return lax.select(lax.eq(k, np.int32(0)), total, lax.add(total, term))


def _first(k: Value, weight: Value, term: Value) -> Any:
    return lax.select(lax.eq(k, np.int32(0)), term, weight)


def _relative_sum(total: Value, weight: Value, s: Value, q: Value) -> tuple[Any, Any]:
    """``q**s`` times the sum of ``(q + n)**-s`` from ``n = 1`` on; the second part is over ``q``.

    Large ``q`` times it would overflow. ``total`` is the sum of the next terms over the first,
    ``weight`` is the one after them.
    """
    w = lax.add(q, float(_TERMS))
    # Where it counts, s is not much larger than w: there the powers would overflow.
    s_ = lax.select(lax.lt(s, lax.mul(w, 8.0)), s, lax.full_like(s, 0.0))
    inverse = lax.div(1.0, w)
    square = lax.mul(inverse, inverse)
    *rest, last = _TAIL if finfo(q.aval.dtype).bits > 32 else _TAIL[:6]
    tail: Any = lax.full_like(q, last)
    for k in range(len(rest), 0, -1):
        growth = lax.mul(lax.add(s_, 2.0 * k - 1.0), lax.add(s_, 2.0 * k))
        tail = lax.add(lax.mul(tail, lax.mul(growth, square)), rest[k - 1])
    tail = lax.add(lax.mul(tail, lax.mul(s_, inverse)), 0.5)
    # w / (s - 1) is q (1 + 10 / q) / (s - 1).
    small = lax.lt(q, 1.0)
    share = lax.div(weight, lax.sub(s, 1.0))
    near = lax.mul(share, lax.select(small, w, lax.full_like(w, _TERMS)))
    far = lax.select(small, lax.full_like(share, 0.0), share)
    return lax.add(lax.add(total, lax.mul(weight, tail)), near), far


def _times_sum(root: Value, total: Value, weight: Value, s: Value, q: Value) -> Any:
    """``root``, which may be infinite, times the sum."""
    near, far = _relative_sum(total, weight, s, q)
    # An infinite number times what has vanished.
    parts = [lax.mul(root, near), lax.mul(lax.mul(root, q), far)]
    zero = lax.full_like(q, 0.0)
    both = zip((near, far), parts, strict=True)
    first, second = [lax.select(lax.eq(p, 0.0), zero, v) for p, v in both]
    return lax.add(root, lax.add(first, second))


def _of_positive(total: Value, weight: Value, s: Value, q: Value) -> Any:
    """Of positive ``q`` and ``s > 1``."""
    # Where it may vanish, the power by halves: the product may be a number where it is none.
    small = lax.lt(q, 1.0)
    root = lax.pow(q, lax.mul(s, lax.select(small, lax.full_like(q, -1.0), lax.full_like(q, -0.5))))
    value = _times_sum(root, total, weight, s, q)
    value = lax.select(small, value, lax.mul(value, root))
    value = lax.select(lax.eq(s, math.inf), lax.pow(q, lax.neg(s)), value)
    return lax.select(lax.eq(q, math.inf), lax.full_like(q, 0.0), value)


def _of_positive_by_factorial(total: Value, weight: Value, s: Value, q: Value) -> Any:
    """Times ``gamma(s)``, of positive ``q`` and whole ``s > 1``."""
    factorial: Any = lax.full_like(s, 1.0)
    for k in range(2, int(_STIRLING_FROM) - 1):
        factor = lax.select(lax.gt(s, float(k)), lax.full_like(s, k), lax.full_like(s, 1.0))
        factorial = lax.mul(factorial, factor)
    large = lax.ge(s, _STIRLING_FROM)
    s_ = lax.select(large, s, lax.full_like(s, _STIRLING_FROM))
    inverse = lax.div(1.0, s_)
    rest = lax.exp(lax.mul(inverse, horner(lax.mul(inverse, inverse), _STIRLING)))
    stirling = lax.mul(lax.mul(lax.sqrt(inverse), rest), math.sqrt(2.0 * math.pi))
    # Halves again; (s / (e q))**s in parts whose errors do not grow with s.
    half = lax.mul(s, 0.5)
    base = lax.select(large, lax.div(lax.mul(s_, 0.5), q), lax.div(1.0, q))
    root = lax.pow(base, half)
    decay = lax.exp(lax.mul(s_, 0.5 * math.log(2.0) - 0.5))
    root = lax.select(large, lax.mul(root, decay), root)
    factor = lax.select(large, stirling, factorial)
    value = lax.mul(lax.mul(_times_sum(root, total, weight, s, q), factor), root)
    return lax.select(lax.eq(q, math.inf), lax.full_like(q, 0.0), value)


def _is_whole(x: Value) -> Any:
    return lax.eq(x, lax.floor(x))


def _is_even(s: Value) -> Any:
    half = lax.mul(s, 0.5)
    return lax.eq(half, lax.floor(half))


def _is_turned(s: Value, q: Value) -> Any:
    """Where both sides of 0 are needed."""
    below = lax.bitwise_and(lax.lt(q, 0.0), lax.bitwise_not(_is_whole(q)))
    order = lax.bitwise_and(_is_whole(s), lax.gt(s, 1.0))
    return lax.bitwise_and(order, lax.bitwise_and(below, lax.gt(q, -math.inf)))


def _sums(s: Value, q: Value) -> Any:
    """How many sums are needed."""
    some = lax.reduce_or_p.bind(_is_turned(s, q), axes=tuple(range(q.aval.ndim)))
    return lax.select(some, np.int32(3), np.int32(1))


def _place(k: Value, s: Value, q: Value) -> Any:
    """Where sum ``k`` starts."""
    first, second = lax.eq(k, np.int32(0)), lax.eq(k, np.int32(1))
    turned, one = _is_turned(s, q), lax.full_like(q, 1.0)
    # Of the terms below 0 those from the first on, less those that there are not.
    below = lax.select(second, lax.sub(lax.ceil(q), q), lax.sub(one, q))
    above = lax.select(turned, lax.sub(q, lax.floor(q)), q)
    place = lax.select(first, above, lax.select(turned, below, one))
    return lax.select(lax.gt(place, 0.0), place, one)


def _signed(k: Value, part: Value, s: Value, q: Value) -> Any:
    """Sum ``k`` as it counts."""
    value = lax.select(lax.eq(k, np.int32(1)), part, lax.neg(part))
    value = lax.select(_is_even(s), value, lax.neg(value))
    value = lax.select(_is_turned(s, q), value, lax.full_like(q, 0.0))
    return lax.select(lax.eq(k, np.int32(0)), part, value)


def _again(k: Value, x: Value) -> Any:
    """``x`` by a zero of each step of a loop: else XLA computes parts outside, as more arrays."""
    return lax.add(x, lax.convert_dtype(lax.min(k, np.int32(0)), x.aval.dtype))


def _inside(s: Value) -> Any:
    """The exponent, or one for which there is a sum."""
    return lax.select(lax.gt(s, 1.0), s, lax.full_like(s, 2.0))


def _with_ends(s: Value, q: Value, inside: Any, of_whole: bool) -> Any:
    """``inside``, or what there is at poles and outside."""
    nan, inf = lax.full_like(q, math.nan), lax.full_like(q, math.inf)
    whole_s, whole_q, below = _is_whole(s), _is_whole(q), lax.le(q, 0.0)
    # At poles of even orders both sides go to infinity. Fractional powers are of positive numbers.
    open_end = lax.bitwise_and(lax.eq(q, 0.0), lax.bitwise_not(whole_s))
    pole = lax.bitwise_and(whole_q, lax.bitwise_or(lax.bitwise_and(whole_s, _is_even(s)), open_end))
    pole = lax.bitwise_and(pole, lax.gt(q, -math.inf))
    nowhere = lax.bitwise_or(lax.bitwise_not(whole_s), whole_q)
    value = lax.select(lax.bitwise_and(below, nowhere), lax.select(pole, inf, nan), inside)
    value = lax.select(lax.ne(q, q), nan, value)
    value = lax.select(lax.gt(s, 1.0), value, nan)
    if of_whole:
        return lax.select(whole_s, value, nan)
    return lax.select(lax.eq(s, 1.0), inf, value)


def _zeta_ends(s: Value, q: Value, inside: Value) -> Any:
    return _with_ends(s, q, inside, of_whole=False)


def _polygamma_ends(s: Value, q: Value, inside: Value) -> Any:
    # The sign is that of the derivatives of 1 / q; at infinity it is 0 of any order.
    signed = lax.select(_is_even(s), inside, lax.neg(inside))
    value = _with_ends(s, q, signed, of_whole=True)
    level = lax.bitwise_and(lax.gt(s, 1.0), lax.eq(q, math.inf))
    value = lax.select(level, lax.full_like(q, 0.0), value)
    return lax.select(lax.eq(s, 1.0), lax.digamma(q), value)


def _next_order(m: Value) -> Any:
    return lax.add(m, 1.0)


def _exponent(s: Value) -> Any:
    return s


def _call(
    ctx: LoweringContext, function: Callable[..., Any], xs: Sequence[Any], aval: ShapedArray
) -> Any:
    """Call a composition of values of one aval."""
    return ctx.call_fun(function, function, xs, [aval] * len(xs), function.__name__)[0]


def _call_at(
    ctx: LoweringContext,
    function: Callable[..., Any],
    k: IrValue,
    xs: Sequence[Any],
    aval: ShapedArray,
) -> Any:
    """Likewise, with a number of a step before the values."""
    avals = [_COUNT, *[aval] * len(xs)]
    return ctx.call_fun(function, function, [k, *xs], avals, function.__name__)[0]


def _counted(
    ctx: LoweringContext,
    count: IrValue,
    start: Sequence[IrValue],
    aval: ShapedArray,
    step: Callable[[Sequence[IrValue]], list[Any]],
) -> list[Any]:
    """A loop over ``count`` numbers; ``step(values)`` gets the number before the other values."""

    def more(values: Sequence[IrValue]) -> Any:
        return ctx.compare(values[0], count, _FLAG, "LT")

    def body(values: Sequence[IrValue]) -> list[Any]:
        following = ctx.op1("stablehlo.add", [values[0], ctx.splat(1, _COUNT)], _COUNT)
        return [following, *step(values)]

    avals = [_COUNT, *[aval] * len(start)]
    return ctx.while_loop([ctx.splat(0, _COUNT), *start], avals, more, body)[1:]


def _first_terms(ctx: LoweringContext, s: IrValue, q: IrValue, aval: ShapedArray) -> list[Any]:
    """The sum of the first terms, and the next one. In a loop: XLA compiles one exponential."""

    def add(values: Sequence[IrValue]) -> list[Any]:
        k, total, weight = values
        term = _call_at(ctx, _term, k, [s, q], aval)
        return [_call_at(ctx, f, k, [v, term], aval) for f, v in ((_sum, total), (_first, weight))]

    zero = ctx.splat(0.0, aval)
    return _counted(ctx, ctx.splat(_TERMS, _COUNT), [zero, zero], aval, add)


class OfSecond(BinaryElementwise):
    """Two float operands; differentiable in the second one, where nothing else is said."""

    cost = Cost.EXPENSIVE
    accepts = staticmethod(is_float)
    accepts_text = "floats"
    # Of values: the exponent of the sums, one from its first terms, and the result with its ends.
    exponent: ClassVar[Callable[..., Any]]
    of_positive: ClassVar[Callable[..., Any]]
    ends: ClassVar[Callable[..., Any]]

    def recipe(self, *avals: ShapedArray, **params: Any) -> tuple[str, Any] | None:
        return None

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        out = ctx.aval_out.strong
        aval = out if finfo(out.dtype).bits >= 32 else out.update(dtype=_F32)
        order, place = xs if aval is out else [ctx.convert(x, aval) for x in xs]
        order = _call(ctx, type(self).exponent, [order], aval)
        exponent = _call(ctx, _inside, [order], aval)

        def add(values: Sequence[IrValue]) -> list[Any]:
            k, total = values
            s, x, inside = [_call_at(ctx, _again, k, [v], aval) for v in (order, place, exponent)]
            q = _call_at(ctx, _place, k, [s, x], aval)
            part = _call(
                ctx, type(self).of_positive, [*_first_terms(ctx, inside, q, aval), inside, q], aval
            )
            return [
                ctx.op1(
                    "stablehlo.add", [total, _call_at(ctx, _signed, k, [part, s, x], aval)], aval
                )
            ]

        count = _call(ctx, _sums, [order, place], aval)
        (total,) = _counted(ctx, count, [ctx.splat(0.0, aval)], aval, add)
        value = _call(ctx, type(self).ends, [order, place, total], aval)
        return value if aval is out else ctx.convert(value, out)

    def partial(self, i: int, t: Any, ans: Value, x: Operand, y: Operand, **params: object) -> Any:
        if i == 0:
            msg = f"{self.name} has no derivative in its first argument"
            raise MissingRuleError(self.name, "jvp", message=msg)
        return lax.mul(t, self.slope(x, y))

    def slope(self, x: object, y: object) -> Any:
        """The derivative in the second operand."""
        raise MissingRuleError(self.name, "jvp")


@final
class Polygamma(OfSecond):
    """The derivative of order m (the first operand) of digamma."""

    name = "polygamma"
    exponent = staticmethod(_next_order)
    of_positive = staticmethod(_of_positive_by_factorial)
    ends = staticmethod(_polygamma_ends)

    def slope(self, x: Any, y: Any) -> Any:
        return lax.polygamma(lax.add(x, 1.0), y)


@final
class Zeta(OfSecond):
    """The sum of (q + n)**(-x)."""

    name = "zeta"
    exponent = staticmethod(_exponent)
    of_positive = staticmethod(_of_positive)
    ends = staticmethod(_zeta_ends)

    def partial(self, i: int, t: Any, ans: Value, x: Any, y: Any, **params: object) -> Any:
        if i == 0:
            return lax.mul(t, zeta_slopes.slope_in_exponent(x, y, _TERMS, _TAIL))
        return super().partial(i, t, ans, x, y, **params)

    def slope(self, x: Any, y: Any) -> Any:
        return lax.mul(lax.neg(x), lax.zeta(lax.add(x, 1.0), y))


polygamma_p = Polygamma()
zeta_p = Zeta()


def polygamma(m: object, x: Operand) -> Any:
    """Derivative of order ``m`` of ``digamma`` at ``x``, elementwise.

    Of positive numbers accurate to ``10 + m`` units in the last place; of negative ones to as many
    of the largest of the terms, which change their signs where ``m`` is even.

    Args:
        m: order, a float that holds an integer; 0 gives ``digamma``.
        x: float array. Differentiable.

    >>> import tracebridge as tb
    >>> float(tb.lax.polygamma(1.0, 1.0))
    1.644934
    """
    return polygamma_p.bind(*operands("polygamma", m, x))


def zeta(x: Operand, q: object) -> Any:
    """Hurwitz zeta function, the sum of ``(q + n) ** -x`` over ``n = 0, 1, ...``, elementwise.

    Of positive ``q`` accurate to 3 units in the last place.

    Args:
        x: exponent, above 1. Differentiable where ``q`` is positive.
        q: shift, below 0 where ``x`` is a whole number. Differentiable.

    >>> import tracebridge as tb
    >>> float(tb.lax.zeta(2.0, 1.0))
    1.644934
    """
    return zeta_p.bind(*operands("zeta", x, q))
