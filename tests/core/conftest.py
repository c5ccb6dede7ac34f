"""Fixtures of tests of the engine."""

from __future__ import annotations

import pytest

from tracebridge.core.lowering.rewrites import batches, rows, steps


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are lowered as on machines without llvmlite."""
    for rewrites in (batches, rows, steps):
        monkeypatch.setattr(rewrites, "is_there", lambda: False)
