"""Optimizers of trees of arrays, each as three functions: begin, step, read the parameters.

>>> import tracebridge as tb
>>> begin, step, parameters = sgd(0.5)
>>> state = begin({"w": tb.numpy.array([1.0, 2.0])})
>>> state = step(0, {"w": tb.numpy.array([2.0, 0.0])}, state)
>>> parameters(state)["w"].tolist()
[0.0, 2.0]
"""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.example_libraries._optimizer_state import (
    JoinPoint,
    Optimizer,
    OptimizerState,
    optimizer,
    pack_optimizer_state,
    unpack_optimizer_state,
)
from tracebridge.example_libraries._schedules import (
    Schedule,
    constant,
    exponential_decay,
    inverse_time_decay,
    make_schedule,
    piecewise_constant,
    polynomial_decay,
)
from tracebridge.example_libraries._steps import (
    adagrad,
    adam,
    adamax,
    clip_grads,
    l2_norm,
    momentum,
    nesterov,
    rmsprop,
    rmsprop_momentum,
    sgd,
    sm3,
)

__all__ = [
    "JoinPoint",
    "Optimizer",
    "OptimizerState",
    "Schedule",
    "adagrad",
    "adam",
    "adamax",
    "clip_grads",
    "constant",
    "exponential_decay",
    "inverse_time_decay",
    "l2_norm",
    "make_schedule",
    "momentum",
    "nesterov",
    "optimizer",
    "pack_optimizer_state",
    "piecewise_constant",
    "polynomial_decay",
    "rmsprop",
    "rmsprop_momentum",
    "sgd",
    "sm3",
    "unpack_optimizer_state",
]

_shield(globals(), __name__)
