"""The folder of the persistent compilation cache: the option ``compilation_cache_dir``."""

from __future__ import annotations

import os

from tracebridge.core.config.config import config
from tracebridge.core.errors.filtering import shield as _shield

__all__ = ["reset_cache", "set_cache_dir"]


def set_cache_dir(path: str | os.PathLike[str]) -> None:
    """Keep executables in the folder ``path``, and take them from there.

    The same as ``tracebridge.config.update("compilation_cache_dir", path)``. What is in the folder
    is run: nobody else may write there.

    Args:
        path: the folder; it is made when the first executable is written.

    >>> import tempfile
    >>> import tracebridge as tb
    >>> from tracebridge.experimental.compilation_cache import compilation_cache
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     compilation_cache.set_cache_dir(folder)
    ...     print(tb.config.compilation_cache_dir == folder)
    True
    >>> tb.config.update("compilation_cache_dir", None)
    """
    config.update("compilation_cache_dir", os.fspath(path))


def reset_cache() -> None:
    """Let another folder count from the next compilation on.

    For programs that call it after a change of the option: here each compilation looks the folder
    up, so that there is nothing to forget. To stop, set the option to None.

    >>> from tracebridge.experimental.compilation_cache import compilation_cache
    >>> compilation_cache.reset_cache()
    """


_shield(globals(), __name__)
