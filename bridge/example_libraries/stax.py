"""Layers of neural networks as pairs of functions.

A layer is ``(init_fun, apply_fun)``. The first takes a key and the shape of the inputs and gives
the shape of the outputs and the parameters; -1 as the size of the batch stays -1. The second
takes the parameters, the inputs and, where layers draw random numbers, a key as *rng*.

>>> import tracebridge as tb
>>> init, apply = serial(Dense(8), Relu, Dense(2))
>>> shape, params = init(tb.random.key(0), (-1, 3))
>>> shape, apply(params, tb.numpy.ones((5, 3))).shape
((-1, 2), (5, 2))
"""

from __future__ import annotations

import functools

import tracebridge.numpy as tnp
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.example_libraries._combinations import (
    FanInConcat,
    FanInSum,
    FanOut,
    parallel,
    serial,
    shape_dependent,
)
from tracebridge.example_libraries._layers import (
    BatchNorm,
    Dense,
    Dropout,
    Flatten,
    GeneralConv,
    GeneralConvTranspose,
    Identity,
    elementwise,
)
from tracebridge.example_libraries._pooling import AvgPool, MaxPool, SumPool
from tracebridge.nn.activations import elu, gelu, leaky_relu, relu, selu, sigmoid, softplus
from tracebridge.nn.initializers import glorot_normal, normal, ones, zeros
from tracebridge.nn.normalization import log_softmax, softmax, standardize

__all__ = [
    "AvgPool",
    "BatchNorm",
    "Conv",
    "Conv1DTranspose",
    "ConvTranspose",
    "Dense",
    "Dropout",
    "Elu",
    "Exp",
    "FanInConcat",
    "FanInSum",
    "FanOut",
    "Flatten",
    "Gelu",
    "GeneralConv",
    "GeneralConvTranspose",
    "Identity",
    "LeakyRelu",
    "LogSoftmax",
    "MaxPool",
    "Relu",
    "Selu",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "SumPool",
    "Tanh",
    "elementwise",
    "elu",
    "gelu",
    "glorot",
    "glorot_normal",
    "leaky_relu",
    "log_softmax",
    "normal",
    "ones",
    "parallel",
    "randn",
    "relu",
    "selu",
    "serial",
    "shape_dependent",
    "sigmoid",
    "softmax",
    "softplus",
    "standardize",
    "zeros",
]

Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))

# The names that these initializers had at first.
glorot = glorot_normal
randn = normal

Elu = elementwise(elu)
Exp = elementwise(tnp.exp)
Gelu = elementwise(gelu)
LeakyRelu = elementwise(leaky_relu)
LogSoftmax = elementwise(log_softmax, axis=-1)
Relu = elementwise(relu)
Selu = elementwise(selu)
Sigmoid = elementwise(sigmoid)
Softmax = elementwise(softmax, axis=-1)
Softplus = elementwise(softplus)
Tanh = elementwise(tnp.tanh)

_shield(globals(), __name__)
