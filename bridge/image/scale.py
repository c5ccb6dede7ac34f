"""Resampling of images along their axes: each axis by a matrix of weights."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    UnsupportedArgumentError,
)
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.lax.contract.precision import Precision
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.util.public_path import public_path
from tracebridge.numpy._promote import as_dtype, normalize_axis
from tracebridge.numpy.creation import canonical_shape

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


@public_path("tracebridge.image")
class ResizeMethod(enum.Enum):
    """How an image is resampled.

    ``NEAREST`` takes the nearest element, ``LINEAR`` interpolates between neighbours, ``CUBIC`` by
    the kernel of Keys, ``CUBIC_PYTORCH`` by that of PyTorch, ``LANCZOS3`` and ``LANCZOS5`` by a
    windowed sinc, ``AREA`` takes means over the area that an element of the result covers.

    >>> import tracebridge as tb
    >>> tb.image.ResizeMethod.from_string("bilinear")
    <ResizeMethod.LINEAR: 1>
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name.

        Args:
            s: the name, such as ``"nearest"``, ``"bilinear"`` or ``"lanczos3"``.

        Raises:
            ArgumentValueError: no such name.
        """
        for method, names in _NAMES.items():
            if s in names:
                return ResizeMethod[method]
        known = ", ".join([name for names in _NAMES.values() for name in names])
        msg = f"ResizeMethod: there is no method {s!r}"
        raise ArgumentValueError(msg, expected=f"one of {known}")


_NAMES = {
    "NEAREST": ("nearest",),
    "LINEAR": ("linear", "bilinear", "trilinear", "triangle"),
    "LANCZOS3": ("lanczos3",),
    "LANCZOS5": ("lanczos5",),
    "CUBIC": ("cubic", "bicubic", "tricubic"),
    "CUBIC_PYTORCH": ("cubic-pytorch", "bicubic-pytorch"),
    "AREA": ("area",),
}


# kernels: the weight of an element at a distance, which is not negative ---------------------------


def _triangle(x: Value) -> Any:
    return tnp.maximum(0, 1 - x)


def _lanczos(radius: float) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        is_far = x > 1e-3
        safe = tnp.where(is_far, x, 1)
        sincs = tnp.sin(math.pi * safe) * tnp.sin(math.pi * safe / radius)
        near = tnp.where(is_far, radius * sincs / (math.pi * safe) ** 2, 1)
        return tnp.where(x > radius, 0, near)

    return kernel


def _cubic(a: float) -> Callable[[Any], Any]:
    """The cubic convolution kernel; ``a`` is its slope at 1.

    Source: Keys (1981), IEEE Trans. Acoust. Speech Signal Process. 29(6):1153-1160.
    """

    def kernel(x: Any) -> Any:
        inner = ((a + 2) * x - (a + 3)) * x * x + 1
        outer = a * (((x - 5) * x + 8) * x - 4)
        return tnp.where(x >= 2, 0, tnp.where(x >= 1, outer, inner))

    return kernel


KERNELS: dict[ResizeMethod, Callable[[Any], Any]] = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
    ResizeMethod.CUBIC: _cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _cubic(-0.75),
}
_CUBIC_RADIUS = 2


def _weights(
    n: int, m: int, scale: Any, translation: Any, method: ResizeMethod, antialias: bool
) -> Any:
    """The matrix of shape ``(n, m)`` that makes ``m`` elements of ``n``."""
    dtype = tnp.result_type(scale, translation)
    step = 1.0 / scale
    # Where the centres of the result lie among the elements of the image.
    centres = (as_dtype(tnp.arange(m), dtype) + 0.5) * step - translation * step - 0.5
    repeats_edges = method is ResizeMethod.CUBIC_PYTORCH
    reach = _CUBIC_RADIUS if repeats_edges else 0
    positions = as_dtype(tnp.arange(-reach, n + reach), dtype)
    if method is ResizeMethod.AREA:
        first = as_dtype(tnp.arange(m), dtype) * step - translation * step
        ends = tnp.minimum((first + step)[None, :], positions[:, None] + 1)
        weights = tnp.maximum(0.0, ends - tnp.maximum(first[None, :], positions[:, None]))
    else:
        # A smaller image is smoothed over the elements that one of it covers.
        width = tnp.maximum(step, 1.0) if antialias else 1.0
        weights = KERNELS[method](tnp.abs(centres[None, :] - positions[:, None]) / width)
    if repeats_edges:
        before = tnp.sum(weights[:reach], axis=0)
        after = tnp.sum(weights[n + reach :], axis=0)
        weights = weights[reach : n + reach].at[0].add(before).at[n - 1].add(after)
    total = tnp.sum(weights, axis=0, keepdims=True)
    is_some = tnp.abs(total) > 1000.0 * float(np.finfo(np.float32).eps)
    weights = tnp.where(is_some, weights / tnp.where(total != 0, total, 1), 0)
    if repeats_edges:
        return weights
    inside = (centres >= -0.5) & (centres <= n - 0.5)
    return tnp.where(inside[None, :], weights, 0)


def _resampled(
    x: Value,
    shape: Sequence[int],
    axes: Sequence[int],
    scales: Any,
    shifts: Any,
    method: ResizeMethod,
    antialias: bool,
    precision: Any,
) -> Any:
    for i, axis in enumerate(axes):
        weights = _weights(x.shape[axis], shape[axis], scales[i], shifts[i], method, antialias)
        weights = as_dtype(weights, x.dtype)
        x = lax.dot_general(x, weights, (((axis,), (0,)), ((), ())), precision)
        x = tnp.moveaxis(x, -1, axis)
    return x


def _nearest(n: Any, m: Any) -> Any:
    """The positions among ``n`` that are nearest to those among ``m``."""
    if isinstance(n, int) and isinstance(m, int):
        places = (np.arange(m, dtype=np.float32) + np.float32(0.5)) * n / m
        return tnp.asarray(np.floor(places).astype(np.int32))
    old, new = (as_dtype(tnp.asarray(size), np.dtype(np.float32)) for size in (n, m))
    return tnp.floor((tnp.arange(m, dtype=np.float32) + 0.5) * old / new).astype(np.int32)


def _method_of(call: str, method: str | ResizeMethod) -> ResizeMethod:
    if isinstance(method, str):
        return ResizeMethod.from_string(method)
    if isinstance(method, ResizeMethod):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's value
        return method
    msg = f"{call}: method is {method!r} of type {type(method).__name__}"
    raise ArgumentTypeError(msg, expected="a ResizeMethod or the name of one")


def _image_of(call: str, image: ArrayLike, shape: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    x, sizes = tnp.asarray(image), canonical_shape(shape, call)
    if len(sizes) != x.ndim:
        msg = f"{call}: shape is {sizes}, the image has shape {x.shape}"
        raise ShapeMismatchError(msg, expected="one size for each axis of the image")
    return x, sizes


def _inexact(x: Any) -> Any:
    return x if is_inexact(x.dtype) else x.astype(to_inexact(x.dtype))


@remembered
def scale_and_translate(
    image: Any,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = Precision.HIGHEST,
) -> Array:
    """An image scaled, then moved.

    An element at ``x`` of the image comes to ``x * scale + translation``, where the first one
    covers 0 to 1.

    Args:
        image: array.
        shape: shape of the result.
        spatial_dims: the axes that are resampled.
        scale: array of one scale for each of ``spatial_dims``; may be differentiated.
        translation: array of one shift for each of ``spatial_dims``; may be differentiated.
        method: a ``ResizeMethod`` or the name of one, but not ``NEAREST``.
        antialias: smooth before an image gets smaller.
        precision: as in ``dot_general``.

    Returns:
        Array of ``shape``; 0 where it leaves the image.

    Raises:
        ShapeMismatchError: not one size for each axis, or one scale for each spatial axis.
        ArgumentValueError: no such method, or a negative size.
        UnsupportedArgumentError: the method does not weigh elements, or repeats edges.
        ArgumentTypeError: a size is no integer, or the method of another type.

    >>> import tracebridge as tb
    >>> x, one = tb.numpy.array([1.0, 2.0, 3.0]), tb.numpy.ones(1)
    >>> tb.image.scale_and_translate(x, (3,), (0,), one, one, "linear").tolist()
    [0.0, 1.0, 2.0]
    """
    call = "scale_and_translate"
    x, sizes = _image_of(call, image, shape)
    kernel = _method_of(call, method)
    if kernel is ResizeMethod.NEAREST:
        msg = f"{call}: method is {method!r}, expected a method that weighs elements"
        raise UnsupportedArgumentError(msg, hint="resize has the method 'nearest'")
    if kernel is ResizeMethod.CUBIC_PYTORCH:
        msg = f"{call}: method is {method!r}, which repeats the edges of an image"
        raise UnsupportedArgumentError(msg, hint="resize has that method; 'cubic' is the one here")
    scales, shifts = _inexact(tnp.asarray(scale)), _inexact(tnp.asarray(translation))
    axes = [normalize_axis(a, x.ndim, call) for a in spatial_dims]
    if scales.shape != (len(axes),) or shifts.shape != (len(axes),):
        msg = f"{call}: scale has shape {scales.shape}, translation {shifts.shape}"
        raise ShapeMismatchError(msg, expected=f"({len(axes)},), one number per spatial axis")
    precision = tuple(precision) if isinstance(precision, list) else precision
    statics = (sizes, tuple(axes), kernel, bool(antialias), precision)
    return _scale_staged((_inexact(x), scales, shifts), statics)


def _scaled(x: Value, scales: Value, shifts: Value, *statics: Any) -> Any:
    sizes, axes, kernel, antialias, precision = statics
    return _resampled(x, sizes, axes, scales, shifts, kernel, antialias, precision)


_scale_staged = StagedFunction(_scaled, "scale_and_translate")


@remembered
def resize(
    image: Any,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = Precision.HIGHEST,
) -> Array:
    """An image of another size.

    Args:
        image: array.
        shape: shape of the result; axes of the same size stay as they are.
        method: a ``ResizeMethod``, or its name: ``"nearest"``, ``"linear"`` (``"bilinear"``,
            ``"trilinear"``, ``"triangle"``), ``"cubic"`` (``"bicubic"``, ``"tricubic"``),
            ``"cubic-pytorch"``, ``"lanczos3"``, ``"lanczos5"``, ``"area"``.
        antialias: smooth before an image gets smaller.
        precision: as in ``dot_general``.

    Returns:
        Array of ``shape`` and the dtype of ``image``; integers become the default float, but for
        the method ``"nearest"``.

    Raises:
        ShapeMismatchError: not one size for each axis.
        ArgumentValueError: no such method, or a negative size.
        ArgumentTypeError: a size is no integer, or the method of another type.

    >>> import tracebridge as tb
    >>> tb.image.resize(tb.numpy.array([0.0, 4.0]), (4,), "linear").tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    x, sizes = _image_of("resize", image, shape)
    kernel = _method_of("resize", method)
    axes = [i for i, (n, m) in enumerate(zip(x.shape, sizes, strict=True)) if n != m]
    for axis in axes:
        if x.shape[axis] == 0:
            msg = f"resize: shape is {sizes}, but the image has no elements along axis {axis}"
            raise ShapeMismatchError(msg, expected="0 where the image has 0")
    if kernel is ResizeMethod.CUBIC_PYTORCH and antialias:
        kernel = ResizeMethod.CUBIC
    precision = tuple(precision) if isinstance(precision, list) else precision
    return _resize_staged((x,), (sizes, tuple(axes), kernel, bool(antialias), precision))


def _resized(
    x: Value,
    sizes: tuple[int, ...],
    axes: tuple[int, ...],
    kernel: ResizeMethod,
    antialias: bool,
    precision: Any,
) -> Any:
    if kernel is ResizeMethod.NEAREST:
        for axis in axes:
            x = tnp.take(x, _nearest(x.aval.shape[axis], sizes[axis]), axis=axis)
        return x
    x = _inexact(x)
    kind = tnp.finfo(x.aval.dtype).dtype
    kind = np.dtype(np.float32) if kind.itemsize < 4 else kind
    ratios = [sizes[a] / x.aval.shape[a] if sizes[a] else 1.0 for a in axes]
    scales = [as_dtype(tnp.asarray(ratio), kind) for ratio in ratios]
    shifts = [as_dtype(tnp.asarray(0.0), kind)] * len(axes)
    return _resampled(x, sizes, axes, scales, shifts, kernel, antialias, precision)


_resize_staged = StagedFunction(_resized, "resize")
