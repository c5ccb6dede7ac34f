"""lgamma and digamma that keep their digits beside their zeros above 0, for the CPU.

XLA's are sums of terms that cancel there. ``core/lowering/platforms.py`` puts these in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.elementwise.cpu_lowerings import horner

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)

# Fits with 50 digits, highest power first.
# Of lgamma(x) / ((x - 1)(x - 2)) in x - 3/2, x in _LGAMMA_NEAR.
_LGAMMA = {
    _F32: (
        0.0003475960154997219, -0.0005452673762692455, -0.0006497157760360493,
        0.0010128452912250851, 0.0011090496380589555, -0.001748053236271722,
        0.00021573396942474815, -0.0003893586239779386, 0.0020837474426528262,
        -0.0034634513234793815, 0.005419378012101185, -0.009383302064339693,
        0.016799114441297835, -0.03131163759219572, 0.0629113578564174,
        -0.1459598283795497, 0.4831289505409809,
    ),
    _F64: (
        -9.258730907364163e-07, 2.9435249256416355e-06, -2.908647793132295e-06,
        8.558926586200684e-07, -2.373613848874775e-06, 7.715967819303325e-06,
        -1.2082169659458151e-05, 1.65066327935825e-05, -2.5756046658556788e-05,
        4.177553313035674e-05, -6.649699223093853e-05, 0.00010563908881316857,
        -0.00016885953220385295, 0.00027127264147651993, -0.0004379995187741311,
        0.0007115229078777208, -0.0011644141120371314, 0.0019229160861876195,
        -0.0032120740956383164, 0.005446457847066394, -0.009425622447941538,
        0.01679709863112848, -0.03130848750101806, 0.06291140107456546,
        -0.14595989591430605, 0.4831289505409809,
    ),
}  # fmt: skip
# Of digamma(x) / (x - zero) in x - 3/2, x from 3/4 to 9/4.
_DIGAMMA = {
    _F32: (
        -0.006371321221036433, 0.009558523760227434, -0.0014613951757243048,
        0.002198720141389366, -0.013544345400470056, 0.020361593744856372,
        -0.026629126187791462, 0.04024079707684283, -0.061956415295045184,
        0.09504015048965392, -0.14840366864202967, 0.24054060251406786,
        -0.42362742869422726, 0.9510558871516254,
    ),
    _F64: (
        4.246332423112316e-05, -6.369498869178753e-05, -8.227692764967646e-05,
        0.00012341538663715473, 0.0001486795408869027, -0.00022301936000524084,
        -3.624850523823538e-05, 5.437247402834886e-05, 0.0001893558919511376,
        -0.00028403562789080795, 0.0002891380372972984, -0.0004337182488616555,
        0.0006996036506039115, -0.0010494755975940548, 0.0015618923154588076,
        -0.002343278765264539, 0.003518278757760332, -0.005280195546529067,
        0.0079270083682933, -0.011908199963093708, 0.017907248981019874,
        -0.026975797655347064, 0.04076083392205706, -0.06192213324730477,
        0.09498872445314158, -0.1484049230542577, 0.24054248424078598,
        -0.4236274212814591, 0.9510558760318328,
    ),
}  # fmt: skip
# In float64 the longer polynomial of a wider range would cost a tenth of the time.
_LGAMMA_NEAR = {_F32: (0.5, 2.5), _F64: (0.875, 2.25)}
# The zero of digamma above 0 as a float and the rest.
_ZERO = {
    _F32: (1.4616321325302124, 1.2438149938918909e-08),
    _F64: (1.4616321449683622, 9.549995429965697e-17),
}


def lgamma(x: Value, plain: Any) -> Any:
    """The logarithm of gamma; ``plain`` away from the zeros at 1 and 2."""
    zeros = lax.mul(lax.sub(x, 1.0), lax.sub(x, 2.0))
    near = lax.mul(zeros, horner(lax.sub(x, 1.5), _LGAMMA[x.aval.dtype]))
    first, last = _LGAMMA_NEAR[x.aval.dtype]
    is_near = lax.bitwise_and(lax.gt(x, first), lax.lt(x, last))
    # At the zeros +0, whatever signs the factors have.
    near = lax.select_n(lax.eq(zeros, 0.0), near, literal(0.0, x.aval.dtype))
    return lax.select_n(is_near, plain, near)


def digamma(x: Value, plain: Any) -> Any:
    """The derivative of lgamma; ``plain`` away from the zero above 0."""
    high, low = _ZERO[x.aval.dtype]
    # Two differences: XLA would add the constants first, but for a value between.
    rest = lax.select_n(lax.ne(x, x), literal(low, x.aval.dtype), x)
    from_zero = lax.sub(lax.sub(x, high), rest)
    near = lax.mul(from_zero, horner(lax.sub(x, 1.5), _DIGAMMA[x.aval.dtype]))
    is_near = lax.bitwise_and(lax.gt(x, 0.75), lax.lt(x, 2.25))
    return lax.select_n(is_near, plain, near)


BOTH = (_F32, _F64)
# These get the result of the plain operation as second operand.
CPU_CORRECTIONS = {"lgamma": (lgamma, BOTH), "digamma": (digamma, BOTH)}
