"""Operations with an argument that says how the result is split over the devices of a mesh.

The engine's operations stand below shardings; here they get the argument. Without it each is one
call of the engine's function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.device_put import device_put_p
from tracebridge.core.control.sharding_constraint import constrained_result, split_result
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.contract.dot import DotDimensionNumbers
from tracebridge.core.lax.rng import RandomAlgorithm
from tracebridge.core.sharding.sharding import Sharding


def _at(call: str, x: Any, sharding: Any) -> Any:
    """``x`` committed to a sharding."""
    if not isinstance(sharding, Sharding):
        msg = f"{call}: sharding is {sharding!r} of type {type(sharding).__name__}"
        raise ArgumentTypeError(msg, expected="a sharding", hint="for devices use device_put")
    return device_put_p.bind(as_value(x), placement=sharding, source=None)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding: Any = None) -> Any:
    """An array with all elements ``fill_value``.

    Args:
        shape: shape of the result.
        fill_value: a scalar.
        dtype: of the result (default: that of ``fill_value``).
        sharding: where the result is put.

    Raises:
        RankError: ``fill_value`` has axes.
        ArgumentTypeError: ``sharding`` is no sharding.

    >>> import tracebridge as tb
    >>> tb.lax.full((2,), 7, "float32").tolist()
    [7.0, 7.0]
    """
    out = lax.full(shape, fill_value, dtype)
    return out if sharding is None else _at("full", out, sharding)


def full_like(
    x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, sharding: Any = None
) -> Any:
    """An array with the shape and dtype of ``x`` and all elements ``fill_value``.

    Args:
        x: an array, or anything with ``shape`` and ``dtype``.
        fill_value: a scalar.
        dtype: another dtype than that of ``x``.
        shape: another shape than that of ``x``.
        sharding: where the result is put.

    Raises:
        RankError: ``fill_value`` is no scalar.
        ArgumentTypeError: ``sharding`` is no sharding.

    >>> import tracebridge as tb
    >>> tb.lax.full_like(tb.numpy.zeros(2), 7).tolist()
    [7.0, 7.0]
    """
    out = lax.full_like(x, fill_value, dtype, shape)
    return out if sharding is None else _at("full_like", out, sharding)


def reshape(
    operand: Any,
    new_sizes: Any,
    dimensions: Sequence[int] | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """The same elements, in row-major order, in another shape.

    Args:
        operand: array.
        new_sizes: the new shape.
        dimensions: order in which the axes are read; ``None`` keeps it.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ShapeMismatchError: the number of elements differs.

    >>> import tracebridge as tb
    >>> tb.lax.reshape(tb.numpy.ones((2, 3)), (3, 2)).shape
    (3, 2)
    """
    if out_sharding is None:
        return lax.reshape(operand, new_sizes, dimensions)
    return split_result("reshape", out_sharding, lax.reshape, operand, new_sizes, dimensions)


def broadcast(operand: Any, sizes: Any, *, out_sharding: Any = None) -> Any:
    """New leading axes of the given sizes, along which the operand is repeated.

    Args:
        operand: array.
        sizes: sizes of the new axes.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    >>> import tracebridge as tb
    >>> tb.lax.broadcast(tb.numpy.ones(3), (2,)).shape
    (2, 3)
    """
    if out_sharding is None:
        return lax.broadcast(operand, sizes)
    return split_result("broadcast", out_sharding, lax.broadcast, operand, sizes)


def broadcast_in_dim(
    operand: Any, shape: Any, broadcast_dimensions: Sequence[int], *, out_sharding: Any = None
) -> Any:
    """``operand`` repeated to ``shape``.

    Args:
        operand: array.
        shape: shape of the result.
        broadcast_dimensions: for each axis of the operand an axis of the result.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the operand does not fit.

    >>> import tracebridge as tb
    >>> tb.lax.broadcast_in_dim(tb.numpy.ones(3), (3, 2), (0,)).shape
    (3, 2)
    """
    if out_sharding is None:
        return lax.broadcast_in_dim(operand, shape, broadcast_dimensions)
    given = operand, shape, broadcast_dimensions
    return split_result("broadcast_in_dim", out_sharding, lax.broadcast_in_dim, *given)


def broadcasted_iota(dtype: Any, shape: Any, dimension: int, *, out_sharding: Any = None) -> Any:
    """An array whose elements are their position along one axis.

    Args:
        dtype: dtype of the result.
        shape: shape of the result.
        dimension: the axis.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    >>> import tracebridge as tb
    >>> tb.lax.broadcasted_iota("int32", (2, 2), 1).tolist()
    [[0, 1], [0, 1]]
    """
    out = lax.broadcasted_iota(dtype, shape, dimension)
    return (
        out if out_sharding is None else constrained_result("broadcasted_iota", out, out_sharding)
    )


def reduce_sum(operand: Any, axes: Sequence[int], *, out_sharding: Any = None) -> Any:
    """Sum over axes, in the operand's dtype.

    Args:
        operand: array of numbers.
        axes: which axes; they are not in the result.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    >>> import tracebridge as tb
    >>> tb.lax.reduce_sum(tb.numpy.ones((2, 3)), (1,)).tolist()
    [3.0, 3.0]
    """
    if out_sharding is None:
        return lax.reduce_sum(operand, axes)
    return split_result("reduce_sum", out_sharding, lax.reduce_sum, operand, axes)


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: DotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Product of two arrays, summed over contracting axes.

    Args:
        lhs: array of numbers or booleans (for which "or" of "and" is computed).
        rhs: likewise; two dtypes are promoted.
        dimension_numbers: ``((lhs contracting, rhs contracting), (lhs batch, rhs batch))``, each
            a sequence of axes. Sizes of corresponding axes agree.
        precision: see ``Precision``; default: the option ``default_matmul_precision``.
        preferred_element_type: dtype of the sums and of the result.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Returns:
        Array with the batch axes, then the other axes of ``lhs``, then those of ``rhs``.

    Raises:
        ShapeMismatchError: sizes do not agree.

    >>> import tracebridge as tb
    >>> x = tb.numpy.ones((2, 3, 4))
    >>> tb.lax.dot_general(x, x, (((2,), (2,)), ((0,), (0,)))).shape
    (2, 3, 3)
    """
    out = lax.dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)
    return out if out_sharding is None else constrained_result("dot_general", out, out_sharding)


