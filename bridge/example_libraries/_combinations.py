"""Layers made of layers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import tracebridge.numpy as tnp
import tracebridge.random as random
from tracebridge.example_libraries._layers import Layer

__all__ = ["FanInConcat", "FanInSum", "FanOut", "parallel", "serial", "shape_dependent"]


def serial(*layers: Layer) -> Layer:
    """Layer that applies layers one after the other.

    Args:
        *layers: pairs of functions.

    Returns:
        A layer whose parameters are the list of theirs.

    >>> import tracebridge as tb
    >>> from tracebridge.example_libraries import stax
    >>> init, apply = stax.serial(stax.Flatten, stax.Dense(2))
    >>> init(tb.random.key(0), (-1, 4, 4))[0]
    (-1, 2)
    """
    inits = [layer[0] for layer in layers]
    applies = [layer[1] for layer in layers]

    def init_fun(rng: Any, input_shape: Any) -> tuple[Any, Any]:
        params = []
        for init in inits:
            rng, own = random.split(rng)
            input_shape, param = init(own, input_shape)
            params.append(param)
        return input_shape, params

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        keys = _keys(kwargs.pop("rng", None), len(layers))
        for apply, param, key in zip(applies, params, keys, strict=True):
            inputs = apply(param, inputs, rng=key, **kwargs)
        return inputs

    return init_fun, apply_fun


def parallel(*layers: Layer) -> Layer:
    """Layer that applies each of some layers to its own inputs.

    Args:
        *layers: pairs of functions.

    Returns:
        A layer of a sequence of inputs, one for each, with the list of outputs; its parameters
        are the list of theirs.

    >>> import tracebridge as tb
    >>> from tracebridge.example_libraries import stax
    >>> branches = stax.parallel(stax.Dense(2), stax.Identity)
    >>> init, apply = stax.serial(stax.FanOut(2), branches, stax.FanInConcat())
    >>> init(tb.random.key(0), (-1, 3))[0]
    (-1, 5)
    """
    inits = [layer[0] for layer in layers]
    applies = [layer[1] for layer in layers]

    def init_fun(rng: Any, input_shape: Any) -> tuple[Any, Any]:
        keys = random.split(rng, len(layers))
        results = [
            init(key, shape) for init, key, shape in zip(inits, keys, input_shape, strict=True)
        ]
        return [shape for shape, _ in results], [param for _, param in results]

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        keys = _keys(kwargs.pop("rng", None), len(layers))
        return [
            apply(param, x, rng=key, **kwargs)
            for apply, param, x, key in zip(applies, params, inputs, keys, strict=True)
        ]

    return init_fun, apply_fun


def _keys(rng: Any, n: int) -> Sequence[Any]:
    return [None] * n if rng is None else list(random.split(rng, n))


def FanOut(num: int) -> Layer:
    """Layer that repeats its inputs, for `parallel`.

    Args:
        num: how often.

    Returns:
        A layer without parameters.

    >>> from tracebridge.example_libraries.stax import FanOut
    >>> init, apply = FanOut(2)
    >>> apply((), 1.0)
    [1.0, 1.0]
    """

    def init_fun(rng: Any, input_shape: Any) -> tuple[Any, Any]:
        return [input_shape] * num, ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return [inputs] * num

    return init_fun, apply_fun


def _fan_in_sum() -> Layer:
    def init_fun(rng: Any, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return reduce(operator.add, inputs)

    return init_fun, apply_fun


FanInSum = _fan_in_sum()
"""Layer that adds the outputs of `parallel`."""


def FanInConcat(axis: int = -1) -> Layer:
    """Layer that joins the outputs of `parallel`.

    Args:
        axis: along which.

    Returns:
        A layer without parameters.

    >>> from tracebridge.example_libraries.stax import FanInConcat
    >>> import tracebridge.numpy as tnp
    >>> init, apply = FanInConcat()
    >>> apply((), [tnp.ones(2), tnp.zeros(1)]).tolist()
    [1.0, 1.0, 0.0]
    """

    def init_fun(rng: Any, input_shape: Any) -> tuple[Any, Any]:
        shape = list(input_shape[0])
        shape[axis] = sum(one[axis] for one in input_shape)
        return tuple(shape), ()

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return tnp.concatenate(inputs, axis)

    return init_fun, apply_fun


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """Layer that is made when the shape of the inputs is known.

    Args:
        make_layer: from the shape of the inputs to a layer.

    Returns:
        That layer.

    >>> import tracebridge as tb
    >>> from tracebridge.example_libraries import stax
    >>> init, apply = stax.shape_dependent(lambda shape: stax.Dense(2 * shape[-1]))
    >>> init(tb.random.key(0), (-1, 3))[0]
    (-1, 6)
    """

    def init_fun(rng: Any, input_shape: Any) -> tuple[Any, Any]:
        return make_layer(input_shape)[0](rng, input_shape)

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        shape = [x.shape for x in inputs] if isinstance(inputs, (tuple, list)) else inputs.shape
        return make_layer(shape)[1](params, inputs, **kwargs)

    return init_fun, apply_fun
