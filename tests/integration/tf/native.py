"""What the tests of ``native_ops`` share."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.dtypes import dtypes as d


def native(fun: Any, **options: Any) -> Any:
    """``fun`` of tensors, in TensorFlow's own operations."""
    return tb.tf.to_tf(fun, native_ops=True, **options)


def tensors(tree: Any) -> Any:
    """The arrays of a tree as tensors of TensorFlow; Python numbers as they are."""
    return tb.tree.map(lambda x: tf.constant(x) if isinstance(x, np.ndarray) else x, tree)


def wide(x: Any) -> Any:
    """An array in the widest dtype of its kind."""
    x = np.asarray(x)
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x.astype(np.float64) if d.is_float(x.dtype) else x


def same(actual: Any, expected: Any, tolerance: float) -> None:
    """Two trees are equal, floats within a tolerance."""
    left, right = tb.tree.leaves(actual), tb.tree.leaves(expected)
    assert len(left) == len(right)
    for a, e in zip(left, right, strict=True):
        a, e = np.asarray(a), np.asarray(e)  # noqa: PLW2901 - as arrays
        assert a.dtype == e.dtype
        np.testing.assert_allclose(wide(a), wide(e), rtol=tolerance, atol=tolerance)


def operations(graph: Any) -> set[str]:
    """The types of all operations of a graph and of the functions that it calls."""
    found = {node.op for node in graph.as_graph_def().node}
    for function in graph.as_graph_def().library.function:
        found |= {node.op for node in function.node_def}
    return found


def network(p: Any, x: Any) -> Any:
    """A small network with a convolution, pooling, a loop and a softmax."""
    h = lax.conv_general_dilated(
        x, p["k"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    h = lax.reduce_window(tb.nn.relu(h), -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    h = lax.fori_loop(0, 2, lambda _, c: tnp.tanh(c), h.reshape(x.shape[0], -1))
    return tb.nn.softmax(h @ p["w"] + p["b"])


def network_args(batch: int) -> Any:
    rng = np.random.default_rng(5)
    shapes = {"k": (3, 3, 2, 3), "w": (12, 4), "b": (4,)}
    params = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    return params, rng.standard_normal((batch, 4, 4, 2)).astype(np.float32)
