"""Functions of arrays as functions of TensorFlow, and the other way round, by JAX's names for them.

``tracebridge.tf`` does the work. TensorFlow is imported at the first use of a function.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracebridge.export import DisabledSafetyCheck
from tracebridge.interop.frameworks import needs

if TYPE_CHECKING:
    from tracebridge.tf.jax2tf import (
        UnspecifiedOutputShapeDtype,
        call_tf,
        convert,
        dtype_of_val,
        eval_polymorphic_shape,
        split_to_logical_devices,
    )
    from tracebridge.tf.shapes import PolyShape

__all__ = [
    "DisabledSafetyCheck",
    "PolyShape",
    "UnspecifiedOutputShapeDtype",
    "call_tf",
    "convert",
    "dtype_of_val",
    "eval_polymorphic_shape",
    "split_to_logical_devices",
]

needs("tensorflow", __name__, "pip install tensorflow, or pip install 'tracebridge[tf]'")


def __getattr__(name: str) -> Any:
    """Load a function, and TensorFlow with it, at its first use."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module("tracebridge.tf.jax2tf"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
