"""The types of the public face, by pyright."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BESIDE_PYTHON = str(Path(sys.executable).parent)
PYRIGHT = shutil.which("pyright", path=BESIDE_PYTHON) or shutil.which("pyright")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed")
def test_types_of_public_functions() -> None:
    """Every assert_type holds, and every exemption in the file is needed."""
    done = subprocess.run(
        [
            str(PYRIGHT),
            "--pythonpath",
            sys.executable,
            "--level",
            "error",
            str(Path(__file__).parent / "arrays.py"),
            str(Path(__file__).parent / "callables.py"),
            str(Path(__file__).parent / "values.py"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert 0 == done.returncode, done.stdout
