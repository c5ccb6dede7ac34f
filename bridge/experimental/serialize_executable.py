"""Compiled programs as bytes, for processes that are to run them without compiling.

They are for the same version of jaxlib, the same platform and the same kind of machine; what
``tracebridge.export`` saves is not compiled yet and runs elsewhere too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge.core.aot.compiled import Compiled
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.export.executables import executable_from_bytes, executable_to_bytes
from tracebridge.core.runtime.backends.clients import backend_of, get_backend
from tracebridge.core.tree.tree import PyTreeDef

__all__ = ["deserialize_and_load", "serialize"]


def serialize(compiled: Compiled) -> tuple[bytes, PyTreeDef, PyTreeDef]:
    """A compiled program as bytes, and the structures of its arguments and of its result.

    The structures are beside the bytes because they may hold objects of any kind.

    Args:
        compiled: result of ``jit(f).lower(...).compile()``. Arrays that ``f`` closes over are
            saved with it.

    Raises:
        ArgumentTypeError: ``compiled`` is something else.
        ExportError: the program calls functions of this process, or uses references, or the
            platform cannot save programs.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental import serialize_executable
    >>> compiled = tb.jit(lambda x: 2 * x).lower(1.0).compile()
    >>> saved, in_tree, out_tree = serialize_executable.serialize(compiled)
    >>> loaded = serialize_executable.deserialize_and_load(saved, in_tree, out_tree)
    >>> print(loaded(3.0))
    6.0
    """
    return executable_to_bytes(compiled), compiled.in_tree, compiled.out_tree


def deserialize_and_load(
    serialized: bytes,
    in_tree: PyTreeDef,
    out_tree: PyTreeDef,
    backend: Any = None,
    execution_devices: Sequence[Any] | None = None,
) -> Compiled:
    """The compiled program of ``serialize``. Load only what you trust: it is machine code.

    Args:
        serialized: the bytes.
        in_tree: structure of the arguments.
        out_tree: structure of the result.
        backend: platform to run on, or its client; None is the default one.
        execution_devices: devices to run on; None are all of the platform. Those of the ids that
            the program had are taken, failing that the first ones.

    Raises:
        DevicePlacementError: devices are of another backend, or there are too few of them.
        ExportError: the bytes are damaged, or were made for another jaxlib or platform.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental import serialize_executable
    >>> compiled = tb.jit(lambda x: x + 1).lower(1).compile()
    >>> loaded = serialize_executable.deserialize_and_load(
    ...     *serialize_executable.serialize(compiled))
    >>> print(loaded(2))
    3
    """
    named = backend is None or isinstance(backend, str)
    client: Any = get_backend(backend).client if named else backend
    devices: Sequence[Any] = client.devices() if execution_devices is None else execution_devices
    if any([backend_of(d).client is not client for d in devices]):
        msg = f"deserialize_and_load: execution_devices are {list(devices)}"
        raise DevicePlacementError(msg, expected=f"devices of the backend {client.platform}")
    return executable_from_bytes(serialized, in_tree, out_tree, devices)


_shield(globals(), __name__)
