"""Random bits: threefry2x32, the generators of StableHLO, and stateful uniform numbers."""

from __future__ import annotations

__all__ = [
    "RandomAlgorithm", "rng_bit_generator", "rng_bit_generator_p", "rng_uniform",
    "rng_uniform_p",
]  # fmt: skip

import enum
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core._jaxlib import mlir
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import int32, int64, is_complex, uint32, uint64
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.lax.families import batch_elementwise, common_shape, operands
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.mlir.attrs import boolean, i32, string
from tracebridge.core.symbolic.dims import is_static
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


_I32 = ShapedArray((), int32)

# Threefry-2x32-20: Salmon, Moraes, Dror, Shaw (2011), "Parallel random numbers: as easy as 1, 2,
# 3", table 2 and section 3.3 (the parity constant of the key schedule).
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_GROUPS = 5


@final
class Threefry2x32(Primitive):
    """Encrypts counters (x, y) by keys (k, k'); operands of one shape, or scalars."""

    name = "threefry2x32"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> list[ShapedArray]:
        if any([a.dtype != uint32 for a in avals]):
            got = ", ".join([a.str_short() for a in avals])
            msg = f"threefry2x32: got {got}, expected four arrays of uint32"
            raise DtypeMismatchError(msg)
        out = result_aval(avals, common_shape(self.name, avals), weak_type=False)
        return [out, out]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        """The rounds one after the other: as a loop they are twice as slow on CPU."""
        k0, k1, x, y = operands
        (k0_aval, k1_aval, x_aval, y_aval), out = ctx.avals_in, ctx.avals_out[0]

        def full(v: Any, aval: ShapedArray) -> Any:
            same = aval.shape == out.shape
            return v if same else ctx.broadcast_in_dim(v, out, ())

        # The schedule is computed on scalars where the keys are scalars.
        key = k0_aval if k0_aval.ndim == k1_aval.ndim else out
        if key is out:
            k0, k1 = full(k0, k0_aval), full(k1, k1_aval)

        def op(name: str, a: Any, b: Any, aval: ShapedArray = out) -> Any:
            return ctx.op1(f"stablehlo.{name}", [a, b], aval)

        parity = op("xor", op("xor", k0, k1, key), ctx.splat(_PARITY, key), key)
        schedule = (k0, k1, parity)
        x = op("add", full(x, x_aval), full(k0, key))
        y = op("add", full(y, y_aval), full(k1, key))
        for group in range(_GROUPS):
            for distance in _ROTATIONS[group % 2]:
                x = op("add", x, y)
                left = op("shift_left", y, ctx.splat(distance, out))
                right = op("shift_right_logical", y, ctx.splat(32 - distance, out))
                y = op("xor", op("or", left, right), x)
            step = group + 1
            x = op("add", x, full(schedule[step % 3], key))
            count = op("add", schedule[(step + 1) % 3], ctx.splat(step, key), key)
            y = op("add", y, full(count, key))
        return [x, y]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        outs, dim = batch_elementwise(self, ctx, args, dims, params)
        return outs, [dim, dim]


@public_path("tracebridge.lax")
class RandomAlgorithm(enum.IntEnum):
    """Generators that StableHLO names; the default is the fastest of the platform.

    >>> import tracebridge as tb
    >>> tb.lax.RandomAlgorithm.RNG_PHILOX.value
    2
    """

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


_ALGORITHM_NAMES = {0: "DEFAULT", 1: "THREE_FRY", 2: "PHILOX"}
_KEY_SIZES = {uint32: 4, uint64: 2}
_BIT_DTYPES = ("uint8", "uint16", "uint32", "uint64")


