"""Choices among given things: permutations, elements, categories, signs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit, default_int
from tracebridge.core.dtypes.dtypes import is_bool, is_inexact, is_integer, is_unsigned
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, kind_of
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.shape.axes import as_axis
from tracebridge.core.runtime.arrays.argument_types import DType, ShapeLike, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy.conversion import asarray
from tracebridge.numpy.cumulative import cumsum
from tracebridge.numpy.indexing_functions import take
from tracebridge.numpy.searching import argmax, searchsorted
from tracebridge.random._streams import (
    Stream,
    constant,
    joint_shape,
    of_real_parameters,
    sample,
    sizes_of,
    spread,
    stream_of,
    unit_floats,
)
from tracebridge.random.transforms import gumbel_mode, gumbels, signs
from tracebridge.random.uniform import randint

Sizes = tuple[int, ...]
_INT32 = np.dtype(np.int32)


def _axis(call: str, axis: Any, ndim: int) -> int:
    return as_axis(call, axis, ndim)


def _shuffled(stream: Stream, x: Value, axis: int) -> Any:
    """``x`` sorted by random words, several times: equal words would leave elements in order.

    There are ``3 log(n) / log(2**32)`` rounds, so that all of them agree for a pair with
    probability ``n**-3``.
    """
    size = max(1, x.aval.size)
    rounds = math.ceil(3 * math.log(size) / math.log(2**32 - 1))
    for _ in range(rounds):
        stream, own = stream.split()
        x = lax.sort([own.bits(32, x.aval.shape), x], dimension=axis, num_keys=1)[1]
    return x


def _permutation(key: Value, x: Value, axis: int, independent: bool) -> Any:
    stream = stream_of("permutation", key)
    if independent or x.aval.ndim == 1:
        return _shuffled(stream, x, axis)
    order = _shuffled(stream, lax.iota_of(default_int(), (x.aval.shape[axis],), 0), 0)
    return take(x, order, axis)


def _permuted_range(key: Value, count: int, dtype: DType) -> Any:
    return _shuffled(stream_of("permutation", key), lax.iota_of(dtype, (count,), 0), 0)


def _weighted(key: Value, p: Value, shape: Sizes) -> Any:
    """Positions at which the sums of probabilities exceed uniform numbers."""
    sums = lax.stored(cumsum(p))
    last = lax.reshape(lax.slice(sums, (sums.aval.size - 1,), (sums.aval.size,)), ())
    kind = sums.aval.dtype
    u = unit_floats(stream_of("choice", key), shape, kind)
    levels = lax.stored(lax.mul(spread(last, shape), lax.sub(constant(1, shape, kind), u)))
    return lax.convert_dtype(searchsorted(sums, levels), default_int())


def _distinct(key: Value, p: Value, count: int, mode: str) -> Any:
    """The largest of the logits with Gumbel noise (Vieira 2014, Kool et al. 2019)."""
    noise = gumbels(stream_of("choice", key), p.aval.shape, p.aval.dtype, mode)
    positions = lax.top_k(lax.add(noise, lax.log(p)), count)[1]
    return lax.convert_dtype(positions, default_int())


def _noisy(stream: Stream, x: Value, mode: str) -> Any:
    """``x`` with Gumbel noise, made in one row: over short ones loops are not vectorised."""
    whole, dtype = x.aval.shape, x.aval.dtype
    flat = lax.reshape(x, (math.prod(whole),))
    noise = gumbels(stream, flat.aval.shape, dtype, mode)
    return lax.reshape(lax.stored(lax.add(noise, flat)), whole)


def _categorical(
    key: Value, logits: Value, shape: Sizes | None, axis: int, replace: bool, mode: str
) -> Any:
    sizes = logits.aval.shape
    batch = (*sizes[:axis], *sizes[axis + 1 :])
    shape = joint_shape("categorical", shape, batch)
    extra, own = shape[: len(shape) - len(batch)], shape[len(shape) - len(batch) :]
    stream = stream_of("categorical", key)
    if replace:
        whole = (*extra, *own[:axis], sizes[axis], *own[axis:])
        noisy = _noisy(stream, spread(logits, whole), mode)
        return argmax(noisy, axis=len(extra) + axis)
    count = math.prod(extra)
    if own != batch:
        msg = f"categorical: shape {shape} does not end with {batch}, the shape of the logits"
        raise ShapeMismatchError(msg + " without their axis, as it must with replace=False")
    if count > sizes[axis]:
        msg = (
            f"categorical: Number of samples without replacement, {count}, exceeds the "
            f"{sizes[axis]} categories"
        )
        raise ArgumentValueError(msg, hint="replace=True")
    noisy = _noisy(stream, logits, mode)
    order = [i for i in range(len(sizes)) if i != axis]
    indices = lax.top_k(lax.transpose(noisy, (*order, axis)), count)[1]
    n = len(batch)
    return lax.reshape(lax.transpose(indices, (n, *range(n))), shape)


def _rademacher(key: Value, shape: Sizes, dtype: DType) -> Any:
    wraps = is_unsigned(dtype) or is_bool(dtype)
    found = signs(stream_of("rademacher", key), shape, _INT32 if wraps else dtype)
    return lax.convert_dtype(found, dtype) if wraps else found


_permutation_staged = StagedFunction(_permutation, "permutation")
_permuted_range_staged = StagedFunction(_permuted_range, "permutation")
_weighted_staged = StagedFunction(_weighted, "choice")
_distinct_staged = StagedFunction(_distinct, "choice")
_categorical_staged = StagedFunction(of_real_parameters("categorical", _categorical), "categorical")
_rademacher_staged = StagedFunction(_rademacher, "rademacher")


def _count(call: str, x: Value) -> int:
    """A concrete integer scalar as an int."""
    if not is_integer(x.aval.dtype):
        msg = f"{call}: got {kind_of(x)}, expected an integer, or an array with axes"
        raise ArgumentTypeError(msg)
    return int(x) if isinstance(x, Array) else int(asarray(x))


def permutation(
    key: ArrayLike,
    x: ArrayLike,
    axis: int = 0,
    independent: bool = False,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """The parts of an array in random order, or the integers below a number.

    Args:
        key: one key, typed or as words.
        x: array, or an integer for ``range(x)``.
        axis: the axis to shuffle, in ``[-ndim, ndim)``.
        independent: give each vector along the axis an order of its own.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ArgumentTypeError: ``x`` is a scalar that is no integer.
        AxisError: ``axis`` is out of range.

    >>> import tracebridge as tb
    >>> sorted(tb.random.permutation(tb.random.key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    value = as_value(x, "permutation") if not isinstance(x, list | tuple) else asarray(x)
    axis = _axis("permutation", axis, value.aval.ndim or 1)
    if not value.aval.ndim:
        statics = max(0, _count("permutation", value)), default_int()
        return sample(_permuted_range_staged, key, (), statics, out_sharding)
    statics = axis, bool(independent)
    return sample(_permutation_staged, key, (value,), statics, out_sharding)


def choice(
    key: ArrayLike,
    a: ArrayLike,
    shape: ShapeLike = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: Any = None,
) -> Array:
    """Random elements of an array, or of the integers below a number.

    Args:
        key: one key, typed or as words.
        a: array, or an integer for ``range(a)``.
        shape: sizes of the result.
        replace: whether an element can be chosen several times.
        p: probabilities of the elements, a vector; ``None`` makes them equal.
        axis: the axis along which the elements lie.
        mode: of the Gumbel numbers that choose without replacement by ``p``, see ``gumbel``.

    Returns:
        Array in which ``axis`` is replaced by the axes of ``shape``.

    Raises:
        ArgumentTypeError: ``a`` is a scalar that is no integer, or ``shape`` no sequence.
        ArgumentValueError: there are fewer elements than are asked for, or no such mode.
        AxisError: ``axis`` is out of range.
        ShapeMismatchError: ``p`` is not a vector with one number for each element.

    >>> import tracebridge as tb
    >>> tb.random.choice(tb.random.key(0), 5, (3,), replace=False).shape
    (3,)
    """
    if not isinstance(shape, Iterable):
        raise ArgumentTypeError(
            call="choice", where="argument shape", got=repr(shape), expected="a sequence of sizes"
        )
    sizes = sizes_of("choice", shape) or ()
    mode = gumbel_mode("choice", mode)
    value = asarray(a)
    is_range = not value.ndim
    axis = 0 if is_range else _axis("choice", axis, value.ndim)
    if type(a) is int:
        n = a  # to read it from the array that was just made takes ten times as long
    elif is_range:
        n = _count("choice", value)
    else:
        n = value.shape[axis]
    draws = math.prod(sizes)
    before, after = ((), ()) if is_range else (value.shape[:axis], value.shape[axis + 1 :])
    result = (*before, *sizes, *after)
    if not draws:
        return constant(0, result, value.dtype)
    _check_enough(n, draws, replace)
    if p is not None:
        chances = asarray(p)
        if chances.shape != (n,):
            msg = f"choice: p has shape {chances.shape}, expected {(n,)}, one number per element"
            raise ShapeMismatchError(msg)
        chances = chances if is_inexact(chances.dtype) else chances.astype(float)
        if replace:
            where = sample(_weighted_staged, key, (chances,), (sizes,))
        else:
            where = sample(_distinct_staged, key, (chances,), (draws, mode))
    elif replace:
        where = randint(key, sizes, 0, n)
    else:
        order = permutation(key, n if is_range else value, axis)
        return lax.slice_in_dim(order, 0, draws, axis=axis).reshape(result)
    return (where if is_range else take(value, where, axis)).reshape(result)


def _check_enough(n: int, draws: int, replace: bool) -> None:
    if n <= 0:
        msg = f"choice: {draws} elements of none"
        raise ArgumentValueError(msg, hint="a must have elements unless shape has a size 0")
    if not replace and draws > n:
        msg = f"choice: {draws} elements of {n} without replacement"
        raise ArgumentValueError(msg, hint="replace=True")


def categorical(
    key: ArrayLike,
    logits: ArrayLike,
    axis: int = -1,
    shape: ShapeLike | None = None,
    replace: bool = True,
    mode: Any = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Categories, given the logarithms of their probabilities up to a constant.

    Args:
        key: one key, typed or as words.
        logits: array of logarithms of probabilities.
        axis: the axis of the categories, in ``[-ndim, ndim)``.
        shape: shape of the result; ``None`` means that of ``logits`` without ``axis``, to which
            it must be broadcastable, with further axes in front.
        replace: whether the samples of the further axes can be equal.
        mode: of the Gumbel numbers, see ``gumbel``.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ArgumentValueError: there are fewer categories than are asked for, or no such mode.
        AxisError: ``axis`` is out of range.
        BroadcastError: ``logits`` does not fit into ``shape``.
        ShapeMismatchError: ``shape`` does not fit with ``replace=False``.

    >>> import tracebridge as tb
    >>> tb.random.categorical(tb.random.key(0), tb.numpy.zeros((3, 4))).shape
    (3,)
    """
    value = asarray(logits)
    if is_integer(value.dtype):
        value = value.astype(float)
    axis = _axis("categorical", axis, value.ndim)
    statics = sizes_of("categorical", shape), axis, bool(replace), gumbel_mode("categorical", mode)
    return sample(_categorical_staged, key, (value,), statics, out_sharding)


def rademacher(
    key: ArrayLike,
    shape: ShapeLike | None = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """-1 or 1.

    As an unsigned integer -1 is the largest one, and of booleans both are True.

    >>> import tracebridge as tb
    >>> abs(tb.random.rademacher(tb.random.key(0), (3,))).tolist()
    [1, 1, 1]
    """
    kind = default_int() if dtype is None else canonicalize_explicit(dtype, "rademacher")
    statics = sizes_of("rademacher", shape), kind
    return sample(_rademacher_staged, key, (), statics, out_sharding)
