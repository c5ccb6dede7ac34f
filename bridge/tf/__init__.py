"""TensorFlow: functions on its tensors, and SavedModels that run without this package.

TensorFlow is imported at the first use of a function, not with this module.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracebridge.tf.convert import to_tf as to_tf
    from tracebridge.tf.saved_model import save as save

__all__ = ["save", "to_tf"]

_HOME = {"to_tf": "convert", "save": "saved_model"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    if find_spec("tensorflow") is None:
        msg = (
            f"tracebridge.tf.{name} needs TensorFlow, which is not installed. "
            "Install it: pip install tensorflow (or tensorflow-cpu)"
        )
        raise ImportError(msg, name="tensorflow")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
