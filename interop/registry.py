"""Which adapter knows a type. No framework is imported here.

A framework whose tensors arrive has been imported by who made them: an adapter is loaded when its
framework is in ``sys.modules`` and a type is seen that no loaded adapter knows.
"""

from __future__ import annotations

import importlib
import sys
import weakref

from tracebridge.core.runtime.arrays.array import Array
from tracebridge.interop.adapter import TensorAdapter
from tracebridge.interop.dlpack import import_dlpack
from tracebridge.interop.numpy_adapter import numpy_adapter

# framework module -> (module of its adapter, name of the adapter there)
FRAMEWORKS: dict[str, tuple[str, str]] = {
    "torch": ("tracebridge.interop.torch_adapter", "torch_adapter"),
    "tensorflow": ("tracebridge.interop.tf_adapter", "tf_adapter"),
}
_LOADED: dict[str, TensorAdapter] = {"numpy": numpy_adapter}
# type -> its adapter, or the number of adapters that were asked in vain
_KNOWN: weakref.WeakKeyDictionary[type, TensorAdapter | int] = weakref.WeakKeyDictionary()


def adapter_of(cls: type) -> TensorAdapter | None:
    """The adapter whose framework defines ``cls``, or None."""
    found = _KNOWN.get(cls)
    if isinstance(found, TensorAdapter):
        return found
    adapters = _available()
    if found == len(adapters):
        return None
    for adapter in adapters:
        if adapter.accepts(cls):
            _KNOWN[cls] = adapter
            return adapter
    _KNOWN[cls] = len(adapters)
    return None


def _available() -> list[TensorAdapter]:
    for framework, (module, name) in FRAMEWORKS.items():
        if framework not in _LOADED and framework in sys.modules and _is_ready(framework):
            _LOADED[framework] = getattr(importlib.import_module(module), name)
    return list(_LOADED.values())


def _is_ready(framework: str) -> bool:
    """Whether the module has finished its import, so that its adapter can use it."""
    spec = getattr(sys.modules[framework], "__spec__", None)
    return not getattr(spec, "_initializing", False)


def import_tensor(x: object, *, device: object = None, copy: bool | None = None) -> Array | None:
    """An Array of a tensor of any framework, None if ``x`` is no tensor.

    Memory is shared where alignment and layout allow (``copy=None``): see
    docs/explanation/aliasing.md.

    Raises:
        ExchangeError: the tensor has no values (fake, meta, traced), or an unknown layout.
        UnsupportedExchangeDtypeError: the engine has no such dtype.
        LayoutError: ``copy=False`` and the memory cannot be shared.
    """
    adapter = adapter_of(type(x))
    if adapter is not None:
        return adapter.import_(x, device=device, copy=copy)
    if hasattr(type(x), "__dlpack__") and hasattr(type(x), "__dlpack_device__"):
        return import_dlpack(x, device=device, copy=copy)
    return None
