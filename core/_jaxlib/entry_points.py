"""Modules that installed packages announce as entry points.

Most environments announce none. To know that, reading the small files in which packages list their
entry points is enough: the import of `importlib.metadata` takes longer than all else that the
first device needs, so it waits until there is something to be read properly.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def announced_modules(group: str) -> set[str]:
    """The modules that installed packages announce as entry points of a group."""
    if not _is_mentioned(group):
        return set()
    metadata = importlib.import_module("importlib.metadata")
    return {entry.value for entry in metadata.entry_points(group=group)}


def _is_mentioned(group: str) -> bool:
    """Whether an installed package may have entry points of a group."""
    others = (f for f in sys.meta_path if f is not PathFinder)
    if any(hasattr(finder, "find_distributions") for finder in others):
        return True  # packages that lie elsewhere than in folders
    header = f"[{group}]".encode()
    return any(_mentions(Path(entry), header) for entry in sys.path)


def _mentions(folder: Path, header: bytes) -> bool:
    """Whether an entry of the module path has packages with a section in their entry points."""
    if folder.is_file() or folder.suffix == ".egg":
        return True  # an archive, which is not looked into here
    try:
        return any(header in f.read_bytes() for f in folder.glob("*-info/entry_points.txt"))
    except OSError:
        return True
