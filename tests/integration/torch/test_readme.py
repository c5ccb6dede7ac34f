"""The example of the README runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[3] / "README.md"

pytestmark = pytest.mark.torch


def test_example_prints_the_gradient(
    subprocess_environment: dict[str, str], tmp_path: Path
) -> None:
    """The first Python block prints the gradient that its last line promises."""
    text = README.read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert example
    promised = re.findall(r"-?\d+\.\d+", example[1].splitlines()[-1])
    assert promised
    script = tmp_path / "readme_example.py"
    script.write_text(example[1], encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env=subprocess_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    assert promised == re.findall(r"-?\d+\.\d+", done.stdout)
