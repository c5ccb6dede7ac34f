"""Fixtures of tests of the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tracebridge.core.lowering.rewrites import batches, by_content, rows, steps


@pytest.fixture
def own_rewrites() -> Iterator[None]:
    """Programs that were rewritten before, and those of a test that patches rewrites, are apart."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    by_content._KNOWN.clear()
    steps._BODIES.clear()


@pytest.fixture
def without_kernels(own_rewrites: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are lowered as on machines without llvmlite."""
    del own_rewrites
    for rewrites in (batches, rows, steps):
        monkeypatch.setattr(rewrites, "is_there", lambda: False)
