"""Benchmarks that reach into the engine by name run: a name that is gone would end them."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.architecture.sources import ROOT


def test_benchmark_of_passes_sees_all_that_a_program_goes_through() -> None:
    """One program, in which each of its passes has a share of the time."""
    paths = os.pathsep.join([str(ROOT / "build" / "tree"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "tests" / "benchmarks" / "passes.py")]
    command += ["--passes", "--only", "training step"]

    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": paths},
    )

    assert run.returncode == 0, run.stderr
    of_programs = [line for line in run.stdout.splitlines() if line.startswith("    ")]
    (of_another_form,) = [line for line in of_programs if "picks" in line]
    timed = {part.rsplit(maxsplit=1)[0] for part in of_another_form.strip().split(", ")}
    assert timed >= {"key", "one walk", "picks", "shared products"}
