"""The most bytes that some code has allocated at a time, exactly: a preloaded library counts.

Pages of the process say less: small tensors fill holes of a heap that the process holds already,
and a library that keeps its scratch memory between calls has it before they are looked at.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).with_suffix(".c")
_VARIABLE = "TRACEBRIDGE_COUNTED_ALLOCATIONS"  # the path of the library, in the second process


def with_counter(command: list[str], folder: Path) -> int:
    """Run a command in a process that counts: its exit status.

    Products of MKL give their scratch memory back, as those of XLA and oneDNN do.
    """
    library = folder / "allocations.so"
    flags = ["-O2", "-shared", "-fPIC", "-fno-builtin"]
    subprocess.run(["cc", *flags, str(_SOURCE), "-o", str(library)], check=True)
    added = {"LD_PRELOAD": str(library), _VARIABLE: str(library), "MKL_DISABLE_FAST_MM": "1"}
    return subprocess.run(command, check=False, env=os.environ | added).returncode


def counts() -> bool:
    """Whether this process counts."""
    return _VARIABLE in os.environ


def start_again() -> None:
    """Run this program in a process that counts, and end; return in that process."""
    if not counts():
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(with_counter(sys.orig_argv, Path(folder)))


def most_allocated(run: Callable[[], Any]) -> int:
    """Bytes of the peak of ``run()`` above what was allocated before it."""
    library = ctypes.CDLL(os.environ[_VARIABLE])
    library.mark_allocations.restype = library.allocations_since_mark.restype = ctypes.c_long
    before = int(library.mark_allocations())
    kept = run()
    most = int(library.allocations_since_mark())
    del kept
    return most - before
