"""``erfc(x) exp(x**2)`` of numbers that are not negative, by one polynomial.

The complement of the error function is its product with an exponential, and so is the tail of a
normal number but for a factor: neither loses digits where both are small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.lax.elementwise.cpu_lowerings import horner

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

# A middle, and of ((1 + 2 x) erfc(x) exp(x**2) - 1) / w in w - 1, where w = 2 x / (x + middle),
# near-minimax fits with 70 digits, highest power first.
_FITS = {
    np.dtype(np.float32): (2.75, (
        2.5617020877874406e-05, -1.9054674692101617e-05, -0.00024110929233064858,
        0.00028431853390610914, 0.001629856056647954, -0.004253863854664617,
        -0.0062390766750717325, 0.05855907595698502, -0.17305370871999773, 0.3179600129610554,
        -0.3892661074590815, 0.25880362424470343,
    )),
    np.dtype(np.float64): (3.25, (
        1.0848820573862591e-09, 2.0521139071723105e-09, -1.042082685209531e-08,
        -2.4812763450219425e-08, 5.6659339804386e-08, 1.8251823593271808e-07,
        -2.662336539052155e-07, -1.155230561361701e-06, 1.4723828282457135e-06,
        7.130536683384827e-06, -1.151619808908194e-05, -4.264852570075388e-05,
        0.00011769085221877376, 0.00018735648923339226, -0.0012624810143599832,
        0.0010749355697864497, 0.009073711487927887, -0.04603429476623287, 0.1261832810886984,
        -0.2451621719822756, 0.35866966561864483, -0.38612644680953684, 0.24751511320116407,
    )),
}  # fmt: skip


def scaled_erfc(x: Value) -> Any:
    """``erfc(x) exp(x**2)`` for ``x`` from 0 on, of float32 or float64: 1 at 0, 0 at infinity."""
    middle, fit = _FITS[x.aval.dtype]
    # 2 x / (x + middle) without the quotient of two infinities; exactly 0 at 0.
    w = lax.sub(2.0, lax.div(2.0 * middle, lax.add(x, middle)))
    return lax.div(_scaled(w, fit), lax.add(1.0, lax.mul(x, 2.0)))


def scaled_erfc_of_modest(x: Value) -> Any:
    """Likewise, of numbers whose square does not overflow: by one division."""
    middle, fit = _FITS[x.aval.dtype]
    first, second = lax.add(x, middle), lax.add(1.0, lax.mul(x, 2.0))
    inverse = lax.div(1.0, lax.mul(first, second))
    w = lax.mul(lax.mul(x, 2.0), lax.mul(inverse, second))
    return lax.mul(_scaled(w, fit), lax.mul(inverse, first))


def _scaled(w: Value, fit: tuple[float, ...]) -> Any:
    return lax.add(1.0, lax.mul(w, horner(lax.sub(w, 1.0), fit)))
