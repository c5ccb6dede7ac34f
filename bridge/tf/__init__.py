"""TensorFlow: functions on its tensors, and SavedModels that run without this package.

TensorFlow is imported at the first use of a function, not with this module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracebridge.interop.frameworks import needs

if TYPE_CHECKING:
    from tracebridge.tf.calling import call_tf as call_tf
    from tracebridge.tf.convert import to_tf as to_tf
    from tracebridge.tf.layer import Layer as Layer
    from tracebridge.tf.polymorphic import eval_polymorphic_shape as eval_polymorphic_shape
    from tracebridge.tf.saved_model import save as save
    from tracebridge.tf.shapes import PolyShape as PolyShape

__all__ = ["Layer", "PolyShape", "call_tf", "eval_polymorphic_shape", "save", "to_tf"]

_HOME = {
    "Layer": "layer",
    "PolyShape": "shapes",
    "call_tf": "calling",
    "eval_polymorphic_shape": "polymorphic",
    "save": "saved_model",
    "to_tf": "convert",
}

needs("tensorflow", __name__, "pip install tensorflow, or pip install 'tracebridge[tf]'")


def __getattr__(name: str) -> Any:
    """Load a function, and TensorFlow with it, at its first use."""
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
