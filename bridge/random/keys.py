"""Keys: made from a seed, split, folded, wrapped and unwrapped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.dtypes import is_bool, is_float, is_integer, uint32
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    IntegerRangeError,
    kind_of,
)
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.shape.axes import as_shape
from tracebridge.core.prng.implementations import (
    IMPLEMENTATIONS,
    Implementation,
    rbg,
    threefry,
    unsafe_rbg,
)
from tracebridge.core.prng.keys import (
    KeyDType,
    implementation_of,
    key_dtype_of,
    random_unwrap_p,
    random_wrap_p,
)
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.random._streams import (
    check_typed,
    default_implementation,
    followed,
    generator_and_words,
    stream_of,
)

_WORD = 2**32
_UINT32 = np.dtype(np.uint32)
_BUILT_IN = (threefry, rbg, unsafe_rbg)


def _implementation(call: str, impl: Any, dtype: Any = None) -> Implementation:
    """The generator that the arguments ``impl`` and ``dtype`` name."""
    if impl is not None and dtype is not None:
        raise ArgumentValueError(call=call, got="both impl and dtype", expected="one of them")
    impl = dtype if impl is None else impl
    if impl is None:
        return default_implementation()
    if isinstance(impl, KeyDType):
        return impl.implementation
    if isinstance(impl, Implementation):
        return impl
    implementation = IMPLEMENTATIONS.get(impl) if isinstance(impl, str) else None
    if implementation is None:
        kind = ArgumentValueError if isinstance(impl, str) else ArgumentTypeError
        raise kind(
            call=call,
            where="argument impl",
            got=repr(impl),
            expected=f"one of {', '.join(map(repr, IMPLEMENTATIONS))}, or a dtype of keys",
        )
    return implementation


def _integer(call: str, what: str, number: Any) -> Any:
    """``number`` as an operand, a Python integer modulo 2**32 (2**64 where 64 bits are on).

    Raises:
        IntegerRangeError: it has more than 64 bits with its sign, or as data more than 32 without.
    """
    if type(number) is int:
        low, high = (0, _WORD) if what == "data" else (-(2**63), 2**63)
        if not low <= number < high:
            msg = f"{call}: {what} is {number}, expected an integer in [{low}, {high})"
            raise IntegerRangeError(msg, hint=f"take it modulo {high - low}")
        if not -(_WORD // 2) <= number < _WORD // 2:
            # The sign is kept: bits beyond the word are cut off, as those of arrays are.
            number = _cut(number)
    value = as_value(number, call)
    dtype = value.aval.dtype
    if implementation_of(value.aval) or not (is_integer(dtype) or is_bool(dtype)):
        msg = f"{call}: {what} is {kind_of(value)}, expected an integer"
        raise ArgumentTypeError(msg, hint="convert it: int(x), or x.astype('uint32')")
    if value.aval.ndim:
        msg = f"{call}: {what} is {kind_of(value)}, expected a scalar"
        raise ShapeMismatchError(msg, hint="map over it: tracebridge.vmap")
    return value


def _cut(number: int) -> Any:
    from_wide = np.array(number % 2**64, np.uint64)
    wide = as_value(np.uint64(0)).aval.dtype.itemsize == 8
    return from_wide[()] if wide else np.uint32(number % _WORD)


def _seeded(number: Any, name: str, typed: bool) -> Any:
    words = IMPLEMENTATIONS[name].seed(number)
    return random_wrap_p.bind(words, impl=name) if typed else words


def _split(key: Value, shape: tuple[int, ...]) -> Any:
    stream = stream_of("split", key)
    return _like(key, stream.implementation, stream.implementation.split(stream.words, shape))


def _fold_in(key: Value, number: Any) -> Any:
    stream = stream_of("fold_in", key)
    number = lax.convert_dtype(number, uint32)
    return _like(key, stream.implementation, stream.implementation.fold_in(stream.words, number))


def _like(key: Value, implementation: Implementation, words: Value) -> Any:
    """Words as keys if ``key`` is a typed one."""
    if implementation_of(key.aval) is None:
        return words
    return random_wrap_p.bind(words, impl=implementation.name)


_seeded_staged = StagedFunction(_seeded, "key")
_split_staged = StagedFunction(_split, "split")
_fold_in_staged = StagedFunction(_fold_in, "fold_in")


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """A key of a generator of random numbers.

    Args:
        seed: an integer scalar; bits beyond the 32 (64 with enable_x64) lowest are cut off.
        impl: the generator: ``"threefry2x32"``, ``"rbg"``, ``"unsafe_rbg"``, or a dtype of keys;
            ``None`` means that of the option ``default_prng_impl``. Of keys of ``rbg`` that are
            mapped over (``vmap``) the first one draws for all of them, at once.
        dtype: the dtype of the key, instead of ``impl``.

    Returns:
        An array without axes of a dtype such as ``key<fry>``.

    Raises:
        ArgumentTypeError: ``seed`` is no integer, or ``impl`` no name of a generator.
        ArgumentValueError: there is no such generator.
        IntegerRangeError: ``seed`` is a Python integer of more than 64 bits with its sign.
        ShapeMismatchError: ``seed`` has axes.

    >>> import tracebridge as tb
    >>> tb.random.key(42).dtype
    key<fry>
    >>> tb.random.key_data(tb.random.key(42)).tolist()
    [0, 42]
    """
    name = _implementation("key", impl, dtype).name
    return _seeded_staged((_integer("key", "the seed", seed),), (name, True))


def PRNGKey(seed: Any, *, impl: object = None) -> Array:
    """The words of a key as an array of uint32, which functions take for a key too.

    Such arrays do not know their generator: it is that of the option ``default_prng_impl``. With
    the option ``enable_custom_prng`` this is ``key``.

    Args:
        seed: an integer scalar, as for ``key``.
        impl: the generator, as for ``key``.

    Raises:
        ArgumentTypeError: ``seed`` is no integer, or ``impl`` no name of a generator.
        ArgumentValueError: there is no such generator.
        IntegerRangeError: ``seed`` is a Python integer of more than 64 bits with its sign.
        ShapeMismatchError: ``seed`` has axes.

    >>> import tracebridge as tb
    >>> tb.random.PRNGKey(42).tolist()
    [0, 42]
    """
    name = _implementation("PRNGKey", impl).name
    typed = option("enable_custom_prng")
    return _seeded_staged((_integer("PRNGKey", "the seed", seed),), (name, typed))


def key_dtype(impl_spec: object = None) -> KeyDType:
    """The dtype of the keys of a generator.

    Args:
        impl_spec: the generator, as for ``key``.

    Raises:
        ArgumentValueError: there is no such generator.

    >>> import tracebridge as tb
    >>> tb.random.key_dtype("rbg")
    key<rbg>
    """
    return key_dtype_of(_implementation("key_dtype", impl_spec).name)


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """Words as an array of keys, without a computation.

    Args:
        key_bits_array: array of uint32; its last axis holds the words of a key, two for
            threefry2x32 and four for the other generators.
        impl: the generator, as for ``key``.
        dtype: the dtype of the keys, instead of ``impl``.

    Raises:
        ArgumentTypeError: it is no array.
        ArgumentValueError: there is no such generator.
        DtypeMismatchError: another dtype or another number of words.

    >>> import tracebridge as tb
    >>> words = tb.random.key_data(tb.random.split(tb.random.key(0), 3))
    >>> tb.random.wrap_key_data(words).shape
    (3,)
    """
    name = _implementation("wrap_key_data", impl, dtype).name
    return random_wrap_p.bind(as_value(key_bits_array, "wrap_key_data"), impl=name)


def key_data(keys: ArrayLike) -> Array:
    """The words of keys: an array of uint32 with one more axis.

    Args:
        keys: array of keys; words of keys are given back.

    Raises:
        ArgumentTypeError: it is no array of keys.

    >>> import tracebridge as tb
    >>> tb.random.key_data(tb.random.key(7)).tolist()
    [0, 7]
    """
    value = as_value(keys, "key_data")
    if implementation_of(value.aval) is None:
        return generator_and_words("key_data", value)[1]
    return random_unwrap_p.bind(value)


def key_impl(keys: ArrayLike) -> str | Implementation:
    """The generator of keys, for ``wrap_key_data``: its name, or what ``define_prng_impl`` gave.

    Args:
        keys: array of keys, or words of keys.

    Raises:
        ArgumentTypeError: it is no array of keys.

    >>> import tracebridge as tb
    >>> tb.random.key_impl(tb.random.key(0, impl="rbg"))
    'rbg'
    """
    value = as_value(keys, "key_impl")
    implementation = implementation_of(value.aval)
    if implementation is None:
        implementation = generator_and_words("key_impl", value)[0]
    return implementation.name if implementation in _BUILT_IN else implementation


def split(key: ArrayLike, num: Any = 2) -> Array:
    """New keys, independent of each other; use each of them, and ``key`` itself no more.

    Args:
        key: one key.
        num: how many, or the shape of the result.

    Raises:
        ArgumentTypeError: ``key`` is no key, or ``num`` no size.
        ShapeMismatchError: ``key`` is an array of keys, or a size is negative.

    >>> import tracebridge as tb
    >>> first, second = tb.random.split(tb.random.key(0))
    >>> tb.random.split(first, (2, 3)).shape
    (2, 3)
    """
    check_typed("split", key)
    return _split_staged((key,), (as_shape("split", num),))


def fold_in(key: ArrayLike, data: ArrayLike) -> Array:
    """A new key, made from a key and a number such as that of a step or a device.

    Args:
        key: one key.
        data: an integer scalar; 32 bits of it count, and a Python integer has no others. Of a
            float its whole part.

    Raises:
        ArgumentTypeError: ``key`` is no key, or ``data`` no real number.
        IntegerRangeError: ``data`` is a Python number below 0, of more than 32 bits, or no number.
        ShapeMismatchError: ``key`` is an array of keys, or ``data`` has axes.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.key_data(tb.random.fold_in(key, 1)).tolist()
    [928981903, 3453687069]
    """
    check_typed("fold_in", key)
    return _fold_in_staged((key, _integer("fold_in", "data", _whole_part(data))))


def _whole_part(number: Any) -> Any:
    """A real number without its fraction; anything else as it is."""
    if isinstance(number, float | np.floating):
        if math.isfinite(number):
            return int(number)
        msg = f"fold_in: data is {number}, expected an integer in [0, {_WORD})"
        raise IntegerRangeError(msg)
    if type(number) is int:
        return number
    value = as_value(number, "fold_in")
    return lax.convert_dtype(value, _UINT32) if is_float(value.aval.dtype) else value


def clone(key: ArrayLike) -> Array:
    """The same key, as one that is used a second time on purpose.

    Args:
        key: array of keys.

    Raises:
        ArgumentTypeError: it is no array of keys.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> bool(tb.random.uniform(key) == tb.random.uniform(tb.random.clone(key)))
    True
    """
    value = as_value(key, "clone")
    # Words say nothing about their generator, of which none is asked for anything.
    words = [i.key_shape for i in IMPLEMENTATIONS.values()]
    if value.aval.dtype != uint32 or not any([value.aval.shape[-len(w) :] == w for w in words]):
        generator_and_words("clone", value)
    return followed(value, "clone", "clone")
