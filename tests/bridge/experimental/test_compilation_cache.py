"""The persistent compilation cache under the names of older programs."""

from __future__ import annotations

from pathlib import Path

import tracebridge as tb
from tracebridge.experimental.compilation_cache import compilation_cache


def test_the_folder_is_the_option(tmp_path: Path) -> None:
    """It stays in force after ``reset_cache``."""
    try:
        compilation_cache.set_cache_dir(tmp_path)
        compilation_cache.reset_cache()
        assert str(tmp_path) == tb.config.compilation_cache_dir
    finally:
        tb.config.update("compilation_cache_dir", None)