@final
class RngBitGenerator(Primitive):
    """``(key) -> (next key, bits)``; where keys are mapped the first draws for all of them."""

    name = "rng_bit_generator"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        (key,) = avals
        if key.ndim != 1 or _KEY_SIZES.get(key.dtype) != key.shape[0]:
            msg = f"rng_bit_generator: got a key {key.str_short()}"
            raise ShapeMismatchError(msg, expected="four uint32 or two uint64")
        key = key.strong
        return [key, key.update(shape=params["shape"], dtype=params["dtype"])]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        key_aval, bits = ctx.avals_out
        (key,) = operands
        algorithm = params["algorithm"]
        state = ShapedArray((2,), uint64)
        pairs = ShapedArray((2, 2), uint32)
        if key_aval.dtype == uint32:
            key = ctx.op1("stablehlo.bitcast_convert", [ctx.reshape(key, pairs)], state)
        name = _ALGORITHM_NAMES[int(algorithm)]
        attribute = {"rng_algorithm": mlir.stablehlo.RngAlgorithmAttr.get(name)}
        count = math.prod(bits.shape)
        if _by_pairs(ctx, bits, algorithm):
            wide = state.update(shape=(-(-count // 2),))
            new, words = ctx.op(
                "stablehlo.rng_bit_generator", [key], [state, wide], attribute
            ).results
            (drawn,) = ctx.lower_fun(
                _halves, words, avals_in=[wide], shape=bits.shape, dtype=bits.dtype
            )
        elif is_static(bits.shape):
            new, drawn = ctx.op(
                "stablehlo.rng_bit_generator", [key], [state, bits], attribute
            ).results
        else:
            # The operation has no operand for sizes; StableHLO puts it in the place of this call
            # as soon as they are known.
            call = {
                "call_target_name": string("stablehlo.dynamic_rng_bit_generator"),
                "has_side_effect": boolean(False),
                "api_version": i32(2),
            }
            sized = [key, ctx.shape_tensor(bits.shape)]
            new, drawn = ctx.op(
                "stablehlo.custom_call", sized, [state, bits], {**attribute, **call}
            ).results
        if key_aval.dtype == uint32:
            new = ctx.reshape(ctx.op1("stablehlo.bitcast_convert", [new], pairs), key_aval)
        return [new, drawn]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        # One draw by the first key, which is much faster than one by each.
        (key,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        keys = move_batch_axis(key, d, 0)
        first = lax.index_in_dim(keys, 0, 0, keepdims=False)
        new, bits = self.bind(first, **{**params, "shape": (ctx.size, *params["shape"])})
        return [lax.dynamic_update_index_in_dim(keys, new, 0, 0), bits], [0, 0]


def _by_pairs(ctx: LoweringContext, bits: ShapedArray, algorithm: Any) -> bool:
    """Whether narrow bits are drawn as halves of words of 64 bits: the same bits.

    XLA:CPU computes each of the four words of a Philox block by a loop of its own, and all of a
    block for each; of words of 64 bits it makes two loops.
    """
    if ctx.platform != "cpu" or not option("platform_rules") or not is_static(bits.shape):
        return False
    few = 0 in bits.shape or bits.dtype.itemsize == 8
    return not few and int(algorithm) != RandomAlgorithm.RNG_THREE_FRY


def _halves(words: Value, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """The lower half of each word, then its upper half; as many as ``shape`` holds."""
    pairs = lax.bitcast_convert_type_p.bind(words, new_dtype=uint32)
    flat = lax.reshape(pairs, (2 * words.aval.size,))
    count = math.prod(shape)
    if count != flat.aval.size:
        flat = lax.slice(flat, (0,), (count,))
    return lax.convert_dtype(lax.reshape(flat, shape), dtype)


@final
class RngUniform(Primitive):
    """Numbers from a generator with hidden state."""

    name = "rng_uniform"
    cost = Cost.OTHER
    may_merge = False

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        a, b = avals
        if a.dtype != b.dtype or is_complex(a.dtype):
            msg = f"rng_uniform: got bounds {a.str_short()} and {b.str_short()}"
            raise DtypeMismatchError(msg, expected="two real scalars of one dtype")
        if a.ndim or b.ndim:
            msg = f"rng_uniform: got bounds {a.str_short()} and {b.str_short()}, expected scalars"
            raise ShapeMismatchError(msg)
        return result_aval(avals, params["shape"], weak_type=False)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        shape = ctx.dense(np.asarray(params["shape"], int64))
        uniform = mlir.stablehlo.RngDistributionAttr.get("UNIFORM")
        return ctx.op1(
            "stablehlo.rng", [*operands, shape], ctx.aval_out, {"rng_distribution": uniform}
        )


threefry2x32_p = Threefry2x32()
rng_bit_generator_p = RngBitGenerator()
rng_uniform_p = RngUniform()


def rng_bit_generator(
    key: Operand,
    shape: Sequence[int],
    dtype: DTypeLike = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: object = None,
) -> Any:
    """The next key and random bits of a generator that the platform provides.

    Where keys are mapped over (``vmap``) the first one draws the bits for all of them.

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
    canonical = canonicalize_explicit(dtype, "rng_bit_generator")
    if canonical.name not in _BIT_DTYPES:
        msg = f"rng_bit_generator: got dtype {canonical.name}, expected one of {_BIT_DTYPES}"
        raise UnsupportedDtypeError(msg)
    new, bits = rng_bit_generator_p.bind(
        as_value(key), shape=tuple(shape), dtype=canonical, algorithm=RandomAlgorithm(algorithm)
    )
    if out_sharding is not None:
        bits = constrained_result("rng_bit_generator", bits, out_sharding)
    return new, bits


def rng_uniform(a: Operand, b: Operand, shape: Sequence[int]) -> Any:
    """Numbers between ``a`` and ``b`` from a generator with hidden state.

    The numbers differ from call to call, also between equal calls; ``tracebridge.random`` has
    functions that can be repeated.

    Args:
        a: lower bound, a real scalar.
        b: upper bound (not included for floats), of the same dtype.
        shape: shape of the result.

    >>> import tracebridge as tb
    >>> tb.lax.rng_uniform(0.0, 1.0, (3,)).shape
    (3,)
    """
    return rng_uniform_p.bind(*operands("rng_uniform", a, b), shape=tuple(shape))
