"""Read-only memory of NumPy is copied: exports of an Array can be written to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracebridge.numpy as tnp
from tracebridge import dlpack
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.exchange_errors import LayoutError
from tracebridge.interop.layout import ALIGNMENT, address_of

IMPORTS: dict[str, Callable[..., Any]] = {
    "dlpack": dlpack.from_dlpack,
    "numpy": tnp.from_dlpack,
}


def aligned(n: int) -> np.ndarray[Any, Any]:
    """Zeros that XLA could share."""
    room = np.zeros(n * 4 + ALIGNMENT, np.uint8)
    start = -address_of(room) % ALIGNMENT
    return room[start : start + n * 4].view(np.float32)


def frozen(n: int, folder: Path) -> np.ndarray[Any, Any]:
    host = aligned(n)
    host.flags.writeable = False
    return host


def mapped(n: int, folder: Path) -> np.ndarray[Any, Any]:
    path = folder / "mapped"
    np.zeros(n, np.float32).tofile(path)
    return np.memmap(path, np.float32, "r")


@pytest.mark.parametrize("take", IMPORTS)
@pytest.mark.parametrize("make", [frozen, mapped])
def test_read_only_memory_is_copied(make: Any, take: str, tmp_path: Path) -> None:
    """The Array has memory of its own; sharing is refused where it is demanded."""
    host = make(4096, tmp_path)
    array = IMPORTS[take](host)

    assert not np.shares_memory(host, np.asarray(array))
    np.testing.assert_array_equal(host, np.asarray(array))
    with pytest.raises(LayoutError, match="read-only"):
        IMPORTS[take](host, copy=False)


@pytest.mark.parametrize("take", IMPORTS)
def test_masks_are_not_dropped(take: str) -> None:
    """The elements that a mask hides would come to light."""
    with pytest.raises(ArgumentValueError, match="masked array"):
        IMPORTS[take](np.ma.masked_array(np.arange(3.0), mask=[0, 1, 0]))


class Foreign:
    """An array of another library, over memory of NumPy."""

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self.host = host

    def __dlpack__(self, **options: Any) -> Any:
        return self.host.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.host.__dlpack_device__()


@pytest.mark.parametrize("take", IMPORTS)
def test_read_only_memory_of_other_libraries_is_copied(take: str, tmp_path: Path) -> None:
    """Versioned capsules say that memory is read-only; so it is for whoever wraps it."""
    host = frozen(4096, tmp_path)
    array = IMPORTS[take](Foreign(host))

    assert not np.shares_memory(host, np.asarray(array))
    with pytest.raises(LayoutError, match=r"Foreign.*read-only"):
        IMPORTS[take](Foreign(host), copy=False)
    shared = IMPORTS[take](Foreign(aligned(4096)), copy=False)
    assert shared._sig.borrowed


@pytest.mark.parametrize("take", IMPORTS)
def test_writable_memory_is_shared(take: str) -> None:
    """As before."""
    host = aligned(4096)

    assert np.shares_memory(host, np.asarray(IMPORTS[take](host, copy=False)))


@pytest.mark.parametrize("take", IMPORTS)
@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long double is double here")
@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
def test_long_double_has_no_place_on_devices(take: str, dtype: Any) -> None:
    """The error says that it is the dtype, and not that a transfer failed."""
    with pytest.raises(UnsupportedDtypeError, match=np.dtype(dtype).name):
        IMPORTS[take](np.ones(3, dtype))
