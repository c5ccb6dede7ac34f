"""Single layers: dense, convolutions, normalisation, dropout, functions of elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.lax as lax
import tracebridge.numpy as tnp
import tracebridge.random as random
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.nn.initializers import glorot_normal, normal, ones, zeros
from tracebridge.nn.normalization import standardize

__all__ = [
    "BatchNorm",
    "Dense",
    "Dropout",
    "Flatten",
    "GeneralConv",
    "GeneralConvTranspose",
    "Identity",
    "Layer",
    "elementwise",
]

Shape = Sequence[int]
Layer = tuple[Callable[..., Any], Callable[..., Any]]
"""`init_fun` and `apply_fun`."""


def Dense(out_dim: int, W_init: Any = None, b_init: Any = None) -> Layer:
    """Layer that multiplies by a matrix and adds a vector.

    Args:
        out_dim: size of the last axis of the outputs.
        W_init: initializer of the matrix; `nn.initializers.glorot_normal` if None.
        b_init: initializer of the vector; `nn.initializers.normal` if None.

    Returns:
        A layer for inputs of shape ``(*batch, n)``, with the parameters ``(W, b)``.

    >>> from tracebridge.example_libraries.stax import Dense
    >>> import tracebridge as tb
    >>> init, apply = Dense(2)
    >>> shape, params = init(tb.random.key(0), (-1, 3))
    >>> apply(params, tb.numpy.ones((4, 3))).shape
    (4, 2)
    """
    W_init, b_init = W_init or glorot_normal(), b_init or normal()

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
        k1, k2 = random.split(rng)
        output_shape = (*input_shape[:-1], out_dim)
        return output_shape, (W_init(k1, (input_shape[-1], out_dim)), b_init(k2, (out_dim,)))

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        return tnp.dot(inputs, W) + b

    return init_fun, apply_fun


def GeneralConv(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Shape,
    strides: Shape | None = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = None,
) -> Layer:
    """Layer that convolves and adds a number for each channel.

    Args:
        dimension_numbers: meaning of the axes of inputs, filters and outputs, such as
            ``("NHWC", "HWIO", "NHWC")``.
        out_chan: number of channels of the outputs.
        filter_shape: sizes of the filters along the axes of space.
        strides: steps of the filters along them; 1 if None.
        padding: ``"VALID"``, ``"SAME"``, or pairs of numbers as in `lax.conv_general_dilated`.
        W_init: initializer of the filters; `nn.initializers.glorot_normal` if None.
        b_init: initializer of the numbers; ``nn.initializers.normal(1e-6)`` if None.

    Returns:
        A layer with the parameters ``(W, b)``.

    >>> from tracebridge.example_libraries.stax import GeneralConv
    >>> import tracebridge as tb
    >>> init, apply = GeneralConv(("NHWC", "HWIO", "NHWC"), 4, (3, 3), padding="SAME")
    >>> init(tb.random.key(0), (-1, 8, 8, 2))[0]
    (-1, 8, 8, 4)
    """
    strides = strides or (1,) * len(filter_shape)

    def shape_of(input_shape: Shape, kernel_shape: Shape) -> Any:
        return lax.conv_general_shape_tuple(
            input_shape, kernel_shape, strides, padding, dimension_numbers
        )

    def convolve(inputs: Any, W: Any) -> Any:
        return lax.conv_general_dilated(
            inputs, W, strides, padding, dimension_numbers=dimension_numbers
        )

    return _convolution(
        dimension_numbers, out_chan, filter_shape, W_init, b_init, shape_of, convolve
    )


def GeneralConvTranspose(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Shape,
    strides: Shape | None = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = None,
) -> Layer:
    """Layer that makes larger arrays by a transposed convolution, arguments as in `GeneralConv`.

    Args:
        dimension_numbers: meaning of the axes.
        out_chan: number of channels of the outputs.
        filter_shape: sizes of the filters along the axes of space.
        strides: by how much the outputs are larger than the inputs; 1 if None.
        padding: of the convolution that it is the transpose of.
        W_init: initializer of the filters.
        b_init: initializer of the numbers.

    Returns:
        A layer with the parameters ``(W, b)``.

    >>> from tracebridge.example_libraries.stax import GeneralConvTranspose
    >>> import tracebridge as tb
    >>> numbers = ("NHWC", "HWIO", "NHWC")
    >>> init, apply = GeneralConvTranspose(numbers, 4, (2, 2), (2, 2))
    >>> init(tb.random.key(0), (-1, 8, 8, 2))[0]
    (-1, 16, 16, 4)
    """
    strides = strides or (1,) * len(filter_shape)

    def shape_of(input_shape: Shape, kernel_shape: Shape) -> Any:
        return lax.conv_transpose_shape_tuple(
            input_shape, kernel_shape, strides, padding, dimension_numbers
        )

    def convolve(inputs: Any, W: Any) -> Any:
        return lax.conv_transpose(inputs, W, strides, padding, dimension_numbers=dimension_numbers)

    return _convolution(
        dimension_numbers, out_chan, filter_shape, W_init, b_init, shape_of, convolve
    )


def _convolution(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Shape,
    W_init: Any,
    b_init: Any,
    shape_of: Callable[..., Any],
    convolve: Callable[..., Any],
) -> Layer:
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    W_init = W_init or glorot_normal(rhs_spec.index("I"), rhs_spec.index("O"))
    b_init = b_init or normal(1e-6)
    bias_shape = [out_chan if axis == "C" else 1 for axis in out_spec]

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
        sizes = iter(filter_shape)
        channels = {"O": out_chan, "I": input_shape[lhs_spec.index("C")]}
        kernel_shape = [channels[a] if a in channels else next(sizes) for a in rhs_spec]
        k1, k2 = random.split(rng)
        params = W_init(k1, kernel_shape), b_init(k2, bias_shape)
        return tuple(shape_of(input_shape, kernel_shape)), params

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        return convolve(inputs, W) + b

    return init_fun, apply_fun


def BatchNorm(
    axis: int | Sequence[int] = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Any = zeros,
    gamma_init: Any = ones,
) -> Layer:
    """Layer that standardizes over a batch, then scales and shifts by learnt numbers.

    Args:
        axis: the axes over which mean and variance are taken.
        epsilon: is added to the variance.
        center: whether it shifts.
        scale: whether it scales.
        beta_init: initializer of what is added.
        gamma_init: initializer of the factors.

    Returns:
        A layer with the parameters ``(beta, gamma)``; what is not used is ``()``.

    >>> from tracebridge.example_libraries.stax import BatchNorm
    >>> import tracebridge as tb
    >>> init, apply = BatchNorm(axis=0)
    >>> _, params = init(tb.random.key(0), (-1, 1))
    >>> apply(params, tb.numpy.array([[1.0], [3.0]])).round(2).tolist()
    [[-1.0], [1.0]]
    """
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
        shape = tuple(size for i, size in enumerate(input_shape) if i not in axes)
        k1, k2 = random.split(rng)
        beta = beta_init(k1, shape) if center else ()
        gamma = gamma_init(k2, shape) if scale else ()
        return input_shape, (beta, gamma)

    def apply_fun(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        kept = tuple(None if i in axes else slice(None) for i in range(tnp.ndim(x)))
        out = standardize(x, axes, epsilon=epsilon)
        out = gamma[kept] * out if scale else out
        return out + beta[kept] if center else out

    return init_fun, apply_fun


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """Layer that applies a function which keeps shapes; it has no parameters.

    Args:
        fun: a function of an array.
        **fun_kwargs: more arguments of it.

    Returns:
        A layer.

    >>> from tracebridge.example_libraries.stax import elementwise
    >>> import tracebridge.numpy as tnp
    >>> init, apply = elementwise(tnp.exp)
    >>> apply((), tnp.zeros(2)).tolist()
    [1.0, 1.0]
    """

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
        return input_shape, ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return fun(inputs, **fun_kwargs)

    return init_fun, apply_fun


def _flatten() -> Layer:
    def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
        return (input_shape[0], math.prod(input_shape[1:])), ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return tnp.reshape(inputs, (inputs.shape[0], -1))

    return init_fun, apply_fun


Flatten = _flatten()
"""Layer that makes a matrix of a batch of arrays."""

Identity = elementwise(lambda x: x)
"""Layer that gives what it gets."""


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Layer that sets random elements to 0 and divides the others by the probability to stay.

    Args:
        rate: the probability that an element *stays*.
        mode: ``"train"``; in any other one, such as ``"test"``, it does nothing.

    Returns:
        A layer without parameters, whose `apply_fun` needs the argument *rng*.

    Raises:
        ArgumentValueError: by `apply_fun`: there is no *rng*.

    >>> from tracebridge.example_libraries.stax import Dropout
    >>> import tracebridge as tb
    >>> init, apply = Dropout(0.5)
    >>> sorted(set(apply((), tb.numpy.ones(20), rng=tb.random.key(0)).tolist()))
    [0.0, 2.0]
    """

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
        return input_shape, ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rng = kwargs.get("rng")
        if rng is None:
            msg = (
                "Dropout: apply_fun needs a key\n"
                "    way out: apply_fun(params, inputs, rng=key), of the outermost layer"
            )
            raise ArgumentValueError(msg)
        if mode != "train":
            return inputs
        keep = random.bernoulli(rng, rate, inputs.shape)
        return tnp.where(keep, inputs / rate, 0)

    return init_fun, apply_fun
