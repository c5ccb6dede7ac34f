"""The clients of the runtime behind devices, for code that calls them itself."""

from __future__ import annotations

from typing import Any

from tracebridge.core.runtime.backends.clients import default_placement, started
from tracebridge.core.runtime.backends.clients import get_backend as backend_by_name


def get_backend(platform: object = None) -> Any:
    """The client of a platform; started if it was not used yet.

    Args:
        platform: "cpu", "gpu", "cuda" or "tpu"; None for the default one. A client is given back.

    Raises:
        BackendNotFoundError: no such platform is installed, or it could not be started.

    >>> from tracebridge.extend import backend
    >>> backend.get_backend("cpu").platform
    'cpu'
    """
    if platform is not None and not isinstance(platform, str):
        return platform
    return backend_by_name(platform).client


def backends() -> dict[str, Any]:
    """The clients that run in this process, by the name of their platform.

    The default one is started if none was used yet.

    >>> from tracebridge.extend import backend
    >>> backend.get_backend() in backend.backends().values()
    True
    """
    backend_by_name()
    return {found.platform: found.client for found in started()}


def get_default_device() -> Any:
    """Where computations run that neither arguments nor a mesh bind to a place.

    >>> import tracebridge as tb
    >>> from tracebridge.extend import backend
    >>> with tb.default_device(tb.devices()[0]):
    ...     backend.get_default_device() == tb.devices()[0]
    True
    """
    return default_placement().device
