"""Geometry, as in ``scipy.spatial``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._lazy_names import LazyNames as _LazyNames

if TYPE_CHECKING:
    from tracebridge.scipy.spatial import transform as transform

_LATER = _LazyNames(__name__, {}, submodules=("transform",))

__all__ = sorted(_LATER.submodules)  # pyright: ignore[reportUnsupportedDunderAll]  # noqa: PLE0605 - the table is the list


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        return _LATER.load(globals(), name)
