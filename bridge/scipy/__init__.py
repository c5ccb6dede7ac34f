"""SciPy's functions on engine arrays; each submodule is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._lazy_names import LazyNames as _LazyNames

if TYPE_CHECKING:
    from tracebridge.scipy import cluster as cluster
    from tracebridge.scipy import fft as fft
    from tracebridge.scipy import integrate as integrate
    from tracebridge.scipy import interpolate as interpolate
    from tracebridge.scipy import linalg as linalg
    from tracebridge.scipy import ndimage as ndimage
    from tracebridge.scipy import optimize as optimize
    from tracebridge.scipy import signal as signal
    from tracebridge.scipy import sparse as sparse
    from tracebridge.scipy import spatial as spatial
    from tracebridge.scipy import special as special
    from tracebridge.scipy import stats as stats

_LATER = _LazyNames(
    __name__,
    {},
    submodules=(
        "cluster",
        "fft",
        "integrate",
        "interpolate",
        "linalg",
        "ndimage",
        "optimize",
        "signal",
        "sparse",
        "spatial",
        "special",
        "stats",
    ),
)

__all__ = sorted(_LATER.submodules)  # pyright: ignore[reportUnsupportedDunderAll]  # noqa: PLE0605 - the table is the list


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        return _LATER.load(globals(), name)
