"""Generators of random numbers of one's own, and those that are there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tracebridge._api.vectorize.vmap import vmap
from tracebridge.core.dtypes.dtypes import uint32
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.rng import threefry2x32_p
from tracebridge.core.lax.shape.axes import as_shape
from tracebridge.core.prng.implementations import (
    IMPLEMENTATIONS,
    UINTS,
    Implementation,
)
from tracebridge.core.prng.implementations import rbg as rbg_prng_impl
from tracebridge.core.prng.implementations import threefry as threefry_prng_impl
from tracebridge.core.prng.implementations import unsafe_rbg as unsafe_rbg_prng_impl
from tracebridge.core.prng.keys import add_implementation
from tracebridge.core.prng.threefry import threefry_2x32
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.random.keys import key

__all__ = [
    "define_prng_impl",
    "random_seed",
    "rbg_prng_impl",
    "seed_with_impl",
    "threefry2x32_p",
    "threefry_2x32",
    "threefry_prng_impl",
    "unsafe_rbg_prng_impl",
]


def define_prng_impl(
    *,
    key_shape: tuple[int, ...],
    seed: Callable[..., object],
    split: Callable[..., object],
    random_bits: Callable[..., object],
    fold_in: Callable[..., object],
    name: str = "<unnamed>",
    tag: str = "?",
) -> Implementation:
    """A generator of random numbers: what ``tracebridge.random.key`` takes as ``impl``.

    All samplers work with its keys. The functions are traced; they get and give one key as an
    array of ``uint32`` words of shape ``key_shape``.

    Args:
        key_shape: shape of the words of a key, with at least one axis.
        seed: ``seed(number) -> words`` for an integer scalar.
        split: ``split(words, shape) -> words`` of shape ``(*shape, *key_shape)``.
        random_bits: ``random_bits(words, width, shape)``: unsigned integers of 8, 16, 32 or 64
            bits.
        fold_in: ``fold_in(words, number) -> words`` for a ``uint32`` scalar.
        name: what it is called; a number is added where another one is called so.
        tag: its name in dtypes, ``key<tag>``.

    Raises:
        ArgumentValueError: ``key_shape`` has no axis.
        DtypeMismatchError: later, where a function gives another shape or dtype.

    >>> import math
    >>> import tracebridge as tb
    >>> def bits(words, width, shape):
    ...     places = tb.numpy.arange(math.prod(shape), dtype=f"uint{width}")
    ...     return (places + words[0].astype(places.dtype)).reshape(shape)
    >>> def split(words, shape):
    ...     return words + bits(words, 32, (*shape, 1))
    >>> counting = tb.extend.random.define_prng_impl(
    ...     key_shape=(1,),
    ...     seed=lambda number: number.astype("uint32").reshape(1),
    ...     split=split,
    ...     random_bits=bits,
    ...     fold_in=lambda words, number: words + number,
    ...     name="counting",
    ...     tag="count",
    ... )
    >>> key = tb.random.key(7, impl=counting)
    >>> key.dtype
    key<count>
    >>> tb.random.bits(key, (3,)).tolist()
    [7, 8, 9]
    """
    sizes = as_shape("define_prng_impl", key_shape)
    if not sizes:
        msg = f"define_prng_impl: key_shape={sizes}"
        raise ArgumentValueError(msg, expected="axes of words, such as (2,)")
    names = (name if n == 1 else f"{name} {n}" for n in itertools.count(1))
    own = next(n for n in names if n not in IMPLEMENTATIONS)

    def bits(words: Any, width: int, shape: tuple[int, ...]) -> Any:
        return _checked("random_bits", random_bits(words, width, shape), shape, UINTS[width])

    made = Implementation(
        own,
        tag,
        sizes,
        lambda number: _checked("seed", seed(number), sizes),
        lambda words, shape: _checked("split", split(words, shape), (*shape, *sizes)),
        lambda words, number: _checked("fold_in", fold_in(words, number), sizes),
        bits,
    )
    add_implementation(made)
    return made


def _checked(role: str, words: object, shape: tuple[int, ...], dtype: Any = uint32) -> Any:
    """What a function of a generator gave, as it has to be."""
    value = as_value(words, role)
    if value.aval.dtype != dtype or value.aval.shape != shape:
        wanted = value.aval.update(shape=shape, dtype=dtype, weak_type=False).str_short()
        msg = f"{role} of a generator gave {value.aval.str_short()}, expected {wanted}"
        raise DtypeMismatchError(msg, hint="see tracebridge.extend.random.define_prng_impl")
    return value


def seed_with_impl(impl: Implementation, seed: object) -> Array:
    """A key of a generator, ``tracebridge.random.key(seed, impl=impl)``.

    Args:
        impl: a generator of this module, or of ``define_prng_impl``.
        seed: an integer scalar.

    >>> import tracebridge as tb
    >>> tb.extend.random.seed_with_impl(tb.extend.random.rbg_prng_impl, 0).dtype
    key<rbg>
    """
    return key(seed, impl=impl)


def random_seed(seeds: object, impl: Implementation) -> Array:
    """Keys of a generator, one for each of an array of seeds.

    Args:
        seeds: integers of any shape.
        impl: a generator of this module, or of ``define_prng_impl``.

    Returns:
        Keys of the shape of ``seeds``.

    >>> import tracebridge as tb
    >>> generator = tb.extend.random.threefry_prng_impl
    >>> tb.extend.random.random_seed(tb.numpy.arange(3), generator).shape
    (3,)
    """

    def of_one(seed: object) -> Array:
        return key(seed, impl=impl)

    value = as_value(seeds, "random_seed")
    function: Callable[..., Any] = of_one
    for _ in range(value.aval.ndim):
        function = vmap(function)
    return function(value)


_shield(globals(), __name__)
