"""What rounding takes off sums and products, exactly, for numbers of twice as many digits.

Sources: Dekker (1971), Numer. Math. 18, the product; Knuth, The Art of Computer Programming,
volume 2, the sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.finfo import finfo

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


def upper_half(x: Value) -> Any:
    """``x`` rounded to half of its digits; what is left has no more of them.

    Products of such halves are exact. By rounding, for which only numbers are too large that are
    infinite with half of their digits: the difference of two large multiples is infinite for more
    of them, and no split where a compiler takes a product into a sum as it is.
    """
    info = finfo(x.aval.dtype)
    # One digit is not stored, so that those of float64 are cut into 26 and 26 and a sign.
    return lax.reduce_precision(x, info.nexp, (info.nmant - 1) // 2)


def lost_of_product(product: Value, x: Value, y: Value) -> Any:
    """``x * y - product``: exact for what ``x * y`` is rounded to, and for numbers beside it."""
    a, c = upper_half(x), upper_half(y)
    b, d = lax.sub(x, a), lax.sub(y, c)
    lost = lax.add(lax.sub(lax.mul(a, c), product), lax.mul(a, d))
    return lax.add(lax.add(lost, lax.mul(b, c)), lax.mul(b, d))


def lost_of_sum(total: Value, x: Value, y: Value) -> Any:
    """``x + y - total`` of the sum that is rounded to ``total``."""
    rest = lax.sub(total, x)
    return lax.add(lax.sub(x, lax.sub(total, rest)), lax.sub(y, rest))


def exact_sum(x: Value, y: Value) -> tuple[Any, Any]:
    """``x + y`` rounded, and what rounding has taken off it."""
    total = lax.add(x, y)
    return total, lost_of_sum(total, x, y)


def exact_product(x: Value, y: Value) -> tuple[Any, Any]:
    """``x * y`` rounded, and what rounding has taken off it."""
    product = lax.mul(x, y)
    return product, lost_of_product(product, x, y)
