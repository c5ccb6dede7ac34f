"""Elementwise primitives whose lowering is a program: operations, loops and constants.

A program is traced once per kind of operand and emitted as a function of the module, so that an
export holds nothing but StableHLO. 16-bit floats are computed in float32.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.dtypes.dtypes import is_float
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.families import Elementwise
from tracebridge.core.special.pieces import in_pieces, wants_pieces
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value

_F32 = np.dtype(np.float32)
_BOOL = np.dtype(np.bool_)
_PROGRAMS: BoundedCache[Jaxpr] = BoundedCache("programs of special functions", 512)


class Expression:
    """A value with arithmetic: formulas of many terms read like formulas.

    Numbers take the dtype of the value, comparisons give expressions of booleans.
    """

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __add__(self, other: object) -> Expression:
        return Expression(lax.add(self.value, _inner(other)))

    __radd__ = __add__

    def __mul__(self, other: object) -> Expression:
        return Expression(lax.mul(self.value, _inner(other)))

    __rmul__ = __mul__

    def __sub__(self, other: object) -> Expression:
        return Expression(lax.sub(self.value, _inner(other)))

    def __rsub__(self, other: object) -> Expression:
        return Expression(lax.sub(_inner(other), self.value))

    def __truediv__(self, other: object) -> Expression:
        return Expression(lax.div(self.value, _inner(other)))

    def __rtruediv__(self, other: object) -> Expression:
        return Expression(lax.div(_inner(other), self.value))

    def __neg__(self) -> Expression:
        return Expression(lax.neg(self.value))

    def __lt__(self, other: object) -> Expression:
        return Expression(lax.lt(self.value, _inner(other)))

    def __le__(self, other: object) -> Expression:
        return Expression(lax.le(self.value, _inner(other)))

    def __gt__(self, other: object) -> Expression:
        return Expression(lax.gt(self.value, _inner(other)))

    def __ge__(self, other: object) -> Expression:
        return Expression(lax.ge(self.value, _inner(other)))

    def __and__(self, other: object) -> Expression:
        return Expression(lax.bitwise_and(self.value, _inner(other)))

    def __or__(self, other: object) -> Expression:
        return Expression(lax.bitwise_or(self.value, _inner(other)))

    def __invert__(self) -> Expression:
        return Expression(lax.bitwise_not(self.value))

    def is_equal(self, other: object) -> Expression:
        """Where it is ``other``; ``==`` of Python asks whether objects are the same."""
        return Expression(lax.eq(self.value, _inner(other)))

    def is_nan(self) -> Expression:
        """Where it is NaN."""
        return Expression(lax.ne(self.value, self.value))

    def of(self, function: Callable[..., Any], *others: object) -> Expression:
        """``function(self, *others)``, a function of ``lax``."""
        return Expression(function(self.value, *[_inner(x) for x in others]))

    @property
    def aval(self) -> ShapedArray:
        """The aval of the value."""
        return self.value.aval

    def filled(self, number: float) -> Expression:
        """A number in the place of each element."""
        return Expression(full_of(self.aval.strong, number))

    def flags(self, flag: bool) -> Expression:
        """A boolean for each element."""
        return Expression(full_of(self.aval.strong.update(dtype=_BOOL), flag))

    def eps(self) -> float:
        """The spacing of floats above 1."""
        return float(finfo(self.aval.dtype).eps)

    def tiny(self) -> float:
        """The smallest normal float."""
        return float(finfo(self.aval.dtype).tiny)


def _inner(x: object) -> Any:
    return x.value if isinstance(x, Expression) else x


def where(which: Expression, yes: Expression | float, no: Expression | float) -> Expression:
    """``yes`` where the condition holds; one of the choices may be a number."""
    like = yes if isinstance(yes, Expression) else no
    assert isinstance(like, Expression)
    first, second = (x if isinstance(x, Expression) else like.filled(x) for x in (yes, no))
    return Expression(lax.select(which.value, first.value, second.value))


def divided(a: Expression | float, b: Expression) -> Expression:
    """``a / b`` for use in several places.

    XLA computes a quotient with several uses by a kernel of its own, compiled for 15 ms; this one
    has a single use, a choice that changes nothing.
    """
    return where(b.is_nan(), b, a / b)


def first_of(cases: list[tuple[Expression, Any]], otherwise: Expression) -> Expression:
    """The choice of the first condition that holds."""
    result = otherwise
    for which, choice in reversed(cases):
        result = where(which, choice, result)
    return result


def some(flags: Expression) -> Any:
    """Whether a condition holds anywhere, as a value."""
    return lax.reduce_or_p.bind(flags.value, axes=tuple(range(flags.aval.ndim)))


def polynomial(x: Expression, coefficients: Iterable[float | Fraction]) -> Expression:
    """Horner's rule; the constant comes first."""
    *rest, last = [float(c) for c in coefficients]
    total = x.filled(last)
    for c in reversed(rest):
        total = x * total + c
    return total


