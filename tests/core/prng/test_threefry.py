"""threefry_2x32 on arrays of counters."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.lax.rng import threefry2x32_p
from tracebridge.core.prng.threefry import threefry_2x32

U32 = np.uint32


@pytest.mark.parametrize(
    ("key", "counters", "expected"),
    [
        ((0, 0), [0, 0], [0x6B200159, 0x99BA4EFE]),
        ((2**32 - 1, 2**32 - 1), [2**32 - 1, 2**32 - 1], [0x1CB996FC, 0xBB002BE7]),
        ((0x13198A2E, 0x03707344), [0x243F6A88, 0x85A308D3], [0xC4923A9C, 0x483DF7A0]),
    ],
)
def test_published_vectors(key: tuple[int, int], counters: list[int], expected: list[int]) -> None:
    """The key as an array or as two scalars."""
    count = np.array(counters, U32)

    assert expected == threefry_2x32(np.array(key, U32), count).tolist()
    assert expected == threefry_2x32(tuple([U32(k) for k in key]), count).tolist()


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (3, 3), (0,)], ids=str)
def test_halves_are_encrypted_together(shape: tuple[int, ...]) -> None:
    """The first half of the counters with the second; an odd one with zero."""
    key = np.array([1, 2], U32)
    size = int(np.prod(shape, dtype=int))
    count = np.arange(10, 10 + size, dtype=U32)
    padded = np.concatenate([count, np.zeros(size % 2, U32)])
    first, second = np.split(padded, 2)
    words = [tb.device_put(v) for v in (key[0], key[1], first, second)]
    expected = np.concatenate([np.asarray(w) for w in threefry2x32_p.bind(*words)])[:size]

    result = np.asarray(threefry_2x32(key, count.reshape(shape)))

    assert shape == result.shape
    assert expected.tolist() == result.reshape(-1).tolist()


def test_mapped_keys() -> None:
    """Mapping over keys equals a loop, inside jit too."""
    keys, count = np.arange(6, dtype=U32).reshape(3, 2), np.arange(5, dtype=U32)

    mapped = tb.jit(tb.vmap(threefry_2x32, in_axes=(0, None)))(keys, count)

    assert [threefry_2x32(k, count).tolist() for k in keys] == mapped.tolist()


def test_errors() -> None:
    """Keys have two words; everything is uint32."""
    with pytest.raises(ShapeMismatchError, match=r"got a key u32\[3\], expected u"):
        threefry_2x32(np.zeros(3, U32), np.zeros(2, U32))
    with pytest.raises(ShapeMismatchError, match="expected two scalars"):
        threefry_2x32((np.zeros(2, U32), U32(1)), np.zeros(2, U32))
    with pytest.raises(DtypeMismatchError, match="expected uint32"):
        threefry_2x32(np.zeros(2, U32), np.zeros(2, np.int32))
