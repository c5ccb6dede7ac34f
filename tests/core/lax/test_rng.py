"""threefry2x32 against the published vectors; the generators of StableHLO."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.config.scopes import scope
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.lax.rng import threefry2x32_p
from tracebridge.testing import check_rules

Host = np.ndarray[Any, Any]
U32 = np.uint32


def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32-20 on Python integers, written after the paper."""
    mask = 2**32 - 1
    schedule = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    x, y = [(c + k) & mask for c, k in zip(counter, key, strict=True)]
    for round_ in range(20):
        distance = (13, 15, 26, 6, 17, 29, 16, 24)[round_ % 8]
        x = (x + y) & mask
        y = ((y << distance | y >> (32 - distance)) & mask) ^ x
        if round_ % 4 == 3:
            step = round_ // 4 + 1
            x = (x + schedule[step % 3]) & mask
            y = (y + schedule[(step + 1) % 3] + step) & mask
    return x, y


def by_hand(k0: Host, k1: Host, x: Host, y: Host) -> list[Host]:
    """The same, elementwise."""
    shape = np.broadcast_shapes(k0.shape, k1.shape, x.shape, y.shape)
    flat = [np.broadcast_to(a, shape).reshape(-1).tolist() for a in (k0, k1, x, y)]
    pairs = [threefry((a, b), (c, d)) for a, b, c, d in zip(*flat, strict=True)]
    return [np.array([p[i] for p in pairs], U32).reshape(shape) for i in range(2)]


# Key, counter and result of the known answer tests that come with the paper's software.
VECTORS = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "expected"), VECTORS)
def test_published_vectors(
    key: tuple[int, int], counter: tuple[int, int], expected: tuple[int, int]
) -> None:
    """Our primitive, and the reference of the tests below, give the published words."""
    words = [tb.device_put(np.array(v, U32)) for v in (*key, *counter)]

    assert expected == tuple([int(v) for v in threefry2x32_p.bind(*words)])
    assert expected == threefry(key, counter)


@pytest.mark.parametrize("key_shape", [(), (2, 3)], ids=str)
def test_all_rules_agree(key_shape: tuple[int, ...]) -> None:
    """Scalars or arrays as keys, mapped in any combination."""
    random = np.random.default_rng(0)
    keys = [random.integers(0, 2**32, key_shape, dtype=U32) for _ in range(2)]
    counters = [random.integers(0, 2**32, (2, 3), dtype=U32) for _ in range(2)]

    check_rules(
        lambda *xs: threefry2x32_p.bind(*xs),
        *keys,
        *counters,
        reference=by_hand,
        order=0,
    )


def test_one_key_word_may_be_an_array() -> None:
    """Words of the key may have different ranks."""
    word, words = np.array(7, U32), np.arange(3, dtype=U32)

    found = threefry2x32_p.bind(*[tb.device_put(v) for v in (word, words, words, words)])

    assert [w.tolist() for w in by_hand(word, words, words, words)] == [w.tolist() for w in found]


def test_only_uint32() -> None:
    """Other dtypes are refused, not converted."""
    x = tb.device_put(np.zeros(2, np.int32))
    with pytest.raises(DtypeMismatchError, match="expected four arrays of uint32"):
        threefry2x32_p.bind(x, x, x, x)


