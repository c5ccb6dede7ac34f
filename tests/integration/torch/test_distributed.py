"""DTensors, DDP, FSDP2 and tensor parallel layers, by two processes that talk to one another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed"),
]


@pytest.mark.filterwarnings("ignore")  # gloo and DTensor warn about deprecations of their own
def test_two_processes(tmp_path):
    """This process is one of them."""
    from tests.integration.torch import distributed_cases

    rendezvous = str(tmp_path / "rendezvous")
    other = subprocess.Popen(
        [sys.executable, "-m", distributed_cases.__name__, rendezvous],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        distributed_cases.together(0, rendezvous)
        _, errors = other.communicate(timeout=120)
    except BaseException as error:
        other.kill()
        error.add_note(f"the other process: {other.communicate()[1][-3000:]}")
        raise
    assert other.returncode == 0, errors