def dot(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Product of vectors and matrices: the last axis of ``lhs`` with the first of ``rhs``.

    Args:
        lhs: array of rank 1 or 2 (any rank with ``dimension_numbers``).
        rhs: array of rank 1 or 2 (any rank with ``dimension_numbers``).
        dimension_numbers: as in ``dot_general``.
        precision: as in ``dot_general``.
        preferred_element_type: as in ``dot_general``.
        out_sharding: as in ``dot_general``.

    Raises:
        RankError: another rank.
        ShapeMismatchError: sizes do not agree.

    >>> import tracebridge as tb
    >>> tb.lax.dot(tb.numpy.ones((2, 3)), tb.numpy.ones(3)).tolist()
    [3.0, 3.0]
    """
    out = lax.dot(
        lhs,
        rhs,
        dimension_numbers=dimension_numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    return out if out_sharding is None else constrained_result("dot", out, out_sharding)


def rng_bit_generator(
    key: Any,
    shape: Sequence[int],
    dtype: Any = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> Any:
    """The next key and random bits of a generator that the platform provides.

    Args:
        key: state of the generator: four uint32 or two uint64.
        shape: shape of the bits.
        dtype: an unsigned dtype of at least 8 bits.
        algorithm: which generator; the bits of the default one depend on the platform.
        out_sharding: how to split the bits over a mesh with axes of the type Explicit.

    Returns:
        ``(next key, bits)``.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no unsigned integer dtype that it generates.

    >>> import tracebridge as tb
    >>> key, bits = tb.lax.rng_bit_generator(tb.numpy.zeros(4, "uint32"), (3,))
    >>> key.shape, bits.shape
    ((4,), (3,))
    """
    new, bits = lax.rng_bit_generator(key, shape, dtype, algorithm)
    if out_sharding is not None:
        bits = constrained_result("rng_bit_generator", bits, out_sharding)
    return new, bits
