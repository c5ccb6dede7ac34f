"""The types of the public face, by pyright and by mypy."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BESIDE_PYTHON = str(Path(sys.executable).parent)
PYRIGHT = shutil.which("pyright", path=BESIDE_PYTHON) or shutil.which("pyright")
MYPY = shutil.which("mypy", path=BESIDE_PYTHON) or shutil.which("mypy")
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).parent / "program.py"


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
            str(PROGRAM),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert 0 == done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.skipif(MYPY is None, reason="mypy is not installed")
def test_a_typed_program_by_mypy(tmp_path: Path) -> None:
    """What a user of mypy sees of the package is without noise, in strict mode."""
    # As for an installed package, what stands inside it is not reported.
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    done = subprocess.run(
        [str(MYPY), *options, "--python-executable", sys.executable, str(PROGRAM)],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "build" / "tree")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert 0 == done.returncode, done.stdout


def test_the_typed_program_has_no_exemption() -> None:
    """The program that the checkers pass says nothing to quieten them."""
    text = PROGRAM.read_text("utf-8")
    assert [] == [word for word in ("type: ignore", "pyright:", "cast(", "Any") if word in text]


def test_the_typed_program_runs() -> None:
    """Training lowers the loss."""
    losses = runpy.run_path(str(PROGRAM))["main"]()
    assert losses[-1] < losses[0]
