"""Layers that take the largest, the sum or the mean of each window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tracebridge.example_libraries._layers import Layer

__all__ = ["AvgPool", "MaxPool", "SumPool"]

Reduce = Callable[[Any, tuple[int, ...], tuple[int, ...], Any], Any]


def MaxPool(
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    spec: str | None = None,
) -> Layer:
    """Layer that takes the largest element of each window.

    Args:
        window_shape: sizes of the windows along the axes of space.
        strides: steps between windows; 1 if None.
        padding: ``"VALID"``, ``"SAME"``, or pairs of numbers for all axes.
        spec: meaning of the axes, such as ``"NHWC"``, which is what None means.

    Returns:
        A layer without parameters.

    >>> from tracebridge.example_libraries.stax import MaxPool
    >>> import tracebridge.numpy as tnp
    >>> init, apply = MaxPool((2,), (2,))
    >>> apply((), tnp.arange(4.0).reshape(1, 4, 1)).ravel().tolist()
    [1.0, 3.0]
    """

    def largest(x: Any, sizes: Any, steps: Any, padding: Any) -> Any:
        return lax.reduce_window(x, -tnp.inf, lax.max, sizes, steps, padding)

    return _pooling(largest, window_shape, strides, padding, spec)


def SumPool(
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    spec: str | None = None,
) -> Layer:
    """Layer that takes the sum of each window, arguments as in `MaxPool`.

    Args:
        window_shape: sizes of the windows along the axes of space.
        strides: steps between windows; 1 if None.
        padding: ``"VALID"``, ``"SAME"``, or pairs of numbers for all axes.
        spec: meaning of the axes.

    Returns:
        A layer without parameters.

    >>> from tracebridge.example_libraries.stax import SumPool
    >>> import tracebridge.numpy as tnp
    >>> init, apply = SumPool((2,), (2,))
    >>> apply((), tnp.arange(4.0).reshape(1, 4, 1)).ravel().tolist()
    [1.0, 5.0]
    """
    return _pooling(_sums, window_shape, strides, padding, spec)


def AvgPool(
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    spec: str | None = None,
) -> Layer:
    """Layer that takes the mean of each window, without its padding; arguments as in `MaxPool`.

    Args:
        window_shape: sizes of the windows along the axes of space.
        strides: steps between windows; 1 if None.
        padding: ``"VALID"``, ``"SAME"``, or pairs of numbers for all axes.
        spec: meaning of the axes.

    Returns:
        A layer without parameters.

    >>> from tracebridge.example_libraries.stax import AvgPool
    >>> import tracebridge.numpy as tnp
    >>> init, apply = AvgPool((2,), (2,), "SAME")
    >>> apply((), tnp.arange(3.0).reshape(1, 3, 1)).ravel().tolist()
    [0.5, 2.0]
    """

    def means(x: Any, sizes: Any, steps: Any, padding: Any) -> Any:
        counts = _sums(tnp.ones_like(x), sizes, steps, padding)
        return _sums(x, sizes, steps, padding) / counts

    return _pooling(means, window_shape, strides, padding, spec)


def _sums(x: Any, sizes: Any, steps: Any, padding: Any) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, sizes, steps, padding)


def _pooling(
    reduce: Reduce,
    window_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: Any,
    spec: str | None,
) -> Layer:
    n = len(window_shape)
    axes = spec or "N" + "H" * n + "C"
    sizes = _all_axes(window_shape, axes)
    steps = _all_axes(strides or (1,) * n, axes)

    def init_fun(rng: Any, input_shape: Sequence[int]) -> tuple[Any, Any]:
        ones = (1,) * len(sizes)
        pads = lax.padtype_to_pads(input_shape, sizes, steps, padding)
        shape = lax.reduce_window_shape_tuple(input_shape, sizes, steps, pads, ones, ones)
        # An open size of the batch stays open: windows do not reach along N and C.
        both = zip(axes, input_shape, shape, strict=True)
        return tuple(size if axis in "NC" else new for axis, size, new in both), ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return reduce(inputs, sizes, steps, padding)

    return init_fun, apply_fun


def _all_axes(numbers: Sequence[int], axes: str) -> tuple[int, ...]:
    """The numbers of the axes of space, and 1 for batch and channels."""
    left = iter(numbers)
    return tuple(1 if axis in "NC" else next(left) for axis in axes)
