"""Taylor rules of single operations: a table by primitive.

This transformation is out of tree: primitives do not know of it. Those that are not in the table
are differentiated by their jvp rule, one order after the other; the table has what is linear, and
what has a cheap recurrence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.collectives.all_gather import all_gather_p, reduce_scatter_p
from tracebridge.core.collectives.casts import pcast_p
from tracebridge.core.collectives.permute import all_to_all_p, ppermute_p
from tracebridge.core.collectives.psum import psum_p
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.transforms.jet.series import (
    Series,
    convolved,
    filled,
    fitted,
    integrated,
    is_constant,
    minus,
    plus,
    product,
    quotient,
    scaled,
    times,
)

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


# (application, series of the arguments) -> series of the result
Rule = Callable[[Application, Sequence[Series]], Series]


def linear(app: Application, args: Sequence[Series]) -> Series:
    """An operation that is linear in all its floating arguments together."""
    process = current_trace().process
    order = len(args[0]) - 1
    full = [x if is_constant(x) and not _has_tangent(x[0]) else filled(x) for x in args]
    out: Series = [process(app, [x[0] for x in args])]
    for k in range(1, order + 1):
        if all([x[k] is None for x in args]):
            out.append(None)
            continue
        out.append(process(app, [x[0] if x[k] is None else x[k] for x in full]))
    return out


def _has_tangent(value: Value) -> bool:
    return value.aval.tangent.dtype == value.aval.dtype


def _add(app: Application, args: Sequence[Series]) -> Series:
    return [fitted(plus(a, b), app.out) for a, b in zip(*args, strict=True)]


def _sub(app: Application, args: Sequence[Series]) -> Series:
    return [fitted(minus(a, b), app.out) for a, b in zip(*args, strict=True)]


def _mul(app: Application, args: Sequence[Series]) -> Series:
    return [fitted(c, app.out) for c in product(args[0], args[1])]


def _square(app: Application, args: Sequence[Series]) -> Series:
    (x,) = args
    return product(x, x)


def bilinear(app: Application, args: Sequence[Series]) -> Series:
    """An operation with two arguments, linear in each."""
    process = current_trace().process
    return product(args[0], args[1], lambda a, b: process(app, [a, b]))


def _div(app: Application, args: Sequence[Series]) -> Series:
    return [fitted(c, app.out) for c in quotient(*args)]


def _exp(app: Application, args: Sequence[Series]) -> Series:
    (x,) = args
    first = current_trace().process(app, [x[0]])
    return integrated(first, lambda k, y: y[k], x)


def _exp2(app: Application, args: Sequence[Series]) -> Series:
    (x,) = args
    log2 = 0.6931471805599453
    first = current_trace().process(app, [x[0]])
    return integrated(first, lambda k, y: scaled(y[k], log2), x)


def _expm1(app: Application, args: Sequence[Series]) -> Series:
    (x,) = args
    first = current_trace().process(app, [x[0]])
    return integrated(first, lambda k, y: y[k] if k else lax.exp(x[0]), x)


def _log(app: Application, args: Sequence[Series]) -> Series:
    (x,) = args
    return _logarithm(current_trace().process(app, [x[0]]), x)


def _log1p(app: Application, args: Sequence[Series]) -> Series:
    (x,) = args
    shifted = [lax.add(x[0], full_of(x[0].aval, 1)), *x[1:]]
    return _logarithm(current_trace().process(app, [x[0]]), shifted)


def _logarithm(first: object, x: Series) -> Series:
    """``x y' = x'``."""
    out: Series = [first]
    for k in range(1, len(x)):
        known = [scaled(times(out[j], x[k - j]), j / k) for j in range(1, k)]
        rest = x[k]
        for term in known:
            rest = minus(rest, term)
        out.append(None if rest is None else lax.div(rest, x[0]))
    return out


def _pair(x: Series, one: object, other: object, sign: float) -> tuple[Series, Series]:
    """``y' = z x'`` and ``z' = sign y x'`` with values ``one`` and ``other``."""
    y: Series = [one]
    z: Series = [other]
    for k in range(1, len(x)):
        slopes = [scaled(x[j], j / k) for j in range(1, k + 1)]
        y_k = z_k = None
        for j, slope in enumerate(slopes, 1):
            y_k = plus(y_k, times(slope, z[k - j]))
            z_k = plus(z_k, times(slope, y[k - j]))
        y.append(y_k)
        z.append(scaled(z_k, sign))
    return y, z


def _sin(app: Application, args: Sequence[Series]) -> Series:
    (x,) = args
    return _pair(x, current_trace().process(app, [x[0]]), lax.cos(x[0]), -1.0)[0]


def _cos(app: Application, args: Sequence[Series]) -> Series:
    (x,) = args
    return _pair(x, lax.sin(x[0]), current_trace().process(app, [x[0]]), -1.0)[1]


def _sinh(app: Application, args: Sequence[Series]) -> Series:
    (x,) = args
    return _pair(x, current_trace().process(app, [x[0]]), lax.cosh(x[0]), 1.0)[0]


def _cosh(app: Application, args: Sequence[Series]) -> Series:
    (x,) = args
    return _pair(x, lax.sinh(x[0]), current_trace().process(app, [x[0]]), 1.0)[1]


def _quadratic(a: float, b: float, c: float) -> Rule:
    """Functions with ``y' = (a + b y + c y^2) x'``."""

    def rule(app: Application, args: Sequence[Series]) -> Series:
        (x,) = args

        def slope(k: int, y: Series) -> Any:
            found = scaled(convolved(y, y, k, times), c)
            if b:
                found = plus(found, scaled(y[k], b))
            return found if k or not a else plus(found, full_of(y[0].aval, a))

        return integrated(current_trace().process(app, [x[0]]), slope, x)

    return rule


def _sqrt(app: Application, args: Sequence[Series]) -> Series:
    """``y^2 = x``."""
    (x,) = args
    first = current_trace().process(app, [x[0]])
    out: Series = [first]
    double = scaled(first, 2.0)
    for k in range(1, len(x)):
        inner = [times(out[j], out[k - j]) for j in range(1, k)]
        rest = x[k]
        for term in inner:
            rest = minus(rest, term)
        out.append(None if rest is None else lax.div(rest, double))
    return out


def _integer_pow(app: Application, args: Sequence[Series]) -> Series:
    """By repeated squaring, so that zero is no special case."""
    (x,) = args
    n = app.params["y"]
    first = current_trace().process(app, [x[0]])
    if n == 0:
        return [first, *[None] * (len(x) - 1)]
    power: Series | None = None
    base, exponent = x, abs(n)
    while exponent:
        if exponent % 2:
            power = base if power is None else product(power, base)
        exponent //= 2
        if exponent:
            base = product(base, base)
    if power is None:
        return [first, *[None] * (len(x) - 1)]
    if n < 0:
        one = [full_of(x[0].aval, 1), *[None] * (len(x) - 1)]
        power = quotient(one, power)
    return [first, *power[1:]]


_LINEAR: tuple[Primitive, ...] = (
    lax.neg_p,
    lax.reshape_p,
    lax.transpose_p,
    lax.broadcast_in_dim_p,
    lax.squeeze_p,
    lax.slice_p,
    lax.rev_p,
    lax.roll_p,
    lax.reduce_sum_p,
    lax.cumsum_p,
    lax.copy_p,
    lax.real_p,
    lax.imag_p,
    lax.complex_p,
    lax.conj_p,
    lax.pad_p,
    lax.concatenate_p,
    lax.dynamic_slice_p,
    lax.dynamic_update_slice_p,
    lax.gather_p,
    lax.scatter_add_p,
    lax.select_n_p,
    lax.reduce_precision_p,
    psum_p,
    ppermute_p,
    all_gather_p,
    all_to_all_p,
    pcast_p,
    reduce_scatter_p,
    lax.device_put_p,
)

RULES: dict[Primitive, Rule] = {
    **dict.fromkeys(_LINEAR, linear),
    lax.add_p: _add,
    lax.sub_p: _sub,
    lax.mul_p: _mul,
    lax.square_p: _square,
    lax.dot_general_p: bilinear,
    lax.div_p: _div,
    lax.exp_p: _exp,
    lax.exp2_p: _exp2,
    lax.expm1_p: _expm1,
    lax.log_p: _log,
    lax.log1p_p: _log1p,
    lax.sin_p: _sin,
    lax.cos_p: _cos,
    lax.tan_p: _quadratic(1.0, 0.0, 1.0),
    lax.sinh_p: _sinh,
    lax.cosh_p: _cosh,
    lax.tanh_p: _quadratic(1.0, 0.0, -1.0),
    lax.logistic_p: _quadratic(0.0, 1.0, -1.0),
    lax.sqrt_p: _sqrt,
    lax.integer_pow_p: _integer_pow,
}


def rule_of(primitive: Primitive) -> Rule | None:
    """The rule for a primitive of the engine, if there is one."""
    return RULES.get(primitive)
