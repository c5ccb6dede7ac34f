"""Frames of libraries that tracebacks leave out, in the form in which libraries ask for them."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableSequence
from pathlib import Path
from types import FrameType
from typing import Any, final

from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.filtering import is_internal_file, mark_internal, unmark_internal


def include_frame(frame: FrameType) -> bool:
    """Whether tracebacks show a frame: neither the engine's nor that of a left out file.

    Args:
        frame: frame of the interpreter.

    >>> import sys
    >>> from tracebridge._src import traceback_util
    >>> traceback_util.include_frame(sys._getframe())
    True
    """
    return not is_internal_file(frame.f_code.co_filename)


@final
class ExcludedPaths(MutableSequence[str]):
    """The files and folders whose frames tracebacks leave out: what libraries add and remove.

    >>> from tracebridge._src import traceback_util
    >>> traceback_util._exclude_paths.append("/usr/lib/some_other_library/")
    >>> "/usr/lib/some_other_library/" in traceback_util._exclude_paths
    True
    >>> traceback_util._exclude_paths.remove("/usr/lib/some_other_library/")
    """

    def __init__(self) -> None:
        self._paths: list[str] = []

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __getitem__(self, index: int | slice) -> Any:
        return self._paths[index]

    def __setitem__(self, index: int | slice, value: object) -> None:
        if isinstance(index, slice):
            msg = "paths are replaced one by one"
            raise ArgumentTypeError(msg)
        before: str = self._paths[index]
        self._paths[index] = str(value)
        mark_internal(str(value))
        if before not in self._paths:
            unmark_internal(before)

    def __delitem__(self, index: int | slice) -> None:
        removed = self._paths[index]
        del self._paths[index]
        for path in [removed] if isinstance(removed, str) else removed:
            if path not in self._paths:
                unmark_internal(path)

    def insert(self, index: int, value: str) -> None:
        """Leave out the frames of one more file, or of all files below a folder."""
        self._paths.insert(index, value)
        mark_internal(value)


EXCLUDED_PATHS = ExcludedPaths()


def register_exclusion(path: str) -> None:
    """Leave the frames of a file, or of all files in a folder, out of tracebacks and messages.

    Args:
        path: the file or the folder.

    >>> from tracebridge.extend import source_info_util
    >>> source_info_util.register_exclusion("/usr/lib/some_library/")
    """
    is_folder = Path(path).is_dir() and not path.endswith(os.sep)
    EXCLUDED_PATHS.append(path + os.sep if is_folder else path)
