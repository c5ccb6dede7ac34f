"""What tests of torch share."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    """One process that talks to itself.

    It ends after what the test has made: the last owner of a group that dies in the middle of
    Python makes torch wait for threads that wait for Python.
    """
    from torch import distributed

    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1
    )
    yield
    gc.collect()
    distributed.destroy_process_group()
