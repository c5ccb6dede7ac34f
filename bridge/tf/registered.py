"""Gradients that TensorFlow registers for graphs end with their graphs.

``tf.custom_gradient`` registers a function for each operation that it makes in a graph, by a name,
and nobody takes it out again: it holds the tensors, and with them the graph, to the end of the
process. ``tape.jacobian`` and ``tf.vectorized_map`` make a graph at each eager call. Here the graph
holds the function, and the registry a name that leads there. The one place that uses how the
registry is built.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_HELD = "_tracebridge_gradients"


def _table() -> dict[str, Any] | None:
    """TensorFlow's rows by name of the gradient; None if it keeps them in another way."""
    try:
        found = importlib.import_module("tensorflow.python.framework.ops").gradient_registry
        table: Any = found._registry
    except (ImportError, AttributeError):
        return None
    return table if isinstance(table, dict) else None


_TABLE = _table()


def end_with_graph(operation: Any) -> None:
    """Let the gradient that is registered for ``operation`` live as long as its graph."""
    if _TABLE is None:
        return
    name = operation.get_attr("_gradient_op_type").decode()
    row = _TABLE.get(name)
    if not isinstance(row, dict) or "type" not in row:
        return
    graph = operation.graph
    held: dict[str, Callable[..., Any]] | None = getattr(graph, _HELD, None)
    if held is None:
        held = {}
        setattr(graph, _HELD, held)
    held[name] = row["type"]
    _TABLE[name] = {**row, "type": _leading_to(weakref.ref(graph), name)}
    weakref.finalize(graph, _TABLE.pop, name, None).atexit = False


def _leading_to(graph: weakref.ref[Any], name: str) -> Callable[..., Any]:
    """The function that looks for the gradient ``name`` in its graph."""

    @tf.autograph.experimental.do_not_convert  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
    def gradient(operation: Any, *cotangents: Any) -> Any:
        return getattr(graph(), _HELD)[name](operation, *cotangents)

    return gradient