@pytest.mark.parametrize("algorithm", list(lax.RandomAlgorithm), ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_rng_bit_generator(dtype: str, algorithm: lax.RandomAlgorithm) -> None:
    """Bits are repeatable, fill their dtype, and the next key gives others."""
    key = np.array([1, 2, 3, 4], U32)
    with enable_x64():
        next_key, bits = lax.rng_bit_generator(key, (1000,), dtype, algorithm)
        again = lax.rng_bit_generator(key, (1000,), dtype, algorithm)[1]
        others = lax.rng_bit_generator(next_key, (1000,), dtype, algorithm)[1]

    values = np.asarray(bits)
    assert (dtype, (1000,)) == (values.dtype.name, values.shape)
    assert values.tolist() == again.tolist()
    assert values.tolist() != others.tolist()
    assert abs(values.astype(np.float64).mean() / np.iinfo(dtype).max - 0.5) < 0.05


@pytest.mark.parametrize("shape", [(), (7,), (3, 4)])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_narrow_bits_are_halves_of_wide_ones(dtype: str, shape: tuple[int, ...]) -> None:
    """The rule for the CPU draws the same bits as the operation, and gives the same next key."""
    key = np.array([1, 2, 2**32 - 1, 2**32 - 1], U32)

    fast = lax.rng_bit_generator(key, shape, dtype)
    with scope("platform_rules", False):
        plain = lax.rng_bit_generator(key, shape, dtype)

    assert [x.tolist() for x in plain] == [x.tolist() for x in fast]
    assert (dtype, shape) == (fast[1].dtype.name, fast[1].shape)


def test_keys_of_two_wide_words() -> None:
    """Two uint64 are the same state as four uint32."""
    key = np.array([1, 2, 3, 4], U32)
    with enable_x64():
        narrow = lax.rng_bit_generator(key, (5,))
        wide = lax.rng_bit_generator(key.view(np.uint64), (5,))

    assert narrow[1].tolist() == wide[1].tolist()
    assert narrow[0].tolist() == np.asarray(wide[0]).view(U32).tolist()


def test_the_first_of_mapped_keys_draws_for_all() -> None:
    """One draw instead of many; only its key goes on."""
    keys = np.arange(24, dtype=U32).reshape(2, 3, 4)

    def draw(key: Any) -> Any:
        return lax.rng_bit_generator(key, (2, 2))

    new, bits = tb.vmap(tb.vmap(draw))(keys)
    moved, _ = tb.vmap(tb.vmap(draw), in_axes=2)(np.moveaxis(keys, 0, 2))
    next_key, expected = lax.rng_bit_generator(keys[0, 0], (2, 3, 2, 2))

    assert np.array_equal(expected, bits)
    assert np.array_equal(next_key, new[0, 0])
    assert np.array_equal(keys.reshape(6, 4)[1:], new.reshape(6, 4)[1:])
    assert np.array_equal(new, moved)


def test_wrong_keys_and_dtypes() -> None:
    """What is refused, and why."""
    with pytest.raises(ShapeMismatchError, match="expected: four uint32 or two uint64"):
        lax.rng_bit_generator(np.zeros(2, U32), (3,))
    with pytest.raises(ShapeMismatchError, match="got a key i32"):
        lax.rng_bit_generator(np.zeros(4, np.int32), (3,))
    with pytest.raises(UnsupportedDtypeError, match="got dtype int32"):
        lax.rng_bit_generator(np.zeros(4, U32), (3,), np.int32)


def test_rng_uniform() -> None:
    """Numbers lie between the bounds; each call gives others."""
    first, second = lax.rng_uniform(2.0, 3.0, (100,)), lax.rng_uniform(2.0, 3.0, (100,))

    for sample in (first, second):
        assert 2 <= float(np.min(sample)) < float(np.max(sample)) < 3
    assert first.tolist() != second.tolist()
    integers = np.asarray(lax.rng_uniform(np.int32(0), np.int32(5), (200,)))
    assert {0, 1, 2, 3, 4} == set(integers.tolist())
    with pytest.raises(ShapeMismatchError, match="expected scalars"):
        lax.rng_uniform(np.zeros(2, np.float32), 1.0, (3,))
    with pytest.raises(DtypeMismatchError, match="two real scalars of one dtype"):
        lax.rng_uniform(np.float32(0), np.int32(1), (3,))


@pytest.mark.parametrize("mapped", [False, True])
def test_exported_bits_for_any_size(mapped: bool) -> None:
    """A program for sizes that are not known yet draws what the call at a known size draws."""

    def draw(keys: Any, x: Any) -> Any:
        def one(key: Any) -> Any:
            return lax.rng_bit_generator(key, x.shape)[1]

        return tb.vmap(one)(keys) if mapped else one(keys[0])

    keys = np.arange(8, dtype=U32).reshape(2, 4)
    (size,) = tb.export.symbolic_shape("size")
    program = tb.export.export(tb.jit(draw))(keys, tb.ShapeDtypeStruct((size,), "float32"))
    x = np.ones(3, np.float32)

    np.testing.assert_array_equal(draw(keys, x), program.call(keys, x))
