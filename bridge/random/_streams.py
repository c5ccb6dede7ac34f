"""What samplers are made of: one key inside a traced function, and the basic draws from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit, default_float
from tracebridge.core.dtypes.dtypes import is_complex, is_float, is_integer, uint32
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, kind_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import BroadcastError, ShapeMismatchError
from tracebridge.core.errors.user_warnings import warn_user
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.lax.shape.axes import as_shape
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.prng.implementations import (
    IMPLEMENTATIONS,
    Implementation,
    from_row,
    row_for,
    threefry,
)
from tracebridge.core.prng.keys import implementation_of, random_unwrap_p
from tracebridge.core.prng.reuse import marked
from tracebridge.core.runtime.arrays.argument_types import DType, ShapeLike, ShardingLike
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.special.lanes import normal_of_unit, unit_of_words, width_of

_HINT = "make a key by tracebridge.random.key(seed)"


@final
class Stream:
    """One key: its generator, and its words as an array of uint32."""

    __slots__ = ("implementation", "words")

    def __init__(self, implementation: Implementation, words: Value) -> None:
        self.implementation = implementation
        self.words = words

    @property
    def is_partitionable(self) -> bool:
        """Whether each element of a draw depends on the key and its position alone."""
        return self.implementation is threefry and option("threefry_partitionable")

    def bits(self, width: int, shape: tuple[int, ...]) -> Any:
        """Unsigned integers of ``width`` bits."""
        return self.implementation.bits(self.words, width, shape)

    def split(self, count: int = 2) -> list[Stream]:
        """Independent streams."""
        rows = self.implementation.split(self.words, (count,))
        sizes = self.implementation.key_shape
        parts = [lax.slice_in_dim(rows, i, i + 1) for i in range(count)]
        return [self.at(lax.reshape(p, sizes)) for p in parts]

    def at(self, words: Value) -> Stream:
        """The stream of another key of the same generator."""
        return Stream(self.implementation, words)


def default_implementation() -> Implementation:
    """The generator of the option ``default_prng_impl``."""
    return IMPLEMENTATIONS[option("default_prng_impl")]


def generator_and_words(call: str, key: Value) -> tuple[Implementation, Any]:
    """The generator of an array of keys, typed or not, and its words.

    Raises:
        ArgumentTypeError: it is no array of keys.
    """
    implementation = implementation_of(key.aval)
    if implementation is not None:
        return implementation, random_unwrap_p.bind(key)
    implementation = default_implementation()
    n = len(implementation.key_shape)
    if key.aval.dtype != uint32 or key.aval.shape[-n:] != implementation.key_shape:
        sizes = ",".join(map(str, implementation.key_shape))
        raise ArgumentTypeError(
            call=call,
            got=kind_of(key),
            expected=f"a key, or the words u32[{sizes}] of one of {implementation.name}",
            hint=_HINT,
        )
    return implementation, key


def check_typed(call: str, key: object) -> None:
    """Do what the option ``legacy_prng_key`` says, if ``key`` is words of one.

    Raises:
        ArgumentValueError: the option says so.
    """
    level = option("legacy_prng_key")
    if level == "allow" or implementation_of(as_value(key, call).aval) is not None:
        return
    text = f"{call}: got words of a key, and the option legacy_prng_key is {level!r}"
    if level == "error":
        raise ArgumentValueError(text, hint=_HINT)
    warn_user(f"{text}; {_HINT}", UserWarning)


def followed(key: Value, use: str, by: str) -> Any:
    """A key with a mark of its use, while uses are checked."""
    if not option("debug_key_reuse") or implementation_of(key.aval) is None:
        return key
    return marked(key, use, by)


def stream_of(call: str, key: Value) -> Stream:
    """The one key that a sampler was given.

    Raises:
        ArgumentTypeError: it is no key.
        ShapeMismatchError: it is an array of keys.
    """
    if call != "fold_in":
        key = followed(key, "sample", call)
    implementation, words = generator_and_words(call, key)
    if words.aval.ndim != len(implementation.key_shape):
        shape = words.aval.shape[: words.aval.ndim - len(implementation.key_shape)]
        msg = f"{call} accepts a single key, but was given a key array of shape {shape}"
        raise ShapeMismatchError(msg, hint="map over the keys: tracebridge.vmap")
    return Stream(implementation, words)


# arguments ---------------------------------------------------------------------------------------


def sample(
    staged: StagedFunction,
    key: ArrayLike,
    parameters: Sequence[ArrayLike],
    statics: tuple[object, ...],
    out_sharding: ShardingLike | None = None,
) -> Any:
    """What a sampler gives, placed."""
    check_typed(staged.name, key)
    out = staged((key, *parameters), statics)
    if out_sharding is None:
        return out
    return constrained_result(staged.name, out, out_sharding)


def sizes_of(call: str, shape: ShapeLike | None) -> tuple[int, ...] | None:
    """The argument ``shape``; None as it is."""
    return None if shape is None else as_shape(call, shape)


def float_dtype(call: str, dtype: DTypeLike | None, *, complexes: bool = False) -> Any:
    """The argument ``dtype`` of a sampler of real numbers."""
    if dtype is None:
        return default_float()
    found = canonicalize_explicit(dtype, call)
    if not (is_float(found) or (complexes and is_complex(found))):
        kinds = "a floating or complex dtype" if complexes else "a floating dtype"
        msg = f"{call}: got dtype {found.name}, expected {kinds}"
        raise UnsupportedDtypeError(msg, hint="convert the result with .astype")
    return found


def integer_dtype(call: str, dtype: Any, default: Any) -> Any:
    """The argument ``dtype`` of a sampler of integers."""
    found = default if dtype is None else canonicalize_explicit(dtype, call)
    if not is_integer(found):
        msg = f"{call}: got dtype {found.name}, expected an integer dtype"
        raise UnsupportedDtypeError(msg, hint="convert the result with .astype")
    return found


def chosen(call: str, name: str, value: object, choices: Sequence[Any]) -> Any:
    """``value``, which must be one of ``choices``."""
    if value not in choices:
        raise ArgumentValueError(
            call=call,
            where=f"argument {name}",
            got=repr(value),
            expected=" or ".join(map(repr, choices)),
        )
    return value


def joint_shape(
    call: str, shape: tuple[int, ...] | None, *parameters: tuple[int, ...]
) -> tuple[int, ...]:
    """The shape of the result: ``shape``, or that of the parameters together.

    Raises:
        BroadcastError: the parameters do not fit together, or not into ``shape``.
    """
    try:
        joint = lax.broadcast_shapes(*parameters)
        fits = shape is None or lax.broadcast_shapes(joint, shape) == shape
    except ValueError:
        fits, joint = False, ()
    if not fits:
        shown = ", ".join(map(str, parameters))
        wanted = "of one another" if shape is None else f"of the result {shape}"
        msg = f"{call}: the shapes {shown} of the parameters are not broadcastable to that {wanted}"
        raise BroadcastError(msg)
    return joint if shape is None else shape


def spread(x: Any, shape: tuple[int, ...], dtype: Any = None) -> Any:
    """``x`` repeated to ``shape``."""
    if dtype is not None:
        x = lax.convert_dtype(x, dtype)
    n = len(shape) - x.aval.ndim
    if x.aval.shape == shape:
        return x
    kept = [i for i, d in enumerate(x.aval.shape) if d == shape[n + i]]
    x = lax.reshape(x, tuple([x.aval.shape[i] for i in kept]))
    return lax.broadcast_in_dim(x, shape, tuple([n + i for i in kept]))


def of_real_parameters(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A sampler that refuses complex parameters: imaginary parts would be lost without a word."""

    def run(key: Value, *rest: Any) -> Any:
        for x in rest:
            if hasattr(x, "aval") and is_complex(x.aval.dtype):
                msg = f"{name}: got {x.aval.str_short()}, but parameters of distributions are real"
                raise UnsupportedDtypeError(msg, hint="take the part that is meant: x.real")
        return function(key, *rest)

    return run


