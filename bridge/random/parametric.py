"""Distributions with parameters that are functions of uniform, normal or exponential numbers."""

from __future__ import annotations

import math
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.runtime.arrays.argument_types import DType, ShapeLike, ShardingLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.random._streams import (
    constant,
    draw,
    exponentials,
    float_dtype,
    joint_shape,
    normals,
    sample,
    samplers,
    sizes_of,
    spread,
    stream_of,
    uniforms,
    unit_floats,
)
from tracebridge.random._tails import are_far, far_normals, may_be_far
from tracebridge.random.transforms import maxwells, signs

Sizes = tuple[int, ...]


def _pareto(key: Value, b: Value, shape: Sizes | None, dtype: DType) -> Any:
    shape = joint_shape("pareto", shape, b.aval.shape)
    e = exponentials(stream_of("pareto", key), shape, dtype)
    return lax.exp(lax.div(e, spread(b, shape, dtype)))


def _rayleigh(key: Value, scale: Value, shape: Sizes | None, dtype: Any) -> Any:
    shape = joint_shape("rayleigh", shape, scale.aval.shape)
    log_u = lax.log(unit_floats(stream_of("rayleigh", key), shape, dtype))
    radius = lax.sqrt(lax.mul(log_u, constant(-2, shape, dtype)))
    return lax.mul(spread(scale, shape, dtype), radius)


def _weibull_min(key: Value, scale: Value, concentration: Any, shape: Sizes, dtype: Any) -> Any:
    drawn = shape
    shape = joint_shape("weibull_min", None, shape, scale.aval.shape, concentration.aval.shape)
    e = spread(exponentials(stream_of("weibull_min", key), drawn, dtype), shape, dtype)
    power = lax.div(constant(1, shape, dtype), spread(concentration, shape, dtype))
    factor, scale = lax.pow(e, power), spread(scale, shape, dtype)
    # Powers that overflow, or vanish, are numbers: such a scale decides alone.
    kind = finfo(dtype)
    number = lax.max(lax.min(factor, float(kind.max)), float(kind.tiny))
    inside = lax.bitwise_and(lax.ge(scale, float(kind.tiny)), lax.le(scale, float(kind.max)))
    return lax.mul(lax.select(inside, factor, number), scale)


def _lognormal(key: Value, sigma: Value, shape: Sizes | None, dtype: DType) -> Any:
    shape = joint_shape("lognormal", shape, sigma.aval.shape)
    z = normals(stream_of("lognormal", key), shape, dtype)
    return lax.exp(lax.mul(z, spread(sigma, shape, dtype)))


def _triangular(
    key: Value, left: Any, mode: Any, right: Any, shape: Sizes | None, dtype: Any
) -> Any:
    """The inverse of the distribution function, a parabola on each side of the mode."""
    shape = joint_shape("triangular", shape, *[v.aval.shape for v in (left, mode, right)])
    left, mode, right = (spread(v, shape, dtype) for v in (left, mode, right))
    u = unit_floats(stream_of("triangular", key), shape, dtype)
    width, up, down = lax.sub(right, left), lax.sub(mode, left), lax.sub(right, mode)
    rest = lax.sub(constant(1, shape, dtype), u)
    rising = lax.add(left, lax.sqrt(lax.mul(lax.mul(u, width), up)))
    falling = lax.sub(right, lax.sqrt(lax.mul(lax.mul(rest, width), down)))
    return lax.select(lax.lt(u, lax.div(up, width)), rising, falling)


def _wald(key: Value, mean: Value, shape: Sizes | None, dtype: Any) -> Any:
    """Michael, Schucany, Haas (1976): one root of a quadratic, or the other."""
    shape = joint_shape("wald", shape, mean.aval.shape)
    first, second = stream_of("wald", key).split()
    mean = spread(mean, shape, dtype)
    v, z = normals(first, shape, dtype), unit_floats(second, shape, dtype)
    half_y = lax.mul(lax.mul(v, v), 0.5)
    kind = finfo(dtype)
    tiny = float(kind.tiny)
    one = constant(1, shape, dtype)

    def larger(begin: Any, w: Any) -> Any:
        """``begin + w + sqrt(w (w + 2 begin))``; with begin 1 its inverse is the other root."""
        w = lax.select(lax.lt(lax.abs(w), tiny), lax.full_like(w, tiny), w)
        root = lax.mul(lax.sqrt(w), lax.sqrt(lax.add(w, lax.mul(begin, 2.0))))
        return lax.add(lax.add(begin, w), root)

    # Roots over the mean, which are their inverses; above the limit the other one is never taken.
    capped = lax.min(mean, float(kind.max) / 256)
    ratio = larger(one, lax.mul(capped, half_y))
    share = lax.div(one, ratio)
    inverse = lax.div(one, lax.max(mean, one))
    x = lax.div(one, larger(inverse, half_y))
    x = lax.select(lax.le(mean, one), lax.mul(capped, share), x)
    chance = lax.div(one, lax.add(one, share))
    return lax.select(lax.le(z, chance), x, lax.mul(capped, ratio))


