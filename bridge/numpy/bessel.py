"""Bessel functions, loaded when one is used: few programs need their expansions."""

from __future__ import annotations

__all__ = ["i0"]

from typing import Any

from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.value import Value
from tracebridge.core.special.bessel import bessel_i0
from tracebridge.numpy._promote import promote_inexact
from tracebridge.numpy._staging import unary_by_name


def _i0(x: Value) -> Any:
    (x,) = promote_inexact(x)
    if is_complex(x.aval.dtype):
        msg = f"i0: got {x.aval.str_short()}, expected real numbers"
        raise UnsupportedDtypeError(msg)
    return bessel_i0(x)


i0 = unary_by_name(
    _i0,
    "i0",
    """The modified Bessel function of the first kind of order zero, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.i0(0.0))
    1.0
    """,
)
