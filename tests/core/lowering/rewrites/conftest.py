"""Rewrites are tested as they are where no kernels take their equations."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def rewrites_alone(without_kernels: None) -> None:
    """All tests of this folder."""
    del without_kernels
