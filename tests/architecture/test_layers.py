"""Imports go down only: the contracts of pyproject.toml hold on the link tree."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from tests.architecture.sources import ROOT, report

LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def test_contracts_are_kept(subprocess_environment: dict[str, str]) -> None:
    """No import points up, there is no second door to jaxlib and no stray framework."""
    done = subprocess.run(
        [sys.executable, "-c", LINT_IMPORTS, "--no-cache"],
        cwd=ROOT,
        env=subprocess_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_engine_folder_has_a_layer() -> None:
    """The list of engine layers names exactly the folders of core/."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    (engine,) = (c for c in contracts if c.get("containers") == ["tracebridge.core"])
    listed = {
        name.strip(" ()")
        for layer in engine["layers"]
        for name in layer.replace("|", ":").split(":")
    }
    folders = {
        p.name for p in (ROOT / "core").iterdir() if p.is_dir() and p.name != "__pycache__"
    } | {p.stem for p in (ROOT / "core").glob("*.py") if p.stem != "__init__"}

    assert not folders - listed, report(
        "children of core/ without a layer", sorted(folders - listed)
    )
