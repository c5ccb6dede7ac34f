"""Rules of primitives: differentiation, batching, lowering, partial evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._lazy_names import LazyNames as _LazyNames

if TYPE_CHECKING:
    from tracebridge.interpreters import ad as ad
    from tracebridge.interpreters import batching as batching
    from tracebridge.interpreters import mlir as mlir
    from tracebridge.interpreters import partial_eval as partial_eval
    from tracebridge.interpreters import pxla as pxla
    from tracebridge.interpreters import xla as xla

__all__: list[str] = []  # a star takes no submodules

_LATER = _LazyNames(
    __name__, {}, submodules=("ad", "batching", "mlir", "partial_eval", "pxla", "xla")
)


def __dir__() -> list[str]:
    return sorted(_LATER.submodules)


if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        return _LATER.load(globals(), name)
