"""Doors for code that extends the engine: primitives, programs, MLIR, generators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._lazy_names import LazyNames as _LazyNames

if TYPE_CHECKING:
    from tracebridge.extend import backend as backend
    from tracebridge.extend import core as core
    from tracebridge.extend import ifrt_programs as ifrt_programs
    from tracebridge.extend import linear_util as linear_util
    from tracebridge.extend import mlir as mlir
    from tracebridge.extend import random as random
    from tracebridge.extend import source_info_util as source_info_util

__all__: list[str] = []  # a star takes no submodules

_LATER = _LazyNames(
    __name__,
    {},
    submodules=(
        "backend",
        "core",
        "ifrt_programs",
        "linear_util",
        "mlir",
        "random",
        "source_info_util",
    ),
)


def __dir__() -> list[str]:
    return sorted(_LATER.submodules)


if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        return _LATER.load(globals(), name)
