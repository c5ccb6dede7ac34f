"""erf of float64 in vectorisable operations, for the CPU, where XLA calls libm for each lane.

``core/lowering/platforms.py`` puts it in place for large arrays. Its error stays below 2 units in
the last place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.lax.elementwise.cpu_lowerings import horner, with_sign_of

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

# Near-minimax fits with 50 digits, highest power first.
# erf(x) / x - 1 in x**2, |x| <= 1.
_NEAR = (
    5.957176147748911e-11, -1.1372848856791674e-09, 1.4659775274047436e-08,
    -1.6350312701054695e-07, 1.6461000484121368e-06, -1.4925595266831182e-05,
    0.0001205533111164271, -0.000854832698083379, 0.0052239776248180145, -0.026866170645076792,
    0.11283791670954879, -0.3761263890318375, 0.12837916709551256,
)  # fmt: skip
# erfc(x) exp(x**2) in (x - 9/4) / (x + 9/4), x from 1 to 6, beyond which erf is 1.
_MIDDLE, _END = 2.25, 6.0
_FAR = (
    -1.169385147925754e-06, -4.1424274860709895e-07, 5.1138730946342425e-06, 7.800722081848312e-06,
    -1.6620974226188234e-05, -5.8245687535672535e-05, 4.5553807523963255e-05,
    0.00038142198771937667, -0.00018635047582970187, -0.0027679498636129277, 0.00339324305519074,
    0.02168877576584454, -0.10505063893640047, 0.2496614424274297, -0.3981892626393711,
    0.23108725873039188,
)  # fmt: skip


def erf(x: Value) -> Any:
    """The error function of float64."""
    size = lax.min(lax.abs(x), _END)
    square = lax.mul(size, size)
    near = lax.add(size, lax.mul(size, horner(square, _NEAR)))
    t = lax.div(lax.sub(size, _MIDDLE), lax.add(size, _MIDDLE))
    far = lax.sub(1.0, lax.mul(lax.exp(lax.neg(square)), horner(t, _FAR)))
    return with_sign_of(lax.select_n(lax.lt(size, 1.0), far, near), x)
