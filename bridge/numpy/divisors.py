"""Greatest common divisors and least common multiples of integers."""

from __future__ import annotations

__all__ = ["gcd", "lcm"]

from collections.abc import Sequence
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.dtypes.dtypes import is_bool, is_integer, is_unsigned
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.numpy._promote import (
    broadcast_shape,
    broadcast_to,
    promote_dtypes,
    strong_array,
)
from tracebridge.numpy._staging import binary_by_name


def _sizes(name: str, x: Value, y: Value) -> list[Any]:
    """The absolute values of two integers in one dtype and shape."""
    x, y = promote_dtypes(x, y)
    if not is_integer(x.aval.dtype) or is_bool(x.aval.dtype):
        msg = f"{name} works on integers, got {x.aval.dtype.name}"
        raise UnsupportedDtypeError(msg)
    shape = broadcast_shape(name, [x.aval.shape, y.aval.shape])
    values = [strong_array(broadcast_to(v, shape)) for v in (x, y)]
    return values if is_unsigned(x.aval.dtype) else [lax.abs(v) for v in values]


def _divisor(x: Value, y: Value) -> Any:
    """Euclid's algorithm for all elements at once: rows ``(x, y)`` until all ``y`` are zero."""
    zero = zeros_of(x.aval.update(shape=()))

    def unfinished(pair: Sequence[Value]) -> Any:
        left = lax.ne(pair[1], zero)
        return lax.reduce_or(left, tuple(range(left.aval.ndim)))

    def step(pair: Sequence[Value]) -> tuple[Any, Any]:
        x, y = pair
        done = lax.eq(y, zero)
        safe = lax.select_n(done, y, full_of(y.aval, 1))
        return lax.select_n(done, y, x), lax.select_n(done, lax.rem(x, safe), y)

    divisor = while_loop(unfinished, step, (x, y))[0]
    # The least integer has no absolute value, so that remainders may be negative.
    return divisor if is_unsigned(divisor.aval.dtype) else lax.abs(divisor)


def _gcd(x: Value, y: Value) -> Any:
    return _divisor(*_sizes("gcd", x, y))


def _lcm(x: Value, y: Value) -> Any:
    x, y = _sizes("lcm", x, y)
    d = _divisor(x, y)
    zero = lax.eq(d, zeros_of(d.aval.update(shape=())))
    safe = lax.select_n(zero, d, full_of(d.aval, 1))
    return lax.mul(x, lax.div(y, safe))


gcd = binary_by_name(
    _gcd,
    "gcd",
    """The greatest common divisor of the absolute values, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.gcd(12, -18))
    6
    """,
)
lcm = binary_by_name(
    _lcm,
    "lcm",
    """The least common multiple of the absolute values, elementwise; 0 if one of them is.

    >>> import tracebridge.numpy as tnp
    >>> int(tnp.lcm(4, -6))
    12
    """,
)
