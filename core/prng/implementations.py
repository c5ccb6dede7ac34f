"""Generators: how keys are seeded, split, folded and turned into random bits, on their words.

Functions of this file take one key as an array of uint32 words. Threefry is the counter mode of
Salmon, Moraes, Dror, Shaw (2011); rbg uses the generator that XLA provides for the bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.dtypes import uint8, uint16, uint32, uint64
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.prng.threefry import threefry_2x32
from tracebridge.core.runtime.arrays.argument_types import DType

UINTS = {8: uint8, 16: uint16, 32: uint32, 64: uint64}
_HASH_ROUNDS = 10
_LONG_ROW, _MANY, _ROUND = 128, 1 << 10, 64
_MAX_WORDS = 2**32 - 1


@dataclass(frozen=True, eq=False, slots=True)
class Implementation:
    """A generator. ``tag``: its name in dtypes; ``key_shape``: shape of the words of a key.

    ``seed(number)``, ``split(key, shape)``, ``fold_in(key, number)``, ``bits(key, width, shape)``.
    """

    name: str
    tag: str
    key_shape: tuple[int, ...]
    seed: Callable[[Any], Any]
    split: Callable[[Any, tuple[int, ...]], Any]
    fold_in: Callable[[Any, Any], Any]
    bits: Callable[[Any, int, tuple[int, ...]], Any]

    def __repr__(self) -> str:
        return self.name


def _all(shape: tuple[int, ...], value: int, dtype: DType) -> Any:
    """An array of one number, whatever the 64-bit rule says of its dtype."""
    return full_of(ShapedArray(shape, dtype), value)


def threefry_seed(number: Any) -> Any:
    """The upper and the lower word of an integer scalar; a narrow one has the upper word 0."""
    kind = number.aval.dtype
    low = lax.convert_dtype(number, uint32)
    if kind.itemsize == 8:
        wide = lax.convert_dtype(number, uint64)
        high = lax.convert_dtype(lax.shift_right_logical(wide, _all((), 32, uint64)), uint32)
    else:
        high = _all((), 0, uint32)
    return _stacked([high, low])


def _stacked(words: list[Any]) -> Any:
    """Words of one shape along a new last axis."""
    shape = words[0].aval.shape
    return lax.concatenate([lax.reshape(w, (*shape, 1)) for w in words], len(shape))


def _words(key: Value) -> list[Any]:
    return [lax.reshape(lax.slice(key, (i,), (i + 1,)), ()) for i in range(2)]


def _counters(shape: tuple[int, ...]) -> list[Any]:
    """Upper and lower words of the positions of an array in row-major order."""
    size = math.prod(shape)
    if type(size) is not int or size < 2**32:  # symbolic ones have fewer elements
        low = lax.reshape(lax.iota_of(uint32, (size,), 0), shape)
        return [_all(shape, 0, uint32), low]
    wide = _all(shape, 0, uint64)
    for axis, stride in enumerate(np.cumprod([1, *shape[:0:-1]], dtype=object)[::-1]):
        steps = lax.iota_of(uint64, shape, axis)
        wide = lax.add(wide, lax.mul(steps, _all(shape, int(stride), uint64)))
    high = lax.shift_right_logical(wide, _all(shape, 32, uint64))
    return [lax.convert_dtype(v, uint32) for v in (high, wide)]


def row_for(shape: tuple[int, ...]) -> int | None:
    """The length of a row that numbers of such a shape are made in; None if as they are.

    XLA vectorises along the last axis, and what it makes of positions only where their number is
    round: 50 000 normal numbers take 114 us, 50 001 take 1840, 10 000 x 5 of them 822.
    """
    if not shape or not all([type(n) is int for n in shape]):
        return None
    size, is_row = math.prod(shape), len(shape) == 1
    if size < _MANY or (size % _ROUND == 0 if is_row else shape[-1] >= _LONG_ROW):
        return None
    return -(-size // _ROUND) * _ROUND


def from_row(made: Value, shape: tuple[int, ...]) -> Any:
    """Numbers of a shape, of the first ones of a row."""
    return lax.reshape(lax.slice_in_dim(made, 0, math.prod(shape)), shape)


def threefry_split(key: Value, shape: tuple[int, ...]) -> Any:
    """Keys in an array ``(*shape, 2)``."""
    if option("threefry_partitionable"):
        return _stacked(list(lax.threefry2x32_p.bind(*_words(key), *_counters(shape))))
    counters = lax.iota_of(uint32, (2 * math.prod(shape),), 0)
    return lax.reshape(threefry_2x32(key, counters), (*shape, 2))


def key_and_counters(key: Value, shape: tuple[int, ...]) -> list[Any]:
    """What a draw for each element of an array encrypts: the key's words, two words of counters.

    The upper counter is a scalar where it is 0.
    """
    high, low = _counters(shape)
    size = math.prod(shape)
    if type(size) is not int or size < 2**32:
        high = _all((), 0, uint32)
    return [*_words(key), high, low]


def threefry_fold_in(key: Value, number: Any) -> Any:
    """The key encrypts the number."""
    return threefry_2x32(key, threefry_seed(lax.convert_dtype(number, uint32)))


def threefry_bits(key: Value, width: int, shape: tuple[int, ...]) -> Any:
    """Unsigned integers of ``width`` bits."""
    if not option("threefry_partitionable"):
        return _in_one_sequence(key, width, shape)
    row = row_for(shape)
    first, second = lax.threefry2x32_p.bind(*_words(key), *_counters((row,) if row else shape))
    if width == 64:
        bits = _joined(first, second)
    else:
        bits = lax.convert_dtype(lax.bitwise_xor(first, second), UINTS[width])
    return from_row(lax.stored(bits), shape) if row else bits


def _joined(high: Value, low: Value) -> Any:
    high, low = (lax.convert_dtype(v, uint64) for v in (high, low))
    return lax.bitwise_or(lax.shift_left(high, _all(high.aval.shape, 32, uint64)), low)


def _in_one_sequence(key: Value, width: int, shape: tuple[int, ...]) -> Any:
    """The bits of one stream of words, which is not the same when it is cut into parts."""
    size = math.prod(shape)
    count = -(-width * size // 32)
    # Symbolic sizes have fewer words than one block holds.
    blocks, n_left = divmod(count, _MAX_WORDS) if type(count) is int else (0, count)
    keys = threefry_split(key, (blocks + 1,)) if blocks else lax.reshape(key, (1, 2))
    parts = []
    for i in range(blocks + 1):
        own = lax.reshape(lax.slice(keys, (i, 0), (i + 1, 2)), (2,))
        n = _MAX_WORDS if i < blocks else n_left
        parts.append(threefry_2x32(own, lax.iota_of(uint32, (n,), 0)))
    words = lax.concatenate(parts, 0) if blocks else parts[0]
    if width == 64:
        halves = [lax.slice(words, (k * size,), ((k + 1) * size,)) for k in range(2)]
        words = _joined(*halves)
    elif width < 32:
        # A word gives several numbers, the one of the lowest bits first.
        grid = (count, 32 // width)
        steps = lax.mul(lax.iota_of(uint32, grid, 1), _all(grid, width, uint32))
        wide = lax.broadcast_in_dim(words, grid, (0,))
        narrow = lax.convert_dtype(lax.shift_right_logical(wide, steps), UINTS[width])
        words = lax.slice(lax.reshape(narrow, (math.prod(grid),)), (0,), (size,))
    return lax.reshape(words, shape)


def _halves(key: Value) -> list[Any]:
    return [lax.slice(key, (2 * i,), (2 * i + 2,)) for i in range(2)]


def _rbg_seed(number: Any) -> Any:
    half = threefry_seed(number)
    return lax.concatenate([half, half], 0)


def _rbg_split(key: Value, shape: tuple[int, ...]) -> Any:
    parts = [threefry_split(half, shape) for half in _halves(key)]
    return lax.concatenate(parts, len(shape))


def _rbg_fold_in(key: Value, number: Any) -> Any:
    return lax.concatenate([threefry_fold_in(half, number) for half in _halves(key)], 0)


def _rbg_bits(key: Value, width: int, shape: tuple[int, ...]) -> Any:
    return lax.rng_bit_generator(key, shape, UINTS[width])[1]


def _unsafe_split(key: Value, shape: tuple[int, ...]) -> Any:
    # Every tenth draw: the rounds in between take the place of a hash function.
    count = math.prod(shape)
    rows = lax.rng_bit_generator(key, (_HASH_ROUNDS * count, 4), uint32)[1]
    kept = lax.slice(rows, (0, 0), (_HASH_ROUNDS * count, 4), (_HASH_ROUNDS, 1))
    return lax.reshape(kept, (*shape, 4))


def _unsafe_fold_in(key: Value, number: Any) -> Any:
    rows = lax.rng_bit_generator(_rbg_seed(number), (_HASH_ROUNDS, 4), uint32)[1]
    last = lax.reshape(lax.slice(rows, (_HASH_ROUNDS - 1, 0), (_HASH_ROUNDS, 4)), (4,))
    return lax.bitwise_xor(key, last)


threefry = Implementation(
    "threefry2x32", "fry", (2,), threefry_seed, threefry_split, threefry_fold_in, threefry_bits
)
rbg = Implementation("rbg", "rbg", (4,), _rbg_seed, _rbg_split, _rbg_fold_in, _rbg_bits)
unsafe_rbg = Implementation(
    "unsafe_rbg", "urbg", (4,), _rbg_seed, _unsafe_split, _unsafe_fold_in, _rbg_bits
)
IMPLEMENTATIONS = {i.name: i for i in (threefry, rbg, unsafe_rbg)}
