"""Arguments and results by the rules of ``jit``, with names that graphs show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tracebridge.core.config.values import option

_NARROW = {
    tf.float64: tf.float32,
    tf.int64: tf.int32,
    tf.uint64: tf.uint32,
    tf.complex128: tf.complex64,
}


def narrow(dtype: tf.DType) -> tf.DType:
    """The dtype of arrays made of tensors of a dtype: 64 bits are an option."""
    return dtype if option("enable_x64") else _NARROW.get(dtype, dtype)


def as_arguments(tensors: Sequence[Any]) -> list[Any]:
    """Tensors as arguments of ``jit``. Those of graphs have names, by which consumers find them."""
    found: list[Any] = []
    in_graph = not tf.executing_eagerly()
    for i, x in enumerate(tensors):
        wanted = narrow(x.dtype)
        y = x if wanted == x.dtype else tf.cast(x, wanted)
        found.append(tf.identity(y, f"jax2tf_arg_{i}") if in_graph else y)
    return found


def as_results(tensors: Sequence[Any]) -> list[Any]:
    """Tensors as results, likewise."""
    if tf.executing_eagerly():
        return list(tensors)
    return [tf.identity(x, "jax2tf_out") for x in tensors]
