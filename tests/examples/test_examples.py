"""The examples run in their short form, report what they promise, and leave their pictures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

EXAMPLES = ROOT / "examples"
PARTS = {"support", "digits_model", "digits_report", "digits_times"}  # of the examples, no programs
# example -> what its report says, where a short run already knows the answer
REPORTS = {
    "kalman_fit": r"noise 1509\d, of the drift 14[67]\d ",  # Durbin and Koopman: 15099, 1469
    "newton_optimizer": r"the right class for 98\.\d%",
    "neural_ode": r"last step +0\.\d+",
    "private_gradients": r"not trained on: (8[5-9]|9\d)\.\d%",
    "inverse_kinematics": r"points reached +100\.0%",
    "saved_model": r"batch of 7",
    "keras_layer": r"the right digit for [89]\d\.\d%",
    "torch_to_tensorflow": r"batch of 7",
    "train_steps": r"agree in 2 ways",
}

FRAMEWORKS = {
    "saved_model": ["tensorflow"],
    "keras_layer": ["tensorflow"],
    "torch_to_tensorflow": ["tensorflow", "torch"],
}


def test_readme_and_tests_know_every_example() -> None:
    """An example that the README does not name is not found; one without a test goes stale."""
    pages = {path.stem for path in EXAMPLES.glob("*.py")} - PARTS
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert pages == {"digits", *REPORTS}
    assert not [name for name in pages if f"(examples/{name}.py)" not in readme]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_short_run(name: str, tmp_path: Path) -> None:
    """The short run ends well, says what is right, and draws; its bars stay out of logs."""
    for framework in FRAMEWORKS.get(name, ["torch"]):
        pytest.importorskip(framework)
    pytest.importorskip("sklearn")
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--smoke", "--out", str(tmp_path)]

    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert run.returncode == 0, run.stderr
    assert re.search(REPORTS[name], run.stdout), run.stdout
    assert (tmp_path / f"{name}.png").stat().st_size > 1000
    assert "it/s" not in run.stderr
    assert "step/s" not in run.stderr
