"""Devices and processes."""

from __future__ import annotations

from typing import Any

from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import BackendNotFoundError
from tracebridge.core.runtime.backends.clients import Backend, get_backend


def _backend(backend: Any) -> Backend:
    if backend is None or isinstance(backend, str):
        return get_backend(backend)
    if isinstance(backend, Backend):
        return backend
    msg = f"got a backend {backend!r} of type {type(backend).__name__}"
    raise BackendNotFoundError(msg, expected="a platform name such as 'cpu' or 'gpu', or None")


@api_boundary
def devices(backend: str | None = None) -> list[Any]:
    """All devices of a platform, also those of other processes.

    Args:
        backend: platform name ("cpu", "gpu", "cuda", "tpu"); None is the default platform.

    Raises:
        BackendNotFoundError: there is no such platform.

    >>> import tracebridge as tb
    >>> tb.devices("cpu")[0].platform
    'cpu'
    """
    return list(_backend(backend).devices)


@api_boundary
def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Any]:
    """The devices of one process.

    Args:
        process_index: which process; None is this one.
        backend: as in ``devices``.
        host_id: older name of ``process_index``.

    Raises:
        BackendNotFoundError: there is no such platform.
        ValueError: there is no such process.
        ArgumentValueError: there is no process of that number.

    >>> import tracebridge as tb
    >>> len(tb.local_devices(backend="cpu")) == tb.local_device_count("cpu")
    True
    """
    if process_index is None:
        process_index = host_id
    client = _backend(backend)
    if process_index is None:
        process_index = client.client.process_index()
    known = sorted({d.process_index for d in client.devices})
    if process_index not in known:
        msg = f"local_devices: process_index={process_index!r}, expected one of {known}"
        raise ArgumentValueError(msg)
    return [d for d in client.devices if d.process_index == process_index]


def device_count(backend: str | None = None) -> int:
    """Number of devices of all processes.

    >>> import tracebridge as tb
    >>> tb.device_count() == len(tb.devices())
    True
    """
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """Number of devices of this process.

    >>> import tracebridge as tb
    >>> tb.local_device_count() >= 1
    True
    """
    return len(local_devices(backend=backend))


@api_boundary
def process_index(backend: str | None = None) -> int:
    """The number of this process: 0 where there is only one.

    >>> import tracebridge as tb
    >>> tb.process_index()
    0
    """
    return _backend(backend).client.process_index()


def process_count(backend: str | None = None) -> int:
    """Number of processes.

    >>> import tracebridge as tb
    >>> tb.process_count()
    1
    """
    return len(process_indices(backend))


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes.

    >>> import tracebridge as tb
    >>> tb.process_indices()
    [0]
    """
    return sorted({d.process_index for d in devices(backend)})


@api_boundary
def default_backend() -> str:
    """The platform on which computations run by default.

    >>> import tracebridge as tb
    >>> tb.default_backend() in ("cpu", "gpu", "tpu")
    True
    """
    platform = get_backend().platform
    return "gpu" if platform in ("cuda", "rocm") else platform


def host_id(backend: str | None = None) -> int:
    """Older name of ``process_index``.

    >>> import tracebridge as tb
    >>> tb.host_id()
    0
    """
    return process_index(backend)


def host_ids(backend: str | None = None) -> list[int]:
    """Older name of ``process_indices``.

    >>> import tracebridge as tb
    >>> tb.host_ids()
    [0]
    """
    return process_indices(backend)


def host_count(backend: str | None = None) -> int:
    """Older name of ``process_count``.

    >>> import tracebridge as tb
    >>> tb.host_count()
    1
    """
    return process_count(backend)
