"""Fixtures of tests of the engine."""

from __future__ import annotations

import pytest

from tracebridge.core.lowering.rewrites import rows


@pytest.fixture
def without_row_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are lowered as on machines without llvmlite."""
    monkeypatch.setattr(rows, "is_there", lambda: False)
