"""Where TensorFlow's tensors and traced values meet by mistake, the message says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.tf import to_tf

T = tf.ones(3)
V = tf.Variable([1.0, 2.0, 3.0])
X = tnp.ones(3)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sin": tf.sin,
    "relu": tf.nn.relu,
    "constant": tf.constant,
    "stack": lambda x: tf.stack([x, x]),
    "reflected operator": lambda x: T + x,
    "variable": lambda x: V * x,
}
TENSORS: dict[str, Callable[[], Any]] = {
    "jit": lambda: tb.jit(lambda x: x)(T),
    "grad": lambda: tb.grad(lambda x: x.sum())(V),
    "sin": lambda: tnp.sin(T),
    "variable": lambda: tnp.sin(V),
    "closed over": lambda: tb.jit(lambda x: x * V)(X),
    "closed over in to_tf": lambda: to_tf(lambda x: tnp.maximum(x, T))(T),
    "symbolic": lambda: tf.function(lambda q: tb.jit(lambda x: x)(q), autograph=False)(T),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_tensorflow_on_traced_values(name: str) -> None:
    """The error says who asks, and where to look."""
    with pytest.raises(tb.errors.TracerArrayConversionError, match="TensorFlow works on") as caught:
        tb.jit(FUNCTIONS[name])(X)

    for word in (
        "tf.call_tf",
        "tracebridge.numpy",
        "as arguments",
        "a traced value of type f32[3]",
    ):
        assert word in str(caught.value)


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_where_arrays_are_expected(name: str) -> None:
    """The error names both ways over the border."""
    with pytest.raises(tb.errors.UnsupportedDtypeError) as caught:
        TENSORS[name]()

    for word in ("tracebridge.tf.to_tf", "tracebridge.numpy.asarray", "as an argument"):
        assert word in str(caught.value)
