"""Initial weights of layers: functions that give initializers of a key, a shape and a dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tracebridge.lax as lax
import tracebridge.numpy as tnp
import tracebridge.random as random
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.numpy.creation import canonical_shape

__all__ = [
    "Initializer",
    "constant",
    "delta_orthogonal",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]

AxisLike = int | Sequence[int]


class Initializer(Protocol):
    """What makes weights: ``(key, shape, dtype=None, out_sharding=None) -> array``.

    >>> import tracebridge as tb
    >>> init = tb.nn.initializers.constant(7.0)
    >>> init(tb.random.key(0), (2,)).tolist()
    [7.0, 7.0]
    """

    def __call__(
        self,
        key: Array,
        shape: Sequence[int],
        dtype: DTypeLike | None = None,
        out_sharding: object = None,
    ) -> Array:
        """Weights of a shape and dtype."""
        ...


_Draw = Callable[[Any, tuple[int, ...], Any], Any]


def _initializer(default: Any, draw: _Draw) -> Initializer:
    """The initializer of ``draw(key, shape, dtype)``; dtype None is the default float."""

    def init(key: Any, shape: Any, dtype: Any = default, out_sharding: object = None) -> Any:
        kind = tnp.dtype(tnp.result_type(float)) if dtype is None else tnp.dtype(dtype)
        out = draw(key, canonical_shape(shape, "initializer"), tnp.zeros((), kind).dtype)
        return out if out_sharding is None else lax.with_sharding_constraint(out, out_sharding)

    return init


def zeros(
    key: Array, shape: Sequence[int], dtype: DTypeLike | None = None, out_sharding: object = None
) -> Array:
    """Zeros: an initializer itself.

    Args:
        key: not used.
        shape: of the result.
        dtype: of the result; default: the default float.
        out_sharding: how to split the result.

    >>> import tracebridge as tb
    >>> tb.nn.initializers.zeros(tb.random.key(0), (2,)).tolist()
    [0.0, 0.0]
    """
    return constant(0, dtype)(key, shape, dtype, out_sharding)


def ones(
    key: Array, shape: Sequence[int], dtype: DTypeLike | None = None, out_sharding: object = None
) -> Array:
    """Ones: an initializer itself.

    Args:
        key: not used.
        shape: of the result.
        dtype: of the result; default: the default float.
        out_sharding: how to split the result.

    >>> import tracebridge as tb
    >>> tb.nn.initializers.ones(tb.random.key(0), (2,)).tolist()
    [1.0, 1.0]
    """
    return constant(1, dtype)(key, shape, dtype, out_sharding)


def constant(value: ArrayLike, dtype: DTypeLike | None = None) -> Initializer:
    """The initializer of one value.

    Args:
        value: number, or array that broadcasts to the shape of the weights.
        dtype: the dtype where none is given later.

    >>> import tracebridge as tb
    >>> tb.nn.initializers.constant(-7)(tb.random.key(0), (2,)).tolist()
    [-7.0, -7.0]
    """
    return _initializer(dtype, lambda key, shape, kind: tnp.full(shape, value, kind))


def uniform(scale: float = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Uniform numbers from 0 to ``scale``.

    Args:
        scale: the upper bound.
        dtype: the dtype where none is given later.

    >>> import tracebridge as tb
    >>> tb.nn.initializers.uniform(10.0)(tb.random.key(0), (2, 3)).shape
    (2, 3)
    """

    def draw(key: Any, shape: tuple[int, ...], kind: Any) -> Any:
        return random.uniform(key, shape, kind) * tnp.asarray(scale, kind)

    return _initializer(dtype, draw)


