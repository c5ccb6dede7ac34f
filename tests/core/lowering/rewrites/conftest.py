"""Rewrites are tested as they are where no kernels take their equations."""

from __future__ import annotations

import pytest

from tracebridge.core.lowering.rewrites import rows


@pytest.fixture(autouse=True)
def without_row_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on machines without llvmlite."""
    monkeypatch.setattr(rows, "is_there", lambda: False)
