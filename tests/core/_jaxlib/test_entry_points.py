"""Modules that installed packages announce are found, and nothing is imported if there are none."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tracebridge.core._jaxlib.entry_points import announced_modules

GROUP = "tracebridge_test_group"
ENTRIES = f"[{GROUP}]\nfirst = some.module\n"


def package(folder: Path, info: str, entries: str) -> None:
    """An installed package with entry points."""
    (folder / info).mkdir(parents=True)
    (folder / info / "METADATA").write_text("Metadata-Version: 2.1\nName: p\nVersion: 1\n")
    (folder / info / "entry_points.txt").write_text(entries)


def test_packages_in_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package(tmp_path, "other-1.dist-info", "[console_scripts]\nrun = a:b\n")
    assert announced_modules(GROUP) == set()
    package(tmp_path, "p-1.dist-info", ENTRIES)
    assert announced_modules(GROUP) == {"some.module"}


def test_packages_in_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "p-1.dist-info", ENTRIES)
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for file in (tmp_path / "p-1.dist-info").iterdir():
            out.write(file, f"p-1.dist-info/{file.name}")
    monkeypatch.syspath_prepend(str(archive))
    assert announced_modules(GROUP) == {"some.module"}


def test_packages_of_other_finders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    package(tmp_path, "p-1.dist-info", ENTRIES)

    class Finder(importlib.metadata.DistributionFinder):
        def find_spec(self, *_: Any) -> None:
            return None

        def find_distributions(self, context: Any = None) -> Any:
            del context
            return [importlib.metadata.Distribution.at(tmp_path / "p-1.dist-info")]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert announced_modules(GROUP) == {"some.module"}


@pytest.mark.skipif(bool(announced_modules("jax_plugins")), reason="a device plugin is installed")
def test_the_first_operation_imports_no_metadata_and_no_cache() -> None:
    code = (
        "import sys, tracebridge.numpy as tnp\n"
        "print(tnp.ones(2) + 1)\n"
        "heavy = {'email', 'hashlib', 'shutil', 'importlib.metadata'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
