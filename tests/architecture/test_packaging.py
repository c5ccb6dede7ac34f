"""What is shipped is what is in the folders, and the folders are the agreed ones."""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.sources import ROOT, package_sources, read, report

TOP_LEVEL_FOLDERS = {"bridge", "core", "interop", "tests", "examples", "docs"}
# Made by tools, not part of the repository.
GENERATED = {"build", "dist", "__pycache__"}


def test_packages_list_equals_the_folders() -> None:
    """Setuptools ships every folder with Python files, and lists none that is gone."""
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "packages"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_folder_is_a_package() -> None:
    """Each folder with Python files has an `__init__.py`, or it would not be shipped."""
    folders = {source.path.parent for source in package_sources()}
    missing = sorted(
        folder.as_posix() for folder in folders if not (ROOT / folder / "__init__.py").exists()
    )

    assert not missing, report("folders without an __init__.py", missing)


def test_top_level_folders_are_fixed() -> None:
    """Nothing is added at the top level of the repository."""
    present = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith(".") and not path.name.endswith(".egg-info")
    }

    assert not present - TOP_LEVEL_FOLDERS - GENERATED


def test_the_package_has_a_type_marker() -> None:
    """`py.typed` is there, or type checkers ignore our annotations."""
    assert (ROOT / "bridge" / "py.typed").exists()


def test_nothing_in_bridge_is_runnable() -> None:
    """A script started inside `bridge/` would see our `numpy` as `numpy`: there are none."""
    runnable = [
        source.name
        for source in package_sources()
        if source.path.name == "__main__.py" or "__main__" in string_constants(source.text)
    ]

    assert not runnable


def test_bridge_does_not_hide_the_other_folders() -> None:
    """`bridge/core` or `bridge/interop` would take the place of the mapped folder."""
    clashes = [name for name in ("core", "interop") if (ROOT / "bridge" / name).exists()]

    assert not clashes


def test_tests_are_not_packages() -> None:
    """Test folders have no `__init__.py`: two folders of the same name must not collide."""
    inits = [source.name for source in read("tests") if source.is_init]

    assert not inits


def string_constants(text: str) -> set[str]:
    """The part of a file that could start a script: the name compared with `__name__`."""
    return {"__main__"} if "__name__ ==" in text else set()
