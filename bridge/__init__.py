"""A differentiable array engine on XLA, with bridges to PyTorch and TensorFlow."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from tracebridge import _install as _install
from tracebridge._api.custom_jvp import custom_jvp as custom_jvp
from tracebridge._api.custom_vjp import custom_vjp as custom_vjp
from tracebridge._api.devices import default_backend as default_backend
from tracebridge._api.devices import device_count as device_count
from tracebridge._api.devices import devices as devices
from tracebridge._api.devices import local_device_count as local_device_count
from tracebridge._api.devices import local_devices as local_devices
from tracebridge._api.eval_shape import eval_shape as eval_shape
from tracebridge._api.grad import grad as grad
from tracebridge._api.grad import value_and_grad as value_and_grad
from tracebridge._api.jit import clear_caches as clear_caches
from tracebridge._api.jit import jit as jit
from tracebridge._api.jvp import jvp as jvp
from tracebridge._api.jvp import linearize as linearize
from tracebridge._api.make_jaxpr import make_jaxpr as make_jaxpr
from tracebridge._api.transfer import block_until_ready as block_until_ready
from tracebridge._api.transfer import device_get as device_get
from tracebridge._api.transfer import device_put as device_put
from tracebridge._api.vjp import vjp as vjp
from tracebridge._api.vmap import vmap as vmap
from tracebridge.core.config.config import config as config
from tracebridge.core.dtypes.dtypes import float0 as float0
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct as ShapeDtypeStruct
from tracebridge.core.ir.typeof import typeof as typeof
from tracebridge.core.runtime.array import Array as Array

__version__ = "0.1.0"

# Loaded at first use, so that ``import tracebridge`` stays quick and needs no framework.
_LAZY = frozenset({"lax", "numpy", "tf", "torch", "tree"})


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return _importlib.import_module(f"{__name__}.{name}")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
