"""Parts, conjugates and angles of complex numbers, elementwise."""

from __future__ import annotations

__all__ = ["angle", "conj", "conjugate", "imag", "real"]

import math
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_float
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import as_strong
from tracebridge.numpy._staging import unary_function


def _conjugate(x: Value) -> Any:
    return lax.conj(x) if is_complex(x.aval.dtype) else x


def _real(x: Value) -> Any:
    return lax.real(x) if is_complex(x.aval.dtype) else x


def _imag(x: Value) -> Any:
    return lax.imag(x) if is_complex(x.aval.dtype) else zeros_of(x.aval)


conjugate = unary_function(
    _conjugate,
    "conjugate",
    """Complex conjugate, elementwise; real arrays are unchanged.

    >>> import tracebridge.numpy as tnp
    >>> complex(tnp.conjugate(1 + 2j))
    (1-2j)
    """,
)
conj = conjugate


real = unary_function(
    _real,
    "real",
    """Real part, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.real(1 + 2j))
    1.0
    """,
)
imag = unary_function(
    _imag,
    "imag",
    """Imaginary part, elementwise; zeros for real arrays.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.imag(1 + 2j))
    2.0
    """,
)


def _angle(z: Value, deg: bool) -> Any:
    if not is_inexact(z.aval.dtype):
        z = lax.convert_dtype(z, default_float())
    if is_complex(z.aval.dtype):
        result = lax.atan2(lax.imag(z), lax.real(z))
    else:
        # A step from pi to 0, with the derivative of steps.
        result = lax.atan2(zeros_of(z.aval), lax.stop_gradient(z))
    return lax.mul(result, 180.0 / math.pi) if deg else result


def _angle_or_step(z: Value, deg: bool) -> Any:
    angle = _angle(z, deg)
    return angle if is_complex(z.aval.dtype) else as_strong(angle)


_angle_staged = StagedFunction(_angle_or_step, "angle")


@remembered
def angle(z: ArrayLike, deg: bool = False) -> Array:
    """The angle of complex numbers in the plane, in ``(-pi, pi]`` or degrees, elementwise.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.angle(1j, deg=True))
    90.0
    """
    return _angle_staged((z,), (bool(deg),))
