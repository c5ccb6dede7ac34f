"""PyTorch: functions of arrays as torch functions and modules, exchange of tensors.

``import tracebridge.torch`` imports torch and defines our operator, which graphs that are loaded
from files call. Where somebody only looks at ``tracebridge.torch``, say to complete a name, torch
is imported at the first use of a function.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracebridge.interop.frameworks import load_beside, needs

if TYPE_CHECKING:
    from tracebridge.torch.calling import call_torch as call_torch
    from tracebridge.torch.convert import from_torch as from_torch
    from tracebridge.torch.convert import to_torch as to_torch
    from tracebridge.torch.graph_module import to_graph_module as to_graph_module
    from tracebridge.torch.module import Module as Module
    from tracebridge.torch.randomness import generator_to_key as generator_to_key
    from tracebridge.torch.randomness import key_to_generator as key_to_generator
    from tracebridge.torch.saving import saving as saving
    from tracebridge.torch.training import train_step as train_step
    from tracebridge.torch.translating import from_module as from_module
    from tracebridge.torch.wrapping import wrap as wrap

__all__ = [
    "Module",
    "call_torch",
    "from_module",
    "from_torch",
    "generator_to_key",
    "key_to_generator",
    "saving",
    "to_graph_module",
    "to_torch",
    "train_step",
    "wrap",
]

_HOME = {
    "Module": "module",
    "call_torch": "calling",
    "from_module": "translating",
    "from_torch": "convert",
    "generator_to_key": "randomness",
    "key_to_generator": "randomness",
    "saving": "saving",
    "to_graph_module": "graph_module",
    "to_torch": "convert",
    "train_step": "training",
    "wrap": "wrapping",
}

needs("torch", __name__, "pip install torch, or pip install 'tracebridge[torch]'")


def __getattr__(name: str) -> Any:
    """Load a function, and torch with it, at its first use."""
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__


load_beside("torch", f"{__name__}._graphs.calls")