def samplers(*functions: Callable[..., Any]) -> dict[str, StagedFunction]:
    """The samplers of a file by name: functions ``_name(key, *parameters, *statics)``."""
    names = [f.__name__.removeprefix("_") for f in functions]
    return {
        n: StagedFunction(of_real_parameters(n, f), n, judges=False)
        for n, f in zip(names, functions, strict=True)
    }


def draw(
    staged: dict[str, StagedFunction],
    name: str,
    key: ArrayLike,
    parameters: tuple[ArrayLike, ...],
    shape: ShapeLike | None,
    dtype: DTypeLike | None,
    place: ShardingLike | None = None,
) -> Any:
    """Numbers of a sampler whose statics are the shape and a floating dtype."""
    statics = sizes_of(name, shape), float_dtype(name, dtype)
    return sample(staged[name], key, parameters, statics, place)


# draws -------------------------------------------------------------------------------------------


def constant(value: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """An array of one number."""
    return full_of(ShapedArray(shape, dtype), value)


def unit_floats(stream: Stream, shape: tuple[int, ...], dtype: Any) -> Any:
    """Multiples of the spacing of floats in [1, 2), in [0, 1)."""
    return _drawn(stream, shape, dtype, lambda words: unit_of_words(words, dtype))


def _drawn(stream: Stream, shape: tuple[int, ...], dtype: Any, draw: Callable[[Value], Any]) -> Any:
    """``draw`` of words for each element, in a row before what reads it if that takes less time."""
    width, row = width_of(dtype), row_for(shape)
    if row is None or not stream.is_partitionable:
        return draw(stream.bits(width, shape))
    return from_row(lax.stored(draw(stream.bits(width, (row,)))), shape)


def uniforms(stream: Stream, shape: tuple[int, ...], dtype: Any, low: Any, high: Any) -> Any:
    """Floats in [low, high); the bounds are numbers or values that fit into ``shape``."""
    unit = unit_floats(stream, shape, dtype)
    if isinstance(low, int | float) and isinstance(high, int | float):
        if low == 0 and high == 1:
            return unit
        low, high = dtype.type(low), dtype.type(high)
        bottom = constant(low, shape, dtype)
        span = constant(high - low, shape, dtype)
    else:
        low = low if hasattr(low, "aval") else constant(low, (), dtype)
        high = high if hasattr(high, "aval") else constant(high, (), dtype)
        bottom = spread(low, shape, dtype)
        span = lax.sub(spread(high, shape, dtype), bottom)
    # Rounding must not lead below the lower bound.
    return lax.max(bottom, lax.add(lax.mul(unit, span), bottom))


def normals(stream: Stream, shape: tuple[int, ...], dtype: Any) -> Any:
    """Standard normal numbers, by the inverse of the distribution function."""
    if is_complex(dtype):
        part = np.zeros((), dtype).real.dtype
        parts = [normals(s, shape, part) for s in stream.split()]
        return lax.div(lax.complex(*parts), constant(math.sqrt(2), shape, dtype))
    return _drawn(stream, shape, dtype, lambda words: normal_of_unit(unit_of_words(words, dtype)))


def exponentials(stream: Stream, shape: tuple[int, ...], dtype: DType) -> Any:
    """Standard exponential numbers; the logarithm sees (0, 1]."""
    return lax.neg(lax.log1p(lax.neg(unit_floats(stream, shape, dtype))))
