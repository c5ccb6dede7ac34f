"""Functions of TensorFlow that ``call_tf`` put into a program: their own operations again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tracebridge.tf._foreign.functions import TensorFlowFunction
from tracebridge.tf._native.builder import Builder, Tensor, rule


@rule("foreign_call", "foreign_tangent")
def _foreign(b: Builder, *xs: Tensor, callback: object, **_: object) -> Any:
    if not isinstance(callback, TensorFlowFunction):
        return NotImplemented
    if any([isinstance(slot, tf.Variable) for slot in callback.slots]):
        return NotImplemented  # operands are values for variables, which graphs cannot swap
    return [tf.convert_to_tensor(y) for y in callback.call(*callback.tensors_of(xs))]
