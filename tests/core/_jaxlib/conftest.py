"""A client and a context of their own for the tests of the door to jaxlib."""

from __future__ import annotations

from typing import Any

import pytest

from tracebridge.core._jaxlib import mlir, xla


@pytest.fixture(scope="module")
def client() -> xla.Client:
    return xla.make_cpu_client(4)


@pytest.fixture(scope="module")
def context() -> Any:
    return mlir.make_context()
