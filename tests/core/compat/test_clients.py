"""extend.backend: clients by platform, and the default device."""

from __future__ import annotations

import pytest

import tracebridge as tb
from tracebridge.errors import BackendNotFoundError
from tracebridge.extend import backend


def test_clients() -> None:
    """One for each platform in use; its devices are those of the package."""
    client = backend.get_backend("cpu")

    assert client is backend.get_backend(client) is backend.backends()["cpu"]
    assert tb.devices("cpu") == client.devices()
    assert backend.get_backend() is tb.devices()[0].client
    assert len(backend.backends()) == len({id(c) for c in backend.backends().values()})
    with pytest.raises(BackendNotFoundError, match="abacus"):
        backend.get_backend("abacus")


def test_default_device() -> None:
    """The option decides, else it is the first device; there computations run."""
    assert tb.local_devices()[0] == backend.get_default_device()
    last = tb.devices()[-1]
    with tb.default_device(last):
        assert last == backend.get_default_device()
        assert {last} == tb.numpy.ones(2).devices()
