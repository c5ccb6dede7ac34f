"""Distributions that are functions of uniform, normal or exponential numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_float
from tracebridge.core.dtypes.dtypes import is_float
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of
from tracebridge.core.runtime.arrays.argument_types import DType
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.random._fine_gumbel import fine_gumbels
from tracebridge.random._streams import (
    chosen,
    constant,
    exponentials,
    float_dtype,
    joint_shape,
    normals,
    sample,
    sizes_of,
    spread,
    stream_of,
    uniforms,
    unit_floats,
)

Sizes = tuple[int, ...]


def _exponential(key: Value, shape: Sizes, dtype: DType) -> Any:
    return exponentials(stream_of("exponential", key), shape, dtype)


def _cauchy(key: Any, shape: Sizes, dtype: Any) -> Any:
    u = uniforms(stream_of("cauchy", key), shape, dtype, float(finfo(dtype).eps), 1)
    angle = lax.sub(u, constant(0.5, shape, dtype))
    return lax.tan(lax.mul(constant(math.pi, shape, dtype), angle))


def _laplace(key: Any, shape: Sizes, dtype: Any) -> Any:
    lowest = float(dtype.type(-1) + dtype.type(finfo(dtype).epsneg))
    u = uniforms(stream_of("laplace", key), shape, dtype, lowest, 1)
    return lax.mul(lax.sign(u), lax.log1p(lax.neg(lax.abs(u))))


def _logistic(key: Any, shape: Sizes, dtype: Any) -> Any:
    u = uniforms(stream_of("logistic", key), shape, dtype, float(finfo(dtype).tiny), 1)
    return lax.sub(lax.log(u), lax.log1p(lax.neg(u)))


def gumbels(stream: Any, shape: Sizes, dtype: Any, mode: str) -> Any:
    """Gumbel numbers; above the mode "low" two draws are joined to one with more bits near zero."""
    if mode == "low":
        u = uniforms(stream, shape, dtype, float(finfo(dtype).tiny), 1)
        return lax.neg(lax.log(lax.neg(lax.log(u))))
    if mode == "highest" and dtype == np.float32:
        return fine_gumbels(stream, shape)
    info = finfo(dtype)
    pair = unit_floats(stream, (2, *shape), dtype)
    upper, lower = (
        lax.reshape(lax.slice(pair, (i, *[0] * len(shape)), (i + 1, *shape)), shape)
        for i in range(2)
    )
    step = lax.mul(constant(2.0**-info.nmant, shape, dtype), lower)
    fine = lax.add(lax.add(upper, step), constant(float(info.tiny), shape, dtype))
    # From 1/2 on the sum could round up to 1.
    x = lax.select(lax.ge(upper, constant(0.5, shape, dtype)), upper, fine)
    return lax.neg(lax.log(lax.neg(lax.log1p(lax.neg(x)))))


def gumbel_mode(call: str, mode: str | None) -> str:
    """The argument ``mode``: None means "low"."""
    return chosen(call, "mode", "low" if mode is None else mode, ("low", "high", "highest"))


def _gumbel(key: Value, shape: Sizes, dtype: DType, mode: str) -> Any:
    return gumbels(stream_of("gumbel", key), shape, dtype, mode)


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
    joint_shape("weibull_min", shape, scale.aval.shape, concentration.aval.shape)
    e = exponentials(stream_of("weibull_min", key), shape, dtype)
    power = lax.div(constant(1, shape, dtype), spread(concentration, shape, dtype))
    return lax.mul(lax.pow(e, power), spread(scale, shape, dtype))


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
    y = lax.mul(v, v)
    mean_y = lax.mul(mean, y)
    four, half = constant(4, shape, dtype), constant(0.5, shape, dtype)
    root = lax.sqrt(lax.add(lax.mul(four, mean_y), lax.mul(mean_y, mean_y)))
    x = lax.add(mean, lax.mul(lax.mul(half, mean), lax.sub(mean_y, root)))
    chance = lax.div(mean, lax.add(mean, x))
    return lax.select(lax.le(z, chance), x, lax.div(lax.mul(mean, mean), x))


def _truncated_normal(
    key: Value, lower: Value, upper: Value, shape: Sizes | None, dtype: Any
) -> Any:
    shape = joint_shape("truncated_normal", shape, lower.aval.shape, upper.aval.shape)
    lower, upper = (lax.convert_dtype(v, dtype) for v in (lower, upper))
    root = math.sqrt(2)
    low, high = (lax.erf(lax.div(v, full_of(v.aval, root))) for v in (lower, upper))
    u = uniforms(stream_of("truncated_normal", key), shape, dtype, low, high)
    z = lax.mul(constant(root, shape, dtype), lax.erf_inv(u))
    # Rounding must not lead to the bounds or beyond.
    inside = []
    for bound, target in ((lower, math.inf), (upper, -math.inf)):
        fixed = lax.stop_gradient(bound)
        inside.append(spread(lax.nextafter(fixed, full_of(fixed.aval, target)), shape))
    return lax.min(lax.max(z, inside[0]), inside[1])


def _maxwell_of(stream: Any, shape: Sizes, dtype: DType) -> Any:
    z = normals(stream, (*shape, 3), dtype)
    return lax.sqrt(lax.reduce_sum_p.bind(lax.mul(z, z), axes=(len(shape),)))


def _maxwell(key: Value, shape: Sizes, dtype: DType) -> Any:
    return _maxwell_of(stream_of("maxwell", key), shape, dtype)


def signs(stream: Any, shape: Sizes, dtype: Any) -> Any:
    """-1 or 1, of any dtype."""
    kind = default_float()  # the chance of 1/2 is compared in it
    positive = lax.lt(unit_floats(stream, shape, kind), constant(0.5, shape, kind))
    return lax.select(positive, constant(1, shape, dtype), constant(-1, shape, dtype))


def _double_sided_maxwell(key: Value, loc: Value, scale: Value, shape: Sizes, dtype: DType) -> Any:
    joint = joint_shape("double_sided_maxwell", None, loc.aval.shape, scale.aval.shape)
    # The axes of the parameters follow those that are asked for.
    shape = (*(shape or joint), *joint)
    first, second = stream_of("double_sided_maxwell", key).split()
    size = lax.mul(signs(second, shape, dtype), _maxwell_of(first, shape, dtype))
    return lax.add(lax.mul(size, spread(scale, shape, dtype)), spread(loc, shape, dtype))


def _bernoulli(key: Value, p: Value, shape: Sizes | None, mode: str) -> Any:
    if not is_float(p.aval.dtype):
        msg = f"bernoulli: p is {p.aval.str_short()}, expected floating numbers"
        raise UnsupportedDtypeError(msg, hint="convert it: float(p), or p.astype('float32')")
    shape = joint_shape("bernoulli", shape, p.aval.shape)
    stream, dtype = stream_of("bernoulli", key), p.aval.dtype
    p = spread(p, shape, dtype)
    if mode == "low":
        return lax.lt(unit_floats(stream, shape, dtype), p)
    pair = unit_floats(stream, (2, *shape), dtype)
    upper, lower = (
        lax.reshape(lax.slice(pair, (i, *[0] * len(shape)), (i + 1, *shape)), shape)
        for i in range(2)
    )
    # The second draw decides between neighbours of the first.
    step = lax.mul(lower, constant(2.0 ** -finfo(dtype).nmant, shape, dtype))
    return lax.lt(step, lax.sub(p, upper))


_STAGED = {
    f.__name__[1:]: StagedFunction(f, f.__name__[1:], judges=False)
    for f in (
        _exponential,
        _cauchy,
        _laplace,
        _logistic,
        _gumbel,
        _pareto,
        _rayleigh,
        _weibull_min,
        _lognormal,
        _triangular,
        _wald,
        _truncated_normal,
        _maxwell,
        _double_sided_maxwell,
        _bernoulli,
    )
}


def _draw(
    name: str,
    key: Value,
    parameters: tuple[Any, ...],
    shape: Any,
    dtype: DType,
    place: object = None,
) -> Any:
    statics = sizes_of(name, shape), float_dtype(name, dtype)
    return sample(_STAGED[name], key, parameters, statics, place)


def exponential(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Exponential numbers of mean 1.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.exponential(key, (2,)).shape
    (2,)
    """
    return _draw("exponential", key, (), shape, dtype, out_sharding)