def _truncated_normal(
    key: Value, lower: Value, upper: Value, shape: Sizes | None, dtype: Any, sided: bool
) -> Any:
    shape = joint_shape("truncated_normal", shape, lower.aval.shape, upper.aval.shape)
    lower, upper = (lax.convert_dtype(v, dtype) for v in (lower, upper))
    stream, near, wide = stream_of("truncated_normal", key), [lower, upper], []
    one_sided: Any = None
    if sided:
        wide = [spread(v, shape) for v in (lower, upper)]
        one_sided = are_far(*wide)
        # The other form has no derivative there.
        ends = zip((-1, 1), wide, strict=True)
        near = [lax.select(one_sided, constant(end, shape, dtype), v) for end, v in ends]
    root = math.sqrt(2)
    low, high = (lax.erf(lax.div(v, full_of(v.aval, root))) for v in near)
    u = uniforms(stream, shape, dtype, low, high)
    z = lax.mul(constant(root, shape, dtype), lax.erf_inv_p.bind(u, plain=True))
    if sided:
        far = far_normals(unit_floats(stream, shape, dtype), *wide)
        z = lax.select(one_sided, far, z)
    # Rounding must not lead to the bounds or beyond.
    inside = []
    for bound, target in ((lower, math.inf), (upper, -math.inf)):
        fixed = lax.stop_gradient(bound)
        inside.append(spread(lax.nextafter(fixed, full_of(fixed.aval, target)), shape))
    return lax.min(lax.max(z, inside[0]), inside[1])


def _double_sided_maxwell(key: Value, loc: Value, scale: Value, shape: Sizes, dtype: DType) -> Any:
    joint = joint_shape("double_sided_maxwell", None, loc.aval.shape, scale.aval.shape)
    # The axes of the parameters follow those that are asked for.
    shape = (*(shape or joint), *joint)
    first, second = stream_of("double_sided_maxwell", key).split()
    size = lax.mul(signs(second, shape, dtype), maxwells(first, shape, dtype))
    return lax.add(lax.mul(size, spread(scale, shape, dtype)), spread(loc, shape, dtype))


_STAGED = samplers(
    _pareto,
    _rayleigh,
    _weibull_min,
    _lognormal,
    _triangular,
    _wald,
    _truncated_normal,
    _double_sided_maxwell,
)


def pareto(
    key: ArrayLike,
    b: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Pareto numbers from 1 on, with tail ``x**-b``.

    Args:
        key: one key, typed or as words.
        b: exponent of the tail, positive.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.pareto(key, 2.0, (3,)).min() >= 1
    Array(True, dtype=bool)
    """
    return draw(_STAGED, "pareto", key, (b,), shape, dtype, out_sharding)


def rayleigh(
    key: ArrayLike,
    scale: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Rayleigh numbers: lengths of pairs of normal numbers.

    Args:
        key: one key, typed or as words.
        scale: scale, positive.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.rayleigh(key, 2.0, (3,)).shape
    (3,)
    """
    return draw(_STAGED, "rayleigh", key, (scale,), shape, dtype, out_sharding)


def weibull_min(
    key: ArrayLike,
    scale: ArrayLike,
    concentration: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
) -> Array:
    """Weibull numbers: powers of exponential ones.

    Args:
        key: one key, typed or as words.
        scale: scale, positive.
        concentration: exponent of the distribution function, positive.
        shape: how many numbers are drawn. Parameters of more elements share them: give the shape
            of the result for numbers that do not depend on each other.
        dtype: dtype of the result; ``None`` means the default one.

    Raises:
        BroadcastError: the shapes of the parameters and ``shape`` do not fit together.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.weibull_min(key, 1.0, 2.0, (3,)).shape
    (3,)
    """
    return draw(_STAGED, "weibull_min", key, (scale, concentration), shape, dtype)


def lognormal(
    key: ArrayLike,
    sigma: ArrayLike = 1.0,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Exponentials of normal numbers.

    Args:
        key: one key, typed or as words.
        sigma: standard deviation of the logarithms.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.lognormal(key, 0.5, (3,)).shape
    (3,)
    """
    return draw(_STAGED, "lognormal", key, (sigma,), shape, dtype, out_sharding)


def triangular(
    key: ArrayLike,
    left: ArrayLike,
    mode: ArrayLike,
    right: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Numbers whose density is a triangle.

    Args:
        key: one key, typed or as words.
        left: where the density begins.
        mode: where it is highest, in ``[left, right]``.
        right: where it ends.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.triangular(key, 0.0, 1.0, 2.0, (3,)).shape
    (3,)
    """
    return draw(_STAGED, "triangular", key, (left, mode, right), shape, dtype, out_sharding)


def wald(
    key: ArrayLike,
    mean: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Inverse Gaussian numbers of scale 1.

    Args:
        key: one key, typed or as words.
        mean: mean, positive.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.wald(key, 2.0, (3,)).shape
    (3,)
    """
    return draw(_STAGED, "wald", key, (mean,), shape, dtype, out_sharding)


def truncated_normal(
    key: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Standard normal numbers, given that they lie in ``(lower, upper)``.

    Args:
        key: one key, typed or as words.
        lower: lower bound.
        upper: upper bound.
        shape: sizes of the result; ``None`` means that of the parameters together.
        dtype: dtype of the result; ``None`` means the default one.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.truncated_normal(key, 0.0, 1.0, (3,)).min() > 0
    Array(True, dtype=bool)
    """
    call, kind = "truncated_normal", float_dtype("truncated_normal", dtype)
    statics = sizes_of(call, shape), kind, may_be_far(kind, lower, upper)
    return sample(_STAGED[call], key, (lower, upper), statics, out_sharding)


def double_sided_maxwell(
    key: ArrayLike,
    loc: ArrayLike,
    scale: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
) -> Array:
    """Maxwell numbers with random signs, scaled and moved.

    Args:
        key: one key, typed or as words.
        loc: centre.
        scale: scale; the axes of ``loc`` and ``scale`` follow those of ``shape``.
        shape: sizes of the result.
        dtype: dtype of the result; ``None`` means the default one.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.double_sided_maxwell(key, 0.0, 1.0, (3,)).shape
    (3,)
    """
    return draw(_STAGED, "double_sided_maxwell", key, (loc, scale), shape, dtype)