def with_derivative(
    formula: Callable[..., Expression],
    xs: Sequence[Expression],
    along: Sequence[Expression | None],
) -> tuple[Expression, Expression]:
    """A formula and the sum of its derivatives in the arguments whose flag is set.

    It is of each of its steps, through its loops. ``None`` is a flag that is never set.
    """
    avals = [x.aval.strong for x in xs]
    jaxpr = stage(lambda *vs: [formula(*map(Expression, vs)).value], avals, locate=False)
    both, _ = jvp_jaxpr(jaxpr, tuple([flag is not None for flag in along]), True)
    tangents = [where(f, x.filled(1.0), 0.0).value for f, x in zip(along, xs, strict=True) if f]
    given = [*[x.value for x in xs], *tangents]
    ans, slope = eval_jaxpr(both, current_trace().process, given)
    return Expression(ans), Expression(slope)


def _with_numbers(jaxpr: Jaxpr, xs: Sequence[Value]) -> list[Any]:
    """A program's results where some operands are numbers, which stay numbers as long as they can.

    What depends on them only, the gamma functions of a parameter and the choice of the formula, is
    computed once, not for each element.
    """
    env: list[Any] = [*xs, *jaxpr.consts]
    for app, idx in jaxpr.equations:
        primitive, given = app.primitive, [env[i] for i in idx]
        if primitive is lax.broadcast_in_dim_p and not app.avals[0].ndim:
            env.append(given[0])
            continue
        if not isinstance(primitive, Elementwise):
            given = [_full(x, aval) for x, aval in zip(given, app.avals, strict=True)]
        result = primitive.bind(*given, **app.params)
        env.extend(result if app.multiple else (result,))
    return [_full(env[i], aval) for i, aval in zip(jaxpr.outs, jaxpr.out_avals, strict=True)]


def _full(x: Value, aval: ShapedArray) -> Value:
    return x if x.aval.ndim == aval.ndim else lax.broadcast_in_dim(x, aval.shape, ())


class ByProgram(Elementwise):
    """An elementwise function of floats, lowered through a program: give ``formula``."""

    cost = Cost.EXPENSIVE
    accepts = staticmethod(is_float)
    accepts_text = "floats"

    @abc.abstractmethod
    def formula(self, *xs: Expression) -> Expression:
        """The function of operands of one shape, of float32 or float64."""

    def lower(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        aval = ctx.aval_out.strong
        are_numbers = tuple([not a.ndim for a in ctx.avals_in])
        # Loops over parts of split arrays take no numbers in their place.
        if not any(are_numbers) or not aval.ndim or aval.split is not None:
            return super().lower(ctx, *xs, **params)
        jaxpr = self._program_of_numbers(aval, are_numbers)
        jaxpr = in_pieces(jaxpr) if wants_pieces(ctx, aval) else jaxpr
        return ctx.call_jaxpr(jaxpr, xs, self.name)[0]

    def lower_full(self, ctx: LoweringContext, *xs: IrValue, **params: Any) -> Any:
        aval = ctx.aval_out.strong
        jaxpr = self._program(aval, len(xs))
        jaxpr = in_pieces(jaxpr) if wants_pieces(ctx, aval) else jaxpr
        return ctx.call_jaxpr(jaxpr, xs, self.name)[0]

    def _program(self, aval: ShapedArray, count: int) -> Jaxpr:
        key = (self, aval)
        found = _PROGRAMS.get(key)
        if found is None:
            found = stage(self._traced, [aval] * count, locate=False)
            _PROGRAMS.set(key, found)
        return found

    def _program_of_numbers(self, aval: ShapedArray, are_numbers: tuple[bool, ...]) -> Jaxpr:
        """The program with numbers among its operands, on which some of its steps depend only."""
        key = (self, aval, are_numbers)
        found = _PROGRAMS.get(key)
        if found is None:
            full = self._program(aval, len(are_numbers))
            avals = [aval.update(shape=()) if alone else aval for alone in are_numbers]
            found = stage(lambda *xs: _with_numbers(full, xs), avals, locate=False)
            _PROGRAMS.set(key, found)
        return found

    def _traced(self, *xs: Value) -> list[Any]:
        dtype = xs[0].aval.dtype
        wide = dtype if finfo(dtype).bits >= 32 else _F32
        result = self.formula(*[Expression(lax.convert_dtype(x, wide)) for x in xs])
        return [lax.convert_dtype(result.value, dtype)]


class Smooth(ByProgram):
    """Give ``slope(i, ans, *xs)``, the derivative in operand ``i``."""

    def jvp(self, primals: Any, tangents: Any, **params: Any) -> Any:
        ans = self.bind(*primals, **params)
        total = None
        for i, t in enumerate(tangents):
            if t is not None:
                part = lax.mul(t, self.slope(i, ans, *primals))
                part = lax.broadcast_like(part, ans) if part.aval.ndim < ans.aval.ndim else part
                total = part if total is None else lax.add(total, part)
        return ans, total

    @abc.abstractmethod
    def slope(self, i: int, ans: Value, *xs: Value) -> Any:
        """The derivative in operand ``i``; ``ans`` is the result."""
