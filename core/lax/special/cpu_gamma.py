"""The logarithm of gamma and its derivative, to a few units in the last place, for the CPU.

XLA's sums of Lanczos' terms cancel beside the zeros, and lose a digit elsewhere. Here numbers from
``_LOW`` to 2.5 have a polynomial, which others reach by steps of 1, and Stirling's series begins
at 6.5. Below 0 the reflection leads to the positive numbers. One number has one logarithm, or two
below 0. ``core/lowering/platforms.py`` puts these in place.

Source: NIST DLMF 5.5 and 5.11.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.elementwise.cpu_lowerings import horner

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_HIGH, _STIRLING_FROM = 2.5, 6.5
_STEPS = (1.0, 2.0, 3.0, 4.0)

# Fits with 60 digits, highest power first.
_LGAMMA_LOW, _LGAMMA_CENTRE = 0.875, 1.6875
# Of lgamma(x) / ((x - 1)(x - 2)) in x - centre.
_LGAMMA = {
    _F32: (
        0.00013379626034293324, -0.00024116454005707055, 0.0001498318451922387,
        -0.00027882031281478703, 0.0007613113848492503, -0.001426821225322783,
        0.002619965933263302, -0.005097243469208479, 0.010229982435703278, -0.0214247889816761,
        0.0483095683157444, -0.12527881562709808, 0.45778560638427734,
    ),
    _F64: (
        1.078027240315014e-07, -1.8783290693514662e-07, -1.5274642035838925e-07,
        2.648665044432556e-07, 4.917637113649627e-07, -8.595496025553759e-07,
        4.009979475584766e-07, -7.144744434000297e-07, 2.1077924613983202e-06,
        -3.735597361531511e-06, 6.2112213399964414e-06, -1.1085967091824133e-05,
        2.0005804393549388e-05, -3.5958370132320366e-05, 6.487991329060026e-05,
        -0.00011773783589205464, 0.00021497012252801937, -0.00039537908132567017,
        0.0007338035159724216, -0.001377618327648164, 0.0026254501840832336,
        -0.005107051104012986, 0.010229521734423786, -0.021423965235059423, 0.04830958014903989,
        -0.12527883665074543, 0.45778560919156,
    ),
}  # fmt: skip
# Of x (lgamma(x) - (x - 1/2)(log(x) - 1) - _REST), in 1 / x**2.
_REST = 0.5 * math.log(2.0 * math.pi) - 0.5
_STIRLING = {
    _F32: (
        0.0007732731755822897, -0.002777598798274994, 0.0833333358168602,
    ),
    _F64: (
        -0.017776589307803025, 0.006012599565918923, -0.00191004572233974, 0.0008416706907988118,
        -0.0005952376223188883, 0.0007936507922688107, -0.00277777777777623, 0.08333333333333333,
    ),
}  # fmt: skip
# Of sin(pi r) / r in r**2, r up to 1/2.
SINE = {
    _F32: (
        0.07765591144561768, -0.5982903838157654, 2.550077438354492, -5.167710304260254,
        3.1415927410125732,
    ),
    _F64: (
        7.697826768224191e-07, -2.1903497074626018e-05, 0.0004662998161898394,
        -0.007370430505916944, 0.0821458865731029, -0.5992645293189447, 2.5501640398773007,
        -5.167712780049969, 3.141592653589793,
    ),
}  # fmt: skip
# Of digamma(x) / (x - zero) in x - centre, and the zero as a float and the rest.
_DIGAMMA_LOW, _DIGAMMA_CENTRE = 0.75, 1.625
_ZERO = {
    _F32: (1.4616321325302124, 1.2438149938918909e-08),
    _F64: (1.4616321449683622, 9.549995429965697e-17),
}
_DIGAMMA = {
    _F32: (
        -0.0010738747660070658, 0.001745174522511661, 0.0004524960822891444,
        -0.0007348107756115496, -0.002898898907005787, 0.004714669194072485,
        -0.005021132994443178, 0.008187131024897099, -0.014330216683447361, 0.02349044755101204,
        -0.038551200181245804, 0.06425175070762634, -0.1091972291469574, 0.19272051751613617,
        -0.3697749674320221, 0.901592493057251,
    ),
    _F64: (
        -1.6851640306859507e-06, 2.7383915896614563e-06, 5.87174325028384e-06,
        -9.54158275123446e-06, -1.3141482379915948e-05, 2.1354909753935416e-05,
        1.294477418968038e-05, -2.103525307360814e-05, -1.8745362863604155e-05,
        3.046125026085845e-05, -8.076398917821441e-06, 1.3124392758464491e-05,
        -4.4808824945445466e-05, 7.281602777917622e-05, -0.00010857116883859634,
        0.00017643979931691216, -0.00028972241945504846, 0.0004708795272632456,
        -0.0007647307964884806, 0.0012432472032605825, -0.0020218597031465527,
        0.00328943723501564, -0.005355730535179586, 0.00873086719987036, -0.014262521352397771,
        0.02338043995837545, -0.03855782679573039, 0.06426251743308516, -0.10919698588596384,
        0.19272012460146695, -0.36977496445741087, 0.9015925158282158,
    ),
}  # fmt: skip
# Of x**2 (log(x) - 1 / (2x) - digamma(x)) in 1 / x**2.
_DIGAMMA_REST = {
    _F32: (
        0.0038270452059805393, -0.00833209604024887, 0.0833333283662796,
    ),
    _F64: (
        -0.2505038023961374, 0.07691845493884156, -0.020972971254404067, 0.007574478889859715,
        -0.0041666591396314545, 0.003968253946288521, -0.00833333333330875, 0.08333333333333333,
    ),
}  # fmt: skip
# Of pi r cot(pi r) / (1 - 4 r**2) in r**2, r up to 1/2.
_COTANGENT = {
    _F32: (
        1.7599204778671265, 0.22011321783065796, 0.749854326248169, 0.6612666845321655,
        0.6762048006057739, 0.7101267576217651, 1.0,
    ),
    _F64: (
        5.336813851582661, -4.669712117726342, 3.7732941760284464, -0.4612382746984015,
        0.943486535801883, 0.6189955082114015, 0.67251558366827, 0.6661642927130073,
        0.6667306285204495, 0.6667965658083592, 0.6671967920207549, 0.6688378666170829,
        0.6758809977968725, 0.7101318663035304, 1.0,
    ),
}  # fmt: skip


def lgamma(x: Value) -> Any:
    """The logarithm of the size of gamma; infinite at its poles."""
    dtype = x.aval.dtype
    size = lax.abs(x)
    one = literal(1.0, dtype)
    is_below = lax.lt(x, -1.0 + _LGAMMA_LOW)
    start = lax.select_n(is_below, x, size)
    is_small, is_large = lax.lt(start, _LGAMMA_LOW), lax.ge(size, _STIRLING_FROM)
    # One less than where the polynomial is: of small numbers the sum with 1 would not be exact.
    near = lax.select_n(is_small, lax.sub(start, 1.0), start)
    product = one
    for step in _STEPS:
        less = lax.sub(size, step)
        further = lax.ge(less, _HIGH - 1.0)
        near = lax.select_n(further, near, lax.sub(less, 1.0))
        product = lax.select_n(further, product, lax.mul(product, less))
    argument = lax.select_n(is_large, lax.select_n(is_small, product, size), size)
    log = lax.log(argument)
    zeros = lax.mul(near, lax.sub(near, 1.0))
    series = lax.mul(zeros, horner(lax.sub(near, _LGAMMA_CENTRE - 1.0), _LGAMMA[dtype]))
    value = lax.add(series, lax.select_n(is_small, log, lax.neg(log)))
    inverse = lax.div(one, lax.select_n(is_large, one, size))
    rest = lax.mul(inverse, horner(lax.mul(inverse, inverse), _STIRLING[dtype]))
    stirling = lax.mul(lax.sub(size, 0.5), lax.sub(log, 1.0))
    value = lax.select_n(is_large, value, lax.add(stirling, lax.add(rest, _REST)))
    wave = lax.mul(size, lax.abs(_sine(size)))
    wave = lax.select_n(is_below, one, wave)
    turned = lax.sub(lax.log(lax.div(literal(math.pi, dtype), wave)), value)
    value = lax.select_n(is_below, value, turned)
    return lax.select_n(lax.eq(size, math.inf), value, size)


def _from_whole(x: Value) -> Any:
    return lax.sub(x, lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN))


def _sine(x: Value) -> Any:
    """``sin(pi x)`` but for its sign."""
    r = _from_whole(x)
    return lax.mul(r, horner(lax.mul(r, r), SINE[x.aval.dtype]))


def digamma(x: Value) -> Any:
    """The derivative of the logarithm of gamma; NaN at its poles."""
    dtype = x.aval.dtype
    size = lax.abs(x)
    zero, one = literal(0.0, dtype), literal(1.0, dtype)
    is_below = lax.lt(x, -1.0 + _DIGAMMA_LOW)
    start = lax.select_n(is_below, x, size)
    is_small, is_large = lax.lt(start, _DIGAMMA_LOW), lax.ge(size, _STIRLING_FROM)
    near = lax.select_n(is_small, start, lax.add(start, 1.0))
    # The sum of the inverses of the numbers on the way, as a quotient.
    above, below = zero, one
    for step in _STEPS:
        less = lax.sub(size, step)
        further = lax.ge(less, _HIGH - 1.0)
        near = lax.select_n(further, near, less)
        above = lax.select_n(further, above, lax.add(lax.mul(above, less), below))
        below = lax.select_n(further, below, lax.mul(below, less))
    above = lax.select_n(is_small, above, literal(-1.0, dtype))
    below = lax.select_n(is_small, below, start)
    high, low = _ZERO[dtype]
    # Two differences: XLA would add the constants first, but for a value between.
    rest = lax.select_n(lax.ne(near, near), literal(low, dtype), near)
    series = lax.mul(
        lax.sub(lax.sub(near, high), rest),
        horner(lax.sub(near, _DIGAMMA_CENTRE), _DIGAMMA[dtype]),
    )
    value = lax.add(series, lax.div(above, below))
    large = lax.select_n(is_large, one, size)
    inverse = lax.div(one, large)
    square = lax.mul(inverse, inverse)
    rest = lax.add(lax.mul(inverse, 0.5), lax.mul(square, horner(square, _DIGAMMA_REST[dtype])))
    value = lax.select_n(is_large, value, lax.sub(lax.log(large), rest))
    r = _from_whole(size)
    square = lax.mul(r, r)
    wave = lax.mul(lax.sub(1.0, lax.mul(square, 4.0)), horner(square, _COTANGENT[dtype]))
    # 1 / size + pi cot(pi size).
    turn = lax.div(lax.add(lax.mul(size, wave), r), lax.mul(size, r))
    value = lax.select_n(is_below, value, lax.add(value, turn))
    is_pole = lax.bitwise_and(lax.le(x, 0.0), lax.eq(r, 0.0))
    return lax.select_n(is_pole, value, literal(math.nan, dtype))


BOTH = (_F32, _F64)
CPU_EXACT_RULES = {"lgamma": (lgamma, BOTH), "digamma": (digamma, BOTH)}
