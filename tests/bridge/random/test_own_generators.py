"""Generators of one's own: keys, samplers, transformations, and what they give wrongly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ArgumentValueError, DtypeMismatchError
from tracebridge.extend import random as extended


def mixed(words: Any) -> Any:
    """Words with their bits mixed (the finalizer of MurmurHash3)."""
    for factor, distance in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        words = (words ^ (words >> np.uint32(distance))) * np.uint32(factor)
    return words ^ (words >> np.uint32(16))


def generator(**changed: Any) -> Any:
    """One whose keys are two words."""

    def bits(words: Any, width: int, shape: tuple[int, ...]) -> Any:
        places = tnp.arange(math.prod(shape), dtype="uint32").reshape(shape)
        return mixed(mixed(places + words[0]) ^ words[1]).astype(f"uint{width}")

    def split(words: Any, shape: tuple[int, ...]) -> Any:
        return mixed(bits(words, 32, (*shape, 2)))

    functions = {
        "seed": lambda number: mixed(tnp.stack([number, number + 1]).astype("uint32")),
        "split": split,
        "random_bits": bits,
        "fold_in": lambda words, number: mixed(words + number),
    }
    return extended.define_prng_impl(
        key_shape=(2,), name="mixing", tag="mix", **{**functions, **changed}
    )


def test_samplers_take_keys_of_it() -> None:
    """Under vmap and jit too; splits and folds give keys of the same generator."""
    own = generator()
    key = tb.random.key(3, impl=own)
    uniform = np.asarray(tb.random.uniform(key, (4000,)))
    keys = tb.random.split(key, 5)
    each = tb.jit(tb.vmap(lambda k: tb.random.normal(k, (3,))))(keys)

    assert "key<mix>" == str(key.dtype)
    assert (5,) == keys.shape
    assert keys.dtype == key.dtype == tb.random.fold_in(key, 1).dtype
    assert abs(uniform.mean() - 0.5) < 0.02
    assert 3900 < len(np.unique(uniform))
    np.testing.assert_array_equal(each[2], tb.random.normal(keys[2], (3,)))
    assert 10 == len(np.unique(tb.random.permutation(key, 10)))
    assert 2.0 < float(tb.random.gamma(key, 3.0, (500,)).mean()) < 4.0
    assert (2, 2) == extended.random_seed(np.arange(4).reshape(2, 2), own).shape
    assert (
        tb.random.key_data(key).tolist()
        == tb.random.key_data(extended.seed_with_impl(own, 3)).tolist()
    )


def test_two_of_one_name_are_two() -> None:
    """A number tells them apart."""
    first, second = generator(), generator()

    assert repr(first) != repr(second)
    assert tb.random.key(0, impl=first).dtype != tb.random.key(0, impl=second).dtype


def test_what_its_functions_give_is_checked() -> None:
    """Shapes and dtypes of words and bits; a key has axes of words."""
    wrong = generator(seed=lambda number: number.astype("uint32"))
    with pytest.raises(DtypeMismatchError, match=r"seed of a generator gave .*expected u32\[2\]"):
        tb.random.key(0, impl=wrong)
    narrow = generator(random_bits=lambda words, width, shape: tnp.zeros(shape, "uint8"))
    with pytest.raises(DtypeMismatchError, match="random_bits of a generator gave u8"):
        tb.random.uniform(tb.random.key(0, impl=narrow), (3,))
    with pytest.raises(ArgumentValueError, match="key_shape"):
        extended.define_prng_impl(key_shape=(), seed=abs, split=max, random_bits=max, fold_in=max)


def test_keys_of_words_with_several_axes() -> None:
    """They are moved about, split, mapped and drawn from as keys of a vector of words are."""
    square = extended.define_prng_impl(
        key_shape=(2, 3),
        seed=lambda number: tnp.arange(6, dtype="uint32").reshape(2, 3) + number.astype("uint32"),
        split=lambda words, shape: words + tnp.arange(math.prod(shape), dtype="uint32").reshape(
            *shape, 1, 1
        ),
        random_bits=lambda words, width, shape: tnp.full(shape, words.sum(), f"uint{width}"),
        fold_in=lambda words, number: words + number,
        name="square",
    )  # fmt: skip
    key = tb.random.key(1, impl=square)
    keys = tb.random.split(key, 4)
    moved = tb.jit(lambda k: tnp.stack([k.reshape(2, 2).T[1], k[::-1][:2]]))(keys)
    words = np.arange(6).reshape(2, 3) + 1

    assert (4,) == keys.shape
    np.testing.assert_array_equal(words + 2, tb.random.key_data(keys)[2])
    np.testing.assert_array_equal(
        [words + 1, words + 3, words + 3, words + 2], tb.random.key_data(moved).reshape(4, 2, 3)
    )
    assert [21, 27, 33, 39] == tb.vmap(tb.random.bits)(keys).tolist()
    assert (3, 2) == tb.random.wrap_key_data(np.ones((3, 2, 2, 3), np.uint32), impl=square).shape
    assert 10 == len(np.unique(tb.random.permutation(key, 10)))
