"""Custom call targets: LAPACK on the CPU, targets of users, capsules.

Target names are process-wide in XLA and every library on this jaxlib registers the LAPACK ones;
registering the same function under the same name again is harmless. Registration happens at
first use, so that importing this module costs nothing.
Thread-safety: the sets of registered names are changed by single operations; two threads may
register the same target twice, which is harmless.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxlib
import numpy as np
from jaxlib import _jax, xla_client

_registered: set[str] = set()
targets_of_users: set[str] = set()
"""What was registered by ``register_target``: functions of which the user of this process knows."""

_LAPACK_PREFIXES = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}

Buffer: Any = _jax.ffi.Buffer
"""Memory of a running program that a Python function may write; valid while it is called."""

ExecutionContext: Any = _jax.ffi.ExecutionContext
"""What a running program tells a Python function: the stage, and the stream of a GPU."""

ExecutionStage: Any = _jax.ffi.ExecutionStage
"""The stage of a program in which a Python function is called."""

ONEDNN = "__onednn$"
"""What the names begin with by which XLA calls oneDNN, on x86. They are no registered targets.

Programs with such a call cannot be serialized: XLA takes its thunk for one of another class and
reads memory that is not its own (jaxlib 0.10.2).
"""

KERNEL = "tracebridge_kernel_"
"""What the names of kernels begin with that this process has compiled (``core/kernels``).

Another process does not know them: programs that call one are compiled there, not loaded.
"""

UNTYPED, TYPED = 0, 1
"""Versions of the FFI: the old one without types, and XLA's typed FFI."""


def _lapack_extension() -> Any:
    """Return the C++ extension with the LAPACK kernels; importing it is not needed at start-up."""
    return importlib.import_module("jaxlib.cpu._lapack")


def register_lapack_targets() -> None:
    """Make the LAPACK targets known to the CPU compiler and load the kernels, once."""
    if "lapack" in _registered:
        return
    extension = _lapack_extension()
    for name, capsule in extension.registrations().items():
        version = TYPED if name.endswith("_ffi") else UNTYPED
        xla_client.register_custom_call_target(name, capsule, platform="cpu", api_version=version)
        if version == TYPED:
            xla_client.register_custom_call_as_batch_partitionable(name)
    extension.initialize()  # finds the LAPACK routines of SciPy
    _registered.add("lapack")


def register_sparse_targets() -> None:
    """Make the sparse-times-dense target known to the CPU compiler, once."""
    if "sparse" in _registered:
        return
    extension = importlib.import_module("jaxlib.cpu._sparse")
    for name, capsule in extension.registrations().items():
        xla_client.register_custom_call_target(name, capsule, platform="cpu", api_version=TYPED)
    _registered.add("sparse")


def lapack_target(base: str, dtype: Any) -> str:
    """Return the target name of a LAPACK routine.

    E.g. ('potrf_ffi', float32) -> 'lapack_spotrf_ffi'. Registers the targets at first use.

    Raises:
        TypeError: if LAPACK has no routine for this dtype.
    """
    name = np.dtype(dtype).name
    prefix = _LAPACK_PREFIXES.get(name)
    if prefix is None:
        raise TypeError(
            f"LAPACK routine {base}: got dtype {name}, expected one of {list(_LAPACK_PREFIXES)}"
        )
    register_lapack_targets()
    return f"lapack_{prefix}{base}"


def register_target(
    name: str,
    fn: Any,
    platform: str = "cpu",
    api_version: int = TYPED,
    *,
    batch_partitionable: bool = False,
    **kwargs: Any,
) -> None:
    """Register a custom call target for all clients of a platform ('cpu', 'CUDA', ...).

    It is one that programs that are read from somewhere may ask to call.

    `fn` is a capsule, or a dict of stage name to capsule for the typed FFI.
    """
    xla_client.register_custom_call_target(
        name, fn, platform=platform, api_version=api_version, **kwargs
    )
    targets_of_users.add(name)
    if batch_partitionable:
        xla_client.register_custom_call_as_batch_partitionable(name)


def register_as_batch_partitionable(name: str) -> None:
    """Say that a target treats the elements of its leading axes alone."""
    xla_client.register_custom_call_as_batch_partitionable(name)


def register_type(name: str, type_id: Any, platform: str = "cpu") -> None:
    """Register a type id that typed FFI handlers use."""
    xla_client.register_custom_type(name, type_id, platform=platform)


def register_kernel(name: str, address: int) -> None:
    """Register machine code of this process as a target of the CPU."""
    capsule = make_capsule(ctypes.c_void_p(address))
    xla_client.register_custom_call_target(name, capsule, platform="cpu", api_version=TYPED)


def make_capsule(function: Any) -> Any:
    """Return a capsule around a `ctypes` function pointer, for `register_target`."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.cast(function, ctypes.c_void_p), None, None)


def include_dir() -> str:
    """Return the folder with the C++ headers of the typed FFI."""
    return str(Path(jaxlib.__file__).parent / "include")


register_custom_call_partitioner: Callable[..., None] = xla_client.register_custom_call_partitioner
"""Register Python functions that propagate shardings through, and partition, a custom call."""
