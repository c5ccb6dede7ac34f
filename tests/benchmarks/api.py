"""The same names for both libraries, so that one case measures either.

Both follow one public API, so ``load("tracebridge")`` and ``load(<name of the peer's package>)``
differ in little: how to clear caches, how to trace and lower.
"""

from __future__ import annotations

import contextlib
import importlib
from types import SimpleNamespace
from typing import Any


def load(package: str) -> Any:
    """The library ``package`` with its numpy and lax modules."""
    root = importlib.import_module(package)
    return SimpleNamespace(
        package=package,
        root=root,
        np=importlib.import_module(f"{package}.numpy"),
        lax=importlib.import_module(f"{package}.lax"),
        jit=root.jit,
        grad=root.grad,
        vmap=root.vmap,
        hessian=getattr(root, "hessian", None),
        make_jaxpr=root.make_jaxpr,
        block=root.block_until_ready,
    )


def width(api: Any, name: str) -> contextlib.AbstractContextManager[Any]:
    """Programs whose name says f64 have 64 bits."""
    return api.root.enable_x64(True) if "f64" in name else contextlib.nullcontext()
