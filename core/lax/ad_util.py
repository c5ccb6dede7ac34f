"""What interpreters need of operations: zeros, additions of cotangents; stop_gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.ir.values import Literal, python_scalar

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.values import Value


def full_of(aval: ShapedArray, value: Any) -> Value:
    """A value of ``aval`` with all elements ``value``."""
    scalar = Literal(python_scalar(value, aval.dtype), aval.update(shape=()))
    return scalar if not aval.ndim else lax.broadcast_in_dim(scalar, aval.shape, ())


def zeros_of(aval: ShapedArray) -> Value:
    """Zeros of ``aval``."""
    return full_of(aval, 0)


def add_application(aval: ShapedArray) -> Application:
    """The application that adds two cotangents of ``aval``."""
    return lax.add_p.application((aval, aval), {})