def normal(stddev: float = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Normal numbers.

    Args:
        stddev: their standard deviation.
        dtype: the dtype where none is given later.

    >>> import tracebridge as tb
    >>> tb.nn.initializers.normal(5.0)(tb.random.key(0), (2, 3)).shape
    (2, 3)
    """

    def draw(key: Any, shape: tuple[int, ...], kind: Any) -> Any:
        return random.normal(key, shape, kind) * tnp.asarray(stddev, kind)

    return _initializer(dtype, draw)


def truncated_normal(
    stddev: float = 1e-2, dtype: DTypeLike | None = None, lower: float = -2.0, upper: float = 2.0
) -> Initializer:
    """Normal numbers that lie between two bounds, then scaled.

    Args:
        stddev: factor of the numbers.
        dtype: the dtype where none is given later.
        lower: lower bound, before scaling.
        upper: upper bound, before scaling.

    >>> import tracebridge as tb
    >>> tb.nn.initializers.truncated_normal(5.0)(tb.random.key(0), (2, 3)).shape
    (2, 3)
    """

    def draw(key: Any, shape: tuple[int, ...], kind: Any) -> Any:
        numbers = random.truncated_normal(key, lower, upper, shape, kind)
        return numbers * tnp.asarray(stddev, kind)

    return _initializer(dtype, draw)


def _size(shape: tuple[int, ...], axes: AxisLike) -> int:
    return math.prod([shape[a] for a in ((axes,) if isinstance(axes, int) else axes)])


def _fans(
    shape: tuple[int, ...], in_axis: AxisLike, out_axis: AxisLike, batch_axis: AxisLike
) -> tuple[float, float]:
    """How many weights a unit of the result, and one of the input, is connected by."""
    if isinstance(in_axis, int) and in_axis == -2 and len(shape) < 2:
        msg = f"variance_scaling: shape {shape} has no axis -2 of inputs"
        raise RankError(msg, hint="weights of two axes or more, or say in_axis")
    n_in, n_out = _size(shape, in_axis), _size(shape, out_axis)
    field = math.prod(shape) / n_in / n_out / _size(shape, batch_axis) if 0 not in shape else 0
    return n_in * field, n_out * field


# Standard deviations of normal numbers between -2 and 2, and of complex ones of size up to 2.
_STDDEV_TRUNCATED = 0.87962566103423978
_STDDEV_TRUNCATED_COMPLEX = 0.95311164380491208
_MODES: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda a, b: a,
    "fan_out": lambda a, b: b,
    "fan_avg": lambda a, b: (a + b) / 2,
    "fan_geo_avg": lambda a, b: math.sqrt(a * b),
}
_DISTRIBUTIONS = ("truncated_normal", "normal", "uniform")


def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: AxisLike = -2,
    out_axis: AxisLike = -1,
    batch_axis: AxisLike = (),
    dtype: DTypeLike | None = None,
) -> Initializer:
    """Numbers with the variance ``scale / n``, where ``n`` is a number of connections.

    Args:
        scale: a positive number.
        mode: what ``n`` is: ``"fan_in"``, ``"fan_out"``, their mean ``"fan_avg"`` or their
            geometric mean ``"fan_geo_avg"``.
        distribution: ``"truncated_normal"``, ``"normal"`` or ``"uniform"``.
        in_axis: axes of the inputs.
        out_axis: axes of the outputs.
        batch_axis: axes of independent weights.
        dtype: the dtype where none is given later.

    Raises:
        ArgumentValueError: another mode or distribution.
        RankError: when it is called: weights without an axis of inputs.

    >>> import tracebridge as tb
    >>> init = tb.nn.initializers.variance_scaling(1.0, "fan_in", "normal")
    >>> init(tb.random.key(0), (2, 3)).shape
    (2, 3)
    """
    if mode not in _MODES or distribution not in _DISTRIBUTIONS:
        msg = f"variance_scaling: mode is {mode!r}, distribution is {distribution!r}"
        expected = f"one of {', '.join(_MODES)}, and one of {', '.join(_DISTRIBUTIONS)}"
        raise ArgumentValueError(msg, expected=expected)

    def draw(key: Any, shape: tuple[int, ...], kind: Any) -> Any:
        if 0 in shape:
            return tnp.zeros(shape, kind)
        count = _MODES[mode](*_fans(shape, in_axis, out_axis, batch_axis))
        variance = tnp.asarray(scale / count, kind)
        is_real = kind.kind != "c"
        if distribution == "normal":
            return random.normal(key, shape, kind) * tnp.sqrt(variance)
        if distribution == "uniform" and is_real:
            return random.uniform(key, shape, kind, -1) * tnp.sqrt(3 * variance)
        if distribution == "uniform":
            return _on_disk(key, shape, kind) * tnp.sqrt(variance)
        if is_real:
            stddev = tnp.sqrt(variance) / tnp.asarray(_STDDEV_TRUNCATED, kind)
            return random.truncated_normal(key, -2, 2, shape, kind) * stddev
        stddev = tnp.sqrt(variance) / tnp.asarray(_STDDEV_TRUNCATED_COMPLEX, kind)
        return _complex_normal_up_to_2(key, shape, kind) * stddev

    return _initializer(dtype, draw)


def _on_disk(key: Any, shape: tuple[int, ...], kind: Any) -> Any:
    """Complex numbers spread evenly over a disk, of variance 1."""
    radii, angles = _polar(key, shape, kind)
    return tnp.sqrt(2 * radii).astype(kind) * tnp.exp(1j * angles)


def _complex_normal_up_to_2(key: Any, shape: tuple[int, ...], kind: Any) -> Any:
    """Complex normal numbers of variance 1 whose absolute value is at most 2."""
    radii, angles = _polar(key, shape, kind)
    part = tnp.asarray(1 - math.exp(-4), radii.dtype) * radii
    return tnp.sqrt(-tnp.log(1 - part)).astype(kind) * tnp.exp(1j * angles)


def _polar(key: Any, shape: tuple[int, ...], kind: Any) -> tuple[Any, Any]:
    """Uniform numbers of the real dtype, and angles of the complex one."""
    first, second = random.split(key)
    real = tnp.finfo(kind).dtype
    angles = 2 * math.pi * random.uniform(second, shape, real).astype(kind)
    return random.uniform(first, shape, real), angles


def _scaled(name: str, scale: float, mode: str, distribution: str, text: str) -> Any:
    """A function that gives an initializer of ``variance_scaling`` with three choices made."""

    def function(
        in_axis: AxisLike = -2,
        out_axis: AxisLike = -1,
        batch_axis: AxisLike = (),
        dtype: DTypeLike | None = None,
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{text}

    Args:
        in_axis: axes of the inputs.
        out_axis: axes of the outputs.
        batch_axis: axes of independent weights.
        dtype: the dtype where none is given later.

    >>> import tracebridge as tb
    >>> tb.nn.initializers.{name}()(tb.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return function


glorot_uniform = _scaled(
    "glorot_uniform", 1.0, "fan_avg", "uniform",
    "Uniform numbers of variance 1 over the mean of inputs and outputs (Glorot, Bengio 2010).",
)  # fmt: skip
glorot_normal = _scaled(
    "glorot_normal", 1.0, "fan_avg", "truncated_normal",
    "Truncated normal numbers of variance 1 over the mean of inputs and outputs.",
)  # fmt: skip
lecun_uniform = _scaled(
    "lecun_uniform", 1.0, "fan_in", "uniform",
    "Uniform numbers of variance 1 over the number of inputs (LeCun et al. 1998).",
)  # fmt: skip
lecun_normal = _scaled(
    "lecun_normal", 1.0, "fan_in", "truncated_normal",
    "Truncated normal numbers of variance 1 over the number of inputs (LeCun et al. 1998).",
)  # fmt: skip
he_uniform = _scaled(
    "he_uniform", 2.0, "fan_in", "uniform",
    "Uniform numbers of variance 2 over the number of inputs (He, Zhang, Ren, Sun 2015).",
)  # fmt: skip
he_normal = _scaled(
    "he_normal", 2.0, "fan_in", "truncated_normal",
    "Truncated normal numbers of variance 2 over the number of inputs (He et al. 2015).",
)  # fmt: skip
xavier_uniform = glorot_uniform
xavier_normal = glorot_normal
kaiming_uniform = he_uniform
kaiming_normal = he_normal


def orthogonal(
    scale: float = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> Initializer:
    """Matrices with orthonormal columns (or rows, if there are fewer of these).

    Args:
        scale: factor of the matrix.
        column_axis: the axis of the columns; the others together are the rows.
        dtype: the dtype where none is given later.

    Raises:
        RankError: when it is called: fewer than two axes.

    Source: Saxe, McClelland, Ganguli (2014), ICLR.

    >>> import tracebridge as tb
    >>> q = tb.nn.initializers.orthogonal()(tb.random.key(0), (3, 3))
    >>> bool(tb.numpy.allclose(q @ q.T, tb.numpy.eye(3), atol=1e-5))
    True
    """

    def draw(key: Any, shape: tuple[int, ...], kind: Any) -> Any:
        if len(shape) < 2:
            msg = f"orthogonal: weights of shape {shape}, expected two axes or more"
            raise RankError(msg)
        if 0 in shape:
            return tnp.zeros(shape, kind)
        columns = shape[column_axis]
        axis = column_axis % len(shape)
        rows = math.prod(shape) // columns
        q, r = lax.linalg.qr(
            random.normal(key, (max(rows, columns), min(rows, columns)), kind), full_matrices=False
        )
        diagonal = tnp.diagonal(r)
        q = q * (diagonal / tnp.abs(diagonal))[None, :]
        q = q.T if rows < columns else q
        q = q.reshape((*shape[:axis], *shape[axis + 1 :], columns))
        return tnp.asarray(scale, kind) * tnp.moveaxis(q, -1, axis)

    return _initializer(dtype, draw)


def delta_orthogonal(
    scale: float = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> Initializer:
    """Kernels of convolutions that are an orthogonal matrix in the middle, and 0 elsewhere.

    Args:
        scale: factor of the matrix.
        column_axis: the axis of the columns, among the last two.
        dtype: the dtype where none is given later.

    Raises:
        RankError: when it is called: not one to three spatial axes before the features.
        ShapeMismatchError: when it is called: more inputs than outputs.

    Source: Xiao, Bahri, Sohl-Dickstein, Schoenholz, Pennington (2018), ICML.

    >>> import tracebridge as tb
    >>> kernel = tb.nn.initializers.delta_orthogonal()(tb.random.key(0), (3, 2, 2))
    >>> float(abs(kernel[0]).sum())
    0.0
    """

    def draw(key: Any, shape: tuple[int, ...], kind: Any) -> Any:
        if len(shape) not in (3, 4, 5):
            msg = f"delta_orthogonal: weights of shape {shape}, expected 3, 4 or 5 axes"
            raise RankError(msg)
        if shape[-1] < shape[-2]:
            msg = f"delta_orthogonal: weights of shape {shape} have more inputs than outputs"
            raise ShapeMismatchError(msg)
        matrix = orthogonal(scale, column_axis, kind)(key, shape[-2:])
        middle = tuple([(n - 1) // 2 for n in shape[:-2]])
        return tnp.zeros(shape, kind).at[middle].set(matrix)

    return _initializer(dtype, draw)


shield(globals(), __name__)