def cauchy(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Standard Cauchy numbers.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.cauchy(key, (2,)).shape
    (2,)
    """
    return _draw("cauchy", key, (), shape, dtype, out_sharding)


def laplace(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Standard Laplace numbers: both sides exponential.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.laplace(key, (2,)).shape
    (2,)
    """
    return _draw("laplace", key, (), shape, dtype, out_sharding)


def logistic(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Standard logistic numbers.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.logistic(key, (2,)).shape
    (2,)
    """
    return _draw("logistic", key, (), shape, dtype, out_sharding)


def pareto(
    key: Any,
    b: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
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
    return _draw("pareto", key, (b,), shape, dtype, out_sharding)


def rayleigh(
    key: Any,
    scale: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
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
    return _draw("rayleigh", key, (scale,), shape, dtype, out_sharding)


def weibull_min(
    key: Any,
    scale: Any,
    concentration: Any,
    shape: Any = (),
    dtype: Any = None,
) -> Array:
    """Weibull numbers: powers of exponential ones.

    Args:
        key: one key, typed or as words.
        scale: scale, positive.
        concentration: exponent of the distribution function, positive.
        shape: sizes of the result.
        dtype: dtype of the result; ``None`` means the default one.

    Raises:
        BroadcastError: the parameters do not fit into ``shape``.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.weibull_min(key, 1.0, 2.0, (3,)).shape
    (3,)
    """
    return _draw("weibull_min", key, (scale, concentration), shape, dtype)


def lognormal(
    key: Any,
    sigma: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
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
    return _draw("lognormal", key, (sigma,), shape, dtype, out_sharding)


def triangular(
    key: Any,
    left: Any,
    mode: Any,
    right: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
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
    return _draw("triangular", key, (left, mode, right), shape, dtype, out_sharding)


def wald(
    key: Any,
    mean: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
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
    return _draw("wald", key, (mean,), shape, dtype, out_sharding)


def truncated_normal(
    key: Any,
    lower: Any,
    upper: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
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
    return _draw("truncated_normal", key, (lower, upper), shape, dtype, out_sharding)


def maxwell(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Lengths of vectors of three normal numbers.

    Raises:
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> tb.random.maxwell(key, (3,)).shape
    (3,)
    """
    return _draw("maxwell", key, (), shape, dtype, out_sharding)


def double_sided_maxwell(
    key: Any,
    loc: Any,
    scale: Any,
    shape: Any = (),
    dtype: Any = None,
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
    return _draw("double_sided_maxwell", key, (loc, scale), shape, dtype)


def gumbel(
    key: Any, shape: Any = (), dtype: Any = None, mode: Any = None, *, out_sharding: Any = None
) -> Array:
    """Standard Gumbel numbers: what makes the largest of several logits a random choice.

    Args:
        key: one key, typed or as words.
        shape: sizes of the result.
        dtype: dtype of the result; ``None`` means the default one.
        mode: ``"high"`` spends twice the bits, for events rarer than one in ``1e7``; ``None`` and
            ``"low"`` do not; ``"highest"`` has 24 digits for both tails of float32 numbers, and is
            ``"high"`` for other dtypes.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ArgumentValueError: there is no such mode.
        UnsupportedDtypeError: ``dtype`` is no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.gumbel(tb.random.key(0), (2,)).shape
    (2,)
    """
    statics = sizes_of("gumbel", shape), float_dtype("gumbel", dtype), gumbel_mode("gumbel", mode)
    return sample(_STAGED["gumbel"], key, (), statics, out_sharding)


def bernoulli(
    key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None
) -> Array:
    """True with probability ``p``.

    Args:
        key: one key, typed or as words.
        p: probability, of a floating dtype, broadcastable to ``shape``.
        shape: sizes of the result; ``None`` means that of the parameters together.
        mode: ``"high"`` spends twice the bits, for probabilities below ``1e-7``.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Raises:
        ArgumentValueError: there is no such mode.
        BroadcastError: ``p`` does not fit into ``shape``.
        UnsupportedDtypeError: ``p`` has no floating dtype.

    >>> import tracebridge as tb
    >>> tb.random.bernoulli(tb.random.key(0), 0.3, (4,)).dtype
    dtype('bool')
    """
    chosen("bernoulli", "mode", mode, ("low", "high"))
    statics = sizes_of("bernoulli", shape), mode
    return sample(_STAGED["bernoulli"], key, (p,), statics, out_sharding)
