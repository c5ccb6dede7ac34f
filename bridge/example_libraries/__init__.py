"""Small libraries on the public functions: optimizers of trees, layers as pairs of functions.

They are for programs that are written with them and for first steps; new models are better served
by libraries of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._lazy_names import LazyNames as _LazyNames

if TYPE_CHECKING:
    from tracebridge.example_libraries import optimizers as optimizers
    from tracebridge.example_libraries import stax as stax

__all__: list[str] = []  # a star takes no submodules

_LATER = _LazyNames(__name__, {}, submodules=("optimizers", "stax"))


def __dir__() -> list[str]:
    return sorted(_LATER.submodules)


if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        return _LATER.load(globals(), name)
