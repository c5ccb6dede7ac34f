"""Options from flags of the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("absl", reason="absl is optional")
PRINT = "print(c.enable_x64, c.default_matmul_precision, c.num_cpu_devices == 2)\n"
NOW = f"import tracebridge as tb\nc = tb.config\nc.parse_flags_with_absl()\n{PRINT}"
LATER = (
    "import tracebridge as tb\n"
    "from absl import app\n"
    "c = tb.config\n"
    "c.config_with_absl()\n"
    f"{PRINT}"
    "def main(argv):\n"
    f"    {PRINT}"
    "app.run(main)\n"
)


def run(
    program: str, environment: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with these arguments."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "False None False\n"),
        (("--jax_enable_x64", "--other=3", "rest"), "True None False\n"),
        (("--tracebridge_enable_x64=true", "--jax_num_cpu_devices=2"), "True None True\n"),
        (("--nojax_enable_x64", "--jax_default_matmul_precision=highest"), "False highest False\n"),
    ],
)
def test_flags_are_taken_at_once(
    arguments: tuple[str, ...], expected: str, subprocess_environment: dict[str, str]
) -> None:
    """Flags of options change them, under both prefixes; others are left alone."""
    done = run(NOW * 2, subprocess_environment, *arguments)

    assert (expected * 2, "") == (done.stdout, done.stderr)


def test_flags_are_taken_when_absl_parses(subprocess_environment: dict[str, str]) -> None:
    """Defined flags change their options where the program starts."""
    done = run(LATER, subprocess_environment, "--jax_enable_x64")

    assert "False None False\nTrue None False\n" == done.stdout


def test_wrong_values_of_flags(subprocess_environment: dict[str, str]) -> None:
    """The error names the option and its choices."""
    done = run(NOW, subprocess_environment, "--jax_default_matmul_precision=sometimes")

    assert "OptionValueError: option default_matmul_precision: got 'sometimes'" in done.stderr
