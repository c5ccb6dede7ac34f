"""Import statements for modules that are not here say what to use instead.

Python asks the last finder only for modules that no other finder has: imports that succeed cost
nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_IMPORTS = "_find_and_load_unlocked"
"""The function of Python below which an import statement looks for a module."""


class Finder:
    """Finds nothing; raises where an import statement would find nothing."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Raise ModuleNotFoundError for a module with a way out.

        `importlib.util.find_spec` only asks, and gets its None.
        """
        package, _, name = fullname.rpartition(".")
        if package.partition(".")[0] != __package__ or name.startswith("_"):
            return
        if sys._getframe(2).f_code.co_name != _IMPORTS:
            return
        way_out = importlib.import_module(f"{__package__}._api.programs.missing").instead(
            package, name
        )
        if way_out:
            msg = f"{fullname} is not part of this version\n    way out: {way_out}"
            # With the name of the module Python would hide the error of `from package import name`.
            raise ModuleNotFoundError(msg, name=package)


def install() -> None:
    """Put the finder behind all others, once."""
    if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.append(Finder())
